"""Writes become values without a second trace where it is plain who sees them; elsewhere torch traces again. Either way, eager's answers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import export
from torch.export import graph_signature as gs

from sealift.frontend.exported import from_export
from sealift.frontend.functionalize import functionalize
from sealift.ir.graph.interpret import interpret
from sealift.ops import OPS
from sealift.ops.families import FAMILIES
from sealift.ops.lang import Builder, whole

NAIVE = {n: f.naive for n, f in FAMILIES.items()}
Forward = Callable[["Cache", torch.Tensor, torch.Tensor], Any]


class Cache(nn.Module):
    """A model with two buffers, one of them a counter, and a function of them as its forward."""

    def __init__(self, body: Forward) -> None:
        super().__init__()
        self.register_buffer("kept", torch.arange(12.0).reshape(3, 4))
        self.register_buffer("count", torch.zeros(1))
        self.layer = nn.Linear(4, 4)
        self.body = body

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> Any:
        return self.body(self, x, at)


def cache(m: Cache, x: torch.Tensor, at: torch.Tensor) -> Any:
    m.kept.index_copy_(0, at, m.layer(x))
    return m.kept.sum(-1)


def old_and_new(m: Cache, x: torch.Tensor, at: torch.Tensor) -> Any:
    old = m.kept * 2
    m.kept.index_copy_(0, at, x)
    first = m.kept + 1
    m.kept.mul_(0.5)
    return old, first, m.kept.sum(), m.kept


def counter(m: Cache, x: torch.Tensor, at: torch.Tensor) -> Any:
    m.count.add_(1)
    m.kept.copy_(m.kept + m.count)
    return m.kept[at] + x


def activation(m: Cache, x: torch.Tensor, at: torch.Tensor) -> Any:
    y = torch.relu_(m.layer(x))
    return y, y.add_(x)


def argument(m: Cache, x: torch.Tensor, at: torch.Tensor) -> Any:
    x.mul_(2)
    return x + 1


def new_view(m: Cache, x: torch.Tensor, at: torch.Tensor) -> Any:
    m.kept.add_(1)
    return m.kept.T.reshape(-1) * 2


def handed_through(m: Cache, x: torch.Tensor, at: torch.Tensor) -> Any:
    same = nn.functional.dropout(x, 0.5, training=False)  # x itself
    x.add_(1)
    return same * 2


PLAIN: tuple[Forward, ...] = (cache, old_and_new, counter, activation, argument, new_view, handed_through)


def old_view(m: Cache, x: torch.Tensor, at: torch.Tensor) -> Any:
    first = m.kept[0]
    m.kept.add_(1)
    return first * 2


def into_view(m: Cache, x: torch.Tensor, at: torch.Tensor) -> Any:
    m.kept[1].add_(1)
    return m.kept * 2


def returned_view(m: Cache, x: torch.Tensor, at: torch.Tensor) -> Any:
    line = m.kept.view(-1)
    m.kept.add_(1)
    return line


UNPLAIN: tuple[Forward, ...] = (old_view, into_view, returned_view)


def program(body: Forward) -> tuple[Cache, tuple[torch.Tensor, torch.Tensor], Any]:
    torch.manual_seed(0)
    module, arguments = Cache(body).eval(), (torch.randn(2, 4), torch.tensor([2, 0]))
    return module, arguments, export(copy.deepcopy(module), tuple(a.clone() for a in arguments))


@pytest.mark.parametrize("body", (*PLAIN, *UNPLAIN), ids=lambda f: f.__name__)
def test_eager_and_the_graph_agree(body: Forward) -> None:
    module, arguments, exported = program(body)
    with torch.no_grad():
        wanted = module(*(a.clone() for a in arguments))
    found = from_export(exported, "m", OPS)
    given = {v.name: a.numpy() for v, a in zip(found.graph.inputs, arguments, strict=True)}
    got = interpret(found.graph, given, {k: w.array for k, w in found.weights.items()}, Builder, whole, NAIVE)
    for g, w in zip(got, wanted if isinstance(wanted, tuple) else (wanted,), strict=False):
        np.testing.assert_allclose(g, w.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("body", PLAIN, ids=lambda f: f.__name__)
def test_plain_writes_are_rewritten_as_torch_does(body: Forward) -> None:
    _, _, exported = program(body)
    own, theirs = functionalize(exported), exported.run_decompositions({})
    assert own is not None
    assert not [n for n in own.graph.nodes if n.op == "call_function" and n.target._schema.is_mutable]
    assert _updates(own.graph_signature) == _updates(theirs.graph_signature)


def _updates(signature: gs.ExportGraphSignature) -> list[tuple[Any, Any]]:
    return [(s.kind, s.target if s.kind is not gs.OutputKind.USER_OUTPUT else None) for s in signature.output_specs]


@pytest.mark.parametrize("body", UNPLAIN, ids=lambda f: f.__name__)
def test_other_writes_are_left_to_torch(body: Forward) -> None:
    assert functionalize(program(body)[2]) is None


def test_buffers_that_share_memory_are_left_to_torch() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            whole = torch.zeros(2, 4)
            self.register_buffer("all", whole)
            self.register_buffer("first", whole[0])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.first.add_(x)
            return self.all.sum(0)

    assert functionalize(export(Tied(), (torch.ones(4),))) is None

"""torch.export's way to the graphs of tests/expect/graphs: the same operators with the same types."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim

from sealift.frontend import export_module, from_export
from sealift.ir.graph.types import Graph
from sealift.ops import OPS
from tests.expect.models import read_graph


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.relu = torch.nn.Linear(10, 16), torch.nn.ReLU()
        self.fc2, self.sigmoid = torch.nn.Linear(16, 1), torch.nn.Sigmoid()

    def forward(self, x: torch.Tensor) -> Any:
        x = self.relu(self.fc1(x))
        return self.sigmoid(self.fc2(x))


class Block(torch.nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, 2, 8).permute(2, 0, 3, 1, 4)
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        x = x + self.proj(a.transpose(1, 2).reshape(b, n, d))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class Mixed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(9, 6)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> Any:
        e = self.table(ids)
        z = torch.cat([x, e.to(torch.float64)], 1)
        w = (z - z.amax(-1, keepdim=True)).exp()
        best = z.argmax(1).to(torch.int32) + ids.to(torch.int32)
        return w / w.sum(-1, keepdim=True), (z > 0).sum(0), best, e.bfloat16().t() * 2


def exported(name: str) -> Graph:
    if name == "mlp":
        program = export_module(Mlp(), (torch.randn(8, 10),), None, {"x": {0: Dim("batch", min=1, max=1024)}})
    elif name == "block":
        sizes = {0: Dim("batch", min=1, max=64), 1: Dim("seq", min=1, max=128)}
        program = export_module(Block(), (torch.randn(2, 5, 16), torch.ones(2, 5, dtype=torch.bool)), None, {"x": sizes, "mask": sizes})
    else:
        n = Dim("n", min=0, max=64)
        args = (torch.randn(4, 3, dtype=torch.float64), torch.arange(4))
        program = export_module(Mixed(), args, None, {"x": {0: n}, "ids": {0: n}})
    return from_export(program, name, OPS).graph


def shape_of(graph: Graph) -> list[Any]:
    """Everything but names and places."""
    return [
        graph.sizes,
        [v.type for v in graph.inputs],
        sorted((c.fqn, str(c.value.type), c.kind) for c in graph.constants),
        *((n.op.name, [v.type for v in n.inputs], [v.type for v in n.outputs]) for n in graph.nodes),
    ]


@pytest.mark.parametrize("name", ["mlp", "block", "mixed"])
def test_export_gives_the_golden_graph(name: str) -> None:
    assert sorted(map(str, shape_of(exported(name)))) == sorted(map(str, shape_of(read_graph(name))))

"""Recurrent models, models that gather, and a rotary one in complex numbers, against eager by the rule of cases.error_ratio, at every size that they try."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._higher_order_ops.scan import scan

import sealift
from sealift.frontend import export_module
from tests.models.cases import ModelCase, error_ratio, in_float64, outputs_of
from tests.models.recurrent import LARGE, SMALL
from tests.models.rotary import SMALL as ROTARY

SEEN = [*SMALL, *ROTARY, *(pytest.param(case, marks=pytest.mark.slow) for case in LARGE)]


@pytest.mark.parametrize("case", SEEN, ids=lambda case: case.name)
def test_against_eager(case: ModelCase, tmp_path: Path) -> None:
    module, inputs, dynamic = case.build()
    path = sealift.compile(export_module(module, inputs[0], dynamic_shapes=dynamic), tmp_path / "model.pt2")
    models = [sealift.load(path, num_threads=n) for n in (1, 2)]
    double = copy.deepcopy(module).double()
    for arguments in inputs:
        with torch.no_grad():
            eager = [t.numpy() for t in outputs_of(module(*arguments))]
        exact = in_float64(double, arguments)
        got, again = ([np.asarray(t) for t in outputs_of(model(*arguments))] for model in models)
        for position, (y, other, e, x) in enumerate(zip(got, again, eager, exact, strict=True)):
            where = f"{case.name}, output {position} at {[tuple(a.shape) for a in arguments]}"
            assert y.shape == e.shape and y.dtype == e.dtype, where
            assert error_ratio(y, e, x) <= 1, where
            assert y.tobytes() == other.tobytes(), f"{where}: threads change bits"
            assert y.size < 2 or np.ptp(y) > 0 or not np.ptp(e) > 0, where


def test_an_index_out_of_range_is_named_as_given(tmp_path: Path) -> None:
    module, inputs, dynamic = next(case for case in SMALL if case.name == "dlrm").build()
    model = sealift.load(sealift.compile(export_module(module, inputs[0], dynamic_shapes=dynamic), tmp_path / "model.pt2"))
    dense, indices, offsets = inputs[0]
    for wrong in (-7, 50, 1 << 40):
        changed = indices.clone()
        changed[2, 0] = wrong
        with pytest.raises(sealift.SealiftError, match=rf"E-RUN-001.*index {wrong} is out of range for a dimension of size 50.*recurrent.py"):
            model(dense, changed, offsets)
    model(dense, indices, offsets)


def test_a_position_that_may_not_be_negative_is_named_as_given(tmp_path: Path) -> None:
    class Words(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(10, 4)

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return self.table(words)

    model = sealift.load(sealift.compile(export_module(Words().eval(), (torch.tensor([1, 2]),)), tmp_path / "model.pt2"))
    for wrong in (-1, 10):
        with pytest.raises(sealift.SealiftError, match=rf"index {wrong} is out of range for a dimension of size 10"):
            model(torch.tensor([3, wrong]))


def test_only_the_branch_taken_runs(tmp_path: Path) -> None:
    """The other one would fail: its index is out of range."""

    class Lookup(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(10, 4)

        def forward(self, known: torch.Tensor, word: torch.Tensor) -> torch.Tensor:
            return torch.cond(known, lambda w: self.table(w), lambda w: w[:, None].expand(-1, 4) * 1.0, (word,))

    example = torch.tensor(True), torch.tensor([3, 4])
    model = sealift.load(sealift.compile(export_module(Lookup().eval(), example), tmp_path / "model.pt2"))
    assert torch.equal(torch.as_tensor(model(torch.tensor(False), torch.tensor([77, 4]))), torch.tensor([[77.0] * 4, [4.0] * 4]))
    with pytest.raises(sealift.SealiftError, match="index 77 is out of range for a dimension of size 10"):
        model(torch.tensor(True), torch.tensor([77, 4]))
    model(torch.tensor(True), torch.tensor([7, 4]))


def _refused(module: torch.nn.Module, arguments: tuple[torch.Tensor, ...], dynamic: object = None) -> str:
    with pytest.raises(sealift.CompileError) as error:
        sealift.compile(export_module(module.eval(), arguments, dynamic_shapes=dynamic), "never.pt2")
    return str(error.value)


def test_what_control_flow_cannot_do_is_said_with_the_line() -> None:
    class Scan(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def add(carry: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                return carry + row, carry * 2

            return scan(add, torch.zeros(4), x)[1]  # the line

    text = _refused(Scan(), (torch.randn(3, 4),))
    assert "E-OP-001" in text and "scan" in text and "test_recurrent.py" in text

    class MissingInside(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: torch.linalg.svdvals(x), lambda x: x[0] * 1.0, (x,))

    text = _refused(MissingInside(), (torch.randn(4, 4),))
    assert "E-OP-001" in text and "svd" in text and "test_recurrent.py" in text


def test_recurrent_layers_say_what_they_cannot_do() -> None:
    layer = torch.nn.LSTM(4, 4).double()
    text = _refused(layer, (torch.randn(3, 2, 4, dtype=torch.float64),))
    assert "E-OP-002" in text and "only float32" in text and "layer.float()" in text
    assert "hx=[%zeros, %zeros2]" in text and "Value(" not in text  # as the graph is printed

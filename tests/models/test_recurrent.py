"""Recurrent models and models that gather, against eager by the rule of cases.error_ratio, at every size that they try."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import sealift
from sealift.frontend import export_module
from tests.models.cases import ModelCase, error_ratio, in_float64, outputs_of
from tests.models.recurrent import LARGE, SMALL

SEEN = [*SMALL, *(pytest.param(case, marks=pytest.mark.slow) for case in LARGE)]


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

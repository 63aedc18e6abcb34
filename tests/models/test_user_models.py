"""Models as newcomers write them, against eager by the rule of cases.error_ratio; and with NaN, infinities and -0.0 among the inputs."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import sealift
from sealift.frontend import export_module
from tests.models.cases import ModelCase, error_ratio, in_float64, outputs_of
from tests.models.user_models import CASES, EVERY_DAY

SEEN = [pytest.param(c, id=c.name, marks=() if c.name in EVERY_DAY else pytest.mark.slow) for c in CASES]


@pytest.mark.parametrize("case", SEEN)
def test_against_eager(case: ModelCase, tmp_path: Path) -> None:
    module, inputs, dynamic = case.build()
    path = sealift.compile(export_module(module, inputs[0], dynamic_shapes=dynamic), tmp_path / "model.pt2")
    model = sealift.load(path, num_threads=2)
    double = copy.deepcopy(module).double()
    for arguments in inputs:
        with torch.no_grad():
            eager = [t.numpy() for t in outputs_of(module(*arguments))]
        got = [np.asarray(t) for t in outputs_of(model(*arguments))]
        for position, (y, e, x) in enumerate(zip(got, eager, in_float64(double, arguments), strict=True)):
            where = f"output {position} at {[tuple(a.shape) for a in arguments]}"
            assert y.shape == e.shape and y.dtype == e.dtype, where
            assert error_ratio(y, e, x) <= 1, where
    if case.name == "through_views":
        for odd in (float("nan"), float("inf"), -0.0):
            x = torch.full((3, 4), odd)
            for y, e in zip(model(x), module(x), strict=True):
                np.testing.assert_allclose(y.numpy(), e.numpy(), rtol=1e-6)
                number = ~np.isnan(e.numpy())
                np.testing.assert_array_equal(np.signbit(y.numpy()[number]), np.signbit(e.numpy()[number]))

"""Whole models against eager: per output, max |y - y64| is at most 2 max |eager - y64| + 1e-6 max |y64|, y64 being the model in float64."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import sealift
from sealift.load import Model
from tests.models.zoo import CASES, MLP, Case, export


@dataclass(frozen=True)
class Built:
    case: Case
    module: torch.nn.Module
    double: torch.nn.Module
    model: Model


@pytest.fixture(scope="module", params=CASES, ids=lambda c: c.name)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    yield build(request.param, tmp_path_factory.mktemp(request.param.name))


def build(case: Case, directory: Path) -> Built:
    module = case.module()
    path = sealift.compile(export(case, module), directory / f"{case.name}.pt2")
    return Built(case, module, copy.deepcopy(module).double(), sealift.load(path))


def test_outputs_are_as_close_to_float64_as_eager_is(built: Built) -> None:
    for size in built.case.sizes:
        results = []
        for seed in (1, 2):
            inputs = built.case.inputs(size, seed)
            with torch.no_grad():
                eager = built.module(*inputs).numpy()
                exact = built.double(*(t.double() if t.is_floating_point() else t for t in inputs)).numpy()
            got = built.model(*(t.numpy() for t in inputs))
            assert got.shape == eager.shape and got.dtype == eager.dtype
            bound = 2 * np.abs(eager - exact).max() + 1e-6 * np.abs(exact).max()
            assert np.abs(got - exact).max() <= bound, f"{built.case.name} at {size}"
            results.append(got)
        assert np.abs(results[0] - results[1]).max() > 0, f"{built.case.name} at {size}: two inputs, one answer"


def test_threads_do_not_change_a_bit(built: Built, tmp_path: Path) -> None:
    path = sealift.compile(export(built.case, built.module), tmp_path / "threads.pt2")
    inputs = [t.numpy() for t in built.case.inputs(built.case.sizes[-1], 3)]
    answers = [sealift.load(path, num_threads=n)(*inputs).tobytes() for n in (1, 2, 4)]
    assert answers[0] == answers[1] == answers[2]


def test_a_size_out_of_the_declared_range_is_refused(tmp_path: Path) -> None:
    model = build(MLP, tmp_path).model
    for batch in (0, 1025):
        with pytest.raises(sealift.SealiftError, match=rf"E-INPUT-003.*{batch}.*1\.\.1024"):
            model(np.zeros((batch, 10), np.float32))

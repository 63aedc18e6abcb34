"""Sums over many elements: joined block by block, as eager's are, wherever the lanes lie."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import sealift
from sealift.pipeline import compile


class Of(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor], *before: torch.nn.Module) -> None:
        super().__init__()
        self.function, self.before = function, torch.nn.Sequential(*before)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.before(x))


def conv() -> torch.nn.Module:
    return torch.nn.Conv2d(8, 20, 1)


REDUCTIONS = {
    "pool of channels last": (lambda: Of(torch.nn.AdaptiveAvgPool2d(1), conv()), (2, 8, 224, 224)),
    "mean of channels last": (lambda: Of(lambda x: x.mean((2, 3)), conv(), torch.nn.ReLU()), (1, 8, 150, 131)),
    "sum of channels last": (lambda: Of(lambda x: x.sum((2, 3)), conv()), (1, 8, 224, 224)),
    "instance norm": (lambda: Of(lambda x: x, conv(), torch.nn.InstanceNorm2d(20)), (1, 8, 112, 112)),
    "of columns": (lambda: Of(lambda x: (x + 1).sum(0)), (50_000, 19)),
    "of all": (lambda: Of(lambda x: (x + 1).sum()), (3, 500, 2001)),
    "of rows that are far apart": (lambda: Of(lambda x: (x + 1).sum((0, 2))), (3001, 5, 67)),
    "of a norm": (lambda: Of(lambda x: torch.linalg.vector_norm(x + 1, dim=0)), (30_000, 9)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_the_error_is_eagers(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    make, shape = REDUCTIONS[name]
    module, x = make().eval(), torch.randn(shape)
    model = sealift.load(compile(torch.export.export(module, (x,)), tmp_path / "sum.pt2"))
    with torch.no_grad():
        exact = copy.deepcopy(module).double()(x.double()).numpy()
        eager = module(x).numpy()
    error, allowed = (np.abs(y - exact).max() for y in (np.asarray(model(x.numpy())), eager))
    largest = np.abs(exact).max()
    print(f"{name}: {error:.2e}, eager {allowed:.2e}, largest {largest:.3g}")
    assert error <= 2 * allowed + 1e-6 * largest


def test_a_dynamic_size_is_summed_in_blocks_too(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Of(lambda x: (x + 1).sum(1))
    rows = torch.export.Dim("rows", min=1, max=100_000)
    program = torch.export.export(module, (torch.randn(2, 40, 12),), dynamic_shapes=({1: rows},))
    model = sealift.load(compile(program, tmp_path / "sum.pt2"))
    for count in (1, 63, 64, 65, 128, 129, 4097, 100_000):
        x = torch.randn(2, count, 12)
        exact = module(x.double()).numpy()
        error, allowed = np.abs(np.asarray(model(x.numpy())) - exact).max(), np.abs(module(x).numpy() - exact).max()
        assert error <= 2 * allowed + 1e-6 * np.abs(exact).max(), count


def test_sums_of_negative_zeros_and_of_nothing_are_zero(tmp_path: Path) -> None:
    module = Of(lambda x: (x * 1).sum(0))
    rows = torch.export.Dim("rows", min=0, max=1000)
    program = torch.export.export(module, (torch.randn(300, 9),), dynamic_shapes=({0: rows},))
    model = sealift.load(compile(program, tmp_path / "sum.pt2"))
    for count in (0, 1, 64, 300):
        x = torch.full((count, 9), -0.0)
        np.testing.assert_array_equal(np.signbit(np.asarray(model(x.numpy()))), np.signbit(module(x).numpy()))

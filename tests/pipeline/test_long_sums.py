"""Sums of thousands of products: blocks are added up, as eager's libraries do, so that rounding errors do not grow with the length of one chain."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import sealift
from sealift.pipeline import compile

LAYERS = {
    "linear": (lambda: torch.nn.Linear(3072, 256), lambda rows: torch.randn(rows, 3072)),
    "conv": (lambda: torch.nn.Conv2d(512, 32, 3, padding=1), lambda rows: torch.randn(1, 512, rows, 7)),
    "conv1x1": (lambda: torch.nn.Conv2d(2048, 32, 1), lambda rows: torch.randn(1, 2048, rows, 7)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_the_error_is_eagers(tmp_path: Path, name: str, rows: int) -> None:
    torch.manual_seed(0)
    make, draw = LAYERS[name]
    module, x = make().eval(), draw(rows)
    model = sealift.load(compile(torch.export.export(module, (x,)), tmp_path / "layer.pt2"))
    with torch.no_grad():
        exact = copy.deepcopy(module).double()(x.double()).numpy()
        eager = module(x).numpy()
    error, allowed = (np.sqrt(np.mean((y - exact) ** 2)) for y in (np.asarray(model(x.numpy())), eager))
    print(f"{name}, {rows} rows: {error / allowed:.2f} of eager's")
    assert error < 2 * allowed

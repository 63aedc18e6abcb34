"""What rows and runs refuse: positions outside, integer division by zero, and arguments that only values decide."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sealift.diag.errors import DivisionByZero, IndexOutOfRange
from sealift.ops import OPS
from tests.ops.runner import run_row

X = torch.arange(12.0).reshape(3, 4)
I = torch.tensor  # noqa: E741


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten.embedding.default", [X, I([0, 3])]),
        ("aten.embedding.default", [X, I([-1])]),
        ("aten.index_select.default", [X, 1, I([4])]),
        ("aten.index_select.default", [X, 1, I([-1])]),
        ("aten.gather.default", [X, 0, I([[3]])]),
        ("aten.gather.default", [X, 0, I([[-1]])]),
        ("aten.index.Tensor", [X, [I([0, -4])]]),
        ("aten.index.Tensor", [X, [None, I([4])]]),
        ("aten.scatter.value", [X, 1, I([[4]]), 1.0]),
        ("aten.scatter_add.default", [X, 1, I([[-1]]), X]),
        ("aten.index_put.default", [X, [I([3])], I(1.0)]),
    ],
)
def test_positions_outside_fail_the_run(name: str, args: list[Any]) -> None:
    with pytest.raises(IndexOutOfRange):
        run_row(OPS[name], args, {})


@pytest.mark.parametrize("name", ["aten.floor_divide.default", "aten.remainder.Tensor", "aten.fmod.Tensor"])
def test_integer_division_by_zero_fails_the_run(name: str) -> None:
    with pytest.raises(DivisionByZero):
        run_row(OPS[name], [I([4, 5]), I([2, 0])], {})


@pytest.mark.parametrize(
    ("name", "args", "reason"),
    [
        ("aten.index.Tensor", [X, [X > 3]], "bool mask"),
        ("aten.dropout.default", [X, 0.5, True], "dropout in training"),
        ("aten.pow.Tensor_Scalar", [I([2]), -1], "negative power"),
        ("aten.mean.default", [I([2])], "mean of i64"),
        ("aten.view.dtype", [X, torch.int32], "reinterpreting bytes"),
    ],
)
def test_refusals_say_why(name: str, args: list[Any], reason: str) -> None:
    with pytest.raises(NotImplementedError, match=reason):
        run_row(OPS[name], args, {})

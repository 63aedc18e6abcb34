"""name_kernels: after the operators, without views where anything else is there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sealift.passes.name_kernels import name_kernels
from tests.passes.support import read

LOOPS = read("""
    loops m(n: 0..)
    inputs
      input %x: f32[n]
    buffers
    outputs
      output %y: f32[n]
    kernel first []
      map %y[i0] for i0 < n
        = neg(%x[i0])
    """)


@pytest.mark.parametrize(
    ("ops", "name"),
    [
        (("aten.linear.default", "aten.gelu.default"), "linear_gelu"),
        (("aten.view.default", "aten.permute.default", "aten.add.Tensor"), "add"),
        (("aten.view.default", "aten.permute.default"), "view_permute"),
        (("aten._softmax.default",), "softmax"),
        (("aten.add.Tensor", "aten.mul.Tensor", "aten.exp.default", "aten.sum.dim_IntList"), "add_mul_exp_sum"),
        (("aten.add.Tensor", "aten.mul.Tensor", "aten.exp.default", "aten.sum.dim_IntList", "aten.neg.default"), "add_mul_exp_sum_and_more"),
        ((), "first"),
        (("custom",), "custom"),
    ],
)
def test_name(ops: tuple[str, ...], name: str) -> None:
    loops = replace(LOOPS, kernels=tuple(replace(k, ops=ops) for k in LOOPS.kernels))
    after = name_kernels(loops)
    assert [k.name for k in after.kernels] == [name]
    assert after == replace(loops, kernels=after.kernels)


def test_same_object_when_names_are_right() -> None:
    named = name_kernels(LOOPS)
    assert name_kernels(named) is named

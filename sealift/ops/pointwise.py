"""Pointwise operators: one element in, one element out, broadcast and promoted as eager does."""

from __future__ import annotations

from collections.abc import Callable

from sealift.ir.dim import Dim
from sealift.ir.dtype import DType
from sealift.ir.loop.prim import Prim
from sealift.ops.lang import Builder, Number, S, Tensor, prim, promoted, select
from sealift.ops.table import op


def pointwise(b: Builder, fn: Callable[..., S], *values: Tensor | Number | Dim, to_float: bool = False, dtype: DType | None = None) -> Tensor:
    """Promotes as ATen does, computes (half types in f32), gives the result its dtype (`dtype`: always that one)."""
    tensors, result = promoted(b, *values, to_float=to_float)
    return b.cast(b.pointwise(fn, *tensors), dtype or result)


@op("aten.relu.default", samples="nn.functional.relu")
def relu(b: Builder, self: Tensor) -> Tensor:
    return pointwise(b, lambda x: select(x < 0, 0, x), self)  # keeps NaN and -0.0; x > 0 ? x : 0 loses both


@op("aten.sigmoid.default", samples="sigmoid", rtol=1e-6)
def sigmoid(b: Builder, self: Tensor) -> Tensor:
    return pointwise(b, lambda x: prim(Prim.SIGMOID, x), self, to_float=True)


@op("aten.add.Tensor", samples="add")
def add(b: Builder, self: Tensor, other: Tensor | Number | Dim, alpha: Number = 1) -> Tensor:
    return pointwise(b, lambda x, y: x + (y if alpha == 1 else y * alpha), self, other)


@op("aten.gelu.default", samples="nn.functional.gelu", rtol=2e-6, atol=1e-7)
def gelu(b: Builder, self: Tensor, approximate: str = "none") -> Tensor:
    def tanh_form(x: S) -> S:
        inner = (x + x * x * x * 0.044715) * 0.7978845608028654
        return x * 0.5 * (prim(Prim.TANH, inner) + 1)

    def erf_form(x: S) -> S:
        return x * 0.5 * (prim(Prim.ERF, x * 0.7071067811865476) + 1)

    return pointwise(b, tanh_form if approximate == "tanh" else erf_form, self)

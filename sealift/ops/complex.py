"""Operators on complex numbers alone: made of two real tensors, taken apart, turned. Those that take real numbers, too, stand with these."""

from __future__ import annotations

import math

from sealift.ir.dtype import DType
from sealift.ir.loop.prim import Prim
from sealift.ops import pairs
from sealift.ops.arguments import refuse
from sealift.ops.lang import Builder, S, Tensor, as_pair, imaginary_part, joined, prim, real_part, select
from sealift.ops.pairs import Pair, constant
from sealift.ops.pointwise import pointwise
from sealift.ops.table import op


@op("aten.view_as_real.default", samples="view_as_real")
def view_as_real(b: Builder, self: Tensor) -> Tensor:
    held = self.held
    return Tensor(DType.F32, held.shape, held.fn)


@op("aten.view_as_complex.default", samples="view_as_complex")
def view_as_complex(b: Builder, self: Tensor) -> Tensor:
    if self.dtype is not DType.F32:
        refuse(f"view_as_complex of {self.dtype}")
    return Tensor(DType.C64, self.shape[:-1], lambda i: Pair(lambda part: self.at((*i, part))))


@op("aten.complex.default", samples="complex")
def complex_(b: Builder, real: Tensor, imag: Tensor) -> Tensor:
    return joined(b, real, imag)


@op("aten.polar.default", samples="polar", rtol=1e-6, atol=1e-6)
def polar(b: Builder, abs: Tensor, angle: Tensor) -> Tensor:
    if abs.dtype is not DType.F32:
        refuse(f"polar of {abs.dtype}")
    turned = [b.pointwise(lambda r, t, which=which: r * prim(which, t), abs, angle) for which in (Prim.COS, Prim.SIN)]  # type: ignore[misc]
    return joined(b, *turned)


@op("aten.real.default", samples="real")
def real(b: Builder, self: Tensor) -> Tensor:
    return real_part(self) if self.dtype is DType.C64 else self


@op("aten.imag.default", samples="imag")
def imag(b: Builder, self: Tensor) -> Tensor:
    return imaginary_part(self)


@op("aten.angle.default", samples="angle", rtol=1e-6, atol=1e-6)
def angle(b: Builder, self: Tensor) -> Tensor:
    """Of a real number 0, pi where it is negative, NaN where it is NaN."""
    if self.dtype is DType.C64:
        return self.complex_part(pairs.argument)
    return pointwise(b, lambda x: select(x.ne(x), x, select(x < 0, S(constant(math.pi, x.dtype)), 0.0)), self, to_float=True)


@op("aten.sgn.default", samples="sgn", rtol=1e-6)
def sgn(b: Builder, self: Tensor) -> Tensor:
    """x / |x|, and 0 at 0."""
    if self.dtype is not DType.C64:
        return self if self.dtype is DType.BOOL else pointwise(b, lambda x: (x > 0).cast(x.dtype) - (x < 0).cast(x.dtype), self)

    def direction(x: Pair) -> Pair:
        size = S(pairs.modulus(x))
        return pairs.pair(*(select(size.eq(0), 0, S(p) / size).e for p in (x.re, x.im)))

    return Tensor(DType.C64, self.shape, lambda i: direction(as_pair(self.at(i))))


@op("aten._conj.default", samples="conj")
@op("aten.conj.default", samples="conj")
@op("aten._conj_physical.default", samples="conj_physical")
@op("aten.conj_physical.default", samples="conj_physical")
def conj(b: Builder, self: Tensor) -> Tensor:
    """PyTorch marks a tensor as conjugated and negates when it is read; here it is read so at once."""
    if self.dtype is not DType.C64:
        return self
    return Tensor(DType.C64, self.shape, lambda i: pairs.conjugate(as_pair(self.at(i))))


@op("aten.resolve_conj.default", samples="resolve_conj")
@op("aten.resolve_neg.default", samples="resolve_neg")
def resolved(b: Builder, self: Tensor) -> Tensor:
    return self


@op("aten._neg_view.default", samples="neg")
def neg_view(b: Builder, self: Tensor) -> Tensor:
    return b.pointwise(lambda x: -x, self)

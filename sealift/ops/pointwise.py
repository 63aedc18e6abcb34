"""Pointwise operators of two and more tensors: one element in, one element out, broadcast and promoted as eager does."""

from __future__ import annotations

import math
from collections.abc import Callable

from sealift.ir.dim import Dim, dim
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Index
from sealift.ir.loop.prim import Combine, Prim
from sealift.ops.arguments import refuse
from sealift.ops.lang import Builder, Number, S, Scalar, Tensor, broadcast_shapes, maximum, minimum, prim, promoted, select
from sealift.ops.pairs import constant
from sealift.ops.table import op
from sealift.ops.views import expanded

Value = Tensor | Scalar | Dim


def pointwise(
    b: Builder,
    fn: Callable[..., S],
    *values: Value,
    to_float: bool = False,
    round_scalars: bool = False,
    dtype: DType | None = None,
) -> Tensor:
    """Promotes as ATen does, computes (half types in f32), gives the result its dtype (`dtype`: always that one)."""
    tensors, result = promoted(b, *values, to_float=to_float, round_scalars=round_scalars)
    return b.cast(b.pointwise(fn, *tensors), dtype or result)


# ---- arithmetic ----------------------------------------------------------------------------------------------------------------


def plus(x: S, y: S) -> S:
    return x | y if x.dtype is DType.BOOL else x + y


def times(x: S, y: S | Scalar) -> S:
    return x & (y if isinstance(y, S) else S(constant(y, x.dtype))) if x.dtype is DType.BOOL else x * y


def scaled(y: S, alpha: Scalar) -> S:
    """Complex numbers also by 1, which makes a NaN of an infinity's other part: eager does."""
    return y if alpha == 1 and y.dtype is not DType.C64 else times(y, alpha)


@op("aten.add.Tensor", samples="add", rtol=1e-6, atol=1e-6)  # eager fuses the multiplication by alpha into the addition
@op("aten.add.Scalar", rtol=1e-6, atol=1e-6)
def add(b: Builder, self: Tensor, other: Value, alpha: Scalar = 1) -> Tensor:
    return pointwise(b, lambda x, y: plus(x, scaled(y, alpha)), self, other)


@op("aten.sub.Tensor", samples="sub", rtol=1e-6, atol=1e-6)
@op("aten.sub.Scalar", rtol=1e-6, atol=1e-6)
@op("aten.subtract.Tensor", samples="sub", rtol=1e-6, atol=1e-6)
def sub(b: Builder, self: Tensor, other: Value, alpha: Scalar = 1) -> Tensor:
    return pointwise(b, lambda x, y: x - scaled(y, alpha), self, other)


@op("aten.rsub.Tensor", samples="__rsub__", rtol=1e-6, atol=1e-6)
@op("aten.rsub.Scalar", samples="rsub", rtol=1e-6, atol=1e-6)
def rsub(b: Builder, self: Tensor, other: Value, alpha: Scalar = 1) -> Tensor:
    return pointwise(b, lambda x, y: y - scaled(x, alpha), self, other)


@op("aten.mul.Tensor", samples="mul")
@op("aten.mul.Scalar")
@op("aten.multiply.Tensor", samples="mul")
def mul(b: Builder, self: Tensor, other: Value) -> Tensor:
    return pointwise(b, times, self, other)


@op("aten.div.Tensor", samples="div")
@op("aten.div.Scalar")
@op("aten.divide.Tensor", samples="div")
@op("aten.true_divide.Tensor", samples="div")
def div(b: Builder, self: Tensor, other: Value) -> Tensor:
    return pointwise(b, lambda x, y: x / y, self, other, to_float=True)


@op("aten.div.Tensor_mode", samples="div")
@op("aten.div.Scalar_mode")
def div_mode(b: Builder, self: Tensor, other: Value, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode is None:
        result: Tensor = div(b, self, other)
        return result
    if rounding_mode == "floor":
        return pointwise(b, lambda x, y: prim(Prim.FLOOR_DIV, x, y), self, other)
    (x, y), dtype = promoted(b, self, other)
    if not dtype.is_float:
        return b.pointwise(lambda p, q: prim(Prim.TRUNC_DIV, p, q), x, y)
    quotient = b.cast(b.pointwise(lambda p, q: p / q, x, y), dtype)  # half types round here: 14.99 may become 15
    return pointwise(b, lambda q: prim(Prim.TRUNC, q), quotient)


@op("aten.floor_divide.default", samples="floor_divide")
@op("aten.floor_divide.Scalar")
def floor_divide(b: Builder, self: Tensor, other: Value) -> Tensor:
    return pointwise(b, lambda x, y: prim(Prim.FLOOR_DIV, x, y), self, other)


@op("aten.remainder.Tensor", samples="remainder")
@op("aten.remainder.Scalar")
def remainder(b: Builder, self: Tensor, other: Value) -> Tensor:
    return pointwise(b, lambda x, y: prim(Prim.REMAINDER, x, y), self, other, round_scalars=True)


@op("aten.fmod.Tensor", samples="fmod")
@op("aten.fmod.Scalar")
def fmod(b: Builder, self: Tensor, other: Value) -> Tensor:
    return pointwise(b, lambda x, y: prim(Prim.FMOD, x, y), self, other, round_scalars=True)


@op("aten.maximum.default", samples="maximum")
@op("aten.max.other", samples="max")
def maximum_(b: Builder, self: Tensor, other: Tensor) -> Tensor:
    return pointwise(b, lambda x, y: x | y if x.dtype is DType.BOOL else maximum(x, y), self, other)


@op("aten.minimum.default", samples="minimum")
@op("aten.min.other", samples="min")
def minimum_(b: Builder, self: Tensor, other: Tensor) -> Tensor:
    return pointwise(b, lambda x, y: x & y if x.dtype is DType.BOOL else minimum(x, y), self, other)


@op("aten.atan2.default", samples="atan2", rtol=1e-6)
def atan2(b: Builder, self: Tensor, other: Tensor) -> Tensor:
    return pointwise(b, lambda x, y: prim(Prim.ATAN2, x, y), self, other, to_float=True)


@op("aten.hypot.default", samples="hypot", rtol=1e-6)
def hypot(b: Builder, self: Tensor, other: Tensor) -> Tensor:
    """Scaled by the larger side, so that squares do not overflow; an infinity wins over NaN."""

    def length(x: S, y: S) -> S:
        p, q = prim(Prim.ABS, x), prim(Prim.ABS, y)
        large, small = maximum(p, q), minimum(p, q)
        ratio = select(large.eq(0), 0, small / large)
        finite = large * prim(Prim.SQRT, ratio * ratio + 1)
        return select(p.eq(math.inf) | q.eq(math.inf), math.inf, finite)

    return pointwise(b, length, self, other)


@op("aten.addcmul.default", samples="addcmul", rtol=1e-6, atol=1e-6)
def addcmul(b: Builder, self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Scalar = 1) -> Tensor:
    return pointwise(b, lambda x, y, z: x + times(scaled(y, value), z), self, tensor1, tensor2)


@op("aten.addcdiv.default", samples="addcdiv", rtol=1e-6, atol=1e-6)
def addcdiv(b: Builder, self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Scalar = 1) -> Tensor:
    return pointwise(b, lambda x, y, z: x + scaled(y, value) / z, self, tensor1, tensor2)


@op("aten.lerp.Scalar", samples="lerp", rtol=1e-6, atol=1e-6)
@op("aten.lerp.Tensor", samples="lerp", rtol=1e-6, atol=1e-6)
def lerp(b: Builder, self: Tensor, end: Tensor, weight: Value) -> Tensor:
    """From the nearer end, so that weight 1 gives `end` exactly."""

    def between(x: S, y: S, w: S) -> S:
        return select(prim(Prim.ABS, w) < 0.5, x + w * (y - x), y - (y - x) * (1 - w))

    return pointwise(b, between, self, end, weight)


# ---- powers --------------------------------------------------------------------------------------------------------------------


@op("aten.pow.Tensor_Scalar", samples="pow", rtol=1e-6)
def pow_tensor_scalar(b: Builder, self: Tensor, exponent: Number | Dim) -> Tensor:
    if isinstance(exponent, Dim):
        if not exponent.is_const:
            computed: Tensor = power(b, self, exponent)
            return computed
        exponent = exponent.value
    return pointwise(b, lambda x, _: _known_power(x, exponent), self, exponent)


def _known_power(x: S, exponent: Number) -> S:
    """The powers that eager computes without pow, and all of integers."""
    if exponent == 0:
        return S(constant(1, x.dtype))
    if x.dtype is DType.BOOL:
        return x
    if x.dtype.is_int:
        if exponent < 0:
            refuse("an integer to a negative power")
        return _multiplied(x, int(exponent))
    match exponent:
        case 1:
            return x
        case 0.5:
            return prim(Prim.SQRT, x)
        case 2:
            return x * x
        case 3:
            return x * x * x
        case -0.5:
            return 1 / prim(Prim.SQRT, x)
        case -1:
            return 1 / x
        case -2:
            return 1 / (x * x)
    return prim(Prim.POW, x, exponent if isinstance(exponent, complex) else float(exponent))


def _multiplied(x: S, times_: int) -> S:
    """x to a positive power by squaring; wraps."""
    result: S | None = None
    while times_:
        if times_ & 1:
            result = x if result is None else result * x
        times_ >>= 1
        if times_:
            x = x * x
    assert result is not None
    return result


@op("aten.pow.Tensor_Tensor", samples="pow", rtol=1e-6)
@op("aten.pow.Scalar", rtol=1e-6)
def power(b: Builder, self: Value, exponent: Value) -> Tensor:
    tensors, result = promoted(b, self, exponent, round_scalars=True)
    if result.is_float or result is DType.C64:
        return b.cast(b.pointwise(lambda x, y: prim(Prim.POW, x, y), *tensors), result)
    base, times_ = (b.materialize(t) for t in tensors)
    return _integer_power(b, base, times_)


def _integer_power(b: Builder, base: Tensor, exponent: Tensor) -> Tensor:
    """A product of as many factors as the exponent says, at most 64: beyond, only 0, 1 and -1 have powers that do not overflow, and an
    even base gives 0 as eager's wrapping multiplication does. (An odd base above 1 to a power above 64 differs from eager's bits.)"""
    if base.dtype is DType.BOOL:
        return b.pointwise(lambda x, y: x | ~y, base, exponent)
    shape = broadcast_shapes([base.shape, exponent.shape])
    bases, exponents = expanded(base, shape), expanded(exponent, shape)

    def factor(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        wanted = S(exponents.at(i)).cast(DType.I64)
        count = select(wanted > 64, (wanted & 1) + 64, wanted)
        return select(S(Index(r[0])) < count, S(bases.at(i)), 1)

    product = b.reduce(Combine.PROD, shape, (dim(65),), factor)
    if base.dtype is DType.U8:
        return product

    def negative(x: S, y: S, p: S) -> S:
        sign = select((y & 1).eq(0), x * x, x)
        return select(y < 0, select(x.eq(1) | x.eq(-1), sign, 0), p)

    return b.pointwise(negative, bases, exponents, product)


# ---- logarithms of sums and products ---------------------------------------------------------------------------------------------


@op("aten.logaddexp.default", samples="logaddexp", rtol=2e-6, atol=1e-6)
def logaddexp(b: Builder, self: Tensor, other: Tensor) -> Tensor:
    """log(exp(x) + exp(y)), by the larger; equal infinities are their own sum."""

    def joined(x: S, y: S) -> S:
        low = minimum(x, y)
        high = maximum(x, y)
        return select((prim(Prim.ABS, x).eq(math.inf)) & x.eq(y), x, high + prim(Prim.LOG1P, prim(Prim.EXP, low - high)))

    return pointwise(b, joined, self, other)


@op("aten.xlogy.Tensor", samples="xlogy", rtol=2e-6, atol=1e-6)
def xlogy(b: Builder, self: Tensor, other: Tensor) -> Tensor:
    """x * log(y); 0 where x is 0, unless y is NaN."""
    return pointwise(b, lambda x, y: select(y.ne(y), math.nan, select(x.eq(0), 0, x * prim(Prim.LOG, y))), self, other, to_float=True)


@op("aten.copysign.Tensor", samples="copysign")
def copysign(b: Builder, self: Tensor, other: Tensor) -> Tensor:
    """The size of x with the sign of y; 1 / y tells -0.0 from 0.0. (The sign of a NaN is not read.)"""

    def signed(x: S, y: S) -> S:
        size = prim(Prim.ABS, x)
        negative = (y < 0) | (y.eq(0) & ((1 / y) < 0))
        return select(negative, -size, size)

    return pointwise(b, signed, self, other, to_float=True)

"""Functions of one element."""

from __future__ import annotations

import math
from collections.abc import Callable

from sealift.ir.dtype import DType
from sealift.ir.loop.prim import Prim
from sealift.ops.arguments import refuse
from sealift.ops.lang import Builder, Number, S, Tensor, imaginary_part, is_nan, normalize_dim, prim, real_part, select
from sealift.ops.pairs import constant
from sealift.ops.pointwise import pointwise
from sealift.ops.table import op
from sealift.ops.views import narrowed, reshaped

# ---- mathematical functions: integers and bool give f32 --------------------------------------------------------------------------


def _function(name: str, which: Prim, rtol: float = 1e-6, atol: float = 0.0) -> None:
    @op(f"aten.{name}.default", samples=name, rtol=rtol, atol=atol)
    def function(b: Builder, self: Tensor) -> Tensor:
        return pointwise(b, lambda x: prim(which, x), self, to_float=True)


_function("sqrt", Prim.SQRT, rtol=2.5e-7)
_function("exp", Prim.EXP)
_function("exp2", Prim.EXP2)
_function("expm1", Prim.EXPM1)
_function("log", Prim.LOG, atol=1e-7)
_function("log2", Prim.LOG2, atol=1e-7)
_function("log10", Prim.LOG10, atol=1e-7)
_function("log1p", Prim.LOG1P)
_function("sin", Prim.SIN, atol=1e-6)
_function("cos", Prim.COS, atol=1e-6)
_function("tan", Prim.TAN, rtol=4e-6, atol=1e-6)
_function("asin", Prim.ASIN)
_function("acos", Prim.ACOS, atol=1e-6)
_function("atan", Prim.ATAN)
_function("sinh", Prim.SINH)
_function("cosh", Prim.COSH)
_function("tanh", Prim.TANH)
_function("asinh", Prim.ASINH)
_function("acosh", Prim.ACOSH)
_function("atanh", Prim.ATANH)
_function("erf", Prim.ERF)
_function("sigmoid", Prim.SIGMOID)


@op("aten.rsqrt.default", samples="rsqrt", rtol=1e-6)
def rsqrt(b: Builder, self: Tensor) -> Tensor:
    return pointwise(b, lambda x: 1 / prim(Prim.SQRT, x), self, to_float=True)


@op("aten.reciprocal.default", samples="reciprocal")
def reciprocal(b: Builder, self: Tensor) -> Tensor:
    return pointwise(b, lambda x: 1 / x, self, to_float=True)


@op("aten.logit.default", samples="logit", rtol=1e-5, atol=1e-6)
def logit(b: Builder, self: Tensor, eps: float | None = None) -> Tensor:
    def inverse(x: S) -> S:
        if eps is not None:
            x = select(x < eps, eps, select(x > 1 - eps, 1 - eps, x))
        return prim(Prim.LOG, rounded(x / rounded(1 - x)))

    def rounded(x: S) -> S:  # half types round at each step here
        return x.cast(self.dtype).cast(x.dtype) if self.dtype.is_float else x

    return pointwise(b, inverse, self, to_float=True)


# ---- rounding and sign: the dtype stays -------------------------------------------------------------------------------------------


def _rounding(name: str, which: Prim) -> None:
    @op(f"aten.{name}.default", samples=name)
    def rounding(b: Builder, self: Tensor) -> Tensor:
        return pointwise(b, lambda x: prim(which, x), self) if self.dtype.is_float else self


for _name, _which in (("floor", Prim.FLOOR), ("ceil", Prim.CEIL), ("trunc", Prim.TRUNC), ("round", Prim.ROUND)):
    _rounding(_name, _which)


@op("aten.round.decimals", samples="round")
def round_decimals(b: Builder, self: Tensor, decimals: int = 0) -> Tensor:
    """Half to even after scaling by a power of ten."""
    if not self.dtype.is_float:
        return self

    def nearest(x: S) -> S:
        if decimals == 0:
            return prim(Prim.ROUND, x)
        power = S(constant(10.0 ** abs(decimals), x.dtype))
        if decimals < 0:
            return prim(Prim.ROUND, x / power) * power
        return prim(Prim.ROUND, x * power) / power

    return pointwise(b, nearest, self)


@op("aten.abs.default", samples="abs")
@op("aten.absolute.default", samples="abs")
def absolute(b: Builder, self: Tensor) -> Tensor:
    keeps = self.dtype in (DType.BOOL, DType.U8)
    if self.dtype is DType.C64:
        return b.pointwise(lambda x: prim(Prim.ABS, x), self)
    return self if keeps else pointwise(b, lambda x: prim(Prim.ABS, x), self)


@op("aten.neg.default", samples="neg")
@op("aten.negative.default", samples="neg")
def neg(b: Builder, self: Tensor) -> Tensor:
    return pointwise(b, lambda x: -x, self)


@op("aten.sign.default", samples="sign")
def sign(b: Builder, self: Tensor) -> Tensor:
    """0 for NaN, as eager has it."""
    if self.dtype is DType.BOOL:
        return self
    return pointwise(b, lambda x: (x > 0).cast(x.dtype) - (x < 0).cast(x.dtype), self)


@op("aten.square.default", samples="square")
def square(b: Builder, self: Tensor) -> Tensor:
    return pointwise(b, lambda x, _: x * x, self, 2)  # a power: bool becomes i64


# ---- questions -------------------------------------------------------------------------------------------------------------------


def _question(name: str, of_float: Callable[[S], S], of_int: bool) -> None:
    @op(f"aten.{name}.default", samples=name)
    def question(b: Builder, self: Tensor) -> Tensor:
        if self.dtype is DType.C64:  # all parts finite, or one of them NaN or infinite
            parts = (pointwise(b, of_float, p, dtype=DType.BOOL) for p in (real_part(self), imaginary_part(self)))
            return b.pointwise(lambda x, y: x & y if of_int else x | y, *parts)
        return pointwise(b, of_float, self, dtype=DType.BOOL) if self.dtype.is_float else b.full(self.shape, of_int, DType.BOOL)


_question("isnan", is_nan, False)
_question("isinf", lambda x: prim(Prim.ABS, x).eq(math.inf), False)
_question("isfinite", lambda x: prim(Prim.ABS, x) < math.inf, True)


@op("aten.logical_not.default", samples="logical_not")
def logical_not(b: Builder, self: Tensor) -> Tensor:
    return b.pointwise(lambda x: ~x, b.cast(self, DType.BOOL))


@op("aten.bitwise_not.default", samples="bitwise_not")
def bitwise_not(b: Builder, self: Tensor) -> Tensor:
    return b.pointwise(lambda x: ~x, self)


# ---- activations -------------------------------------------------------------------------------------------------------------------


@op("aten.relu.default", samples="nn.functional.relu")
def relu(b: Builder, self: Tensor) -> Tensor:
    return pointwise(b, lambda x: select(x < 0, 0, x), self)  # keeps NaN and -0.0; x > 0 ? x : 0 loses both


@op("aten.relu6.default", samples="nn.functional.relu6")
def relu6(b: Builder, self: Tensor) -> Tensor:
    def limited(x: S) -> S:
        low = select(x < 0, 0, x)  # as clamp and hardtanh have it: one form for the kernels' activation to be found by
        return select(low > 6, 6, low)

    return pointwise(b, limited, self)


@op("aten.gelu.default", samples="nn.functional.gelu", rtol=2e-6, atol=1e-6)
def gelu(b: Builder, self: Tensor, approximate: str = "none") -> Tensor:
    def tanh_form(x: S) -> S:
        inner = (x + x * x * x * 0.044715) * 0.7978845608028654
        return x * 0.5 * (prim(Prim.TANH, inner) + 1)

    def erf_form(x: S) -> S:
        return x * 0.5 * (prim(Prim.ERF, x * 0.7071067811865476) + 1)

    return pointwise(b, tanh_form if approximate == "tanh" else erf_form, self)


@op("aten.silu.default", samples="nn.functional.silu", rtol=2e-6, atol=1e-7)
def silu(b: Builder, self: Tensor) -> Tensor:
    return pointwise(b, lambda x: x / (1 + prim(Prim.EXP, -x)), self)


@op("aten.mish.default", samples="nn.functional.mish", rtol=2e-6, atol=1e-6)
def mish(b: Builder, self: Tensor) -> Tensor:
    return pointwise(b, lambda x: x * prim(Prim.TANH, prim(Prim.LOG1P, prim(Prim.EXP, x))), self)


@op("aten.softplus.default", samples="nn.functional.softplus", rtol=2e-6, atol=1e-6)
def softplus(b: Builder, self: Tensor, beta: Number = 1, threshold: Number = 20) -> Tensor:
    def smooth(x: S) -> S:
        steep = x * beta
        return select(steep > threshold, x, prim(Prim.LOG1P, prim(Prim.EXP, steep)) / beta)

    return pointwise(b, smooth, self)


@op("aten.elu.default", samples="nn.functional.elu", rtol=2e-6, atol=1e-6)
def elu(b: Builder, self: Tensor, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Tensor:
    def curve(x: S) -> S:
        return select(x <= 0, prim(Prim.EXPM1, x * input_scale) * (alpha * scale), x * scale)

    return pointwise(b, curve, self)


@op("aten.leaky_relu.default", samples="nn.functional.leaky_relu")
def leaky_relu(b: Builder, self: Tensor, negative_slope: Number = 0.01) -> Tensor:
    return pointwise(b, lambda x: select(x > 0, x, x * negative_slope), self)


@op("aten.prelu.default", samples="nn.functional.prelu")
@op("aten._prelu_kernel.default")
def prelu(b: Builder, self: Tensor, weight: Tensor) -> Tensor:
    per_channel = reshaped(weight, (-1,) + (1,) * max(self.rank - 2, 0)) if weight.rank == 1 and self.rank >= 2 else weight
    if weight.rank == 1 and self.rank < 2:
        per_channel = reshaped(weight, (1,) * self.rank)
    return pointwise(b, lambda x, w: select(x > 0, x, x * w), self, per_channel)


@op("aten.hardswish.default", samples="nn.functional.hardswish", rtol=1e-6, atol=1e-7)
def hardswish(b: Builder, self: Tensor) -> Tensor:
    return pointwise(b, lambda x: x * _clamped(x + 3, 6.0) / 6, self)


@op("aten.hardsigmoid.default", samples="nn.functional.hardsigmoid", rtol=1e-6, atol=1e-7)
def hardsigmoid(b: Builder, self: Tensor) -> Tensor:
    return pointwise(b, lambda x: _clamped(x + 3, 6.0) / 6, self)


def _clamped(x: S, top: float) -> S:
    return select(x < 0, 0, select(x > top, top, x))


@op("aten.log_sigmoid.default", samples="nn.functional.logsigmoid", rtol=2e-6, atol=1e-6)
def log_sigmoid(b: Builder, self: Tensor) -> Tensor:
    def stable(x: S) -> S:
        return select(x < 0, x, 0) - prim(Prim.LOG1P, prim(Prim.EXP, -prim(Prim.ABS, x)))

    return pointwise(b, stable, self)


@op("aten.dropout.default")
def dropout(b: Builder, input: Tensor, p: float, train: bool) -> Tensor:
    if train and p > 0:
        refuse("dropout in training: export the model after model.eval()")
    return input


@op("aten.native_dropout.default")
def native_dropout(b: Builder, input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    kept: Tensor = dropout(b, input, p, train is not False)
    return kept, b.full(input.shape, True, DType.BOOL)


@op("aten.softshrink.default", samples="nn.functional.softshrink")
def softshrink(b: Builder, self: Tensor, lambd: Number = 0.5) -> Tensor:
    def shrunk(x: S) -> S:
        return select(x > lambd, x - lambd, select(x < -lambd, x + lambd, select(is_nan(x), x, 0)))

    return pointwise(b, shrunk, self)


@op("aten.hardshrink.default", samples="nn.functional.hardshrink")
def hardshrink(b: Builder, self: Tensor, lambd: Number = 0.5) -> Tensor:
    return pointwise(b, lambda x: select((x >= -lambd) & (x <= lambd), 0, x), self)


@op("aten.frac.default", samples="frac")
def frac(b: Builder, self: Tensor) -> Tensor:
    return pointwise(b, lambda x: x - prim(Prim.TRUNC, x), self)


@op("aten.glu.default", samples="nn.functional.glu", rtol=2e-6, atol=1e-6)
def glu(b: Builder, self: Tensor, dim: int = -1) -> Tensor:
    along = normalize_dim(dim, self.rank)
    half = self.shape[along] // 2
    value, gate = narrowed(self, along, 0, half), narrowed(self, along, half, half)
    return pointwise(b, lambda x, g: x * prim(Prim.SIGMOID, g), value, gate)

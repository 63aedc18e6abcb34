"""Complex numbers, while rows are lowered: a pair of f32 expressions. Memory holds a complex tensor as an f32 one with a last dimension of
two, and so do the loop IR, the kernels and the passes, which know nothing of complex numbers.

    x * y   ==>   re = x.re * y.re - x.im * y.im,  im = x.re * y.im + x.im * y.re

Arithmetic follows ATen's: the product is the plain formula (inf * (1 + 0j) has a NaN), the quotient NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from sealift.ir.dim import ONE, ZERO, Dim, dim
from sealift.ir.dtype import DType
from sealift.ir.loop import expr as ex
from sealift.ir.loop.expr import Buffer, Expr, Index
from sealift.ir.loop.prim import Prim
from sealift.ops.refusal import refuse

Part = Dim | Expr  # which of the two: 0 the real part, 1 the imaginary one; or an axis of extent 2


@dataclass(frozen=True, eq=False)
class Pair(Expr):
    """A complex scalar. `of(part)` is one of its two numbers; it never becomes part of a stage."""

    of: Callable[[Part], Expr]

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return DType.C64

    @cached_property
    def re(self) -> Expr:
        return self.of(ZERO)

    @cached_property
    def im(self) -> Expr:
        return self.of(ONE)

    def part(self, which: Part) -> Expr:
        return self.re if which == ZERO else self.im if which == ONE else self.of(which)


def pair(re: Expr, im: Expr) -> Pair:
    def of(which: Part) -> Expr:
        if which == ZERO:
            return re
        if which == ONE:
            return im
        at = which if isinstance(which, Expr) else Index(which)
        return ex.apply(Prim.SELECT, ex.apply(Prim.LT, at, Index(ONE)), re, im)

    return Pair(of)


def pair_buffer(name: str, shape: tuple[Dim, ...], kind: str = "temp", order: tuple[int, ...] | None = None) -> Buffer:
    """Where a complex tensor lies."""
    return Buffer(name, DType.F32, (*shape, dim(2)), kind, None if order is None else (*order, len(shape)))


# ---- what S and Tensor build expressions with: complex where an operand is ---------------------------------------------------------


def constant(number: bool | int | float | complex, dtype: DType) -> Expr:
    if dtype is DType.C64:
        return pair(ex.const(number.real, DType.F32), ex.const(number.imag, DType.F32))
    if isinstance(number, complex):
        refuse(f"a complex number as {dtype}")
    return ex.const(number, dtype)


def cast(value: Expr, dtype: DType) -> Expr:
    """To bool anything but 0 is true; to a real type the imaginary part goes, as eager has it."""
    if not isinstance(value, Pair):
        return pair(ex.cast(value, DType.F32), _number(0)) if dtype is DType.C64 else ex.cast(value, dtype)
    if dtype is DType.C64:
        return value
    if dtype is DType.BOOL:
        return ex.apply(Prim.OR, ex.cast(value.re, dtype), ex.cast(value.im, dtype))
    return ex.cast(value.re, dtype)


def apply(prim: Prim, *args: Expr) -> Expr:
    operands = args[1:] if prim is Prim.SELECT else args
    if not any(isinstance(a, Pair) for a in operands):
        return ex.apply(prim, *args)
    numbers = [cast(a, DType.C64) for a in operands]
    if prim is Prim.SELECT:
        yes, no = numbers
        assert isinstance(yes, Pair) and isinstance(no, Pair)
        return Pair(lambda p: ex.apply(Prim.SELECT, args[0], yes.part(p), no.part(p)))
    if prim not in _RULES:
        refuse(f"{prim} of complex numbers")
    return _RULES[prim](*numbers)


# ---- arithmetic --------------------------------------------------------------------------------------------------------------------


def _number(x: float) -> Expr:
    return ex.const(x, DType.F32)


def _add(x: Expr, y: Expr) -> Expr:
    return ex.apply(Prim.ADD, x, y)


def _sub(x: Expr, y: Expr) -> Expr:
    return ex.apply(Prim.SUB, x, y)


def _mul(x: Expr, y: Expr) -> Expr:
    return ex.apply(Prim.MUL, x, y)


def _div(x: Expr, y: Expr) -> Expr:
    return ex.apply(Prim.DIV, x, y)


def _select(condition: Expr, x: Expr, y: Expr) -> Expr:
    return ex.apply(Prim.SELECT, condition, x, y)


def _of(which: Prim) -> Callable[[Expr], Expr]:
    return lambda x: ex.apply(which, x)


_abs, _neg, _sqrt, _exp, _log = map(_of, (Prim.ABS, Prim.NEG, Prim.SQRT, Prim.EXP, Prim.LOG))
_sin, _cos, _sinh, _cosh = map(_of, (Prim.SIN, Prim.COS, Prim.SINH, Prim.COSH))


def _is(x: Expr, number: float) -> Expr:
    return ex.apply(Prim.EQ, x, _number(number))


def _part_by_part(prim: Prim) -> Callable[..., Expr]:
    return lambda *args: Pair(lambda p: ex.apply(prim, *(a.part(p) for a in args)))


def multiplied(x: Pair, y: Pair) -> Pair:
    return pair(_sub(_mul(x.re, y.re), _mul(x.im, y.im)), _add(_mul(x.re, y.im), _mul(x.im, y.re)))


def divided(x: Pair, y: Pair) -> Pair:
    """By the ratio of the divisor's parts, so that squares neither overflow nor vanish."""
    real_is_larger = ex.apply(Prim.GE, _abs(y.re), _abs(y.im))
    large, small = _select(real_is_larger, y.re, y.im), _select(real_is_larger, y.im, y.re)
    ratio = _div(small, large)
    scale = _div(_number(1), _add(large, _mul(small, ratio)))
    re = _select(real_is_larger, _add(x.re, _mul(x.im, ratio)), _add(_mul(x.re, ratio), x.im))
    im = _select(real_is_larger, _sub(x.im, _mul(x.re, ratio)), _sub(_mul(x.im, ratio), x.re))
    by_zero = ex.apply(Prim.AND, _is(y.re, 0), _is(y.im, 0))
    zero = _abs(y.re)
    return pair(_select(by_zero, _div(x.re, zero), _mul(re, scale)), _select(by_zero, _div(x.im, zero), _mul(im, scale)))


def modulus(x: Pair) -> Expr:
    """In f64, where squares of f32 neither overflow nor vanish, and so to the last bit; an infinity wins over NaN."""
    p, q = ex.cast(x.re, DType.F64), ex.cast(x.im, DType.F64)
    finite = ex.cast(_sqrt(_add(_mul(p, p), _mul(q, q))), DType.F32)
    return _select(ex.apply(Prim.OR, _is(_abs(x.re), math.inf), _is(_abs(x.im), math.inf)), _number(math.inf), finite)


def argument(x: Pair) -> Expr:
    return ex.apply(Prim.ATAN2, x.im, x.re)


def conjugate(x: Pair) -> Pair:
    return pair(x.re, _neg(x.im))


# ---- functions ---------------------------------------------------------------------------------------------------------------------


def from_polar(size: Expr, angle: Expr) -> Pair:
    return pair(_mul(size, _cos(angle)), _mul(size, _sin(angle)))


def _is_finite(x: Expr) -> Expr:
    return ex.apply(Prim.LT, _abs(x), _number(math.inf))


def _exponential(x: Pair) -> Pair:
    """On the real axis the imaginary part stays as it is: there inf * sin(0) would be NaN. Of -inf it is 0, whatever the angle."""
    size = _exp(x.re)
    turned = from_polar(size, x.im)
    on_axis = _is(x.im, 0)
    no_angle = ex.apply(Prim.NOT, _is_finite(x.im))
    vanishes = ex.apply(Prim.AND, no_angle, _is(x.re, -math.inf))
    endless = ex.apply(Prim.AND, no_angle, _is(x.re, math.inf))
    re = _select(ex.apply(Prim.OR, on_axis, ex.apply(Prim.OR, vanishes, endless)), size, turned.re)
    return pair(re, _select(on_axis, x.im, _select(vanishes, _number(0), turned.im)))


def _logarithm(x: Pair) -> Pair:
    return pair(_log(modulus(x)), argument(x))


def _square_root(x: Pair) -> Pair:
    """The root with a real part that is not negative, from the sum that does not cancel."""
    half = _number(0.5)
    root = _sqrt(_add(_mul(_abs(x.re), half), _mul(modulus(x), half)))
    other = _div(_mul(_abs(x.im), half), root)
    is_right = ex.apply(Prim.GE, x.re, _number(0))
    zero = ex.apply(Prim.AND, _is(x.re, 0), _is(x.im, 0))
    re, size = _select(is_right, root, other), _select(is_right, other, root)
    below = ex.apply(Prim.LT, _div(_number(1), x.im), _number(0))  # -0.0, too
    im = _select(ex.apply(Prim.OR, below, ex.apply(Prim.LT, x.im, _number(0))), _neg(size), size)
    upward = _is(_abs(x.im), math.inf)
    return pair(
        _select(upward, _number(math.inf), _select(zero, _number(0), re)),
        _select(upward, x.im, _select(zero, x.im, im)),
    )


def _power(x: Pair, y: Pair) -> Pair:
    general = _exponential(multiplied(y, _logarithm(x)))
    zero_base = ex.apply(Prim.AND, _is(x.re, 0), _is(x.im, 0))
    zero_exponent = ex.apply(Prim.AND, _is(y.re, 0), _is(y.im, 0))
    at_zero = _select(zero_exponent, _number(1), _select(ex.apply(Prim.GT, y.re, _number(0)), _number(0), general.re))
    vanishes = ex.apply(Prim.AND, zero_base, ex.apply(Prim.OR, zero_exponent, ex.apply(Prim.GT, y.re, _number(0))))
    return pair(_select(zero_base, at_zero, general.re), _select(vanishes, _number(0), general.im))


def _hyperbolic_sine(x: Pair) -> Pair:
    re, im = _mul(_sinh(x.re), _cos(x.im)), _mul(_cosh(x.re), _sin(x.im))
    no_angle = ex.apply(Prim.NOT, _is_finite(x.im))
    endless = ex.apply(Prim.AND, no_angle, _is(_abs(x.re), math.inf))
    none = ex.apply(Prim.AND, no_angle, _is(x.re, 0))
    return pair(_select(endless, _number(math.inf), _select(none, x.re, re)), _select(_is(x.im, 0), x.im, im))


def _hyperbolic_cosine(x: Pair) -> Pair:
    re, im = _mul(_cosh(x.re), _cos(x.im)), _mul(_sinh(x.re), _sin(x.im))
    flat = ex.apply(Prim.OR, _is(x.im, 0), _is(x.re, 0))
    endless = ex.apply(Prim.AND, ex.apply(Prim.NOT, _is_finite(x.im)), _is(_abs(x.re), math.inf))
    return pair(_select(endless, _number(math.inf), re), _select(flat, _number(0), im))


def _hyperbolic_tangent(x: Pair) -> Pair:
    """Kahan's, which does not overflow; beyond 11 the real part is 1 in f32."""
    tangent, sinh = ex.apply(Prim.TAN, x.im), _sinh(x.re)
    beta = _add(_number(1), _mul(tangent, tangent))
    root = _sqrt(_add(_number(1), _mul(sinh, sinh)))
    below = _add(_number(1), _mul(beta, _mul(sinh, sinh)))
    re, im = _div(_mul(_mul(beta, root), sinh), below), _div(tangent, below)
    endless = _is(_abs(x.re), math.inf)
    far = ex.apply(Prim.AND, ex.apply(Prim.GE, _abs(x.re), _number(11)), ex.apply(Prim.OR, endless, _is_finite(x.im)))
    unit = _select(ex.apply(Prim.LT, x.re, _number(0)), _number(-1), _number(1))
    rest = _mul(_number(4), _mul(_mul(_sin(x.im), _cos(x.im)), _exp(_mul(_number(-2), _abs(x.re)))))
    rest = _select(endless, _number(0), rest)
    at_zero = _select(ex.apply(Prim.AND, _is(x.re, 0), ex.apply(Prim.NOT, _is_finite(x.im))), x.re, re)
    return pair(_select(far, unit, at_zero), _select(_is(x.im, 0), x.im, _select(far, rest, im)))


def _turned(fn: Callable[[Pair], Pair]) -> Callable[[Pair], Pair]:
    """-i f(i x), an odd circular function by its hyperbolic one: the parts change places before and after."""

    def circular(x: Pair) -> Pair:
        y = fn(pair(x.im, x.re))
        return pair(y.im, y.re)

    return circular


def _sigmoid(x: Pair) -> Pair:
    one = pair(_number(1), _number(0))
    below = _exponential(pair(_neg(x.re), _neg(x.im)))
    return divided(one, pair(_add(one.re, below.re), _add(one.im, below.im)))


def _scaled_logarithm(base: float) -> Callable[..., Expr]:
    def logarithm(x: Pair) -> Pair:
        natural, scale = _logarithm(x), _number(1 / math.log(base))
        return pair(_mul(natural.re, scale), _mul(natural.im, scale))

    return logarithm


def _equal(x: Pair, y: Pair) -> Expr:
    return ex.apply(Prim.AND, ex.apply(Prim.EQ, x.re, y.re), ex.apply(Prim.EQ, x.im, y.im))


def _unequal(x: Pair, y: Pair) -> Expr:
    return ex.apply(Prim.OR, ex.apply(Prim.NE, x.re, y.re), ex.apply(Prim.NE, x.im, y.im))


_RULES: Mapping[Prim, Callable[..., Expr]] = MappingProxyType(
    {
        Prim.ADD: _part_by_part(Prim.ADD),
        Prim.SUB: _part_by_part(Prim.SUB),
        Prim.NEG: _part_by_part(Prim.NEG),
        Prim.MUL: multiplied,
        Prim.DIV: divided,
        Prim.ABS: modulus,
        Prim.EQ: _equal,
        Prim.NE: _unequal,
        Prim.SQRT: _square_root,
        Prim.EXP: _exponential,
        Prim.LOG: _logarithm,
        Prim.LOG2: _scaled_logarithm(2),
        Prim.LOG10: _scaled_logarithm(10),
        Prim.POW: _power,
        Prim.SIN: _turned(_hyperbolic_sine),
        Prim.COS: lambda x: _hyperbolic_cosine(pair(_neg(x.im), x.re)),
        Prim.TAN: _turned(_hyperbolic_tangent),
        Prim.SINH: _hyperbolic_sine,
        Prim.COSH: _hyperbolic_cosine,
        Prim.TANH: _hyperbolic_tangent,
        Prim.SIGMOID: _sigmoid,
    }
)

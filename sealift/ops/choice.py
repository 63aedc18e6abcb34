"""Comparison, logic, and the choice between elements: where, masks, limits."""

from __future__ import annotations

import math

from sealift.ir.dim import Dim
from sealift.ir.dtype import DType
from sealift.ir.loop.prim import Combine, Prim
from sealift.ops.arguments import refuse
from sealift.ops.lang import Builder, Number, S, Tensor, imaginary_part, is_nan, joined, maximum, minimum, prim, promoted, real_part, select
from sealift.ops.pointwise import Value, pointwise
from sealift.ops.reductions import Dims, sum_dims
from sealift.ops.table import op

# ---- comparison and logic ------------------------------------------------------------------------------------------------------


def _comparison(name: str, long_name: str, which: Prim) -> None:
    @op(f"aten.{name}.Tensor", samples=name)
    @op(f"aten.{name}.Scalar", samples=name)
    @op(f"aten.{long_name}.Tensor", samples=name)
    @op(f"aten.{long_name}.Scalar", samples=name)
    def compare(b: Builder, self: Tensor, other: Value) -> Tensor:
        return pointwise(b, lambda x, y: prim(which, x, y), self, other, round_scalars=True, dtype=DType.BOOL)


_comparison("ne", "not_equal", Prim.NE)
_comparison("lt", "less", Prim.LT)
_comparison("le", "less_equal", Prim.LE)
_comparison("gt", "greater", Prim.GT)
_comparison("ge", "greater_equal", Prim.GE)


@op("aten.eq.Tensor", samples="eq")
@op("aten.eq.Scalar", samples="eq")
def eq(b: Builder, self: Tensor, other: Value) -> Tensor:
    return pointwise(b, lambda x, y: x.eq(y), self, other, round_scalars=True, dtype=DType.BOOL)


def _logical(name: str, which: Prim) -> None:
    @op(f"aten.logical_{name}.default", samples=f"logical_{name}")
    def logical(b: Builder, self: Tensor, other: Tensor) -> Tensor:
        return b.pointwise(lambda x, y: prim(which, x, y), b.cast(self, DType.BOOL), b.cast(other, DType.BOOL))

    @op(f"aten.bitwise_{name}.Tensor", samples=f"bitwise_{name}")
    @op(f"aten.bitwise_{name}.Scalar", samples=f"bitwise_{name}")
    @op(f"aten.__{name}__.Tensor", samples=f"bitwise_{name}")
    @op(f"aten.__{name}__.Scalar", samples=f"bitwise_{name}")
    def bitwise(b: Builder, self: Tensor, other: Value) -> Tensor:
        return pointwise(b, lambda x, y: prim(which, x, y), self, other)


for _name, _which in (("and", Prim.AND), ("or", Prim.OR), ("xor", Prim.XOR)):
    _logical(_name, _which)


def _shift(name: str, which: Prim) -> None:
    @op(f"aten.bitwise_{name}_shift.Tensor", samples=f"bitwise_{name}_shift")
    @op(f"aten.bitwise_{name}_shift.Tensor_Scalar", samples=f"bitwise_{name}_shift")
    @op(f"aten.__{name[0]}shift__.Tensor", samples=f"bitwise_{name}_shift")
    @op(f"aten.__{name[0]}shift__.Scalar", samples=f"bitwise_{name}_shift")
    def shift(b: Builder, self: Tensor, other: Value) -> Tensor:
        if not self.dtype.is_int:
            refuse(f"a shift of {self.dtype}")
        return pointwise(b, lambda x, y: prim(which, x, y), self, other)


for _name, _which in (("left", Prim.SHL), ("right", Prim.SHR)):
    _shift(_name, _which)


# ---- choice --------------------------------------------------------------------------------------------------------------------


@op("aten.where.self", samples="where")
@op("aten.where.ScalarOther")
@op("aten.where.ScalarSelf")
@op("aten.where.Scalar")
def where(b: Builder, condition: Tensor, self: Value, other: Value) -> Tensor:
    (yes, no), result = promoted(b, self, other)
    return b.cast(b.pointwise(lambda c, x, y: select(c, x, y), b.cast(condition, DType.BOOL), yes, no), result)


@op("aten.masked_fill.Scalar", samples="masked_fill")
@op("aten.masked_fill.Tensor", samples="masked_fill")
def masked_fill(b: Builder, self: Tensor, mask: Tensor, value: Value) -> Tensor:
    filling = b.cast(value, self.dtype) if isinstance(value, Tensor) else b.scalar(value, self.dtype)
    return b.pointwise(lambda x, m, v: select(m, v, x), self, mask, filling)


@op("aten.clamp.default", samples="clamp")
@op("aten.clip.default", samples="clamp")
def clamp(b: Builder, self: Tensor, min: Number | Dim | None = None, max: Number | Dim | None = None) -> Tensor:
    """NaN stays, and so does -0.0 at a bound of 0; a NaN bound makes everything NaN."""
    bounds = [v for v in (min, max) if v is not None]

    def limited(x: S, *limits: S) -> S:
        if any(isinstance(v, float) and math.isnan(v) for v in bounds):
            return x * 0 + math.nan
        queue = list(limits)
        if min is not None:
            low = queue.pop(0)
            x = select(x < low, low, x)
        if max is not None:
            high = queue.pop(0)
            x = select(x > high, high, x)
        return x

    return pointwise(b, limited, self, *bounds)


@op("aten.clamp_min.default", samples="clamp_min")
def clamp_min(b: Builder, self: Tensor, min: Number | Dim) -> Tensor:
    result: Tensor = clamp(b, self, min=min)
    return result


@op("aten.clamp_max.default", samples="clamp_max")
def clamp_max(b: Builder, self: Tensor, max: Number | Dim) -> Tensor:
    result: Tensor = clamp(b, self, max=max)
    return result


@op("aten.hardtanh.default", samples="nn.functional.hardtanh")
def hardtanh(b: Builder, self: Tensor, min_val: Number = -1, max_val: Number = 1) -> Tensor:
    bounds = [int(v) if self.dtype.is_int else v for v in (min_val, max_val)]
    return b.cast(clamp(b, self, *bounds), self.dtype)


@op("aten.clamp.Tensor", samples="clamp")
def clamp_tensor(b: Builder, self: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    result = self
    if min is not None:
        result = pointwise(b, maximum, result, min)
    if max is not None:
        result = pointwise(b, minimum, result, max)
    return result


@op("aten.fmax.default", samples="fmax")
def fmax(b: Builder, self: Tensor, other: Tensor) -> Tensor:
    """The larger; of a number and NaN the number."""
    return pointwise(b, lambda x, y: select(is_nan(y), x, select(is_nan(x) | (x < y), y, x)), self, other)


@op("aten.fmin.default", samples="fmin")
def fmin(b: Builder, self: Tensor, other: Tensor) -> Tensor:
    return pointwise(b, lambda x, y: select(is_nan(y), x, select(is_nan(x) | (y < x), y, x)), self, other)


@op("aten.threshold.default", samples="nn.functional.threshold")
def threshold(b: Builder, self: Tensor, threshold: Number, value: Number) -> Tensor:
    bounds = [b.scalar(v if self.dtype.is_float else int(v), self.dtype) for v in (threshold, value)]
    return b.pointwise(lambda x, t, v: select(x <= t, v, x), self, *bounds)


@op("aten.nan_to_num.default", samples="nan_to_num")
def nan_to_num(b: Builder, self: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """NaN to 0 and infinities to the dtype's ends, unless said otherwise."""
    if self.dtype is DType.C64:
        return joined(b, *(nan_to_num(b, part, nan, posinf, neginf) for part in (real_part(self), imaginary_part(self))))
    if not self.dtype.is_float:
        return self
    largest = {DType.F64: 1.7976931348623157e308, DType.F32: 3.4028234663852886e38, DType.BF16: 3.3895313892515355e38, DType.F16: 65504.0}
    top = largest[self.dtype] if posinf is None else posinf
    bottom = -largest[self.dtype] if neginf is None else neginf

    def finite(x: S) -> S:
        return select(is_nan(x), 0.0 if nan is None else nan, select(x.eq(math.inf), top, select(x.eq(-math.inf), bottom, x)))

    return pointwise(b, finite, self)


# ---- steps ---------------------------------------------------------------------------------------------------------------------------


@op("aten.heaviside.default", samples="heaviside")
def heaviside(b: Builder, self: Tensor, values: Tensor) -> Tensor:
    """0 below zero, 1 above, `values` at zero; NaN counts as neither."""
    return pointwise(b, lambda x, at_zero: select(x.eq(0), at_zero, (x > 0).cast(x.dtype)), self, values)


@op("aten.nansum.default", samples="nansum", rtol=1e-5, atol=1e-5)
def nansum(b: Builder, self: Tensor, dim: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Tensor:
    """The sum of the elements that are numbers."""
    numbers = b.pointwise(lambda x: select(is_nan(x), 0, x), self) if self.dtype.is_float else self
    return sum_dims(b, numbers, dim, keepdim, dtype)  # type: ignore[no-any-return]


@op("aten.isin.Tensor_Tensor", samples="isin")
def isin(b: Builder, elements: Tensor, test_elements: Tensor, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether each element is among the test elements: exact on integers of any size; NaN is among none."""
    (values, tests), _ = promoted(b, elements, test_elements)
    found = b.reduce(Combine.ANY, values.shape, tests.shape, lambda i, r: S(values.at(i)).eq(S(tests.at(r))))
    return b.pointwise(lambda x: ~x, found) if invert else found

"""Tensors made from numbers and positions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sealift.ir.dim import Dim, dim, divide_exact
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Expr, Index
from sealift.ir.loop.prim import Combine, Prim
from sealift.ops.arguments import Size, as_int, as_sizes, refuse
from sealift.ops.lang import Builder, IndexEntry, Number, S, Tensor, as_entry, checked, prim, select
from sealift.ops.table import op
from sealift.ops.views import narrowed


def dtype_of(number: Number | Dim) -> DType:
    """What eager makes of a Python number when nobody says."""
    if isinstance(number, bool):
        return DType.BOOL
    if isinstance(number, complex):
        return DType.C64
    return DType.F32 if isinstance(number, float) else DType.I64


def filled(b: Builder, shape: Sequence[Size], value: Number | Dim, dtype: DType) -> Tensor:
    one = b.scalar(value, dtype)
    return Tensor(dtype, as_sizes(shape), lambda index: one.at(()))


@op("aten.full.default", samples="full")
def full(b: Builder, size: Sequence[Size], fill_value: Number | Dim, dtype: DType | None = None) -> Tensor:
    return filled(b, size, fill_value, dtype or dtype_of(fill_value))


@op("aten.zeros.default", samples="zeros")
@op("aten.empty.memory_format")  # what is in it is nobody's business: zeros
def zeros(b: Builder, size: Sequence[Size], dtype: DType | None = None) -> Tensor:
    return filled(b, size, 0, dtype or DType.F32)


@op("aten.empty_strided.default")
def empty_strided(b: Builder, size: Sequence[Size], stride: Sequence[Size], dtype: DType | None = None) -> Tensor:
    return filled(b, size, 0, dtype or DType.F32)


@op("aten.ones.default", samples="ones")
def ones(b: Builder, size: Sequence[Size], dtype: DType | None = None) -> Tensor:
    return filled(b, size, 1, dtype or DType.F32)


@op("aten.full_like.default", samples="full_like")
def full_like(b: Builder, self: Tensor, fill_value: Number | Dim, dtype: DType | None = None) -> Tensor:
    return filled(b, self.shape, fill_value, dtype or self.dtype)


@op("aten.zeros_like.default", samples="zeros_like")
@op("aten.empty_like.default")
def zeros_like(b: Builder, self: Tensor, dtype: DType | None = None) -> Tensor:
    return filled(b, self.shape, 0, dtype or self.dtype)


@op("aten.ones_like.default", samples="ones_like")
def ones_like(b: Builder, self: Tensor, dtype: DType | None = None) -> Tensor:
    return filled(b, self.shape, 1, dtype or self.dtype)


@op("aten.new_full.default", samples="new_full")
def new_full(b: Builder, self: Tensor, size: Sequence[Size], fill_value: Number | Dim, dtype: DType | None = None) -> Tensor:
    return filled(b, size, fill_value, dtype or self.dtype)


@op("aten.new_zeros.default", samples="new_zeros")
@op("aten.new_empty.default")
def new_zeros(b: Builder, self: Tensor, size: Sequence[Size], dtype: DType | None = None) -> Tensor:
    return filled(b, size, 0, dtype or self.dtype)


@op("aten.new_ones.default", samples="new_ones")
def new_ones(b: Builder, self: Tensor, size: Sequence[Size], dtype: DType | None = None) -> Tensor:
    return filled(b, size, 1, dtype or self.dtype)


@op("aten.fill.Scalar")
@op("aten.fill.Tensor")
def fill(b: Builder, self: Tensor, value: Tensor | Number | Dim) -> Tensor:
    if not isinstance(value, Tensor):
        return filled(b, self.shape, value, self.dtype)
    one = b.cast(value, self.dtype)
    return Tensor(self.dtype, self.shape, lambda index: one.at(()))


@op("aten.scalar_tensor.default", samples="scalar_tensor")
def scalar_tensor(b: Builder, s: Number | Dim, dtype: DType | None = None) -> Tensor:
    return filled(b, (), s, dtype or DType.F32)


# ---- positions -------------------------------------------------------------------------------------------------------------------


@op("aten.arange.start_step", samples="arange")
def arange(b: Builder, start: Number | Dim, end: Number | Dim, step: Number | Dim = 1, dtype: DType | None = None) -> Tensor:
    """start + step * i in int64 for integer results, in float64 for float ones, as eager counts."""
    numbers: tuple[Number | Dim, ...] = (start, end, step)
    result = dtype or (DType.F32 if any(isinstance(n, float) for n in numbers) else DType.I64)
    if result.is_int:  # eager truncates the numbers first
        numbers = tuple(int(n) if isinstance(n, float) else n for n in numbers)
    if any(isinstance(n, float) for n in (start, end, step)):
        if any(isinstance(n, Dim) and not n.is_const for n in numbers):
            refuse("arange of a size with a float")
        first, last, every = (n.value if isinstance(n, Dim) else n for n in (start, end, step))
        count = dim(max(math.ceil((last - first) / every), 0))
    else:
        every_dim, distance = _as_dim(numbers[2]), _as_dim(numbers[1]) - _as_dim(numbers[0])
        if every_dim.upper < 0:
            every_dim, distance = -every_dim, -distance
        if every_dim.lower <= 0:
            refuse(f"the step {every_dim} of arange may be 0 or negative, depending on sizes")
        whole = divide_exact(distance, every_dim)  # the rows of a matrix: arange(0, rows * columns, columns)
        count = (distance + (every_dim - 1)) // every_dim if whole is None else whole
    wide = DType.F64 if result.is_float else DType.I64
    origin, stride = b.scalar(numbers[0], wide), b.scalar(numbers[2], wide)

    def element(index: tuple[IndexEntry, ...]) -> Expr:
        if wide is DType.I64 and isinstance(index[0], Dim) and not any(isinstance(n, float) for n in numbers):
            return S(Index(_as_dim(numbers[0]) + index[0] * _as_dim(numbers[2]))).cast(result).e
        return (S(origin.at(())) + S(stride.at(())) * S(as_entry(index[0])).cast(wide)).cast(result).e

    return Tensor(result, (count,), element)


def _as_dim(number: Number | Dim) -> Dim:
    return number if isinstance(number, Dim) else dim(int(number))


@op("aten.arange.start")
def arange_start(b: Builder, start: Number | Dim, end: Number | Dim, dtype: DType | None = None) -> Tensor:
    result: Tensor = arange(b, start, end, 1, dtype)
    return result


@op("aten.arange.default")
def arange_end(b: Builder, end: Number | Dim, dtype: DType | None = None) -> Tensor:
    result: Tensor = arange(b, 0, end, 1, dtype)
    return result


@op("aten.linspace.default", samples="linspace", rtol=1e-6, atol=1e-6)
def linspace(b: Builder, start: Number, end: Number, steps: Size, dtype: DType | None = None) -> Tensor:
    """From both ends to the middle, as eager has it."""
    result = dtype or DType.F32
    count = as_int(steps, "the number of steps of linspace")
    if result.is_int:
        start, end = int(start), int(end)
    every = (end - start) / (count - 1) if count > 1 else 0.0
    wide = DType.F32 if result.is_int else DType.F64

    def element(index: tuple[IndexEntry, ...]) -> Expr:
        place = S(as_entry(index[0]))
        position = place.cast(wide)
        value = select(place < count // 2, position * every + float(start), position * every + (float(end) - every * (count - 1)))
        if count == 1:
            return (position * 0 + float(start)).cast(result).e
        return value.cast(result).e

    return Tensor(result, (dim(count),), element)


@op("aten.eye.default", samples="eye")
def eye(b: Builder, n: Size, dtype: DType | None = None) -> Tensor:
    result: Tensor = eye_m(b, n, n, dtype)
    return result


@op("aten.eye.m", samples="eye")
def eye_m(b: Builder, n: Size, m: Size, dtype: DType | None = None) -> Tensor:
    result = dtype or DType.F32
    return Tensor(result, as_sizes((n, m)), lambda i: S(as_entry(i[0])).eq(S(as_entry(i[1]))).cast(result).e)


def _triangle(self: Tensor, diagonal: Size, lower: bool) -> Tensor:
    edge = S(Index(dim(diagonal)))

    def element(index: tuple[IndexEntry, ...]) -> Expr:
        across = S(as_entry(index[-1])) - S(as_entry(index[-2]))
        return select(across <= edge if lower else across >= edge, S(self.at(index)), 0).e

    return Tensor(self.dtype, self.shape, element)


@op("aten.tril.default", samples="tril")
def tril(b: Builder, self: Tensor, diagonal: Size = 0) -> Tensor:
    return _triangle(self, diagonal, lower=True)


@op("aten.triu.default", samples="triu")
def triu(b: Builder, self: Tensor, diagonal: Size = 0) -> Tensor:
    return _triangle(self, diagonal, lower=False)


def _triangle_positions(b: Builder, row: int, col: int, offset: int, dtype: DType, lower: bool) -> Tensor:
    """[2, count]: the rows and the columns of a triangle's places, row by row. Every place of the matrix learns which of them it is, and those
    outside are written to a column that is then cut off."""
    count = sum(max(0, min(r + offset + 1, col)) if lower else col - max(0, min(r + offset, col)) for r in range(row))
    places = dim(row * col)

    def inside(k: Dim) -> S:
        across = S(Index(k % max(col, 1))) - S(Index(k // max(col, 1)))
        return across <= offset if lower else across >= offset

    nth = b.scan(Combine.SUM, Tensor(DType.I64, (places,), lambda i: inside(dim(0) + i[0]).cast(DType.I64).e), 0)  # type: ignore[operator]

    def target(k: Dim) -> Expr:
        return checked(prim(Prim.SELECT, inside(k), S(nth.at((k,))) - 1, count), dim(count + 1), negative=False)

    def value(at: tuple[Dim, ...]) -> S:
        row_of, col_of = S(Index(at[1] // max(col, 1))), S(Index(at[1] % max(col, 1)))
        return select(S(Index(at[0])).eq(0), row_of, col_of).cast(dtype)

    found = b.scatter(b.full((dim(2), dim(count + 1)), 0, dtype), (dim(2), places), lambda at: (at[0], target(at[1])), value)
    return narrowed(found, 1, 0, count)


@op("aten.tril_indices.default", samples="tril_indices")
def tril_indices(b: Builder, row: int, col: int, offset: int = 0, dtype: DType | None = None) -> Tensor:
    return _triangle_positions(b, row, col, offset, dtype or DType.I64, lower=True)


@op("aten.triu_indices.default", samples="triu_indices")
def triu_indices(b: Builder, row: int, col: int, offset: int = 0, dtype: DType | None = None) -> Tensor:
    return _triangle_positions(b, row, col, offset, dtype or DType.I64, lower=False)


@op("aten.one_hot.default", samples="nn.functional.one_hot")
def one_hot(b: Builder, self: Tensor, num_classes: int = -1) -> Tensor:
    if num_classes < 0:
        refuse("one_hot without the number of classes: the size of the result depends on values")
    classes = dim(num_classes)

    def element(index: tuple[IndexEntry, ...]) -> Expr:
        label = S(checked(S(self.at(index[:-1])), classes, negative=False))
        return label.eq(S(as_entry(index[-1]))).cast(DType.I64).e

    return Tensor(DType.I64, (*self.shape, classes), element)

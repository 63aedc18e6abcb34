"""Reading where an index may lie outside: padding, windows, convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from sealift.ir.dim import Dim, dim, is_at_most, is_positive
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Bound, Expr, Index
from sealift.ir.loop.prim import Prim
from sealift.ops.lang import IndexEntry, Number, S, Scalar, Tensor, as_entry, guarded, prim, select
from sealift.ops.pairs import constant


def read_inside(t: Tensor, index: Sequence[IndexEntry], other: Scalar, more: Sequence[Bound] = ()) -> Expr:
    """t at index where every entry lies in its dimension (and every bound of `more` holds), else `other`."""
    bounds = list(more)
    entries: list[IndexEntry] = []
    conditions: list[S] = []
    for i, size in zip(index, t.shape):
        if isinstance(i, Dim):
            entries.append(i)
            if not (is_at_most(dim(0), i) and is_positive(size - i)):
                bounds.append(Bound(i, dim(0), size))
            continue
        at, limit = S(i), S(Index(size))
        conditions.append((at >= 0) & (at < limit))
        entries.append(prim(Prim.MAXIMUM, prim(Prim.MINIMUM, at, limit - 1), 0).e)
        bounds.append(Bound(dim(0), dim(0), size))  # an empty tensor is never read
    value = guarded(t.at(entries), bounds, other) if bounds else t.at(entries)
    for c in conditions:
        value = select(c, S(value), S(constant(other, t.dtype))).e
    return value


def lowest(dtype: DType) -> Number:
    """What every element of the dtype is at least."""
    if dtype.is_float:
        return float("-inf")
    if dtype in (DType.BOOL, DType.U8):
        return 0
    return -(1 << (8 * dtype.size_bytes - 1))


def highest(dtype: DType) -> Number:
    if dtype.is_float:
        return float("inf")
    if dtype is DType.BOOL:
        return 1
    return (1 << (8 * dtype.size_bytes - (dtype is not DType.U8))) - 1


def clamped_entry(i: IndexEntry, low: Dim, high: Dim) -> Expr:
    """An i64 position kept within [low, high]."""
    return prim(Prim.MAXIMUM, prim(Prim.MINIMUM, S(as_entry(i)), S(Index(high))), S(Index(low))).e

"""Sorting: the sort family along the last dimension, the others moved out of its way."""

from __future__ import annotations

from sealift.ir.dim import dim
from sealift.ir.dtype import DType
from sealift.ops.arguments import Size, refuse
from sealift.ops.lang import Builder, Tensor, is_nan, normalize_dim, select
from sealift.ops.reductions import value_and_position
from sealift.ops.table import op
from sealift.ops.views import reshaped, selected, swapped, unsqueezed


def _sorted(b: Builder, self: Tensor, along: int, descending: bool, count: Size | None = None) -> tuple[Tensor, Tensor]:
    """The first `count` (None: all) values in order along a dimension, and where each came from. Stable; NaN is the largest."""
    if self.rank == 0:
        values, indices = _sorted(b, reshaped(self, (1,)), 0, descending, count)
        return reshaped(values, ()), reshaped(indices, ())
    last = swapped(self, along, self.rank - 1)
    shape = (*last.shape[:-1], last.shape[-1] if count is None else dim(count))
    values, indices = b.call("sort", {"x": last}, [(shape, self.dtype), (shape, DType.I64)], descending=descending, count=shape[-1])
    return swapped(values, along, self.rank - 1), swapped(indices, along, self.rank - 1)


@op("aten.sort.default")
def sort(b: Builder, self: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    return _sorted(b, self, normalize_dim(dim, self.rank), descending)


@op("aten.sort.stable", samples="sort")
def sort_stable(b: Builder, self: Tensor, stable: bool | None, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    return _sorted(b, self, normalize_dim(dim, self.rank), descending)


@op("aten.argsort.default")
def argsort(b: Builder, self: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    return _sorted(b, self, normalize_dim(dim, self.rank), descending)[1]


@op("aten.argsort.stable", samples="argsort")
def argsort_stable(b: Builder, self: Tensor, stable: bool, dim: int = -1, descending: bool = False) -> Tensor:
    return _sorted(b, self, normalize_dim(dim, self.rank), descending)[1]


@op("aten.msort.default", samples="msort")
def msort(b: Builder, self: Tensor) -> Tensor:
    return _sorted(b, self, 0, False)[0]


@op("aten.topk.default")
def topk(b: Builder, self: Tensor, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """Sorted even where eager need not. Of equal values the first; eager may take others."""
    return _sorted(b, self, normalize_dim(dim, self.rank), largest, k)


def _nth(b: Builder, self: Tensor, along: int, count: Size, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The last of the first `count` in order along a dimension."""
    if self.rank == 0:
        return self, b.full((), 0, DType.I64)
    kept = [selected(t, along, dim(count) - 1) for t in _sorted(b, self, along, False, count)]
    value, position = (unsqueezed(t, along) if keepdim else t for t in kept)
    return value, position


@op("aten.kthvalue.default")
def kthvalue(b: Builder, self: Tensor, k: Size, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Of equal values the k-th's own position; eager may give another's."""
    return _nth(b, self, normalize_dim(dim, self.rank), k, keepdim)


def _median(b: Builder, self: Tensor, along: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The lower of the two in the middle; NaN where there is one, and its first position."""
    if self.rank == 0:
        return self, b.full((), 0, DType.I64)
    size = self.shape[along]
    value, position = _nth(b, self, along, (size + 1) // 2, keepdim)
    if not self.dtype.is_float:
        return value, position
    top, first = value_and_position(b, self, along, keepdim, top=True)  # a NaN wins there
    missing = b.materialize(b.pointwise(is_nan, top))
    return b.pointwise(select, missing, top, value), b.pointwise(select, missing, first, position)


@op("aten.median.dim")
def median_dim(b: Builder, self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _median(b, self, normalize_dim(dim, self.rank), keepdim)


@op("aten.median.default", samples="median")
def median(b: Builder, self: Tensor) -> Tensor:
    if any(s.is_const and s.value == 0 for s in self.shape):
        refuse("the median of nothing")
    return _median(b, reshaped(self, (self.numel,)), 0, False)[0]

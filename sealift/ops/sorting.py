"""Sorting: the sort family along the last dimension, the others moved out of its way."""

from __future__ import annotations

from sealift.ir.dim import dim
from sealift.ir.dtype import DType
from sealift.ops.arguments import Size
from sealift.ops.lang import Builder, Tensor, normalize_dim
from sealift.ops.table import op
from sealift.ops.views import reshaped, swapped


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


@op("aten.topk.default")
def topk(b: Builder, self: Tensor, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """Sorted even where eager need not. Of equal values the first; eager may take others."""
    return _sorted(b, self, normalize_dim(dim, self.rank), largest, k)

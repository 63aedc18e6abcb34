"""Conversions of dtype. Where a tensor lies (device, layout, memory format) is not the rows' business."""

from __future__ import annotations

from sealift.ir.dtype import DType
from sealift.ops.lang import Builder, Tensor
from sealift.ops.table import op
from sealift.ops.views import expanded


@op("aten._to_copy.default", samples="to")
@op("aten.to.dtype", samples="to")
def to(b: Builder, self: Tensor, dtype: DType | None = None) -> Tensor:
    return b.cast(self, dtype or self.dtype)


@op("aten.to.dtype_layout")
@op("aten.to.device")
def to_dtype_layout(b: Builder, self: Tensor, dtype: DType | None = None) -> Tensor:
    return b.cast(self, dtype or self.dtype)


@op("aten.type_as.default", samples="type_as")
@op("aten.to.other")
def type_as(b: Builder, self: Tensor, other: Tensor) -> Tensor:
    return b.cast(self, other.dtype)


@op("prims.convert_element_type.default")
def convert_element_type(b: Builder, a: Tensor, dtype: DType) -> Tensor:
    return b.cast(a, dtype)


@op("aten.copy.default")
def copy(b: Builder, self: Tensor, src: Tensor) -> Tensor:
    """src, as self's dtype and shape."""
    return b.cast(expanded(src, self.shape), self.dtype)

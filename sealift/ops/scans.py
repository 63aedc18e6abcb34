"""Running sums and products. Floats accumulate as eager does: f32 in f64, half types in f32."""

from __future__ import annotations

from sealift.ir.dtype import DType
from sealift.ir.loop.prim import Combine
from sealift.ops.lang import Builder, Tensor, normalize_dim
from sealift.ops.table import op


def _running(b: Builder, combine: Combine, self: Tensor, dim: int, dtype: DType | None) -> Tensor:
    result = dtype or (self.dtype if self.dtype.is_float else DType.I64)
    t = b.cast(self, result)
    if self.rank == 0:
        return t
    wide = DType.F64 if result is DType.F32 else result.compute
    return b.cast(b.scan(combine, b.cast(t, wide), normalize_dim(dim, self.rank)), result)


@op("aten.cumsum.default", samples="cumsum", rtol=1e-5, atol=1e-6)
def cumsum(b: Builder, self: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    return _running(b, Combine.SUM, self, dim, dtype)


@op("aten.cumprod.default", samples="cumprod", rtol=1e-5, atol=1e-6)
def cumprod(b: Builder, self: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    return _running(b, Combine.PROD, self, dim, dtype)

"""Running sums, products, maxima and minima. Floats accumulate as eager does: f32 in f64, half types in f32."""

from __future__ import annotations

import math

from sealift.ir.dim import Dim
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Expr, Index
from sealift.ir.loop.prim import Combine, Prim
from sealift.ops.arguments import refuse
from sealift.ops.lang import Builder, IndexEntry, S, Tensor, as_entry, is_nan, normalize_dim, prim, select
from sealift.ops.table import op


def _running(b: Builder, combine: Combine, self: Tensor, dim: int, dtype: DType | None) -> Tensor:
    result = dtype or self.dtype.sums_as
    t = b.cast(self, result)
    if self.rank == 0:
        return t
    wide = DType.F64 if result is DType.F32 else result.compute
    stored = result if wide is DType.F64 else wide
    return b.cast(b.scan(combine, b.cast(t, wide), normalize_dim(dim, self.rank), stored), result)


@op("aten.cumsum.default", samples="cumsum", rtol=1e-5, atol=1e-6)
def cumsum(b: Builder, self: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    return _running(b, Combine.SUM, self, dim, dtype)


@op("aten.cumprod.default", samples="cumprod", rtol=1e-5, atol=1e-6)
def cumprod(b: Builder, self: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    return _running(b, Combine.PROD, self, dim, dtype)


@op("aten.logcumsumexp.default", samples="logcumsumexp", rtol=1e-5, atol=1e-6)
def logcumsumexp(b: Builder, self: Tensor, dim: int) -> Tensor:
    """log of the sum of exp up to each place, shifted by the largest up to there: a sum of its own for every place, since the shift moves."""
    if self.dtype is DType.C64:
        refuse("logcumsumexp of complex numbers")
    if self.rank == 0:
        return self
    along = normalize_dim(dim, self.rank)
    t = b.materialize(b.cast(self, self.dtype.compute))
    top = b.scan(Combine.MAX, t, along)
    shift = b.materialize(b.pointwise(lambda m: select(prim(Prim.ABS, m).eq(math.inf), 0.0, m), top))

    def term(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        here = (*i[:along], r[0], *i[along + 1 :])
        return select(S(Index(r[0])) <= S(Index(i[along])), prim(Prim.EXP, S(t.at(here)) - S(shift.at(i))), 0.0)

    total = b.reduce(Combine.SUM, t.shape, (t.shape[along],), term)
    return b.cast(b.pointwise(lambda s, m: prim(Prim.LOG, s) + m, total, shift), self.dtype)


def _best_so_far(b: Builder, self: Tensor, dim: int, combine: Combine) -> tuple[Tensor, Tensor]:
    """The values, and where each was met last: of equals the latest, and a NaN once there is one."""
    if self.rank == 0:
        return self, b.full((), 0, DType.I64)
    along = normalize_dim(dim, self.rank)
    compute = DType.U8 if self.dtype is DType.BOOL else self.dtype.compute
    wide = b.materialize(b.cast(self, compute))
    values = b.scan(combine, wide, along)

    def met(index: tuple[IndexEntry, ...]) -> Expr:
        x, best = S(wide.at(index)), S(values.at(index))
        wins = x.eq(best) | is_nan(x) if compute.is_float else x.eq(best)
        return select(wins, S(as_entry(index[along])), -1).e

    positions = b.scan(Combine.MAX, Tensor(DType.I64, self.shape, met), along)
    return b.cast(values, self.dtype), positions


@op("aten.cummax.default", samples="cummax")
def cummax(b: Builder, self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _best_so_far(b, self, dim, Combine.MAX)


@op("aten.cummin.default", samples="cummin")
def cummin(b: Builder, self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _best_so_far(b, self, dim, Combine.MIN)

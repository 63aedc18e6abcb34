"""Distances between rows."""

from __future__ import annotations

import math
from collections.abc import Callable

from sealift.ir.dim import Dim
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Expr, Index
from sealift.ir.loop.prim import Combine, Prim
from sealift.ops.lang import Builder, IndexEntry, S, Tensor, broadcast_shapes, maximum, prim, select
from sealift.ops.table import op
from sealift.ops.views import expanded


def _distance(b: Builder, shape: tuple[Dim, ...], width: Dim, p: float, difference: Callable[[tuple[Dim, ...], Dim], S]) -> Tensor:
    """The p-norm over `width` of difference(i, k); over nothing it is 0."""
    if p == math.inf:
        largest = b.reduce(Combine.MAX, shape, (width,), lambda i, r: prim(Prim.ABS, difference(i, r[0])))
        return b.pointwise(lambda x: maximum(x, 0.0), largest)

    def term(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        d = prim(Prim.ABS, difference(i, r[0]))
        if p == 0:
            return select(d.ne(d), d, d.ne(0).cast(d.dtype))  # NaN stays, as in eager's min(ceil(d), 1)
        return d if p == 1 else d * d if p == 2 else prim(Prim.POW, d, p)

    total = b.reduce(Combine.SUM, shape, (width,), term)
    if p in (0, 1):
        return total
    return b.pointwise(lambda x: prim(Prim.SQRT, x) if p == 2 else prim(Prim.POW, x, 1 / p), total)


@op("aten._cdist_forward.default", samples="cdist", rtol=1e-5, atol=1e-4)  # eager may take |x|^2 + |y|^2 - 2 x y
def cdist(b: Builder, x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """x1 [*, m, d], x2 [*, n, d] -> [*, m, n]"""
    lead = broadcast_shapes([x1.shape[:-2], x2.shape[:-2]])
    left, right = expanded(x1, (*lead, *x1.shape[-2:])), expanded(x2, (*lead, *x2.shape[-2:]))

    def difference(i: tuple[Dim, ...], k: Dim) -> S:
        return S(left.at((*i[:-1], k))) - S(right.at((*i[:-2], i[-1], k)))

    return _distance(b, (*lead, x1.shape[-2], x2.shape[-2]), x1.shape[-1], p, difference)


@op("aten._pdist_forward.default", samples="nn.functional.pdist", rtol=1e-5, atol=1e-5)
def pdist(b: Builder, self: Tensor, p: float = 2.0) -> Tensor:
    """[n, d] -> the distances of rows i < j, n * (n - 1) / 2 of them in row-major order."""
    n = self.shape[0]
    count = (n * (n - 1)) // 2

    def pair(position: Dim) -> tuple[IndexEntry, IndexEntry]:
        half = S(Index(n)).cast(DType.F64) - 0.5
        place = S(Index(position))
        root = prim(Prim.SQRT, half * half - place.cast(DType.F64) * 2.0 - 1.0)
        i = (half - root).cast(DType.I64)
        before: Expr = (place - S(Index(n)) * i + prim(Prim.FLOOR_DIV, i * (i + 1), 2) + i + 1).e
        return i.e, before

    def difference(at: tuple[Dim, ...], k: Dim) -> S:
        i, j = pair(at[0])
        return S(self.at((i, k))) - S(self.at((j, k)))

    return _distance(b, (count,), self.shape[1], p, difference)

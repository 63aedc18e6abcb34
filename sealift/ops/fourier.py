"""Fourier transforms: products with the matrix of the cosines and sines, which are the gemm family's. A long one is two short ones of
its factors with a turn between them (Cooley and Tukey), so that it costs n * (n1 + n2) and not n * n.

A complex tensor lies in memory as pairs of f32, so the transform of one is a real product, too: [*, 2n] x [2n, 2m]."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sealift.ir.dim import Dim, dim, dim_max
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Expr, Index
from sealift.ir.loop.prim import Prim
from sealift.ops import pairs
from sealift.ops.arguments import Size, as_sizes
from sealift.ops.gemm import product_of
from sealift.ops.lang import Builder, IndexEntry, S, Tensor, as_entry, as_pair, normalize_dim, prim, select
from sealift.ops.pointwise import times
from sealift.ops.refusal import refuse
from sealift.ops.table import op
from sealift.ops.views import narrowed, reshaped, swapped

_DIRECT = 128  # up to this length one product; above, two of its factors
_LONGEST = 4096  # of one product: its matrix is 128 MiB


@op("aten._fft_r2c.default", samples="fft.rfftn", rtol=1e-5, atol=1e-5)
def fft_r2c(b: Builder, self: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    """Of real numbers; along the last of `dim` only the first half, with `onesided`, since the other one mirrors it."""
    along = [normalize_dim(d, self.rank) for d in dim]
    size = self.shape[along[-1]]
    result = _along(b, self, along[-1], -1, size // 2 + 1 if onesided else size)
    for d in along[:-1]:
        result = _along(b, result, d, -1, self.shape[d])
    return _normalized(b, result, [self.shape[d] for d in along], normalization)


@op("aten._fft_c2c.default", samples="fft.fftn", rtol=1e-5, atol=1e-5)
def fft_c2c(b: Builder, self: Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Tensor:
    result = self
    for d in (normalize_dim(d, self.rank) for d in dim):
        result = _along(b, result, d, -1 if forward else 1, self.shape[d])
    return _normalized(b, result, [self.shape[d] for d in dim], normalization)


@op("aten._fft_c2r.default", samples="fft.irfftn", rtol=1e-5, atol=1e-5)
def fft_c2r(b: Builder, self: Tensor, dim: Sequence[int], normalization: int, last_dim_size: Size) -> Tensor:
    """The real numbers whose transform begins as `self` does along the last of `dim`."""
    along = [normalize_dim(d, self.rank) for d in dim]
    (size,) = as_sizes([last_dim_size])
    spectrum = self
    for d in along[:-1]:
        spectrum = _along(b, spectrum, d, 1, self.shape[d])
    whole = _mirrored(b, swapped(spectrum, along[-1], self.rank - 1), size)
    numbers = swapped(_transformed(b, whole, 1, size), along[-1], self.rank - 1).complex_part(lambda x: x.re)
    return _normalized(b, numbers, [*(self.shape[d] for d in along[:-1]), size], normalization)


def _normalized(b: Builder, t: Tensor, sizes: Sequence[Dim], normalization: int) -> Tensor:
    """0: as it is; 1: over the root of the number of elements; 2: over that number."""
    count = dim(1)
    for s in sizes:
        count = count * s
    if normalization == 0 or count == dim(1):
        return t
    wide = S(pairs.cast(Index(count), DType.F64))
    scale = S(pairs.constant(1, DType.F64)) / (prim(Prim.SQRT, wide) if normalization == 1 else wide)
    factor = Tensor(DType.F32, (), lambda index: scale.cast(DType.F32).e)
    return b.pointwise(times, t, factor) if t.dtype is DType.F32 else Tensor(t.dtype, t.shape, lambda i: _scaled(as_pair(t.at(i)), S(factor.at(()))))


def _scaled(x: pairs.Pair, factor: S) -> Expr:
    return pairs.pair((S(x.re) * factor).e, (S(x.im) * factor).e)


def _along(b: Builder, t: Tensor, along: int, sign: int, columns: Dim) -> Tensor:
    return swapped(_transformed(b, swapped(t, along, t.rank - 1), sign, columns), along, t.rank - 1)


def _transformed(b: Builder, t: Tensor, sign: int, columns: Dim) -> Tensor:
    """out[*, k] = sum over j of t[*, j] * exp(sign * 2 pi i j k / n), for the first `columns` of all k."""
    if t.dtype not in (DType.F32, DType.C64):
        refuse(f"a Fourier transform of {t.dtype}")
    size = t.shape[-1]
    factor = _factor(size.value) if size.is_const and size.value > _DIRECT else 1
    if factor == 1:
        return _product(b, t, sign, columns)
    first, second = size.value // factor, factor
    lead = t.shape[:-1]
    split = swapped(reshaped(t, (*lead, first, second)), t.rank - 1, t.rank)  # [*, j2, j1]
    inner = _turned(b, _transformed(b, split, sign, dim(first)), sign, size)  # [*, j2, k1]
    outer = _transformed(b, swapped(inner, t.rank - 1, t.rank), sign, dim(second))  # [*, k1, k2]
    joined = reshaped(swapped(b.materialize(outer), t.rank - 1, t.rank), (*lead, size))  # k = k1 + n1 k2
    return narrowed(joined, t.rank - 1, 0, columns)


def _factor(size: int) -> int:
    """The largest divisor that is at most its root."""
    return next(f for f in range(math.isqrt(size), 0, -1) if size % f == 0)


def _product(b: Builder, t: Tensor, sign: int, columns: Dim) -> Tensor:
    size = t.shape[-1]
    if dim_max(size, 1).upper > _LONGEST:
        refuse(f"a Fourier transform of length {size}: up to {_LONGEST}, or a fixed length that has factors up to that")
    is_complex = t.dtype is DType.C64
    rows = 2 * size if is_complex else size
    real = reshaped(b.materialize(t).held, (*t.shape[:-1], rows)) if is_complex else t

    def entry(index: tuple[IndexEntry, ...]) -> Expr:
        row, column = (i for i in index if isinstance(i, Dim))
        j, part = (row // 2, column % 2 - row % 2) if is_complex else (row, column % 2)
        angle, which = _angle(j * (column // 2), size), S(Index(part))  # 0: cosine; 1: sine; -1: what i * i makes of it
        sine = prim(Prim.SIN, angle) * float(sign)
        return select(which.eq(0), prim(Prim.COS, angle), select(which > 0, sine, -sine)).cast(DType.F32).e

    matrix = b.materialize(Tensor(DType.F32, (rows, 2 * columns), entry))
    lines = reshaped(real, (-1, rows)) if t.rank != 2 else real
    flat = product_of(b, lines, matrix)
    shaped = reshaped(flat, (*t.shape[:-1], columns, 2))
    return Tensor(DType.C64, shaped.shape[:-1], lambda i: pairs.Pair(lambda part: shaped.at((*i, part))))


def _turned(b: Builder, t: Tensor, sign: int, size: Dim) -> Tensor:
    """t[*, j, k] * exp(sign * 2 pi i j k / size)"""

    def element(index: tuple[IndexEntry, ...]) -> Expr:
        j, k = (i for i in index if isinstance(i, Dim))
        angle = _angle(j * k, size)
        return pairs.pair(*(part.cast(DType.F32).e for part in (prim(Prim.COS, angle), prim(Prim.SIN, angle) * float(sign))))

    turns = b.materialize(Tensor(DType.C64, t.shape[-2:], element))
    return b.materialize(b.pointwise(times, t, turns))


def _angle(turn: Dim, size: Dim) -> S:
    """2 pi (turn mod size) / size: whole turns are taken off in integers, and the rest is a double."""
    return S(Index(turn % size)).cast(DType.F64) * (2 * math.pi) / S(Index(size)).cast(DType.F64)


def _mirrored(b: Builder, half: Tensor, size: Dim) -> Tensor:
    """All n elements of the spectrum of real numbers from its first half: x[n - k] = conj(x[k]), and x[0] and x[n / 2] are real."""
    held = b.materialize(half)

    def element(index: tuple[IndexEntry, ...]) -> Expr:
        k, n = S(as_entry(index[-1])), S(Index(size))
        doubled = k + k
        x = as_pair(held.at((*index[:-1], select(doubled > n, n - k, k).e)))
        imaginary = select(k.eq(0) | doubled.eq(n), 0.0, select(doubled > n, -S(x.im), S(x.im)))
        return pairs.pair(x.re, imaginary.e)

    return b.materialize(Tensor(DType.C64, (*half.shape[:-1], size), element))

"""Resizing by sampling: nearest and bilinear. Positions are computed in f32 as eager does, and become plain index arithmetic where that
gives the same."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from sealift.ir.dim import Dim, dim
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Expr, Index
from sealift.ir.loop.prim import Prim
from sealift.ops.arguments import Size, refuse
from sealift.ops.lang import Builder, IndexEntry, S, Tensor, as_entry, maximum, minimum, prim
from sealift.ops.table import op

Scales = Sequence[float] | None


def _out_sizes(input: Tensor, n: int, output_size: Sequence[Size] | None, scale_factors: Scales) -> tuple[Dim, ...]:
    if output_size is not None:
        return tuple(dim(s) for s in output_size)
    if scale_factors is None:
        refuse("a resize without a size or a scale")
    sizes: list[Dim] = []
    for s, f in zip(input.shape[-n:], scale_factors):
        if s.is_const:
            sizes.append(dim(math.floor(s.value * f)))
        elif float(f).is_integer():
            sizes.append(s * int(f))
        else:
            refuse(f"a resize of {s} by {f}")
    return tuple(sizes)


def f32(x: float) -> float:
    """Rounded to f32."""
    rounded: float = struct.unpack("f", struct.pack("f", x))[0]
    return rounded


def _ratio(size: Dim, out: Dim, factor: float | None, dtype: DType) -> S:
    """Input positions to one output position, in eager's precision."""
    if factor is not None and factor > 0:
        return S(Index(dim(0))).cast(dtype) + 1.0 / factor
    return S(Index(size)).cast(dtype) / S(Index(out)).cast(dtype)


def _nearest_place(i: IndexEntry, size: Dim, out: Dim, factor: float | None) -> IndexEntry:
    """min(floor(i * ratio), size - 1)"""
    if size.is_const and out.is_const and isinstance(i, Dim) and out.value <= 1 << 16:
        ratio = f32(1.0 / factor) if factor is not None and factor > 0 else f32(size.value / out.value) if out.value else 0.0
        places = [min(int(f32(k * ratio)), size.value - 1) for k in range(out.value)]
        if all(p == k * size.value // out.value for k, p in enumerate(places)):
            return (i * size) // out
    position = S(as_entry(i)).cast(DType.F32) * _ratio(size, out, factor, DType.F32)
    return minimum(position.cast(DType.I64), S(Index(size - 1))).e  # never negative: the cast floors


def _nearest(input: Tensor, out: Sequence[Dim], factors: Sequence[float | None]) -> Tensor:
    n = len(out)
    lead = input.rank - n

    def element(index: tuple[IndexEntry, ...]) -> Expr:
        places = [_nearest_place(i, s, o, f) for i, s, o, f in zip(index[lead:], input.shape[lead:], out, factors)]
        return input.at((*index[:lead], *places))

    return Tensor(input.dtype, (*input.shape[:lead], *out), element)


def _nearest_rows(n: int) -> None:
    @op(f"aten.upsample_nearest{n}d.vec", samples="nn.functional.interpolate")
    def nearest(b: Builder, input: Tensor, output_size: Sequence[Size] | None, scale_factors: Scales) -> Tensor:
        out = _out_sizes(input, n, output_size, scale_factors)
        return _nearest(input, out, list(scale_factors) if scale_factors is not None else [None] * n)


for _n in (1, 2, 3):
    _nearest_rows(_n)


@op("aten.upsample_nearest2d.default", samples="nn.functional.upsample_nearest")
def upsample_nearest2d(b: Builder, self: Tensor, output_size: Sequence[Size], scales_h: float | None = None, scales_w: float | None = None) -> Tensor:
    return _nearest(self, [dim(s) for s in output_size], [scales_h, scales_w])


def _linear(b: Builder, input: Tensor, out: Sequence[Dim], align_corners: bool, factors: Sequence[float | None]) -> Tensor:
    """Between the two neighbours of each dimension."""
    n = len(out)
    lead = input.rank - n
    compute = input.dtype.compute
    if not compute.is_float:
        refuse(f"linear interpolation of {input.dtype}")

    def position(i: S, size: Dim, o: Dim, factor: float | None) -> S:
        at = i.cast(compute)
        if align_corners:
            steps = maximum(S(Index(o - 1)).cast(compute), 1.0)
            return at * (S(Index(size - 1)).cast(compute) / steps)
        return maximum((at + 0.5) * _ratio(size, o, factor, compute) - 0.5, 0.0)

    def element(index: tuple[IndexEntry, ...]) -> Expr:
        low: list[S] = []
        high: list[S] = []
        weight: list[S] = []
        for i, size, o, factor in zip(index[lead:], input.shape[lead:], out, factors):
            source = position(S(as_entry(i)), size, o, factor)
            last = S(Index(size - 1))
            low.append(minimum(source.cast(DType.I64), last))
            high.append(minimum(low[-1] + 1, last))
            weight.append(source - low[-1].cast(compute))

        def blend(k: int, places: tuple[Expr, ...]) -> S:
            if k == n:
                return S(input.at((*index[:lead], *places))).cast(compute)
            return blend(k + 1, (*places, low[k].e)) * (1 - weight[k]) + blend(k + 1, (*places, high[k].e)) * weight[k]

        return blend(0, ()).cast(input.dtype).e

    return Tensor(input.dtype, (*input.shape[:lead], *out), element)


def _linear_rows(name: str, n: int) -> None:
    @op(f"aten.{name}.vec", samples="nn.functional.interpolate", rtol=1e-5, atol=1e-5)
    def linear(b: Builder, input: Tensor, output_size: Sequence[Size] | None, align_corners: bool, scale_factors: Scales) -> Tensor:
        out = _out_sizes(input, n, output_size, scale_factors)
        return _linear(b, input, out, align_corners, list(scale_factors) if scale_factors is not None else [None] * n)


for _name, _n in (("upsample_linear1d", 1), ("upsample_bilinear2d", 2), ("upsample_trilinear3d", 3)):
    _linear_rows(_name, _n)


# ---- grid sampling ---------------------------------------------------------------------------------------------------------------

_BILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


@op("aten.grid_sampler_2d.default", samples="nn.functional.grid_sample", rtol=1e-5, atol=1e-5)
def grid_sampler_2d(b: Builder, input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """input [n, c, h, w] at grid [n, h', w', 2] of (x, y) in [-1, 1] -> [n, c, h', w']. A NaN position reads as outside."""
    if interpolation_mode not in (_BILINEAR, _NEAREST):
        refuse("bicubic grid sampling")
    if input.dtype.compute is not input.dtype:
        refuse(f"grid sampling in {input.dtype}: eager rounds the positions themselves to it")
    compute = input.dtype

    def unnormalized(x: S, size: Dim) -> S:
        extent = S(Index(size)).cast(compute)
        if align_corners:
            return (x + 1) / 2 * (extent - 1)
        return ((x + 1) * extent - 1) / 2

    def placed(x: S, size: Dim) -> S:
        last = S(Index(size - 1)).cast(compute)
        if padding_mode == _REFLECTION:
            x = _reflected_position(x, size, align_corners, compute)
        if padding_mode == _ZEROS:
            return x
        x = prim(Prim.SELECT, x > 0, x, 0.0)  # NaN too
        return prim(Prim.SELECT, x < last, x, last)

    def element(index: tuple[IndexEntry, ...]) -> Expr:
        batch, channel, *at = index
        positions = [S(grid.at((batch, *at, dim(1 - k)))).cast(compute) for k in range(2)]
        places = [placed(unnormalized(p, s), s) for p, s in zip(positions, input.shape[2:])]

        def read(row: S, column: S) -> S:
            value = _clamped_read(input, (batch, channel), (row, column))
            return value.cast(compute)

        if interpolation_mode == _NEAREST:
            return read(*(prim(Prim.ROUND, p) for p in places)).cast(input.dtype).e
        lows = [prim(Prim.FLOOR, p) for p in places]
        parts = [p - low for p, low in zip(places, lows)]
        top = read(lows[0], lows[1]) * ((1 - parts[0]) * (1 - parts[1])) + read(lows[0], lows[1] + 1) * ((1 - parts[0]) * parts[1])
        bottom = read(lows[0] + 1, lows[1]) * (parts[0] * (1 - parts[1])) + read(lows[0] + 1, lows[1] + 1) * (parts[0] * parts[1])
        return (top + bottom).cast(input.dtype).e

    return Tensor(input.dtype, (*input.shape[:2], *grid.shape[1:3]), element)


def _clamped_read(t: Tensor, lead: tuple[IndexEntry, ...], places: tuple[S, S]) -> S:
    """t at float positions that are whole numbers; 0 outside, and no read there."""
    inside: S | None = None
    entries: list[Expr] = []
    for p, size in zip(places, t.shape[2:]):
        last = S(Index(size - 1))
        here = (p >= 0) & (p <= last.cast(p.dtype))
        inside = here if inside is None else inside & here
        entries.append(prim(Prim.SELECT, here, p, 0).cast(DType.I64).e)
    assert inside is not None
    return prim(Prim.SELECT, inside, S(t.at((*lead, *entries))), 0)


def _reflected_position(x: S, size: Dim, align_corners: bool, compute: DType) -> S:
    """Mirrored at the centres of the border elements, or at their outer edges."""
    twice = S(Index(2 * size)).cast(compute)
    low, span = (S(Index(dim(0))).cast(compute), (twice - 2) / 2) if align_corners else (S(Index(dim(0))).cast(compute) - 0.5, twice / 2)
    distance = prim(Prim.ABS, x - low)
    extra = prim(Prim.FMOD, distance, span)
    flips = prim(Prim.FLOOR, distance / span)
    even = prim(Prim.FMOD, flips, 2.0).eq(0)
    mirrored = prim(Prim.SELECT, even, extra + low, span - extra + low)
    return prim(Prim.SELECT, span.eq(0), 0.0, mirrored)

"""Pooling: reductions over windows that may reach outside. Shapes [n, c, *space] or [c, *space]."""

from __future__ import annotations

from collections.abc import Sequence

from sealift.ir.dim import Dim, dim, dim_max, dim_min, divide_exact, product
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Bound, Expr, Index
from sealift.ir.loop.prim import ArgCombine, Combine, Prim
from sealift.ops.arguments import Size, spread
from sealift.ops.guards import lowest, read_inside
from sealift.ops.lang import Builder, S, Scalar, Tensor, checked, prim
from sealift.ops.table import op
from sealift.ops.views import reshaped

Numbers = Sequence[Size] | Size


class Window:
    """The windows of a pooling over the last `n` dimensions: their number and where each starts."""

    def __init__(self, t: Tensor, n: int, kernel: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers, ceil_mode: bool) -> None:
        self.t, self.n, self.lead = t, n, t.rank - n
        self.kernel = spread(kernel, n, "a kernel size")
        self.stride = spread(stride, n, "a stride") if not isinstance(stride, Sequence) or stride else self.kernel
        self.padding = spread(padding, n, "a padding")
        self.dilation = spread(dilation, n, "a dilation")
        self.space = t.shape[self.lead :]
        self.out_space = tuple(self._count(k, ceil_mode) for k in range(n))
        self.shape = (*t.shape[: self.lead], *self.out_space)

    def _count(self, k: int, ceil_mode: bool) -> Dim:
        """As many windows as fit; in ceil mode also a last one that starts inside the input or its left padding."""
        size, pad, step = self.space[k], self.padding[k], self.stride[k]
        free = size + (2 * pad - self.dilation[k] * (self.kernel[k] - 1) - 1)
        if not ceil_mode:
            return free // step + 1
        return dim_min((free + (step - 1)) // step + 1, (size + (pad - 1)) // step + 1)

    def start(self, k: int, at: Dim) -> Dim:
        return at * self.stride[k] - self.padding[k]

    def index(self, i: Sequence[Dim], r: Sequence[Dim]) -> list[Dim]:
        starts = [self.start(k, i[self.lead + k]) + r[k] * self.dilation[k] for k in range(self.n)]
        return [*i[: self.lead], *starts]


# ---- average ---------------------------------------------------------------------------------------------------------------------


def _average(b: Builder, w: Window, count_include_pad: bool, divisor: int | None) -> Tensor:
    compute = w.t.dtype.compute

    def term(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        return S(read_inside(w.t, w.index(i, r), 0)).cast(compute)

    total = b.reduce(Combine.SUM, w.shape, [dim(k) for k in w.kernel], term)

    def covered(k: int, at: Dim) -> Dim:
        """How much of a window counts: what lies in the input, or in the input and its padding."""
        start = w.start(k, at)
        end = dim_min(start + w.kernel[k], w.space[k] + w.padding[k])
        return end - start if count_include_pad else dim_min(end, w.space[k]) - dim_max(start, 0)

    def element(i: tuple[Dim, ...]) -> S:
        count = dim(divisor) if divisor is not None else product(covered(k, i[w.lead + k]) for k in range(w.n))
        return _mean(S(total.at(i)), count)

    return b.cast(Tensor(compute, w.shape, lambda i: element(_dims(i)).e), w.t.dtype)


def _mean(total: S, count: Dim) -> S:
    """Of integers towards 0."""
    return prim(Prim.DIV if total.dtype.is_float else Prim.TRUNC_DIV, total, S(Index(count)).cast(total.dtype))


def _dims(index: Sequence[object]) -> tuple[Dim, ...]:
    """Window arithmetic is on loop indices; a gather of a pooled tensor reads it from memory instead."""
    if not all(isinstance(i, Dim) for i in index):
        raise NotImplementedError("a pooled tensor read at gathered positions")
    return tuple(i for i in index if isinstance(i, Dim))


def _average_rows(n: int) -> None:
    @op(f"aten.avg_pool{n}d.default", samples=f"nn.functional.avg_pool{n}d", rtol=1e-5, atol=5e-6)
    def avg_pool(
        b: Builder,
        self: Tensor,
        kernel_size: Numbers,
        stride: Numbers = (),
        padding: Numbers = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        window = Window(self, n, kernel_size, stride, padding, 1, ceil_mode)
        return b.materialize(_average(b, window, count_include_pad, divisor_override))


for _n in (1, 2, 3):
    _average_rows(_n)


class Bins:
    """The windows of an adaptive pooling: bin o of dimension k covers [o * in // out, ceil((o + 1) * in / out))."""

    def __init__(self, t: Tensor, output_size: Sequence[Size | None]) -> None:
        self.t, self.n = t, len(output_size)
        self.lead = t.rank - self.n
        self.space = t.shape[self.lead :]
        self.out_space = tuple(s if o is None else dim(o) for o, s in zip(output_size, self.space))
        self.shape = (*t.shape[: self.lead], *self.out_space)
        self.exact = [divide_exact(s, o) for s, o in zip(self.space, self.out_space)]
        self.longest = [e if e is not None else (s + o - 1) // o + 1 for e, s, o in zip(self.exact, self.space, self.out_space)]

    def span(self, k: int, at: Dim) -> tuple[Dim, Dim]:
        size, out = self.space[k], self.out_space[k]
        return (at * size) // out, ((at + 1) * size + (out - 1)) // out

    def read(self, i: tuple[Dim, ...], r: tuple[Dim, ...], other: Scalar) -> Expr:
        """Element r of bin i; `other` where a bin is shorter than the longest."""
        at, bounds = list(i[: self.lead]), []
        for k in range(self.n):
            start, end = self.span(k, i[self.lead + k])
            at.append(start + r[k])
            if self.exact[k] is None:
                bounds.append(Bound(start + r[k], start, end))
        return read_inside(self.t, at, other, bounds)


def _adaptive(b: Builder, self: Tensor, output_size: Sequence[Size | None]) -> Tensor:
    bins, compute = Bins(self, output_size), self.dtype.compute
    total = b.reduce(Combine.SUM, bins.shape, bins.longest, lambda i, r: S(bins.read(i, r, 0)).cast(compute))

    def element(i: tuple[Dim, ...]) -> S:
        count = product(end - start for start, end in (bins.span(k, i[bins.lead + k]) for k in range(bins.n)))
        return _mean(S(total.at(i)), count)

    return b.materialize(b.cast(Tensor(compute, bins.shape, lambda i: element(_dims(i)).e), self.dtype))


@op("aten._adaptive_avg_pool2d.default", samples="nn.functional.adaptive_avg_pool2d", rtol=1e-5, atol=5e-6)
@op("aten._adaptive_avg_pool3d.default", samples="nn.functional.adaptive_avg_pool3d", rtol=1e-5, atol=5e-6)
@op("aten.adaptive_avg_pool1d.default", samples="nn.functional.adaptive_avg_pool1d", rtol=1e-5, atol=5e-6)
@op("aten.adaptive_avg_pool2d.default", samples="nn.functional.adaptive_avg_pool2d", rtol=1e-5, atol=5e-6)
@op("aten.adaptive_avg_pool3d.default", samples="nn.functional.adaptive_avg_pool3d", rtol=1e-5, atol=5e-6)
def adaptive_avg_pool(b: Builder, self: Tensor, output_size: Sequence[Size]) -> Tensor:
    return _adaptive(b, self, output_size)


# ---- maximum ---------------------------------------------------------------------------------------------------------------------


def _maximum(b: Builder, w: Window) -> Tensor:
    compute, other = w.t.dtype.compute, lowest(w.t.dtype)

    def term(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        return S(read_inside(w.t, w.index(i, r), other)).cast(compute)

    return b.cast(b.reduce(Combine.MAX, w.shape, [dim(k) for k in w.kernel], term), w.t.dtype)


def _maximum_position(b: Builder, w: Window) -> Tensor:
    """The row-major position in the input of each window's maximum. A window starts at its first place inside, so that no place outside
    is the first of equals."""
    compute, other = w.t.dtype.compute, lowest(w.t.dtype)

    def inside_start(k: int, at: Dim) -> Dim:
        start, step = w.start(k, at), w.dilation[k]
        return start + ((dim_max(-start, 0) + (step - 1)) // step) * step

    def term(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        at = [inside_start(k, i[w.lead + k]) + r[k] * w.dilation[k] for k in range(w.n)]
        bounds = [Bound(w.start(k, i[w.lead + k]), dim(-(2**40)), w.space[k] + (w.padding[k])) for k in range(w.n)]
        reached = [Bound(a, dim(0), w.start(k, i[w.lead + k]) + ((w.kernel[k] - 1) * w.dilation[k] + 1)) for k, a in enumerate(at)]
        return S(read_inside(w.t, [*i[: w.lead], *at], other, [*bounds, *reached])).cast(compute)

    winner = b.reduce(ArgCombine.ARGMAX_LAST_NAN, w.shape, [dim(k) for k in w.kernel], term)

    def element(i: tuple[Dim, ...]) -> S:
        left = S(winner.at(i))
        places: list[S] = []
        for k in reversed(range(w.n)):
            places.insert(0, prim(Prim.REMAINDER, left, w.kernel[k]) * w.dilation[k] + S(Index(inside_start(k, i[w.lead + k]))))
            left = prim(Prim.FLOOR_DIV, left, w.kernel[k])
        flat = places[0]
        for size, place in zip(w.space[1:], places[1:]):
            flat = flat * S(Index(size)) + place
        return flat

    return b.materialize(Tensor(DType.I64, w.shape, lambda i: element(_dims(i)).e))


def _maximum_rows(n: int) -> None:
    def with_indices(
        b: Builder,
        self: Tensor,
        kernel_size: Numbers,
        stride: Numbers = (),
        padding: Numbers = 0,
        dilation: Numbers = 1,
        ceil_mode: bool = False,
    ) -> tuple[Tensor, Tensor]:
        window = Window(self, n, kernel_size, stride, padding, dilation, ceil_mode)
        return _maximum(b, window), _maximum_position(b, window)

    op(f"aten.max_pool{n}d_with_indices.default", samples=f"nn.functional.max_pool{n}d")(with_indices)

    @op(f"aten.max_pool{n}d.default", samples=f"nn.functional.max_pool{n}d")
    def values(
        b: Builder,
        self: Tensor,
        kernel_size: Numbers,
        stride: Numbers = (),
        padding: Numbers = 0,
        dilation: Numbers = 1,
        ceil_mode: bool = False,
    ) -> Tensor:
        return _maximum(b, Window(self, n, kernel_size, stride, padding, dilation, ceil_mode))


for _n in (1, 2, 3):
    _maximum_rows(_n)


@op("aten.adaptive_max_pool2d.default", samples="nn.functional.adaptive_max_pool2d")
@op("aten.adaptive_max_pool3d.default", samples="nn.functional.adaptive_max_pool3d")
def adaptive_max_pool(b: Builder, self: Tensor, output_size: Sequence[Size]) -> tuple[Tensor, Tensor]:
    """The maximum of each bin, and its row-major position in the input."""
    bins = Bins(self, output_size)
    winner = b.reduce(
        ArgCombine.ARGMAX_LAST_NAN, bins.shape, bins.longest, lambda i, r: S(bins.read(i, r, lowest(self.dtype))).cast(self.dtype.compute)
    )

    def position(i: tuple[Dim, ...]) -> S:
        left, flat, stride = S(winner.at(i)), S(Index(dim(0))), dim(1)
        for k in reversed(range(bins.n)):
            longest, (start, _) = S(Index(bins.longest[k])), bins.span(k, i[bins.lead + k])
            flat = flat + (prim(Prim.REMAINDER, left, longest) + S(Index(start))) * S(Index(stride))
            left, stride = prim(Prim.FLOOR_DIV, left, longest), stride * bins.space[k]
        return flat

    places = b.materialize(Tensor(DType.I64, bins.shape, lambda i: position(_dims(i)).e))
    image = reshaped(self, (*self.shape[: bins.lead], product(bins.space)))
    largest = Tensor(self.dtype, bins.shape, lambda i: image.at((*i[: bins.lead], checked(S(places.at(i)), image.shape[-1]))))
    return b.materialize(largest), places

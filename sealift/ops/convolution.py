"""Convolution as a reduction over channels and taps with guarded reads. A kernel family takes the shapes it is good at from here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sealift.ir.dim import Dim, dim
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Bound
from sealift.ir.loop.prim import Combine
from sealift.ops.arguments import Size, as_int, spread
from sealift.ops.guards import read_inside
from sealift.ops.lang import Builder, S, Tensor, guarded
from sealift.ops.pooling import Numbers
from sealift.ops.table import op
from sealift.ops.views import reshaped, squeezed, unsqueezed


@dataclass(frozen=True)
class Taps:
    """A kernel's taps along each dimension of space: how many, and where they meet the input."""

    sizes: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(cls, sizes: Sequence[Size], stride: Numbers, padding: Numbers, dilation: Numbers) -> Taps:
        n = len(sizes)
        counts = tuple(as_int(k, "a kernel size") for k in sizes)
        return cls(counts, spread(stride, n, "a stride"), spread(padding, n, "a padding"), spread(dilation, n, "a dilation"))

    @property
    def span(self) -> list[int]:
        """From the first tap to the last, both included."""
        return [(k - 1) * g + 1 for k, g in zip(self.sizes, self.dilation)]

    def windows(self, space: Sequence[Dim]) -> list[Dim]:
        """How many places a kernel has along `space`."""
        return [(s + (2 * p - w)) // st + 1 for s, p, w, st in zip(space, self.padding, self.span, self.stride)]

    def places(self, window: Sequence[Dim], tap: Sequence[Dim]) -> list[Dim]:
        """The positions that the taps of a window meet, some in the padding."""
        return [x * st - p + k * g for x, st, p, k, g in zip(window, self.stride, self.padding, tap, self.dilation)]

    def windows_at(self, place: Sequence[Dim], tap: Sequence[Dim]) -> tuple[list[Dim], list[Bound]]:
        """The inverse of `places`: the window whose tap meets this position, where the bounds hold (and the window is one)."""
        spots = [x + p - k * g for x, p, k, g in zip(place, self.padding, tap, self.dilation)]
        return [s // st for s, st in zip(spots, self.stride)], [Bound(s % st, dim(0), dim(1)) for s, st in zip(spots, self.stride) if st > 1]


@op("aten.convolution.default", samples="nn.functional.conv2d", rtol=1e-5, atol=1e-4)
def convolution(
    b: Builder,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    transposed: bool,
    output_padding: Numbers,
    groups: int,
) -> Tensor:
    """input [n, ci, *space], weight [co, ci / groups, *taps] (transposed: [ci, co / groups, *taps]) -> [n, co, *space']"""
    taps = Taps.of(weight.shape[2:], stride, padding, dilation)
    return _transposed(b, input, weight, bias, taps, output_padding, groups) if transposed else _forward(b, input, weight, bias, taps, groups)


def _forward(b: Builder, input: Tensor, weight: Tensor, bias: Tensor | None, taps: Taps, groups: int) -> Tensor:
    """Numerics: f32 accumulator for half types."""
    n = len(taps.sizes)
    if input.rank == n + 1:  # without a batch
        return squeezed(_forward(b, unsqueezed(input, 0), weight, bias, taps, groups), [0])
    shape = (input.shape[0], weight.shape[0], *taps.windows(input.shape[2:]))
    if _is_for_the_family(input, weight):
        return _family(b, input, weight, bias, taps, groups, shape)
    outputs_a_group, inputs_a_group = weight.shape[0] // groups, weight.shape[1]
    compute = input.dtype.compute

    def term(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        (batch, out, *at), (inner, *tap) = i, r
        group = out // outputs_a_group if groups > 1 else dim(0)
        value = read_inside(input, [batch, group * inputs_a_group + inner, *taps.places(at, tap)], 0)
        return S(value).cast(compute) * S(weight.at((out, inner, *tap))).cast(compute)

    return _with_bias(b, b.reduce(Combine.SUM, shape, weight.shape[1:], term), bias, input.dtype)


def _transposed(b: Builder, input: Tensor, weight: Tensor, bias: Tensor | None, taps: Taps, output_padding: Numbers, groups: int) -> Tensor:
    """As _forward, from windows to the positions that they meet; output_padding says how many more positions there are at the end."""
    n = len(taps.sizes)
    if input.rank == n + 1:
        return squeezed(_transposed(b, unsqueezed(input, 0), weight, bias, taps, output_padding, groups), [0])
    extra = spread(output_padding, n, "an output padding")
    space = input.shape[2:]
    out_space = [(s - 1) * st + (w + e - 2 * p) for s, st, w, e, p in zip(space, taps.stride, taps.span, extra, taps.padding)]
    outputs_a_group, inputs_a_group = weight.shape[1], weight.shape[0] // groups
    shape = (input.shape[0], outputs_a_group * groups, *out_space)
    if _is_for_the_family(input, weight):
        return _family(b, input, weight, bias, taps, groups, shape, transposed=True, output_padding=extra)
    compute = input.dtype.compute

    def term(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        (batch, out, *at), (inner, *tap) = i, r
        group = out // outputs_a_group if groups > 1 else dim(0)
        channel = group * inputs_a_group + inner
        places, hits = taps.windows_at(at, tap)
        hits += [Bound(x, dim(0), size) for x, size in zip(places, space)]
        factor = S(weight.at((channel, out - group * outputs_a_group, *tap))).cast(compute)
        # the product is guarded, not the factor: a NaN in the weight does not spread where no input meets it
        return S(guarded((S(input.at((batch, channel, *places))).cast(compute) * factor).e, hits, 0))

    return _with_bias(b, b.reduce(Combine.SUM, shape, (inputs_a_group, *weight.shape[2:]), term), bias, input.dtype)


def _with_bias(b: Builder, total: Tensor, bias: Tensor | None, dtype: DType) -> Tensor:
    if bias is not None:
        by_channel = reshaped(b.cast(bias, total.dtype), (1, -1, *[1] * (total.rank - 2)))
        total = b.pointwise(lambda x, c: x + c, total, by_channel)
    return b.cast(total, dtype)


def _is_for_the_family(input: Tensor, weight: Tensor) -> bool:
    return input.dtype is DType.F32 and weight.buffer is not None and weight.buffer.kind == "weight"


def _family(b: Builder, input: Tensor, weight: Tensor, bias: Tensor | None, taps: Taps, groups: int, shape: Sequence[Dim], **attrs: object) -> Tensor:
    """The conv family: signals, images and volumes."""
    operands = {"x": input, "w": weight} | ({"bias": bias} if bias is not None else {})
    attrs |= {"stride": taps.stride, "padding": taps.padding, "dilation": taps.dilation, "groups": groups}
    return b.call("conv", operands, [(shape, DType.F32)], **attrs)[0]


def _padded_to_same(input: Tensor, taps: Taps) -> Tensor:
    """So padded that a convolution of stride 1 keeps the size, the odd one out on the right."""
    total = [w - 1 for w in taps.span]
    lead = input.rank - len(total)

    def element(index: Sequence[Dim]) -> S:
        return S(read_inside(input, [*index[:lead], *(i - t // 2 for i, t in zip(index[lead:], total))], 0))

    shape = (*input.shape[:lead], *(s + t for s, t in zip(input.shape[lead:], total)))
    return Tensor(input.dtype, shape, lambda i: element(i).e)  # type: ignore[arg-type]


def _convolution_rows(n: int) -> None:
    @op(f"aten.conv{n}d.default", samples=f"nn.functional.conv{n}d", rtol=1e-5, atol=1e-4)
    @op(f"aten.conv{n}d.padding", samples=f"nn.functional.conv{n}d", rtol=1e-5, atol=1e-4)
    def conv(
        b: Builder,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Numbers = 1,
        padding: Numbers | str = 0,
        dilation: Numbers = 1,
        groups: int = 1,
    ) -> Tensor:
        taps = Taps.of(weight.shape[2:], stride, 0 if isinstance(padding, str) else padding, dilation)
        return _forward(b, _padded_to_same(input, taps) if padding == "same" else input, weight, bias, taps, groups)

    @op(f"aten.conv_transpose{n}d.{'default' if n == 1 else 'input'}", samples=f"nn.functional.conv_transpose{n}d", rtol=1e-5, atol=1e-4)
    def conv_transpose(
        b: Builder,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Numbers = 1,
        padding: Numbers = 0,
        output_padding: Numbers = 0,
        groups: int = 1,
        dilation: Numbers = 1,
    ) -> Tensor:
        return _transposed(b, input, weight, bias, Taps.of(weight.shape[2:], stride, padding, dilation), output_padding, groups)


for _n in (1, 2, 3):
    _convolution_rows(_n)


# ---- columns -----------------------------------------------------------------------------------------------------------------------


@op("aten.col2im.default", samples="", rtol=1e-6, atol=1e-6)
def col2im(
    b: Builder,
    self: Tensor,
    output_size: Sequence[Size],
    kernel_size: Numbers,
    dilation: Numbers,
    padding: Numbers,
    stride: Numbers,
) -> Tensor:
    """Columns [n, c * kh * kw, blocks] summed where they came from -> [n, c, h, w]"""
    if self.rank == 2:
        batched: Tensor = col2im(b, unsqueezed(self, 0), output_size, kernel_size, dilation, padding, stride)
        return squeezed(batched, [0])
    taps = Taps.of(spread(kernel_size, 2, "a kernel size"), stride, padding, dilation)
    out = [dim(s) for s in output_size]
    channels = self.shape[1] // (taps.sizes[0] * taps.sizes[1])
    apart = reshaped(self, (self.shape[0], channels, *taps.sizes, *taps.windows(out)))
    compute = self.dtype.compute

    def term(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        places, hits = taps.windows_at(i[2:], r)
        return S(read_inside(apart, [*i[:2], *r, *places], 0, hits)).cast(compute)

    combine = Combine.ANY if compute is DType.BOOL else Combine.SUM
    return b.cast(b.reduce(combine, (self.shape[0], channels, *out), [dim(k) for k in taps.sizes], term), self.dtype)


@op("aten.im2col.default", samples="nn.functional.unfold")
def im2col(b: Builder, self: Tensor, kernel_size: Numbers, dilation: Numbers, padding: Numbers, stride: Numbers) -> Tensor:
    """[n, c, h, w] -> [n, c * kh * kw, blocks]"""
    if self.rank == 3:
        batched: Tensor = im2col(b, unsqueezed(self, 0), kernel_size, dilation, padding, stride)
        return squeezed(batched, [0])
    taps = Taps.of(spread(kernel_size, 2, "a kernel size"), stride, padding, dilation)
    blocks = taps.windows(self.shape[2:])

    def element(i: Sequence[Dim]) -> S:
        return S(read_inside(self, [*i[:2], *taps.places(i[4:], i[2:4])], 0))

    shape = (*self.shape[:2], *(dim(k) for k in taps.sizes), *blocks)
    windows = b.materialize(Tensor(self.dtype, shape, lambda i: element(i).e))  # type: ignore[arg-type]
    return reshaped(windows, (self.shape[0], self.shape[1] * (taps.sizes[0] * taps.sizes[1]), blocks[0] * blocks[1]))

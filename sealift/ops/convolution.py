"""Convolution as a reduction over channels and taps with guarded reads. A kernel family takes the shapes it is good at from here."""

from __future__ import annotations

from collections.abc import Sequence

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
    """input [n, ci, *space], weight [co, ci / groups, *taps] (transposed: [ci, co / groups, *taps]) -> [n, co, *space']

    Numerics: f32 accumulator for half types."""
    n = input.rank - 2
    steps, pads, gaps = spread(stride, n, "a stride"), spread(padding, n, "a padding"), spread(dilation, n, "a dilation")
    if n in (1, 2) and input.dtype is DType.F32 and weight.buffer is not None and weight.buffer.kind == "weight" and not transposed:
        return _family(b, input, weight, bias, steps, pads, gaps, groups)
    extra = spread(output_padding, n, "an output padding")
    taps = weight.shape[2:]
    span = [(as_int(k, "a kernel size") - 1) * g + 1 for k, g in zip(taps, gaps)]
    space = input.shape[2:]
    if transposed:
        channels = weight.shape[1] * groups
        out_space = [(s - 1) * st + (w + e - 2 * p) for s, st, w, e, p in zip(space, steps, span, extra, pads)]
        inputs_a_group = weight.shape[0] // groups
    else:
        channels = weight.shape[0]
        out_space = [(s + (2 * p - w)) // st + 1 for s, st, w, p in zip(space, steps, span, pads)]
        inputs_a_group = weight.shape[1]
    outputs_a_group = channels // groups
    compute = input.dtype.compute

    def term(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        batch, out, *at = i
        inner, *tap = r
        group = out // outputs_a_group if groups > 1 else dim(0)
        channel = group * inputs_a_group + inner
        if not transposed:
            places = [x * st - p + k * g for x, st, p, k, g in zip(at, steps, pads, tap, gaps)]
            return S(read_inside(input, [batch, channel, *places], 0)).cast(compute) * S(weight.at((out, inner, *tap))).cast(compute)
        # transposed: the input that this tap spread to here, if there is one (a NaN in the weight does not spread where there is none)
        spots = [x + p - k * g for x, p, k, g in zip(at, pads, tap, gaps)]
        hits = [Bound(s % st, dim(0), dim(1)) for s, st in zip(spots, steps) if st > 1]
        places = [s // st for s, st in zip(spots, steps)]
        hits += [Bound(x, dim(0), size) for x, size in zip(places, space)]
        factor = S(weight.at((channel, out - group * outputs_a_group, *tap))).cast(compute)
        return S(guarded((S(input.at((batch, channel, *places))).cast(compute) * factor).e, hits, 0))

    total = b.reduce(Combine.SUM, (input.shape[0], channels, *out_space), (inputs_a_group, *taps), term)
    if bias is not None:
        by_channel = reshaped(b.cast(bias, compute), (1, -1, *[1] * n))
        total = b.pointwise(lambda x, c: x + c, total, by_channel)
    return b.cast(total, input.dtype)


def _family(
    b: Builder, input: Tensor, weight: Tensor, bias: Tensor | None, steps: Sequence[int], pads: Sequence[int], gaps: Sequence[int], groups: int
) -> Tensor:
    """The conv family, whose images have two dimensions: a signal is an image of one line."""
    image = input if input.rank == 4 else unsqueezed(input, 2)
    lead = (0,) * (4 - input.rank)
    stride, padding, dilation = (*(1 for _ in lead), *steps), (*lead, *pads), (*(1 for _ in lead), *gaps)
    taps = (*(dim(1) for _ in lead), *weight.shape[2:])
    space = [
        (s + (2 * p - (as_int(k, "a kernel size") - 1) * g - 1)) // st + 1 for s, p, k, g, st in zip(image.shape[2:], padding, taps, dilation, stride)
    ]
    shape = (image.shape[0], weight.shape[0], *space)
    operands = {"x": image, "w": weight} | ({"bias": bias} if bias is not None else {})
    out = b.call("conv", operands, [(shape, DType.F32)], stride=stride, padding=padding, dilation=dilation, groups=groups)[0]
    return out if input.rank == 4 else squeezed(out, [2])


def _convolution_rows(n: int) -> None:
    @op(f"aten.conv{n}d.default", samples=f"nn.functional.conv{n}d", rtol=1e-5, atol=1e-4)
    def conv(
        b: Builder,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Numbers = 1,
        padding: Numbers = 0,
        dilation: Numbers = 1,
        groups: int = 1,
    ) -> Tensor:
        return _batched(b, n, input, weight, bias, stride, padding, dilation, False, 0, groups)

    @op(f"aten.conv{n}d.padding", samples=f"nn.functional.conv{n}d", rtol=1e-5, atol=1e-4)
    def conv_padded(
        b: Builder,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Numbers = 1,
        padding: str = "valid",
        dilation: Numbers = 1,
        groups: int = 1,
    ) -> Tensor:
        """'same' pads so that the size stays, the odd one out on the right."""
        if padding == "valid":
            return _batched(b, n, input, weight, bias, stride, 0, dilation, False, 0, groups)
        gaps = spread(dilation, n, "a dilation")
        total = [(as_int(k, "a kernel size") - 1) * g for k, g in zip(weight.shape[2:], gaps)]
        lead = input.rank - n

        def element(index: Sequence[Dim]) -> S:
            at = [i if d < lead else i - total[d - lead] // 2 for d, i in enumerate(index)]
            return S(read_inside(input, at, 0))

        shape = (*input.shape[:lead], *(s + t for s, t in zip(input.shape[lead:], total)))
        padded = Tensor(input.dtype, shape, lambda i: element(i).e)  # type: ignore[arg-type]
        return _batched(b, n, padded, weight, bias, stride, 0, dilation, False, 0, groups)

    @op(
        f"aten.conv_transpose{n}d.{'default' if n == 1 else 'input'}",
        samples=f"nn.functional.conv_transpose{n}d",
        rtol=1e-5,
        atol=1e-4,
    )
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
        return _batched(b, n, input, weight, bias, stride, padding, dilation, True, output_padding, groups)


def _batched(b: Builder, n: int, input: Tensor, *rest: object) -> Tensor:
    """With the batch dimension that the input may lack."""
    if input.rank == n + 2:
        result: Tensor = convolution(b, input, *rest)
        return result
    return squeezed(convolution(b, unsqueezed(input, 0), *rest), [0])


for _n in (1, 2, 3):
    _convolution_rows(_n)


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
    taps, gaps = spread(kernel_size, 2, "a kernel size"), spread(dilation, 2, "a dilation")
    pads, steps = spread(padding, 2, "a padding"), spread(stride, 2, "a stride")
    out = [dim(s) for s in output_size]
    blocks = [(s + (2 * p - g * (k - 1) - 1)) // st + 1 for s, p, g, k, st in zip(out, pads, gaps, taps, steps)]
    channels = self.shape[1] // (taps[0] * taps[1])
    apart = reshaped(self, (self.shape[0], channels, *taps, *blocks))
    compute = self.dtype.compute

    def term(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        spots = [x + p - k * g for x, p, k, g in zip(i[2:], pads, r, gaps)]
        hits = [Bound(s % st, dim(0), dim(1)) for s, st in zip(spots, steps) if st > 1]
        return S(read_inside(apart, [*i[:2], *r, *(s // st for s, st in zip(spots, steps))], 0, hits)).cast(compute)

    return b.cast(b.reduce(Combine.SUM, (self.shape[0], channels, *out), [dim(k) for k in taps], term), self.dtype)


@op("aten.im2col.default", samples="nn.functional.unfold")
def im2col(b: Builder, self: Tensor, kernel_size: Numbers, dilation: Numbers, padding: Numbers, stride: Numbers) -> Tensor:
    """[n, c, h, w] -> [n, c * kh * kw, blocks]"""
    if self.rank == 3:
        batched: Tensor = im2col(b, unsqueezed(self, 0), kernel_size, dilation, padding, stride)
        return squeezed(batched, [0])
    taps, gaps = spread(kernel_size, 2, "a kernel size"), spread(dilation, 2, "a dilation")
    pads, steps = spread(padding, 2, "a padding"), spread(stride, 2, "a stride")
    blocks = [(s + (2 * p - g * (k - 1) - 1)) // st + 1 for s, p, g, k, st in zip(self.shape[2:], pads, gaps, taps, steps)]

    def element(i: Sequence[Dim]) -> S:
        places = [at * st - p + k * g for at, st, p, k, g in zip(i[4:], steps, pads, i[2:4], gaps)]
        return S(read_inside(self, [*i[:2], *places], 0))

    shape = (*self.shape[:2], dim(taps[0]), dim(taps[1]), *blocks)
    windows = b.materialize(Tensor(self.dtype, shape, lambda i: element(i).e))  # type: ignore[arg-type]
    return reshaped(windows, (self.shape[0], self.shape[1] * (taps[0] * taps[1]), blocks[0] * blocks[1]))

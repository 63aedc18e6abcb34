"""What a kernel family can read: an operand's place in memory as an offset and strides, and which strides each family takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sealift.ir.dim import Dim, dim, is_at_most, product
from sealift.ir.loop.expr import Buffer, Expr, Load
from sealift.ir.loop.types import Axis, Call, Operand


@dataclass(frozen=True)
class Strided:
    """Element [i, j, ...] of the operand stands at offset + i * strides[0] + j * strides[1] + ... (in elements)."""

    offset: Dim
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]


def flat_offset(load: Load) -> Dim | None:
    """The load's position in its buffer's memory, in elements; None with a gathered index."""
    total = dim(0)
    for entry, stride in zip(load.index, load.buffer.strides):
        if isinstance(entry, Expr):
            return None
        total = total + entry * stride
    return total


def strided(operand: Operand) -> Strided | None:
    """None where the operand is guarded, gathered or not linear in its axes."""
    if operand.load.guard:
        return None
    rest = flat_offset(operand.load)
    if rest is None:
        return None
    strides: list[Dim] = []
    for axis in operand.axes:
        split = rest.linear_in(axis.sym)
        if split is None:
            return None
        stride, rest = split
        strides.append(dim(0) if axis.extent == dim(1) else stride)
    if any(not stride.symbols.isdisjoint({a.sym for a in operand.axes}) for stride in strides):
        return None
    return Strided(rest, operand.shape, tuple(strides))


def collapsed_stride(view: Strided, first: int, last: int) -> Dim | None:
    """The stride of dimensions [first, last) taken as one (row-major), or None if they are not evenly spaced."""
    live = [d for d in range(first, last) if view.shape[d] != dim(1)]
    if not live:
        return dim(0)
    for outer, inner in pairwise(live):
        if view.strides[outer] != view.strides[inner] * view.shape[inner]:
            return None
    return view.strides[live[-1]]


def is_row_major(view: Strided) -> bool:
    return all(view.shape[d] == dim(1) or view.strides[d] == product(view.shape[d + 1 :]) for d in range(len(view.shape)))


def is_identity(index: Sequence[Dim | Expr], axes: Sequence[Axis]) -> bool:
    """Whether index[d] is axis d for every d; where an axis has one position, 0 is the same."""
    return len(index) == len(axes) and all(i == a.dim or (a.extent == dim(1) and i == dim(0)) for i, a in zip(index, axes))


def accepts(call: Call, role: str, operand: Operand) -> bool:
    """Whether the family can read this operand where it lies."""
    view = strided(operand)
    if view is None:
        return False
    rank = len(view.shape)
    match call.family, role:
        case "gemm", "a":
            return view.strides[-1] == dim(1) or view.shape[-1] == dim(1)
        case "gemm", "b":
            return dim(1) in view.strides[-2:] or dim(1) in view.shape[-2:]  # a single row or column is read with any stride
        case "gemm", "residual":
            return view.strides[-1] == dim(1)
        case ("attention", "mask") | ("conv", "x") | ("conv", "residual"):
            return True
        case ("bags", "table"):
            return view.strides[-1] == dim(1) or view.shape[-1] == dim(1)
        case "recurrent", ("gates" | "gates_reverse"):
            return view.strides[-1] == dim(1) or view.shape[-1] == dim(1)
        case "attention", _:
            return view.strides[rank - 1] == dim(1) or view.shape[rank - 1] == dim(1)
    return is_row_major(view)


def _shape(call: Call, role: str) -> tuple[Dim, ...]:
    operand = call.operand(role)
    return operand.shape if operand is not None else ()


def _reads_inside(call: Call) -> bool:
    """Whether no position of a 1x1 convolution without padding in front lies behind the image's end, where it is padded."""
    sizes = zip(_shape(call, "x")[2:], output_view(call).shape[2:], call.attr("stride"), strict=True)
    return all(is_at_most((out - 1) * stride, size - 1) for size, out, stride in sizes)


def output_view(call: Call) -> Strided:
    """Where the first output lies, its dimensions in the order in which the family's operands have them."""
    shape, strides = call.outs[0].shape, call.outs[0].strides
    if call.attr("channels_last", False):
        shape, strides = (shape[0], shape[-1], *shape[1:-1]), (strides[0], strides[-1], *strides[1:-1])
    return Strided(dim(0), shape, strides)


IN_PLACE_DEPTH = 192  # kGemmInPlaceDepth of kernels/gemm/gemm.h


def residual_in_place(call: Call) -> Buffer | None:
    """The buffer of a residual that may be the output's own memory, as the kernels allow it: each sum is whole when the residual is added.
    None where the sums are long, where an activation lies between, where the two lie differently in memory, or where it is a part of its
    buffer."""
    operand = call.operand("residual")
    if operand is None or call.attr("activation", "none") != "none" or call.attr("post_activation", "none") not in ("none", "relu"):
        return None
    if call.family == "gemm":
        depth = _shape(call, "a")[-1]
    elif call.family == "conv" and not call.attr("transposed", False) and int(call.attr("groups")) == 1 and not any(call.attr("padding")):
        depth = product(_shape(call, "w")[1:])
        if any(taps != dim(1) for taps in _shape(call, "w")[2:]) or not _reads_inside(call):
            return None
    else:
        return None
    if not is_at_most(depth, dim(IN_PLACE_DEPTH)):
        return None
    buffer, out, view = operand.load.buffer, call.outs[0], output_view(call)
    strides = tuple(dim(0) if size == dim(1) else stride for size, stride in zip(view.shape, view.strides))  # as strided() gives them
    if strided(operand) != Strided(view.offset, view.shape, strides) or buffer.dtype != out.dtype or buffer.numel != out.numel:
        return None
    return buffer

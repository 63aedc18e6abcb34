"""Loops -> Loops: a convolution reads the image that was padded with zeros for it, and pads by itself."""

from __future__ import annotations

from dataclasses import replace

from sealift.diag.loc import union
from sealift.ir.dim import Dim, dim
from sealift.ir.loop.expr import Load, substitute
from sealift.ir.loop.operands import accepts, is_identity
from sealift.ir.loop.types import Axis, Call, Kernel, Loops, Map, Operand


def absorb_padding(loops: Loops) -> Loops:
    """p[.., i] = x[.., i - 2] where(0 <= i - 2 < n) else 0; y = conv(p) padding=[1]
    ==>   y = conv(x) padding=[3], padding_end=[..]

    Refuses for another value than zero, for padding that crops or that is not constant, along batch and channels, and for a transposed
    convolution. The padded copy is left to be dropped when nothing else reads it.
    """
    paddings: dict[str, tuple[Map, Kernel]] = {}
    kernels: list[Kernel] = []
    for kernel in loops.kernels:
        (stage,) = kernel.stages
        if isinstance(stage, Map) and stage.combine is None and isinstance(stage.value, Load) and stage.value.guard and stage.out.kind == "temp":
            paddings[stage.out.name] = stage, kernel
        elif isinstance(stage, Call) and stage.family == "conv":
            kernel = _absorbed(kernel, stage, paddings)
        kernels.append(kernel)
    return loops if all(a is b for a, b in zip(kernels, loops.kernels)) else replace(loops, kernels=tuple(kernels))


def _absorbed(kernel: Kernel, call: Call, paddings: dict[str, tuple[Map, Kernel]]) -> Kernel:
    operand = call.operand("x")
    assert operand is not None
    found = paddings.get(operand.load.buffer.name)
    if found is None or operand.load.guard or not is_identity(operand.load.index, operand.axes) or call.attr("transposed", False):
        return kernel
    pad, source = found
    inside = _inside(pad)
    if inside is None:
        return kernel
    sizes, before = inside
    padding = tuple(call.attr("padding"))
    padding_end = tuple(call.attr("padding_end", padding))
    after = [(n - (size + p)) for n, size, p in zip(operand.shape, sizes, before)]
    if not all(a.is_const and a.value >= 0 for a in after):
        return kernel
    axes = tuple(Axis(a.name, n) for a, n in zip(operand.axes, sizes))
    assert isinstance(pad.value, Load)
    value = substitute(replace(pad.value, guard=(), other=0), {i.sym: k.dim + p for i, k, p in zip(pad.axes, axes, before)})
    assert isinstance(value, Load)
    read = Operand(axes, value)
    if not accepts(call, "x", read):
        return kernel
    attrs = {
        **dict(call.attrs),
        "padding": tuple(p + q for p, q in zip(padding, before[2:])),
        "padding_end": tuple(p + q.value for p, q in zip(padding_end, after[2:])),
    }
    operands = tuple((role, read if role == "x" else o) for role, o in call.operands)
    absorbed = replace(call, operands=operands, attrs=tuple(sorted(attrs.items())))
    ops = tuple(dict.fromkeys((*source.ops, *kernel.ops)))
    return replace(kernel, stages=(absorbed,), ops=ops, loc=union((source.loc, kernel.loc)))


def _inside(pad: Map) -> tuple[list[Dim], list[int]] | None:
    """The sizes of what is padded, and how much zero stands before it in each dimension."""
    load = pad.value
    assert isinstance(load, Load)
    if load.other != 0 or not is_identity(pad.index, pad.axes):
        return None
    sizes, before = [a.extent for a in pad.axes], [0] * len(pad.axes)
    bound_axes: set[int] = set()
    for bound in load.guard:
        place = [d for d, a in enumerate(pad.axes) if a.sym in bound.value.symbols]
        if len(place) != 1 or place[0] < 2 or place[0] in bound_axes or bound.lo != dim(0):
            return None
        shift = pad.axes[place[0]].dim - bound.value
        if not shift.is_const or shift.value < 0 or any(a.sym in bound.hi.symbols for a in pad.axes):
            return None
        bound_axes.add(place[0])
        sizes[place[0]], before[place[0]] = bound.hi, shift.value
    return sizes, before

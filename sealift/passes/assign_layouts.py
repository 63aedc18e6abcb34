"""Loops -> Loops: images that convolutions read or write lie channels last, and so does everything pointwise around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from sealift.ir.dim import Dim
from sealift.ir.loop.expr import Buffer, Expr, Load, rewrite
from sealift.ir.loop.operands import accepts, is_identity
from sealift.ir.loop.rewrite import map_expressions, stage_loads
from sealift.ir.loop.types import Axis, Call, Kernel, Loops, Map, Operand, Reduce, Scan, Stage, outputs_of

CHANNELS_LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}  # by rank: the dimension that stands at each place


def assign_layouts(loops: Loops) -> Loops:
    """x = conv(..): f32[n, c, h, w]; y[i, j, k, l] = relu(x[i, j, k, l])
    ==>   x = conv(..) channels_last: f32[n, h, w, c]; y[i, k, l, j] = relu(x[i, k, l, j]), its loops in the order i, k, l, j

    Only temporaries: inputs and outputs lie as the caller has them, so a transpose happens where they meet. Follows pointwise stages and
    windows, which keep batch and channel; stops at whatever regroups dimensions, and copies what another family can then no longer read.
    """
    images = {b.name for k in loops.kernels for s in k.stages if isinstance(s, Call) and s.family == "conv" for b in _images(s)}
    if not images:
        return loops
    links = [link for k in loops.kernels for s in k.stages for link in _links(s)]
    grown = True
    while grown:
        grown = False
        for a, b in links:
            if (a in images) != (b in images):
                images |= {a, b}
                grown = True
    fixed = {b.name for k in loops.kernels for s in k.stages if isinstance(s, Call) and s.family != "conv" for b in outputs_of(s)}
    moved = {b.name: _turned(b) for b in loops.buffers if b.name in images - fixed and _is_image(b)}
    kernels: list[Kernel] = []
    copies: list[Buffer] = []
    for kernel in loops.kernels:
        (stage,) = kernel.stages
        turned = _turn_stage(stage, moved)
        if isinstance(turned, Call):
            turned, before = _within_reach(turned, moved)
            copies += [s.out for s in before]
            kernels += [Kernel(s.out.name, (s,), 0, kernel.ops, kernel.loc) for s in before]
        kernels.append(kernel if turned is stage else replace(kernel, stages=(turned,)))
    buffers = (*(moved.get(b.name, b) for b in loops.buffers), *copies)
    return replace(loops, kernels=tuple(kernels), buffers=buffers)


# ---- which ---------------------------------------------------------------------------------------------------------------------------


def _is_image(b: Buffer) -> bool:
    return b.kind == "temp" and len(b.shape) in CHANNELS_LAST and b.order is None


def _images(call: Call) -> Iterator[Buffer]:
    """What the call reads and writes as [n, c, *space]. What it reads through a transpose may lie channels last as it is."""
    for role, operand in call.operands:
        if role in ("x", "residual") and _is_image(operand.load.buffer) and is_identity(operand.load.index, operand.axes):
            yield operand.load.buffer
    if not call.attr("channels_last", False):
        yield from (b for b in call.outs if _is_image(b))


def _links(stage: Stage) -> Iterator[tuple[str, str]]:
    """Pairs of images that a stage walks alike: same batch, same channel."""
    if isinstance(stage, Call):
        if stage.family == "conv":
            names = [b.name for b in _images(stage)]
            yield from pairwise(names)
        return
    if not _is_image(stage.out) or len(stage.axes) != len(stage.out.shape):
        return
    for load in stage_loads(stage):
        if _is_image(load.buffer) and len(load.index) == len(stage.axes) and _keeps_batch_and_channel(load, stage):
            yield load.buffer.name, stage.out.name


def _keeps_batch_and_channel(load: Load, stage: Map | Reduce | Scan) -> bool:
    axes: tuple[Axis, ...] = stage.axes
    index = stage.index if isinstance(stage, Map) else tuple(a.dim for a in axes)
    return all(isinstance(i, Dim) and i == stored for i, stored in zip(load.index[:2], index[:2]))


# ---- the turn ------------------------------------------------------------------------------------------------------------------------


def _turned(b: Buffer) -> Buffer:
    return replace(b, shape=tuple(b.shape[d] for d in CHANNELS_LAST[len(b.shape)]))


def _turn_stage(stage: Stage, moved: Mapping[str, Buffer]) -> Stage:
    def turn(e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer.name in moved:
            return replace(e, buffer=moved[e.buffer.name], index=tuple(e.index[d] for d in CHANNELS_LAST[len(e.index)]))
        return e

    if any(load.buffer.name in moved for load in stage_loads(stage)):
        stage = map_expressions(stage, lambda root: rewrite(root, turn))
    outs = outputs_of(stage)
    if outs[0].name not in moved:
        return stage
    out = moved[outs[0].name]
    order = CHANNELS_LAST[len(out.shape)]
    if isinstance(stage, Call):
        return replace(stage, outs=(out,), attrs=tuple(sorted({**dict(stage.attrs), "channels_last": True}.items())))
    if isinstance(stage, Map):
        index = tuple(stage.index[d] for d in order)
        return replace(stage, out=out, index=index, axes=_in_order(stage.axes, index))
    return replace(stage, out=out, axes=tuple(stage.axes[d] for d in order))


def _in_order(axes: tuple[Axis, ...], index: tuple[Dim | Expr, ...]) -> tuple[Axis, ...]:
    """The loops as the result lies in memory; as they were where an entry has no axis of its own."""
    place = {a: [d for d, i in enumerate(index) if isinstance(i, Dim) and a.sym in i.symbols] for a in axes}
    if any(len(p) > 1 for p in place.values()):
        return axes
    return tuple(sorted(axes, key=lambda a: place[a][0] if place[a] else -1))


def _within_reach(call: Call, moved: Mapping[str, Buffer]) -> tuple[Call, list[Map]]:
    """Another family's operand that lay row-major before, through a copy that still does."""
    before: list[Map] = []
    operands: list[tuple[str, Operand]] = []
    for role, operand in call.operands:
        if operand.load.buffer.name in moved and not accepts(call, role, operand):
            copy = Buffer(f"{call.outs[0].name}.{role}", operand.load.dtype, operand.shape)
            index = tuple(a.dim for a in operand.axes)
            before.append(Map(copy, operand.axes, index, operand.load))
            operand = Operand(operand.axes, Load(copy, index))
        operands.append((role, operand))
    return (replace(call, operands=tuple(operands)) if before else call), before

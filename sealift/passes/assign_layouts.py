"""Loops -> Loops: images that convolutions read or write lie channels last, and so does everything pointwise around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from sealift.ir.dim import Dim
from sealift.ir.loop.expr import Buffer, Load
from sealift.ir.loop.rewrite import replace_buffers, stage_loads
from sealift.ir.loop.types import Axis, Call, Loops, Map, Reduce, Scan, Stage, outputs_of

CHANNELS_LAST = (0, 2, 3, 1)


def assign_layouts(loops: Loops) -> Loops:
    """x = conv(..): f32[n, c, h, w]; y = relu(x)   ==>   x, y: f32[n, c, h, w] order(0, 2, 3, 1)

    Only temporaries: inputs and outputs lie as the caller has them, so a transpose happens where they meet. Follows pointwise stages and
    windows, which keep batch and channel; stops at whatever regroups dimensions.
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
    moved = {b.name: replace(b, order=CHANNELS_LAST) for b in loops.buffers if b.name in images - fixed and _is_image(b)}
    kernels = tuple(replace(k, stages=tuple(replace_buffers(s, moved) for s in k.stages)) for k in loops.kernels)
    return replace(loops, kernels=kernels, buffers=tuple(moved.get(b.name, b) for b in loops.buffers))


def _is_image(b: Buffer) -> bool:
    return b.kind == "temp" and len(b.shape) == 4 and b.order is None


def _images(call: Call) -> Iterator[Buffer]:
    for role, operand in call.operands:
        if role in ("x", "residual") and _is_image(operand.load.buffer):
            yield operand.load.buffer
    yield from (b for b in call.outs if _is_image(b))


def _links(stage: Stage) -> Iterator[tuple[str, str]]:
    """Pairs of images that a stage walks alike: same batch, same channel."""
    if isinstance(stage, Call):
        if stage.family == "conv":
            names = [b.name for b in _images(stage)]
            yield from pairwise(names)
        return
    if not _is_image(stage.out) or len(stage.axes) != 4:
        return
    for load in stage_loads(stage):
        if _is_image(load.buffer) and _keeps_batch_and_channel(load, stage):
            yield load.buffer.name, stage.out.name


def _keeps_batch_and_channel(load: Load, stage: Map | Reduce | Scan) -> bool:
    axes: tuple[Axis, ...] = stage.axes
    index = stage.index if isinstance(stage, Map) else tuple(a.dim for a in axes)
    return all(isinstance(i, Dim) and i == stored for i, stored in zip(load.index[:2], index[:2]))

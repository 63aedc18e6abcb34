"""Loops -> Loops: dimensions of one position go from temporaries and loops, so that stages that walk the same rows say so alike."""

from __future__ import annotations

from dataclasses import replace

from sealift.ir.dim import ONE, ZERO
from sealift.ir.loop.expr import Buffer, Expr, Load, cast, rewrite
from sealift.ir.loop.rewrite import map_expressions
from sealift.ir.loop.types import Axis, Call, Kernel, Loops, Map, Reduce, Scan, Stage, outputs_of


def drop_unit_axes(loops: Loops) -> Loops:
    """mean[0, i] = sum over r of x[0, i, r], i0 < 1, i < 128   ==>   mean[i] = sum over r of x[0, i, r], i < 128

    What the caller sees and what a kernel family writes keeps its dimensions.
    """
    fixed = {b.name for k in loops.kernels for s in k.stages if isinstance(s, Call) for b in outputs_of(s)}
    fixed |= {b.name for pair in loops.state_updates for b in pair}
    squeezed = {b.name: _squeezed(b) for b in loops.buffers if b.kind == "temp" and b.name not in fixed and ONE in b.shape}
    kernels = tuple(_drop_in_kernel(k, squeezed) for k in loops.kernels)
    if not squeezed and all(a is b for a, b in zip(kernels, loops.kernels)):
        return loops
    return replace(loops, kernels=kernels, buffers=tuple(squeezed.get(b.name, b) for b in loops.buffers))


def _squeezed(b: Buffer) -> Buffer:
    kept = [d for d, n in enumerate(b.shape) if n != ONE]
    order = tuple(kept.index(d) for d in b.order if d in kept) if b.order is not None else None
    return replace(b, shape=tuple(b.shape[d] for d in kept), order=None if order == tuple(range(len(kept))) else order)


def _drop_in_kernel(kernel: Kernel, squeezed: dict[str, Buffer]) -> Kernel:
    stages = tuple(_drop(s, squeezed) for s in kernel.stages)
    return kernel if stages == kernel.stages else replace(kernel, stages=stages)


def _drop(stage: Stage, squeezed: dict[str, Buffer]) -> Stage:
    def read(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.buffer.name not in squeezed:
            return e
        index = tuple(i for i, n in zip(e.index, e.buffer.shape) if n != ONE)
        return replace(e, buffer=squeezed[e.buffer.name], index=index)

    stage = map_expressions(stage, lambda root: rewrite(root, read))
    if isinstance(stage, Call):
        return stage
    if isinstance(stage, Scan) and stage.along.extent == ONE:  # the prefix of one element is that element
        stage = Map(stage.out, stage.axes, tuple(ZERO if a.extent == ONE else a.dim for a in stage.axes), cast(stage.value, stage.out.dtype))
    out = squeezed.get(stage.out.name, stage.out)
    if isinstance(stage, Map):
        index = tuple(i for i, n in zip(stage.index, stage.out.shape) if n != ONE or stage.out.name not in squeezed)
        return replace(stage, out=out, index=index, axes=_without_units(stage.axes))
    if stage.out.name in squeezed:
        stage = replace(stage, out=out, axes=_without_units(stage.axes))
    if isinstance(stage, Reduce):
        stage = replace(stage, reduced=_without_units(stage.reduced))
    return stage


def _without_units(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    return tuple(a for a in axes if a.extent != ONE)

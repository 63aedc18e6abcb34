"""Loops -> Loops: a value that is the same along an axis is computed and kept once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from sealift.ir.dim import ONE, Dim, dim
from sealift.ir.loop.expr import Buffer, Expr, Load, axis_symbols, rewrite
from sealift.ir.loop.operands import accepts, is_identity
from sealift.ir.loop.rewrite import map_expressions
from sealift.ir.loop.types import Axis, Call, Kernel, Loops, Map, Stage, outputs_of


def narrow_broadcasts(loops: Loops) -> Loops:
    """m[b, q, k] = keep[b, k]; readers m[b, q, k]   ==>   m[b, 0, k] = keep[b, k]; readers m[b, 0, k]

    Only temporaries with one writer: what the caller sees keeps its size. Refuses where a kernel family that reads the value needs it
    side by side along that axis.
    """
    writers = Counter(b.name for k in loops.kernels for s in k.stages for b in outputs_of(s))
    calls = [s for k in loops.kernels for s in k.stages if isinstance(s, Call)]
    narrowed: dict[str, tuple[Buffer, tuple[int, ...]]] = {}
    kernels: list[Kernel] = []
    for kernel in loops.kernels:
        (stage,) = kernel.stages
        new_stage = map_expressions(stage, lambda root: rewrite(root, lambda e: _read(e, narrowed))) if narrowed else stage
        if isinstance(new_stage, Map) and writers[new_stage.out.name] == 1:
            new_stage = _narrow(new_stage, narrowed, calls)
        kernels.append(kernel if new_stage is stage else replace(kernel, stages=(new_stage,)))
    if not narrowed:
        return loops
    buffers = tuple(narrowed[b.name][0] if b.name in narrowed else b for b in loops.buffers)
    return replace(loops, kernels=tuple(kernels), buffers=buffers)


def _narrow(stage: Map, narrowed: dict[str, tuple[Buffer, tuple[int, ...]]], calls: list[Call]) -> Stage:
    if stage.combine is not None or stage.out.kind != "temp" or not is_identity(stage.index, stage.axes):
        return stage
    used = axis_symbols(stage.value)
    constant = tuple(d for d, a in enumerate(stage.axes) if a.extent != ONE and a.sym not in used)
    if not constant:
        return stage
    out = replace(stage.out, shape=tuple(ONE if d in constant else n for d, n in enumerate(stage.out.shape)))
    if not all(_still_accepted(call, out, constant) for call in calls):
        return stage
    narrowed[out.name] = (out, constant)
    axes = tuple(Axis(a.name, ONE) if d in constant else a for d, a in enumerate(stage.axes))
    index: tuple[Dim | Expr, ...] = tuple(a.dim for a in axes)
    return Map(out, axes, index, stage.value)


def _still_accepted(call: Call, out: Buffer, constant: tuple[int, ...]) -> bool:
    for role, operand in call.operands:
        if operand.load.buffer.name == out.name:
            load = _read(operand.load, {out.name: (out, constant)})
            assert isinstance(load, Load)
            if not accepts(call, role, replace(operand, load=load)):
                return False
    return True


def _read(e: Expr, narrowed: dict[str, tuple[Buffer, tuple[int, ...]]]) -> Expr:
    if not isinstance(e, Load) or e.buffer.name not in narrowed:
        return e
    buffer, constant = narrowed[e.buffer.name]
    return replace(e, buffer=buffer, index=tuple(dim(0) if d in constant else i for d, i in enumerate(e.index)))

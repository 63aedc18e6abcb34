"""Rewriting stages: buffers replaced, expressions mapped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from sealift.ir.loop.expr import Buffer, Expr, Load, loads, rewrite
from sealift.ir.loop.types import Call, Kernel, Loops, Map, Operand, Reduce, Scan, Stage, outputs_of


def map_expressions(stage: Stage, fn: Callable[[Expr], Expr]) -> Stage:
    """The stage with fn applied to its value and to the expressions among its store index (a Call: to its operands' loads)."""
    match stage:
        case Map():
            index = tuple(fn(i) if isinstance(i, Expr) else i for i in stage.index)
            return replace(stage, index=index, value=fn(stage.value))
        case Reduce() | Scan():
            return replace(stage, value=fn(stage.value))
        case Call():
            operands: list[tuple[str, Operand]] = []
            for role, operand in stage.operands:
                load = fn(operand.load)
                assert isinstance(load, Load)
                operands.append((role, replace(operand, load=load)))
            return replace(stage, operands=tuple(operands))


def replace_buffers(stage: Stage, renamed: Mapping[str, Buffer]) -> Stage:
    """Reads and writes of the named buffers go to others of the same shape."""
    if not renamed:
        return stage

    def rename(e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer.name in renamed:
            return replace(e, buffer=renamed[e.buffer.name])
        return e

    mapped = map_expressions(stage, lambda root: rewrite(root, rename))
    if isinstance(mapped, Call):
        return replace(mapped, outs=tuple(renamed.get(b.name, b) for b in mapped.outs))
    return replace(mapped, out=renamed.get(mapped.out.name, mapped.out))


def stage_loads(stage: Stage) -> list[Load]:
    """Every load of the stage, each distinct one once."""
    match stage:
        case Map():
            roots = [stage.value, *(i for i in stage.index if isinstance(i, Expr))]
        case Reduce() | Scan():
            roots = [stage.value]
        case Call():
            roots = [o.load for _, o in stage.operands]
    return list(dict.fromkeys(load for root in roots for load in loads(root)))


def kernel_reads(kernel: Kernel) -> Iterator[Buffer]:
    for stage in kernel.stages:
        for load in stage_loads(stage):
            yield load.buffer
        if isinstance(stage, Map) and stage.combine is not None:
            yield stage.out


def count_readers(loops: Loops) -> Counter[str]:
    """How many stages read each buffer."""
    return Counter(name for k in loops.kernels for s in k.stages for name in {load.buffer.name for load in stage_loads(s)})


def used_buffers(loops: Loops, kernels: list[Kernel]) -> tuple[Buffer, ...]:
    used = {load.buffer.name for k in kernels for s in k.stages for load in stage_loads(s)}
    used |= {b.name for k in kernels for s in k.stages for b in outputs_of(s)}
    return tuple(b for b in loops.buffers if b.name in used or b.kind in ("weight", "state"))

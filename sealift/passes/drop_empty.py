"""Loops -> Loops: stages that write no element go; reductions over no element become their identity."""

from __future__ import annotations

from dataclasses import replace

from sealift.ir.dim import ZERO
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Const, Expr
from sealift.ir.loop.prim import ArgCombine, Combine
from sealift.ir.loop.types import Call, Kernel, Loops, Map, Reduce, Stage, outputs_of


def drop_empty(loops: Loops) -> Loops:
    """for i < 0: y[i] = ...   ==>   nothing            y[i] = sum over r < 0 of ...   ==>   y[i] = 0

    Only sizes that are 0 whatever the symbols are; a symbol that happens to be 0 is left to the loops. A buffer without elements is there
    without a writer: an output, what a kernel family reads."""
    kernels: list[Kernel] = []
    for kernel in loops.kernels:
        (stage,) = kernel.stages
        if any(ZERO in b.shape for b in outputs_of(stage)) or (isinstance(stage, Map) and any(a.extent == ZERO for a in stage.axes)):
            continue
        filled = _identity_of_nothing(stage)
        kernels.append(kernel if filled is stage else replace(kernel, stages=(filled,)))
    if len(kernels) == len(loops.kernels) and all(a is b for a, b in zip(kernels, loops.kernels)):
        return loops
    return replace(loops, kernels=tuple(kernels))


def _identity_of_nothing(stage: Stage) -> Stage:
    if isinstance(stage, Call) or not isinstance(stage, Reduce) or all(a.extent != ZERO for a in stage.reduced):
        return stage
    index = tuple(a.dim for a in stage.axes)
    return Map(stage.out, stage.axes, index, _identity(stage.combine, stage.out.dtype))


def _identity(combine: Combine | ArgCombine, dtype: DType) -> Expr:
    lowest: float | int
    highest: float | int
    if dtype.is_float:
        lowest, highest = float("-inf"), float("inf")
    elif dtype is DType.BOOL:
        lowest, highest = False, True
    elif dtype is DType.U8:
        lowest, highest = 0, 255
    else:
        bits = 8 * dtype.size_bytes
        lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    number: bool | int | float
    match combine:
        case Combine.PROD:
            number = 1
        case Combine.MIN:
            number = highest
        case Combine.MAX:
            number = lowest
        case Combine.ALL:
            number = True
        case Combine.ANY:
            number = False
        case _:
            number = 0
    return Const(float(number) if dtype.is_float else bool(number) if dtype is DType.BOOL else int(number), dtype)

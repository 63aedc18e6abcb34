"""Loops -> Loops: the loops that calls hold (branches, a loop's body), each through the passes on its own, and room for what they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sealift.ir.dim import Dim
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Buffer
from sealift.ir.loop.types import Call, Kernel, Loops, Stage


def optimize_parts(loops: Loops, optimize: Callable[[Loops], Loops], workspace_bytes: Callable[[Call], Dim]) -> Loops:
    """call cond(%y) then=@a, otherwise=@b   ==>   call cond(%y, %y.workspace) then=@optimized_a, otherwise=@optimized_b

    The workspace is a temporary of this one step: where the parts' own temporaries lie, and what a loop carries from one turn to the next.
    """
    if not loops.parts:
        return loops
    added: list[Buffer] = []

    def optimized(stage: Stage) -> Stage:
        if not isinstance(stage, Call) or not stage.parts:
            return stage
        attrs = tuple((name, optimize(value) if isinstance(value, Loops) else value) for name, value in stage.attrs)
        call = replace(stage, attrs=attrs)
        workspace = Buffer(f"{call.outs[0].name}.workspace", DType.U8, (workspace_bytes(call),))
        added.append(workspace)
        return replace(call, outs=(*call.outs, workspace))

    kernels: list[Kernel] = [replace(k, stages=tuple(optimized(s) for s in k.stages)) for k in loops.kernels]
    return replace(loops, kernels=tuple(kernels), buffers=(*loops.buffers, *added))

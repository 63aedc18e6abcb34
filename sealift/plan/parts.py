"""Where things lie in the workspace of a call that holds loops: a branch, a loop."""

from __future__ import annotations

from dataclasses import dataclass

from sealift.ir.dim import Dim, dim, dim_max
from sealift.ir.loop.expr import Buffer
from sealift.ir.loop.types import Call
from sealift.plan.memory import ALIGN_BYTES, MemoryPlan, padded_bytes, plan_memory


@dataclass(frozen=True)
class PartsPlan:
    """Bytes from the workspace's start. carried: the second place of each value that a loop carries; its first is the call's output.
    condition: what the loop's condition gives. arena: of the parts, one of which runs at a time."""

    plans: tuple[MemoryPlan, ...]  # of the call's parts, in order
    condition: Dim
    carried: tuple[Dim, ...]
    arena: Dim
    total_bytes: Dim


def plan_parts(call: Call) -> PartsPlan:
    plans = tuple(plan_memory(part) for part in call.parts)
    at, carried = dim(0), list[Dim]()
    if call.family == "while":
        at = dim(ALIGN_BYTES)
        for out in values_of(call):
            carried.append(at)
            at = at + padded_bytes(out)
    arena = dim(0)
    for plan in plans:
        arena = dim_max(arena, plan.arena_bytes)
    return PartsPlan(plans, dim(0), tuple(carried), at, dim_max(at + arena, ALIGN_BYTES))  # an empty buffer would have no place


def values_of(call: Call) -> tuple[Buffer, ...]:
    """The call's outputs without the workspace."""
    return call.outs[: len(next(part for name, part in call.attrs if name in ("then", "body")).outputs)]

"""Where each kernel's results lie when it has run: what a debugger of a package has to know, and nothing else does."""

from __future__ import annotations

from typing import Any

from sealift.ir.loop.expr import Buffer
from sealift.ir.loop.types import Kernel, Loops, outputs_of
from sealift.plan.memory import MemoryPlan


def places_of(kernel: Kernel, loops: Loops, plan: MemoryPlan) -> list[dict[str, Any]]:
    """For each buffer that the kernel leaves behind: the value's name, its type, and "arena" (the offset in bytes, an expression of the
    sizes), "output" or "state" (its position). Rows, which live inside the kernel, are left out."""
    outputs = {b.name: i for i, b in enumerate(loops.outputs) if b is not None}
    states = {state.name: i for i, state in enumerate(s for s, _ in loops.state_updates if s.kind == "state")}
    offsets = {slot.buffer: plan.offsets[slot.share] for slot in plan.slots}
    written = dict.fromkeys(b for stage in kernel.stages for b in outputs_of(stage))
    found: list[dict[str, Any]] = []
    for b in written:
        if b.kind == "output" and b.name in outputs:
            found.append({**_type(b), "output": outputs[b.name]})
        elif b.kind == "state" and b.name in states:
            found.append({**_type(b), "state": states[b.name]})
        elif b.name in offsets:
            found.append({**_type(b), "arena": str(offsets[b.name])})
    return found


def _type(b: Buffer) -> dict[str, Any]:
    order = {} if b.order is None else {"order": list(b.order)}
    return {"value": b.name, "dtype": str(b.dtype), "shape": [str(d) for d in b.shape], **order}

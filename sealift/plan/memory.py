"""Where every temporary lies: the arena's slots, and each kernel's row buffers in the workers' scratch. Data with its own verifier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sealift.diag.errors import InternalError
from sealift.ir.dim import Dim, dim, dim_max, is_at_most
from sealift.ir.loop.expr import Buffer
from sealift.ir.loop.operands import residual_in_place
from sealift.ir.loop.rewrite import stage_loads
from sealift.ir.loop.types import Call, Kernel, Loops, outputs_of

ALIGN_BYTES = 64  # a cache line, an AVX-512 register


@dataclass(frozen=True)
class Slot:
    """A temporary's life: it is written first in step `first_step` and read last in `last_step` (kernel positions, both inclusive)."""

    buffer: str
    share: int
    size_bytes: Dim
    first_step: int
    last_step: int
    replaces: str | None = None  # the temporary read for the last time in `first_step` whose memory this one overwrites, element by element


@dataclass(frozen=True)
class MemoryPlan:
    slots: tuple[Slot, ...]
    shares: tuple[Dim, ...]  # bytes of each share, as large as its largest slot
    offsets: tuple[Dim, ...]  # of each share in the arena: prefix sums of `shares`
    arena_bytes: Dim
    row_offsets: Mapping[str, Dim]  # row buffers, bytes from the start of a worker's scratch
    row_bytes: Dim  # of scratch that row buffers need

    def __str__(self) -> str:
        lines = [f"arena {self.arena_bytes} bytes in {len(self.shares)} shares, rows {self.row_bytes} bytes a worker"]
        lines += [
            f"  {s.buffer}: share {s.share} at {self.offsets[s.share]}, {s.size_bytes} bytes, steps {s.first_step}..{s.last_step}"
            + (f", replaces {s.replaces}" if s.replaces else "")
            for s in self.slots
        ]
        lines += [f"  {name}: row at {offset}" for name, offset in self.row_offsets.items()]
        return "\n".join(lines)


def padded_bytes(b: Buffer) -> Dim:
    """Bytes in memory, rounded up to whole lines."""
    size = b.numel * b.dtype.size_bytes
    return (size + (ALIGN_BYTES - 1)) // ALIGN_BYTES * ALIGN_BYTES


def plan_memory(loops: Loops) -> MemoryPlan:
    """Greedy: a sum takes its dying residual's share; any other temporary takes a free one, one whose size fits best by what can be proved,
    else a new one."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    buffers: dict[str, Buffer] = {}
    for step, kernel in enumerate(loops.kernels):
        for stage in kernel.stages:
            for b in (*outputs_of(stage), *(load.buffer for load in stage_loads(stage))):
                if b.kind == "temp":
                    buffers[b.name] = b
                    first.setdefault(b.name, step)
                    last[b.name] = step
    residuals = {out: residual for k in loops.kernels for out, residual in _sums_in_place(k).items()}
    share_of: dict[str, int] = {}
    shares: list[Dim] = []
    busy_until: list[int] = []
    slots: list[Slot] = []
    for name in sorted(first, key=lambda n: first[n]):
        size = padded_bytes(buffers[name])
        residual = residuals.get(name)
        if residual is not None and residual in first and first[residual] < last[residual] == first[name]:
            share = share_of[residual]
        else:
            residual = None
            share = _best_share(size, shares, [i for i, until in enumerate(busy_until) if until < first[name]])
        if share == len(shares):
            shares.append(size)
            busy_until.append(-1)
        shares[share] = dim_max(shares[share], size)
        busy_until[share] = last[name]
        share_of[name] = share
        slots.append(Slot(name, share, size, first[name], last[name], residual))
    offsets: list[Dim] = []
    total = dim(0)
    for size in shares:
        offsets.append(total)
        total = total + size
    row_offsets, row_bytes = _place_rows(loops)
    plan = MemoryPlan(tuple(slots), tuple(shares), tuple(offsets), total, row_offsets, row_bytes)
    verify(plan)
    return plan


def _best_share(size: Dim, shares: Sequence[Dim], free: Sequence[int]) -> int:
    """Among the free ones, one as large, else a larger, else a smaller one, by what can be proved; len(shares): a new one."""
    fits: tuple[Callable[[Dim], bool], ...] = (
        lambda share: share == size,
        lambda share: is_at_most(size, share),
        lambda share: is_at_most(share, size),
    )
    return next((i for fit in fits for i in free if fit(shares[i])), len(shares))


def _sums_in_place(kernel: Kernel) -> dict[str, str]:
    """A kernel's output that may overwrite its residual, which nothing else in the kernel reads: {output: residual}."""
    call = next(iter(kernel.stages), None)
    buffer = residual_in_place(call) if isinstance(call, Call) else None
    if not isinstance(call, Call) or buffer is None or buffer.kind != "temp" or call.outs[0].kind != "temp":
        return {}
    reads = sum(load.buffer.name == buffer.name for stage in kernel.stages for load in stage_loads(stage))
    writes = sum(b.name == call.outs[0].name for stage in kernel.stages for b in outputs_of(stage))
    return {call.outs[0].name: buffer.name} if reads == 1 and writes == 1 else {}


def _place_rows(loops: Loops) -> tuple[dict[str, Dim], Dim]:
    offsets: dict[str, Dim] = {}
    largest = dim(0)
    for kernel in loops.kernels:
        here = dim(0)
        for stage in kernel.stages:
            for b in outputs_of(stage):
                if b.kind == "row" and len(b.shape) > b.row_dims and b.name not in offsets:
                    offsets[b.name] = here
                    here = here + padded_bytes(b)
        largest = dim_max(largest, here)
    return offsets, largest


def verify(plan: MemoryPlan) -> None:
    """1. Slots alive in the same step have different shares, but for one that replaces another in its last step.
    2. A share is at least as large as each of its slots.
    3. Offsets are prefix sums of the shares, so shares never overlap, and the arena ends with the last.  4. Sizes are whole lines."""
    for i, a in enumerate(plan.slots):
        for b in plan.slots[i + 1 :]:
            replaces = b.replaces == a.buffer and a.last_step == b.first_step and a.size_bytes == b.size_bytes
            if a.share == b.share and a.first_step <= b.last_step and b.first_step <= a.last_step and not replaces:
                raise InternalError(f"memory plan, invariant 1: {a.buffer} and {b.buffer} are alive together in share {a.share}")
        if not is_at_most(a.size_bytes, plan.shares[a.share]):
            raise InternalError(f"memory plan, invariant 2: {a.buffer} needs {a.size_bytes} bytes, its share has {plan.shares[a.share]}")
    total = dim(0)
    if len(plan.shares) != len(plan.offsets):
        raise InternalError("memory plan, invariant 3: offsets are not the prefix sums")
    for size, offset in zip(plan.shares, plan.offsets):
        if offset != total:
            raise InternalError("memory plan, invariant 3: offsets are not the prefix sums")
        if size % ALIGN_BYTES != dim(0):
            raise InternalError(f"memory plan, invariant 4: {size} is not a multiple of {ALIGN_BYTES}")
        total = total + size
    if plan.arena_bytes != total:
        raise InternalError(f"memory plan, invariant 3: the arena has {plan.arena_bytes} bytes, its shares need {total}")

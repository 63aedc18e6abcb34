"""Loops -> Loops: stages that walk the same rows become one kernel, and what passes between them stays in the row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from sealift.diag.loc import union
from sealift.ir.loop.expr import Buffer, Expr
from sealift.ir.loop.operands import is_identity
from sealift.ir.loop.rewrite import replace_buffers, stage_loads
from sealift.ir.loop.types import Call, Kernel, Loops, Map, Stage, outputs_of
from sealift.ir.loop.vector_axis import vector_axis


def group_rows(loops: Loops) -> Loops:
    """mean[i] = sum_j x[i, j] / n; y[i, j] = x[i, j] - mean[i]   ==>   for each row i: mean = ...; for j: y[i, j] = x[i, j] - mean

    Refuses where a stage reads another row's values or writes over them, where the rows differ, and where the rows would take the vector
    axis.
    """
    groups: list[Kernel] = []
    for kernel in loops.kernels:
        if isinstance(kernel.stages[0], Call) or len(kernel.stages) > 1:
            groups.append(kernel)
        elif not _merge_into_earlier(groups, kernel):
            (stage,) = kernel.stages
            groups.append(replace(kernel, num_row_axes=natural_rows(stage)))
    if len(groups) == len(loops.kernels) and all(g.num_row_axes == k.num_row_axes for g, k in zip(groups, loops.kernels)):
        return loops
    return _keep_in_rows(replace(loops, kernels=tuple(groups)))


def natural_rows(stage: Stage) -> int:
    """How many leading axes are rows when the stage stands alone: all before the vector axis."""
    if isinstance(stage, Call) or _must_be_serial(stage):
        return 0
    axis = vector_axis(stage)
    count = stage.axes.index(axis) if axis in stage.axes else len(stage.axes)
    if not isinstance(stage, Map) and hasattr(stage, "along"):
        count = min(count, stage.axes.index(stage.along))
    return count


def _must_be_serial(stage: Stage) -> bool:
    """A scatter: two rows may write to one place."""
    return isinstance(stage, Map) and (stage.combine is not None or any(isinstance(i, Expr) for i in stage.index))


def _merge_into_earlier(groups: list[Kernel], kernel: Kernel) -> bool:
    (stage,) = kernel.stages
    if isinstance(stage, Call) or _must_be_serial(stage):
        return False
    reads = {load.buffer.name for load in stage_loads(stage)}
    for position in range(len(groups) - 1, -1, -1):
        group = groups[position]
        writes = {b.name for s in group.stages for b in outputs_of(s)}
        if writes.isdisjoint(reads) and outputs_of(stage)[0].name not in writes:
            continue
        rows = _common_rows((*group.stages, stage))
        if rows == 0 or any(has_to_stay(group, later) for later in groups[position + 1 :]):
            return False
        ops = tuple(dict.fromkeys((*group.ops, *kernel.ops)))
        merged = Kernel(kernel.name, (*group.stages, stage), rows, ops, union((group.loc, kernel.loc)))
        del groups[position]
        groups.append(merged)
        return True
    return False


def has_to_stay(group: Kernel, later: Kernel) -> bool:
    """Whether `group` may not move behind `later`: one reads or writes what the other writes."""
    writes = {b.name for s in group.stages for b in outputs_of(s)}
    later_writes = {b.name for s in later.stages for b in outputs_of(s)}
    later_reads = {load.buffer.name for s in later.stages for load in stage_loads(s)}
    reads = {load.buffer.name for s in group.stages for load in stage_loads(s)}
    return not writes.isdisjoint(later_reads | later_writes) or not reads.isdisjoint(later_writes)


def may_move_behind(kernel: Kernel, others: Iterable[Kernel | None]) -> bool:
    return not any(other is not None and has_to_stay(kernel, other) for other in others)


def _common_rows(stages: tuple[Stage, ...]) -> int:
    """The number of leading axes that all stages can share as rows; 0 if none."""
    if any(isinstance(s, Call) or _must_be_serial(s) for s in stages):
        return 0  # a kernel family, with or without an epilogue, is walked in its own order
    limits: list[int] = []
    for s in stages:
        assert not isinstance(s, Call)
        alone = natural_rows(s)
        # A stage with no axis left inside the row is computed once a row, wherever its vector axis would have been.
        limits.append(len(s.axes) if isinstance(s, Map) else alone)
    written = Counter(b.name for s in stages for b in outputs_of(s))
    read = {load.buffer.name for s in stages for load in stage_loads(s)}
    shared = {name for name, times in written.items() if name in read or times > 1}  # what one stage hands to another, or writes over
    natural = {natural_rows(s) for s in stages}  # more than all of them would leave no lanes to anyone
    for rows in range(min(limits), 0, -1):
        if rows in natural and all(_is_row_stage(s, rows, stages[0], shared) for s in stages):
            return rows
    return 0


def _is_row_stage(stage: Stage, rows: int, first: Stage, shared: set[str]) -> bool:
    assert not isinstance(stage, Call) and not isinstance(first, Call)
    if [a.extent for a in stage.axes[:rows]] != [a.extent for a in first.axes[:rows]]:
        return False
    alone = natural_rows(stage)
    if alone != rows and not (isinstance(stage, Map) and len(stage.axes) == rows):
        return False
    axes = stage.axes[:rows]
    if isinstance(stage, Map) and stage.out.name in shared and not is_identity(stage.index[:rows], axes):
        return False
    return all(is_identity(load.index[:rows], axes) for load in stage_loads(stage) if load.buffer.name in shared)


def _keep_in_rows(loops: Loops) -> Loops:
    """Buffers that only one kernel touches become row buffers: one row's worth of memory, in the worker's scratch."""
    users = Counter(name for k in loops.kernels for name in {b.name for s in k.stages for b in _touched(s)})
    updates = {new.name for _, new in loops.state_updates}
    local: dict[str, Buffer] = {}
    for kernel in loops.kernels:
        if kernel.num_row_axes and len(kernel.stages) > 1:
            for b in (b for s in kernel.stages for b in outputs_of(s)):
                if b.kind == "temp" and users[b.name] == 1 and b.name not in updates:
                    local[b.name] = replace(b, kind="row", order=None, row_dims=kernel.num_row_axes)
    if not local:
        return loops
    kernels = tuple(replace(k, stages=tuple(replace_buffers(s, local) for s in k.stages)) for k in loops.kernels)
    return replace(loops, kernels=kernels, buffers=tuple(local.get(b.name, b) for b in loops.buffers))


def _touched(stage: Stage) -> list[Buffer]:
    return [*outputs_of(stage), *(load.buffer for load in stage_loads(stage))]

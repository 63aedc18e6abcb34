"""Policy: the loops that a kernel's axes become. A value; the backend only spells it.

Axes are merged where memory does not tell them apart, so that a pointwise kernel over [b, s, h] is one loop of b*s*h. The original axes
live on as index arithmetic over the merged ones (i0 = f // h, i1 = f % h), which cancels in every offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sealift.ir.dim import ONE, Dim, Sym, dim, product
from sealift.ir.loop.expr import Expr, Index, Inside, Load
from sealift.ir.loop.prim import ArgCombine
from sealift.ir.loop.rewrite import stage_loads
from sealift.ir.loop.types import Axis, Call, Kernel, Map, Reduce, Scan, Stage
from sealift.ir.loop.vector_axis import vector_axis


@dataclass(frozen=True)
class StageNest:
    """serial: loops around the vector loop, outermost first (a Reduce's own output loops; its reduced loops are in `reduced`).
    vector: the axis whose elements are lanes, None for one element at a time. where: original axes in terms of these and the row."""

    serial: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    vector: Axis | None
    where: Mapping[Sym, Dim]

    @property
    def vector_is_reduced(self) -> bool:
        return self.vector is not None and self.vector in self.reduced


@dataclass(frozen=True)
class KernelNest:
    """row: the flattened row loop, None if there is none; its rows are shared out to workers. With `split_vector`, the only loop of the only
    stage is shared out instead. elements: of one row, for the decision to fork."""

    row: Axis | None
    stages: tuple[StageNest, ...]
    split_vector: bool
    elements: Dim
    is_epilogue: bool = False  # rows and lanes are those of a product's tile


def plan_nest(kernel: Kernel) -> KernelNest:
    rows = kernel.num_row_axes
    if len(kernel.stages) == 1:
        stage = kernel.stages[0]
        assert not isinstance(stage, Call)
        flat = _flat_map(stage)
        if flat is not None:
            return flat
    row_extents: list[Dim] = []
    row: Axis | None = None
    if rows:
        first = kernel.stages[0]
        assert not isinstance(first, Call)
        row_extents = [a.extent for a in first.axes[:rows]]
        row = Axis("row", product(row_extents))
    stages: list[StageNest] = []
    elements = dim(0)
    for stage in kernel.stages:
        assert not isinstance(stage, Call)
        nest = _stage_nest(stage, rows, row, row_extents)
        stages.append(nest)
        elements = elements + product(
            a.extent for a in (*nest.serial, *nest.reduced, *((nest.vector,) if nest.vector and not nest.vector_is_reduced else ()))
        )
    return KernelNest(row, tuple(stages), False, elements)


def plan_epilogue(kernel: Kernel) -> KernelNest:
    """The second stage of a product's kernel: rows are the product's, numbered through its leading dimensions; lanes its last."""
    stage = kernel.stages[1]
    assert isinstance(stage, Map)
    extents = [a.extent for a in stage.axes[:-1]]
    row = Axis("row", product(extents))
    where: dict[Sym, Dim] = {}
    position = row.dim
    for axis, extent in reversed(list(zip(stage.axes, extents))):
        where[axis.sym] = position % extent if axis is not stage.axes[0] else position
        position = position // extent
    return KernelNest(row, (StageNest((), (), stage.axes[-1], where),), False, stage.axes[-1].extent, is_epilogue=True)


def _stage_nest(stage: Map | Reduce | Scan, rows: int, row: Axis | None, row_extents: list[Dim]) -> StageNest:
    where: dict[Sym, Dim] = {}
    if row is not None:
        position = row.dim
        for axis, extent in reversed(list(zip(stage.axes[:rows], row_extents))):
            where[axis.sym] = position % extent
            position = position // extent
        outermost = stage.axes[0].sym
        where[outermost] = where[outermost] + position * row_extents[0]
    chosen = vector_axis(stage)
    inner = list(stage.axes[rows:])
    if chosen in stage.axes[:rows]:
        chosen = None
    groups = _merge(stage, inner, where, chosen)
    reduced_groups = _merge(stage, list(stage.reduced), where, chosen) if isinstance(stage, Reduce) else []
    vector: Axis | None = None
    serial: list[Axis] = []
    reduced: list[Axis] = []
    for target, merged_groups in ((serial, groups), (reduced, reduced_groups)):
        for members in merged_groups:
            axis = _merged_axis(members, where)
            if chosen is not None and chosen in members:
                vector = axis
                if target is reduced:
                    reduced.append(axis)
            else:
                target.append(axis)
    return StageNest(tuple(serial), tuple(reduced), vector, where)


def _merged_axis(members: list[Axis], where: dict[Sym, Dim]) -> Axis:
    if len(members) == 1:
        return members[0]
    merged = Axis("_".join(a.name for a in members), product(a.extent for a in members))
    where.update(_split(merged, members))
    return merged


def _split(merged: Axis, members: list[Axis]) -> dict[Sym, Dim]:
    """Each member in terms of the merged axis."""
    parts: dict[Sym, Dim] = {}
    rest = merged.dim
    for axis in reversed(members):
        parts[axis.sym] = rest % axis.extent if axis is not members[0] else rest
        rest = rest // axis.extent
    return parts


def _merge(stage: Map | Reduce | Scan, axes: list[Axis], where: Mapping[Sym, Dim], chosen: Axis | None) -> list[list[Axis]]:
    """Runs of neighbouring axes that one loop can walk."""
    groups: list[list[Axis]] = []
    for axis in axes:
        if groups and not _is_bound(stage, axis) and not _is_bound(stage, groups[-1][-1]):
            candidate = [*groups[-1], axis]
            if _walks_as_one(stage, candidate, where):
                groups[-1] = candidate
                continue
        groups.append([axis])
    return groups


def _is_bound(stage: Stage, axis: Axis) -> bool:
    """Axes that must stay loops of their own: a scan's, and those whose position a result is made of."""
    return (isinstance(stage, Scan) and axis == stage.along) or (
        isinstance(stage, Reduce) and isinstance(stage.combine, ArgCombine) and axis in stage.reduced
    )


def _walks_as_one(stage: Map | Reduce | Scan, members: list[Axis], where: Mapping[Sym, Dim]) -> bool:
    merged = Axis("merged", product(a.extent for a in members))
    split = {**where, **_split(merged, members)}
    symbols = {a.sym for a in members}
    if _outside_offsets(stage) & symbols:
        return False
    for index, strides in _accesses(stage):
        total = dim(0)
        for entry, stride in zip(index, strides):
            if not isinstance(entry, Expr):
                total = total + entry * stride
        if symbols.isdisjoint(total.symbols):
            continue
        walked = total.substitute(split)
        linear = walked.linear_in(merged.sym)
        if linear is None:
            return False
    return True


def _accesses(stage: Map | Reduce | Scan) -> list[tuple[tuple[Dim | Expr, ...], tuple[Dim, ...]]]:
    index: tuple[Dim | Expr, ...] = stage.index if isinstance(stage, Map) else tuple(a.dim for a in stage.axes)
    return [(index, stage.out.strides), *((load.index, load.buffer.strides) for load in stage_loads(stage))]


def _outside_offsets(stage: Map | Reduce | Scan) -> set[Sym]:
    """Axis symbols that occur elsewhere than in offsets: as numbers, in guards."""
    found: set[Sym] = set()
    seen: set[int] = set()

    def visit(e: Expr) -> None:
        if id(e) in seen:
            return
        seen.add(id(e))
        match e:
            case Index():
                found.update(e.value.symbols)
            case Inside():
                for bound in e.bounds:
                    found.update(bound.value.symbols | bound.lo.symbols | bound.hi.symbols)
            case Load():
                for bound in e.guard:
                    found.update(bound.value.symbols | bound.lo.symbols | bound.hi.symbols)
        for child in e.children:
            visit(child)

    visit(stage.value)
    if isinstance(stage, Map):
        for entry in stage.index:
            if isinstance(entry, Expr):
                visit(entry)
    return found


def _flat_map(stage: Stage) -> KernelNest | None:
    """A pointwise stage whose axes all merge into one: that loop itself is shared out."""
    if not isinstance(stage, Map) or stage.combine is not None or any(isinstance(i, Expr) for i in stage.index):
        return None
    axes = [a for a in stage.axes if a.extent != ONE]
    ones = {a.sym: dim(0) for a in stage.axes if a.extent == ONE}
    chosen = vector_axis(stage)
    if not axes or chosen is None:
        return None
    if len(axes) > 1 and not _walks_as_one(stage, axes, ones):
        return None
    where = dict(ones)
    merged = _merged_axis(axes, where)
    index = tuple(i for i in stage.index if not isinstance(i, Expr))
    total = dim(0)
    for entry, stride in zip(index, stage.out.strides):
        total = total + entry * stride
    split = total.substitute(where).linear_in(merged.sym)
    if split is None or split[0] != ONE:
        return None
    return KernelNest(None, (StageNest((), (), merged, where),), True, ONE)

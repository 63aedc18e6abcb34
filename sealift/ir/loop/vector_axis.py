"""Policy: which axis of a stage becomes vector lanes. A value, apart from the code that applies it."""

from __future__ import annotations

from sealift.ir.dim import Dim, Sym, dim
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Expr, Load, axis_symbols
from sealift.ir.loop.prim import ArgCombine
from sealift.ir.loop.rewrite import stage_loads
from sealift.ir.loop.types import Axis, Call, Map, Reduce, Scan, Stage


def stride_along(index: tuple[Dim | Expr, ...], strides: tuple[Dim, ...], axis: Sym) -> Dim | None:
    """Elements between neighbours along the axis; None where the position is not linear in it or is gathered along it."""
    total = dim(0)
    for entry, stride in zip(index, strides):
        if isinstance(entry, Expr):
            if axis in axis_symbols(entry):
                return None
        else:
            total = total + entry * stride
    split = total.linear_in(axis)
    return None if split is None else split[0]


def vector_axis(stage: Stage) -> Axis | None:
    """The axis whose neighbours lie side by side in most of what the stage touches; None: one element at a time."""
    if isinstance(stage, Call):
        return None
    if isinstance(stage, Scan) and _runs_along(stage):
        return stage.along
    candidates = [a for a in stage.axes if a.extent != dim(1)]
    if isinstance(stage, Reduce) and not isinstance(stage.combine, ArgCombine):
        candidates += [a for a in stage.reduced if a.extent != dim(1)]
    if isinstance(stage, Scan):
        candidates = [a for a in candidates if a != stage.along]
    best: tuple[int, int] | None = None
    chosen: Axis | None = None
    for position, axis in enumerate(candidates):
        score = _score(stage, axis)
        if score is not None and (best is None or (score, position) >= best):
            best, chosen = (score, position), axis
    return chosen


def _runs_along(stage: Scan) -> bool:
    """Whether the scan writes side by side: its values are then made in lanes, and joined one after another in registers."""
    here = tuple(a.dim for a in stage.axes)
    return stage.value.dtype is not DType.BOOL and stride_along(here, stage.out.strides, stage.along.sym) == dim(1)


def _score(stage: Map | Reduce | Scan, axis: Axis) -> int | None:
    score = 0
    if isinstance(stage, Map):
        index = stage.index
    else:
        index = tuple(a.dim for a in stage.axes)
    is_output_axis = axis in stage.axes
    if is_output_axis:
        stride = stride_along(index, stage.out.strides, axis.sym)
        is_scatter = isinstance(stage, Map) and (stage.combine is not None or any(isinstance(i, Expr) for i in index))
        if is_scatter and stride != dim(1):
            return None
        # A Map stores once for each of its loads; a Reduce loads many times for one store.
        score += (1 if isinstance(stage, Reduce) else 3) if stride == dim(1) else 0
    for load in stage_loads(stage):
        score += _load_score(load, axis)
    if axis.extent.is_const and axis.extent.value < 4:
        score -= 4
    return score


def _load_score(load: Load, axis: Axis) -> int:
    stride = stride_along(load.index, load.buffer.strides, axis.sym)
    guarded_along = any(axis.sym in b.value.symbols for b in load.guard)
    if stride is None or guarded_along:
        return -1
    if stride == dim(1):
        return 2
    return 1 if stride == dim(0) else 0

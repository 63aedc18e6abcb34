"""Loops -> Loops: what is known about indices is used: checks that cannot fail, gathers from a computed position, comparisons with a
known answer."""

from __future__ import annotations

from dataclasses import replace

from sealift.ir.dim import ONE, ZERO, Dim, dim, is_at_most
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import CheckIndex, Const, Expr, Index, Inside, Load, Op, rewrite, substitute
from sealift.ir.loop.prim import Prim
from sealift.ir.loop.rewrite import map_expressions
from sealift.ir.loop.types import Call, Kernel, Loops, Map, Reduce, Stage


def simplify_expressions(loops: Loops) -> Loops:
    """mask[check(cast(i), n)] & (i >= 0)   ==>   mask[i]      where 0 <= i < n

    Index arithmetic is exact (i64); anything that could wrap in a narrower type is left alone.
    """
    kernels = tuple(_simplify_kernel(k) for k in loops.kernels)
    return loops if all(a is b for a, b in zip(kernels, loops.kernels)) else replace(loops, kernels=kernels)


def _simplify_kernel(kernel: Kernel) -> Kernel:
    stages = tuple(map_expressions(_at_zero(s), simplify) for s in kernel.stages)
    return kernel if stages == kernel.stages else replace(kernel, stages=stages)


def _at_zero(stage: Stage) -> Stage:
    """An axis with one position is 0 wherever it stands, so that every reader and writer says it alike."""
    if isinstance(stage, Call):
        return stage
    only = {a.sym: ZERO for a in (*stage.axes, *(stage.reduced if isinstance(stage, Reduce) else ())) if a.extent == ONE}
    if not only:
        return stage
    at_zero = map_expressions(stage, lambda root: substitute(root, only))
    if isinstance(at_zero, Map):
        return replace(at_zero, index=tuple(i if isinstance(i, Expr) else i.substitute(only) for i in at_zero.index))
    return at_zero


def simplify(root: Expr) -> Expr:
    return rewrite(root, _simplify_node)


def _simplify_node(e: Expr) -> Expr:
    match e:
        case CheckIndex(value=Index(value=position), size=size):
            if is_at_most(dim(0), position) and is_at_most(position, size - 1):
                return Index(position)
        case CheckIndex(value=Const(number=number), size=size, wraps=wraps):
            position = dim(int(number)) if number >= 0 or not wraps else size + int(number)
            if is_at_most(dim(0), position) and is_at_most(position, size - 1):
                return Index(position)
        case Load() if any(isinstance(i, (Index, Const)) for i in e.index):
            return Load(e.buffer, tuple(_entry(i) for i in e.index), e.guard, e.other)
        case Inside() if all(is_at_most(b.lo, b.value) and is_at_most(b.value, b.hi - 1) for b in e.bounds):
            return Const(True, DType.BOOL)
        case Op():
            return _simplify_op(e)
    return e


def _entry(i: Dim | Expr) -> Dim | Expr:
    if isinstance(i, Index):
        return i.value
    return dim(int(i.number)) if isinstance(i, Const) else i


def _position(e: Expr) -> Dim | None:
    """The exact index that an i64 expression is."""
    if isinstance(e, Index) and e.dtype is DType.I64:
        return e.value
    if isinstance(e, Const) and e.dtype is DType.I64:
        return dim(int(e.number))
    return None


def _simplify_op(e: Op) -> Expr:
    if e.prim is Prim.CAST:
        (inner,) = e.args
        if isinstance(inner, Index) and e.dtype is DType.I64:
            return Index(inner.value)
        if isinstance(inner, Const) and e.dtype is DType.F32 and inner.dtype in (DType.BOOL, DType.I32):
            return Const(float(inner.number), DType.F32) if abs(inner.number) < 2**24 else e
        return e
    if e.prim is Prim.SELECT and isinstance(e.args[0], Const):
        return e.args[1] if e.args[0].number else e.args[2]
    if e.dtype is DType.BOOL and e.prim in (Prim.AND, Prim.OR) and any(isinstance(a, Const) for a in e.args):
        known, other = (e.args[0], e.args[1]) if isinstance(e.args[0], Const) else (e.args[1], e.args[0])
        assert isinstance(known, Const)
        neutral = e.prim is Prim.AND
        return other if bool(known.number) is neutral else known
    if len(e.args) == 2 and (a := _position(e.args[0])) is not None and (b := _position(e.args[1])) is not None:
        return _on_positions(e, a, b)
    return e


def _on_positions(e: Op, a: Dim, b: Dim) -> Expr:
    match e.prim:
        case Prim.ADD:
            return Index(a + b)
        case Prim.SUB:
            return Index(a - b)
        case Prim.MUL:
            return Index(a * b)
        case Prim.GE:
            return _decided(e, is_at_most(b, a), is_at_most(a, b - 1))
        case Prim.GT:
            return _decided(e, is_at_most(b + 1, a), is_at_most(a, b))
        case Prim.LE:
            return _decided(e, is_at_most(a, b), is_at_most(b + 1, a))
        case Prim.LT:
            return _decided(e, is_at_most(a + 1, b), is_at_most(b, a))
    return e


def _decided(e: Op, always: bool, never: bool) -> Expr:
    return Const(True, DType.BOOL) if always else Const(False, DType.BOOL) if never else e

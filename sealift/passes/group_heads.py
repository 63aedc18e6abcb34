"""Loops -> Loops: attention reads grouped keys and values where they lie, instead of once for every query head."""

from __future__ import annotations

from dataclasses import replace

from sealift.ir.dim import Dim, Sym, dim
from sealift.ir.loop.expr import Load, substitute
from sealift.ir.loop.operands import accepts
from sealift.ir.loop.rewrite import used_buffers
from sealift.ir.loop.types import Axis, Call, Kernel, Loops, Operand
from sealift.passes.update_in_place import Values


def group_heads(loops: Loops) -> Loops:
    """r[b, h, t, d] = k[b, h // 4, t, d]; attention(q[b, 8, ..], r, ..)   ==>   attention(q[b, 8, ..], k[b, 2, ..], ..)

    What repeat_kv exports to: expand and reshape. Keys and values have to be repeated alike. Runs where every buffer has one value, before
    update_in_place.
    """
    if not any(isinstance(s, Call) and s.family == "attention" for k in loops.kernels for s in k.stages):
        return loops
    values = Values(loops.kernels)
    kernels = [_grouped(kernel, values) for kernel in loops.kernels]
    if all(a is b for a, b in zip(kernels, loops.kernels)):
        return loops
    return replace(loops, kernels=tuple(kernels), buffers=used_buffers(loops, kernels))


def _grouped(kernel: Kernel, values: Values) -> Kernel:
    (call,) = kernel.stages
    if not isinstance(call, Call) or call.family != "attention":
        return kernel
    k, v = call.operand("k"), call.operand("v")
    if k is None or v is None or not k.shape[1].is_const or k.shape[1] != v.shape[1]:
        return kernel
    heads = k.shape[1].value
    for repeats in range(heads, 1, -1):
        if heads % repeats:
            continue
        new_k, new_v = (_without_repeats(o, repeats, values) for o in (k, v))
        if new_k is None or new_v is None or not accepts(call, "k", new_k) or not accepts(call, "v", new_v):
            continue
        operands = tuple((role, {"k": new_k, "v": new_v}.get(role, operand)) for role, operand in call.operands)
        return replace(kernel, stages=(replace(call, operands=operands),))
    return kernel


def _without_repeats(operand: Operand, repeats: int, values: Values) -> Operand | None:
    """The operand with each run of `repeats` heads, which are one and the same, as one."""
    load = values.seen_through(operand.load)
    head = operand.axes[1]
    group = Axis(f"{head.name}_group", dim(head.extent.value // repeats))
    inside = Sym(f"{head.name}_inside", 0, repeats - 1)
    position: Dim = group.dim * repeats + dim(inside)
    moved = substitute(load, {head.sym: position})
    if not isinstance(moved, Load) or moved.guard or any(not isinstance(i, Dim) or inside in i.symbols for i in moved.index):
        return None
    return Operand((operand.axes[0], group, *operand.axes[2:]), moved)

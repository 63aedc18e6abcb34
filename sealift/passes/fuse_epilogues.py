"""Loops -> Loops: what follows a matrix product or a convolution and belongs to the closed set goes into the product's registers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from sealift.diag.loc import union
from sealift.ir.dim import ONE
from sealift.ir.dtype import DType
from sealift.ir.graph.types import OpDef
from sealift.ir.loop.expr import Buffer, Expr, Load, Op
from sealift.ir.loop.operands import accepts, is_identity
from sealift.ir.loop.prim import Prim
from sealift.ir.loop.rewrite import count_readers, stage_loads, used_buffers
from sealift.ir.loop.types import Axis, Call, Kernel, Loops, Map, Operand
from sealift.ops.lang import Builder, Tensor
from sealift.passes.group_rows import may_move_behind

WITH_EPILOGUE = ("gemm", "conv")  # families whose kernels take an activation, a residual and another activation

Template = Callable[[Expr], Expr]

# The kernel's activation, and the operator row that defines it.
_ACTIVATIONS = {
    "relu": ("aten.relu.default", {}),
    "gelu": ("aten.gelu.default", {"approximate": "none"}),
    "gelu_tanh": ("aten.gelu.default", {"approximate": "tanh"}),
    "silu": ("aten.silu.default", {}),
    "sigmoid": ("aten.sigmoid.default", {}),
    "tanh": ("aten.tanh.default", {}),
    "relu6": ("aten.relu6.default", {}),
    "hardswish": ("aten.hardswish.default", {}),
    "hardsigmoid": ("aten.hardsigmoid.default", {}),
}


def activation_templates(ops: Mapping[str, OpDef]) -> dict[str, Template]:
    """For each activation of the gemm family: what its operator row makes of one element."""

    def template(op: OpDef, attrs: Mapping[str, object]) -> Template:
        def apply(e: Expr) -> Expr:
            result = op.lower(Builder("template"), Tensor(e.dtype, (), lambda index: e), **attrs)
            value: Expr = result.at(())
            return value

        return apply

    return {name: template(ops[op], attrs) for name, (op, attrs) in _ACTIVATIONS.items() if op in ops}


def fuse_epilogues(loops: Loops, templates: Mapping[str, Template]) -> Loops:
    """h = gemm(x, w, b); y = gelu(h) + r; z = relu(y)   ==>   z = gemm(x, w, b, residual=r, activation=gelu, post_activation=relu)

    Refuses when the product has a second reader, when shapes differ, for whatever is outside the closed set, and when a state that the
    product reads is written between the two, or would be written while the product reads it.
    """
    readers = count_readers(loops)
    products: dict[str, tuple[int, Call]] = {}
    kernels: list[Kernel | None] = []
    for kernel in loops.kernels:
        (stage,) = kernel.stages
        if isinstance(stage, Call) and stage.family in WITH_EPILOGUE:
            products[stage.outs[0].name] = (len(kernels), stage)
        elif isinstance(stage, Map):
            fused = _fuse(stage, products, readers, templates)
            product = kernels[fused[0]] if fused is not None else None
            reads_own = fused is not None and any(o.load.buffer in fused[1].outs for _, o in fused[1].operands)
            if fused is not None and product is not None and not reads_own and may_move_behind(product, kernels[fused[0] + 1 :]):
                position, call = fused
                kernels[position] = None
                ops = tuple(dict.fromkeys((*product.ops, *kernel.ops)))
                kernel = Kernel(kernel.name, (call,), 0, ops, union((product.loc, kernel.loc)))
                products[call.outs[0].name] = (len(kernels), call)
        kernels.append(kernel)
    live = [k for k in kernels if k is not None]
    if len(live) == len(loops.kernels):
        return loops
    return replace(loops, kernels=tuple(live), buffers=used_buffers(loops, live))


def _fuse(stage: Map, products: Mapping[str, tuple[int, Call]], readers: Counter[str], templates: Mapping[str, Template]) -> tuple[int, Call] | None:
    if stage.combine is not None or not is_identity(stage.index, stage.axes) or stage.out.dtype is not DType.F32:
        return None
    for load in stage_loads(stage):
        found = products.get(load.buffer.name)
        if found is None or load.buffer.kind != "temp" or readers[load.buffer.name] != 1:
            continue
        position, call = found
        lead = len(stage.axes) - len(load.buffer.shape)  # of one position each: rows of a [n, k] product read as [1, n, k]
        if lead < 0 or (lead > 0 and call.family != "gemm") or any(a.extent != ONE for a in stage.axes[:lead]):
            continue
        if not is_identity(load.index, stage.axes[lead:]) or load.guard or load.buffer.shape != stage.out.shape[lead:] or stage.out.order is not None:
            continue
        call = _with_leading_axes(call, lead)
        if any(other.buffer.name == load.buffer.name and other != load for other in stage_loads(stage)):
            continue
        fused = _match(stage, load, call, templates)
        if fused is not None:
            return position, fused
    return None


def _match(stage: Map, product: Load, call: Call, templates: Mapping[str, Template]) -> Call | None:
    attrs = dict(call.attrs)
    has_residual = "residual" in dict(call.operands)
    if attrs.get("post_activation", "none") != "none":
        return None
    free = "post_activation" if has_residual else "activation"
    if attrs.get(free, "none") == "none":
        for name, template in templates.items():
            if stage.value == template(product):
                return _with(call, stage.out, None, **{free: name})
    if has_residual:
        return None
    for total in _additions(stage.value):
        for side, other in (total.args, total.args[::-1]):
            residual = _as_residual(other, product, call, stage)
            if residual is None:
                continue
            for activation, template in _inner_templates(attrs.get("activation", "none"), templates):
                if side != template(product):
                    continue
                for post, outer in (("none", _as_it_is), *templates.items()):
                    if stage.value == outer(total):
                        return _with(call, stage.out, residual, activation=activation, post_activation=post)
    return None


def _inner_templates(already: str, templates: Mapping[str, Template]) -> list[tuple[str, Template]]:
    """What may stand on the product's side of the addition: nothing more, or an activation if the product has none yet."""
    identity: tuple[str, Template] = (already, _as_it_is)
    return [identity] if already != "none" else [identity, *templates.items()]


def _as_it_is(e: Expr) -> Expr:
    return e


def _additions(root: Expr) -> list[Op]:
    found: dict[int, Op] = {}

    def visit(e: Expr) -> None:
        if id(e) in found:
            return
        if isinstance(e, Op) and e.prim is Prim.ADD and e.dtype is DType.F32:
            found[id(e)] = e
        for child in e.children:
            visit(child)

    visit(root)
    return list(found.values())


def _as_residual(e: Expr, product: Load, call: Call, stage: Map) -> Operand | None:
    if not isinstance(e, Load) or e.buffer.name == product.buffer.name:
        return None
    operand = Operand(stage.axes, e)
    return operand if accepts(call, "residual", operand) else None


def _with_leading_axes(call: Call, count: int) -> Call:
    """The product whose rows have `count` more dimensions of one position, and so has what it writes."""
    if count == 0:
        return call
    operands: list[tuple[str, Operand]] = []
    for role, operand in call.operands:
        if role in ("a", "residual"):
            lead = tuple(Axis(f"{operand.axes[0].name}_lead{i}", ONE) for i in range(count))
            operand = replace(operand, axes=(*lead, *operand.axes))
        operands.append((role, operand))
    return replace(call, operands=tuple(operands))


def _with(call: Call, out: Buffer, residual: Operand | None = None, **attrs: str) -> Call:
    operands = call.operands if residual is None else (*call.operands, ("residual", residual))
    merged = {**dict(call.attrs), **{k: v for k, v in attrs.items() if v != "none"}}
    return replace(call, outs=(out,), operands=operands, attrs=tuple(sorted(merged.items())))

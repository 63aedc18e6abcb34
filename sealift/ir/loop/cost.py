"""What a kernel must do at least, in the model's sizes: floating-point operations, and bytes to and from memory.

A measure for people and for a roofline, not for the machine: every primitive on floats counts one, `exp` as `add`; a buffer counts once
however often it is read, and what a kernel itself wrote before counts no reading, as if caches were large enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sealift.ir.dim import ZERO, Dim, dim, dim_min, product
from sealift.ir.loop.expr import Buffer, Expr, Load, Op, axis_symbols, loads
from sealift.ir.loop.prim import COMPARISONS, Prim
from sealift.ir.loop.types import Axis, Call, Kernel, Map, Reduce, Scan, Stage, outputs_of

_FREE = COMPARISONS | {Prim.CAST, Prim.SELECT, Prim.AND, Prim.OR, Prim.XOR, Prim.NOT}


@dataclass(frozen=True)
class KernelCost:
    """Of one call of the kernel."""

    flops: Dim
    read_bytes: Dim
    written_bytes: Dim

    @property
    def bytes(self) -> Dim:
        return self.read_bytes + self.written_bytes


def kernel_cost(kernel: Kernel) -> KernelCost:
    """gemm [m, k] x [k, n]  ==>  2*m*n*k flops, 4*(m*k + k*n) bytes read, 4*m*n written"""
    flops, read, written = ZERO, dict[Buffer, Dim](), dict[Buffer, Dim]()
    for stage in kernel.stages:
        flops = flops + stage_flops(stage)
        for load, axes in _loads_of(stage):
            if load.buffer.kind != "row" and load.buffer not in written:
                touched = read.get(load.buffer, ZERO) + _touched(load, axes)
                read[load.buffer] = dim_min(touched, load.buffer.numel)
        for out in outputs_of(stage):
            if out.kind != "row":
                written[out] = _written(stage, out)
    return KernelCost(flops, _bytes(read), _bytes(written))


def stage_flops(stage: Stage) -> Dim:
    match stage:
        case Map(value=value, axes=axes, combine=combine):
            return _extent(axes) * (_operations([value]) + (combine is not None and value.dtype.is_float))
        case Reduce(value=value, axes=axes, reduced=reduced):
            return _extent((*axes, *reduced)) * (_operations([value]) + value.dtype.is_float)
        case Scan(value=value, axes=axes):
            return _extent(axes) * (_operations([value]) + value.dtype.is_float)
        case Call():
            return _family_flops(stage)


def _family_flops(call: Call) -> Dim:
    """A multiplication and an addition for each product; bias, activation and residual one for each element of the output."""
    out: Dim = call.outs[0].numel
    per_element: int = sum(call.operand(role) is not None for role in ("bias", "residual"))
    per_element += sum(call.attr(name, "none") != "none" for name in ("activation", "post_activation"))
    shapes = {role: operand.shape for role, operand in call.operands}
    match call.family:
        case "gemm":
            return out * shapes["a"][-1] * 2 + out * per_element
        case "conv":  # of a transposed one every input meets every tap, not every output
            ends = shapes["x"] if call.attr("transposed", False) else call.outs[0].shape
            return product((*ends, *shapes["w"][1:])) * 2 + out * per_element
        case "attention":
            scores = product(shapes["q"][:-1]) * shapes["k"][-2]
            return 2 * scores * (shapes["q"][-1] + shapes["v"][-1]) + 5 * scores  # and scale, subtract, exp, sum, divide
        case "recurrent":
            width, size, directions = shapes["gates"][-1], shapes["h0"][-1], shapes["h0"][0]
            projection = size * (width // call.attr("groups")) * 2 if "w_proj" in shapes else ZERO
            return directions * product(shapes["gates"][:-1]) * (width * size * 2 + projection + width * 2)  # and each gate its bias and activation
        case "bags":
            return shapes["indices"][0] * shapes["table"][1] * (2 if "weights" in shapes else 1)
    return ZERO  # sort compares and moves


def _operations(values: Iterable[Expr]) -> int:
    """Floating-point operations of the trees, shared subtrees once."""
    seen: set[Expr] = set()
    count = 0
    waiting = [*values]
    while waiting:
        e = waiting.pop()
        if e in seen:
            continue
        seen.add(e)
        waiting += e.children
        count += isinstance(e, Op) and e.prim not in _FREE and e.dtype.is_float
    return count


def _loads_of(stage: Stage) -> list[tuple[Load, Sequence[Axis]]]:
    match stage:
        case Call():
            return [(one, operand.axes) for _, operand in stage.operands for one in loads(operand.load)]
        case Reduce():
            return [(one, (*stage.axes, *stage.reduced)) for one in loads(stage.value)]
        case Map():
            index = [one for entry in stage.index if isinstance(entry, Expr) for one in loads(entry)]
            return [(one, stage.axes) for one in [*loads(stage.value), *index]]
        case Scan():
            return [(one, stage.axes) for one in loads(stage.value)]


def _touched(load: Load, axes: Sequence[Axis]) -> Dim:
    """Elements: one for each value of the axes that its index depends on."""
    symbols = axis_symbols(load)
    return dim_min(product(a.extent for a in axes if a.sym in symbols), load.buffer.numel)


def _written(stage: Stage, out: Buffer) -> Dim:
    if isinstance(stage, Map) and stage.combine is not None:  # a scatter reads what it adds to
        return dim_min(2 * _extent(stage.axes), 2 * out.numel)
    return out.numel if isinstance(stage, Call) else dim_min(_extent(stage.axes), out.numel)


def _extent(axes: Iterable[Axis]) -> Dim:
    return product(a.extent for a in axes)


def _bytes(elements: dict[Buffer, Dim]) -> Dim:
    total = dim(0)
    for buffer, count in elements.items():
        total = total + count * buffer.dtype.size_bytes
    return total

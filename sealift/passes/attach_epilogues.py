"""Loops -> Loops: a pointwise stage after a matrix product runs on each tile of the product while it is in a near cache."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from sealift.diag.loc import union
from sealift.ir.dim import ONE
from sealift.ir.loop.operands import is_identity
from sealift.ir.loop.rewrite import count_readers, stage_loads
from sealift.ir.loop.types import Call, Kernel, Loops, Map, Stage, outputs_of
from sealift.ir.loop.vector_axis import vector_axis
from sealift.passes.group_rows import may_move_behind


def attach_epilogues(loops: Loops) -> Loops:
    """h = gemm(x, w); y[i, j] = h[i, j] * g[i, j] * 2   ==>   one kernel: gemm, whose tiles are handed to the second stage

    Refuses when the product has a second reader, when the stage walks it in another shape, for what is no plain store, and when a state
    that the product reads is written between the two, or by the stage.
    """
    readers = count_readers(loops)
    products: dict[str, int] = {}
    kernels: list[Kernel | None] = []
    for kernel in loops.kernels:
        stage = kernel.stages[0]
        position = _product_of(stage, products, readers) if len(kernel.stages) == 1 else None
        product = kernels[position] if position is not None else None
        reads_own = product is not None and any(load.buffer in outputs_of(stage) for load in stage_loads(product.stages[0]))
        if position is not None and product is not None and not reads_own and may_move_behind(product, kernels[position + 1 :]):
            kernels[position] = None
            ops = tuple(dict.fromkeys((*product.ops, *kernel.ops)))
            kernel = Kernel(kernel.name, (*product.stages, stage), 0, ops, union((product.loc, kernel.loc)))
        elif isinstance(stage, Call) and stage.family == "gemm" and stage.outs[0].kind == "temp" and len(kernel.stages) == 1:
            products[stage.outs[0].name] = len(kernels)
        kernels.append(kernel)
    live = tuple(k for k in kernels if k is not None)
    return loops if len(live) == len(loops.kernels) else replace(loops, kernels=live)


def _product_of(stage: Stage, products: dict[str, int], readers: Counter[str]) -> int | None:
    if not isinstance(stage, Map) or stage.combine is not None or not is_identity(stage.index, stage.axes) or len(stage.axes) < 2:
        return None
    last = stage.axes[-1]
    if last.extent == ONE or vector_axis(stage) != last:
        return None
    for load in stage_loads(stage):
        name = load.buffer.name
        if name not in products or readers[name] != 1 or load.guard or load.buffer.shape != stage.out.shape or load.buffer.order is not None:
            continue
        if is_identity(load.index, stage.axes) and sum(other.buffer.name == name for other in stage_loads(stage)) == 1:
            return products.pop(name)
    return None

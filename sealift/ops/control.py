"""Branches and loops whose bodies are graphs: calls of the families cond and while, whose attributes are the subgraphs."""

from __future__ import annotations

from collections.abc import Sequence

from sealift.ir.dtype import DType
from sealift.ir.graph.types import Graph
from sealift.ops.arguments import refuse
from sealift.ops.lang import Builder, Tensor
from sealift.ops.table import op
from sealift.ops.views import reshaped


def _numbered(tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    return {f"in{k}": t for k, t in enumerate(tensors)}


@op("higher_order.cond")
def cond(b: Builder, pred: Tensor, true_graph: Graph, false_graph: Graph, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The outputs of one of two graphs over the same inputs; only that one runs."""
    if any(v is None for v in (*true_graph.outputs, *false_graph.outputs)):
        refuse("a branch that returns None")
    outs = [(v.type.shape, v.type.dtype) for v in true_graph.outputs if v is not None]
    scalar = b.cast(reshaped(pred, ()), DType.BOOL)
    return b.call("cond", {"pred": scalar, **_numbered(operands)}, outs, then=true_graph, otherwise=false_graph)


@op("higher_order.while_loop")
def while_loop(
    b: Builder, cond_graph: Graph, body_graph: Graph, carried_inputs: Sequence[Tensor], additional_inputs: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """While cond_graph(*carried, *additional): carried = body_graph(*carried, *additional). What is carried keeps its shape and dtype."""
    if any(v is None for v in body_graph.outputs):
        refuse("a loop that carries None")
    for before, after in zip(carried_inputs, body_graph.outputs, strict=True):
        if after is not None and (after.type.shape, after.type.dtype) != (before.shape, before.dtype):
            refuse(f"a loop that carries {before.dtype}{[str(d) for d in before.shape]} into {after.type}: what is carried must keep its type")
    outs = [(t.shape, t.dtype) for t in carried_inputs]
    return b.call("while", _numbered([*carried_inputs, *additional_inputs]), outs, carried=len(outs), condition=cond_graph, body=body_graph)

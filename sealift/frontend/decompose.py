"""Which of an exported program's calls stay whole, and the decomposition of the others."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import torch
from torch import fx
from torch.export import ExportedProgram

from sealift.frontend.functionalize import Functional, functionalize
from sealift.frontend.recurrent_shapes import recurrent_shapes
from sealift.ir.graph.types import OpDef

IDENTITIES = frozenset({"aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default", "aten.lift_fresh.default"})
IMPLIED = frozenset(  # checks of what types and ranges already say
    {
        "aten._assert_tensor_metadata.default",
        "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
        "aten._assert_scalar.default",
    }
)
CONTROL = {  # branches and loops: which arguments are graphs
    "higher_order.cond": ("pred", "true_graph", "false_graph", "operands"),
    "higher_order.while_loop": ("cond_graph", "body_graph", "carried_inputs", "additional_inputs"),
}
HANDING_THROUGH = frozenset(  # composites that may return an argument itself: kept whole, torch would not see a later write to it in them
    f"aten.{n}"
    for n in (
        "dropout.default",
        "type_as.default",
        "conj_physical.default",
        "meshgrid.default",
        "meshgrid.indexing",
        "unsafe_chunk.default",
        "pad.default",
    )
)
_LOG = logging.getLogger(__name__)
Program: TypeAlias = ExportedProgram | Functional


def decompose(ep: ExportedProgram, ops: Mapping[str, OpDef]) -> Program:
    """To core ATen, but for operators that have a row. What then lacks a row goes on through the rest of torch's decompositions if all
    of it ends in rows; else it stays, so that errors speak of core ATen and not of what it is made of. A program that is made of rows
    already, and whose writes are plain, is not traced again: that costs seconds and changes no value."""
    program = functionalize(ep) if _has_mutation(ep) else ep
    if program is not None and not _missing(program, ops) and not _has_mutation(program):
        return program
    table = torch.export.default_decompositions()
    for name in ops if not _has_mutation(ep) else set(ops) - HANDING_THROUGH:
        overload = _overload(name)
        if overload is not None and overload in table:
            del table[overload]
    core = _run(ep, table)
    hopeless: set[Any] = set()
    for _ in range(4):  # a round gives up on at least one operator, or is the last
        wanted = {t for t in _missing(core, ops) if t in torch._decomp.decomposition_table and t not in hopeless}
        if not wanted:
            return core
        result, further = core, dict(_decompositions(wanted))
        for _ in range(4):
            try:
                result = _run(result, further)
            except AssertionError as error:  # a decomposition of torch's that writes in place, which its own tracer refuses
                _LOG.debug("torch cannot decompose %s: %s", ", ".join(sorted(map(str, wanted))), error)
                return core
            deeper = {t for t in _missing(result, ops) if t in torch._decomp.decomposition_table and t not in further and t not in hopeless}
            if not deeper:
                break
            further |= _decompositions(deeper)
        left = {n.name: n for n in calls(result) if n.target in _missing(result, ops) and n.target not in hopeless}
        if not left:
            return result
        origins = {n.name: n.target for n in calls(core)}
        blamed = {origins[o] for n in left.values() for o in _origins(n) if o in origins and origins[o] in wanted}
        hopeless |= blamed or wanted
    return core


def _run(ep: ExportedProgram, table: Any) -> ExportedProgram:
    with warnings.catch_warnings(), recurrent_shapes():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own use of its pytrees
        result: ExportedProgram = ep.run_decompositions(table)
    return result


def _decompositions(targets: Iterable[Any]) -> dict[Any, Any]:
    return {t: torch._decomp.decomposition_table[t] for t in targets}


def _has_mutation(ep: Program) -> bool:
    """Whether an operator writes to its arguments, or is none of ATen's, so that functionalisation is needed."""
    relevant = (n for n in calls(ep) if not _is_size_arithmetic(n) and control_row(n) is None)
    return any(not isinstance(n.target, torch._ops.OpOverload) or n.target._schema.is_mutable for n in relevant)


def target_name(node: fx.Node) -> str:
    """Of an operator with its overload: "aten.add.Tensor"."""
    target = node.target
    return str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))


def control_row(node: fx.Node) -> str | None:
    """The row of a branch or a loop."""
    name = f"higher_order.{getattr(node.target, '__name__', '')}"
    return name if isinstance(node.target, torch._ops.HigherOrderOperator) and name in CONTROL else None


def _is_size_arithmetic(node: fx.Node) -> bool:
    return not isinstance(node.target, torch._ops.OpOverload) and getattr(node.target, "__module__", "") in (
        "_operator",
        "operator",
        "math",
        "builtins",
    )


def _missing(ep: Program, ops: Mapping[str, OpDef]) -> set[Any]:
    return {n.target for n in calls(ep) if isinstance(n.target, torch._ops.OpOverload) and not _is_known(str(n.target), ops)}


def _origins(node: fx.Node) -> list[str]:
    """Names of the nodes that this one was made from, over all rounds of decomposition."""
    names: list[str] = []
    pending = list(node.meta.get("from_node") or [])
    while pending:
        source = pending.pop()
        names.append(source.name)
        pending.extend(source.from_node or [])
    return names


def calls(ep: Program) -> Iterable[fx.Node]:
    """Of the program and of the graphs that it branches to and loops over."""
    graphs = [m.graph for m in ep.graph_module.modules() if isinstance(m, fx.GraphModule)]
    return (n for graph in graphs for n in graph.nodes if n.op == "call_function")


def _is_known(target: str, ops: Mapping[str, OpDef]) -> bool:
    return target in ops or target in IDENTITIES or target in IMPLIED or target.startswith("aten.sym_")


def _overload(name: str) -> Any:
    namespace, _, rest = name.partition(".")
    packet, _, overload = rest.rpartition(".")
    found = getattr(getattr(torch.ops, namespace), packet, None)
    return getattr(found, overload, None) if found is not None else None

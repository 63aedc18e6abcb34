"""Graphs -> Graphs: what one model of a package writes, the others read from the same state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sealift.ir.dim import Dim
from sealift.ir.dtype import DType
from sealift.ir.graph.types import Graph, State


def share_states(graphs: Mapping[str, Graph]) -> dict[str, Graph]:
    """encode: state %k = "cross.k" -> %new            encode: as before
    decode: buffer %b = "cross.k"               ==>   decode: state %b = "cross.k" -> %b

    A buffer counts as the same if its FQN, dtype and shape are. Parameters stay constants.
    """
    written = {(s.fqn, s.value.type.dtype, s.value.type.shape) for g in graphs.values() for s in g.states}
    return {name: _with_states(graph, written) for name, graph in graphs.items()}


def _with_states(graph: Graph, written: set[tuple[str, DType, tuple[Dim, ...]]]) -> Graph:
    shared = [c for c in graph.constants if c.kind == "buffer" and (c.fqn, c.value.type.dtype, c.value.type.shape) in written]
    if not shared:
        return graph
    constants = tuple(c for c in graph.constants if c not in shared)
    return replace(graph, constants=constants, states=(*graph.states, *(State(c.value, c.fqn, c.value) for c in shared)))

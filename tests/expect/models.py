"""The three small graphs of the expect tests, as text, and what other tests need to run them: weights, inputs, and a stand-in for an import."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sealift.ir.dtype import DType
from sealift.ir.graph.text import parse_graph
from sealift.ir.graph.types import Graph, TensorType
from sealift.ir.loop.interpret import numpy_dtype
from sealift.ops import OPS

Array = NDArray[Any]
GRAPHS = Path(__file__).parent / "graphs"
NAMES = tuple(sorted(p.stem for p in GRAPHS.glob("*.graph")))


def graph_text(name: str) -> str:
    return (GRAPHS / f"{name}.graph").read_text()


def read_graph(name: str) -> Graph:
    return parse_graph(graph_text(name), OPS)


def random_array(t: TensorType, sizes: Mapping[str, int], rng: np.random.Generator, high: int = 9) -> Array:
    """Floats about 1 in size, integers in [0, high), booleans whose first element along the last dimension is true."""
    shape = [d.evaluate(sizes) for d in t.shape]
    if t.dtype is DType.BOOL:
        flags = rng.random(shape) < 0.7
        if shape and shape[-1]:
            flags[..., 0] = True
        return flags
    if t.dtype.is_int:
        return rng.integers(0, high, shape).astype(numpy_dtype(t.dtype))
    return np.asarray(rng.standard_normal(shape).astype(numpy_dtype(t.dtype)))


def weights_of(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """By fqn; the same for the same graph."""
    rng = np.random.default_rng(seed)
    named = [(c.value, c.fqn) for c in graph.constants] + [(s.value, s.fqn) for s in graph.states]
    arrays = {fqn: random_array(v.type, {}, rng) for v, fqn in named}
    return {fqn: a * np.asarray(0.3, a.dtype) if a.dtype.kind == "f" else a for fqn, a in arrays.items()}


def inputs_of(graph: Graph, sizes: Mapping[str, int], seed: int = 1) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {v.name: random_array(v.type, sizes, rng) for v in graph.inputs}


def imported(graph: Graph, weights: Mapping[str, Array] | None = None) -> Any:
    """What sealift.pipeline.compile_graph takes, for a graph that no torch program stands behind."""
    arrays = weights_of(graph) if weights is None else weights
    dtypes = {c.fqn: c.value.type.dtype for c in graph.constants} | {s.fqn: s.value.type.dtype for s in graph.states}
    return SimpleNamespace(graph=graph, weights={fqn: SimpleNamespace(dtype=dtypes[fqn], array=a) for fqn, a in arrays.items()})

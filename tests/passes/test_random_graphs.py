"""Random graphs: every pass keeps what the interpreter computes, and the compiled library computes it, at sizes 0, 1, 2 and 33.

A failure prints the graph; `random_graph(seed)` makes it again. The long version: make fuzz, from SEALIFT_FUZZ_SEED on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pytest

from sealift.ir.graph.text import parse_graph
from sealift.ir.loop.text import parse_loops
from sealift.ops import OPS
from tests.passes import random_graphs as rg
from tests.support_native import NativeBatch

SIZES = [{"n": 33, "m": 3}, {"n": 0, "m": 2}, {"n": 1, "m": 1}, {"n": 2, "m": 0}]
SHORT_SEEDS = range(24)
COMPILED_SEEDS = range(100, 112)
FIRST_SLOW_SEED = int(os.environ.get("SEALIFT_FUZZ_SEED", "1000"))
SLOW_GRAPHS = int(os.environ.get("SEALIFT_FUZZ_GRAPHS", "400"))
BATCH = 20  # graphs in one library
LONGEST = 1 << 20  # elements; larger runs are left out


def check_passes(seed: int) -> None:
    graph = rg.random_graph(seed)
    assert parse_graph(str(graph), OPS) == graph
    passes = rg.loops_after_each_pass(graph)
    for sizes in SIZES:
        if rg.total_elements(graph, sizes) > LONGEST:
            continue
        inputs, weights = rg.random_inputs(graph, sizes, seed)
        wanted = rg.run_interpreter(graph, inputs, weights)
        rg.assert_close(wanted, rg.run_eager(graph, inputs, weights, sizes), graph, f"seed {seed}, {sizes}: interpreter and eager")
        before = None
        for name, loops in passes:
            if loops is not before:  # a pass that changed nothing
                rg.assert_close(rg.run_loops(loops, graph, inputs, weights), wanted, graph, f"seed {seed}, {sizes}: after {name}", 0.3)
            before = loops
    assert parse_loops(str(passes[-1][1])) == passes[-1][1]


def check_compiled(seeds: Sequence[int]) -> None:
    graphs = {seed: rg.random_graph(seed) for seed in seeds}
    batch = NativeBatch([rg.loops_after_each_pass(g)[-1][1] for g in graphs.values()])
    for position, (seed, graph) in enumerate(graphs.items()):
        for sizes in SIZES:
            if rg.total_elements(graph, sizes) > LONGEST:
                continue
            inputs, weights = rg.random_inputs(graph, sizes, seed)
            wanted = rg.run_eager(graph, inputs, weights, sizes)
            got = batch.run(position, {**inputs, **rg.by_name(graph, weights)}, sizes)
            rg.assert_close([np.asarray(a) for a in got], wanted, graph, f"seed {seed}, {sizes}: compiled and eager", 2.0)


@pytest.mark.parametrize("seed", SHORT_SEEDS)
def test_passes_keep_the_meaning(seed: int) -> None:
    check_passes(seed)


def test_compiled_graphs_answer_as_eager() -> None:
    check_compiled(COMPILED_SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST_SLOW_SEED, FIRST_SLOW_SEED + SLOW_GRAPHS, BATCH))
def test_fuzz(first: int) -> None:
    seeds = range(first, first + BATCH)
    for seed in seeds:
        check_passes(seed)
    check_compiled(seeds)


def test_generator_reaches_every_step() -> None:
    """The rows that the short seeds meet: the property is about them all, so none may drop out unseen."""
    met = {n.op.name for seed in range(200) for n in rg.random_graph(seed).nodes}
    missing = {"aten.linear.default", "aten.matmul.default", "aten.cat.default", "aten.gather.default", "aten.index_select.default",
               "aten.embedding.default", "aten.softmax.int", "aten.layer_norm.default", "aten.cumsum.default", "aten.where.self", "aten.max.dim",
               "aten.argmax.default", "aten.sum.dim_IntList", "aten.amax.default", "aten.reshape.default", "aten.permute.default",
               "aten.slice.Tensor", "aten.expand.default", "aten.constant_pad_nd.default", "aten.unbind.int", "aten.index.Tensor"} - met  # fmt: skip
    assert not missing and len(met) > 40

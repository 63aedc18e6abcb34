"""Three graphs at every level: graph, loops as lowered and as optimized, memory plan, C++. Accept with SEALIFT_ACCEPT=1 and read the diff."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealift import pipeline
from sealift.backends.cpp.kernel import emit_kernels
from sealift.backends.cpp.model import emit_sources
from sealift.ir.graph.verify import verify
from sealift.ops.lang import Builder, whole
from sealift.options import Options
from sealift.package.shelf import WeightShelf
from sealift.passes.lower_to_loops import lower_to_loops
from sealift.plan.memory import plan_memory
from sealift.targets.isa import BY_NAME
from tests.expect.golden import assert_golden
from tests.expect.models import NAMES, graph_text, imported, read_graph


@pytest.mark.parametrize("name", NAMES)
def test_golden_graph(name: str) -> None:
    graph = read_graph(name)
    assert str(graph) == graph_text(name)
    verify(graph, Builder, whole)


@pytest.mark.parametrize("name", NAMES)
def test_golden_levels(name: str) -> None:
    graph = read_graph(name)
    steps = pipeline.new_steps(Options())
    lowered = lower_to_loops(graph)
    optimized = pipeline.optimize(lowered, steps)
    plan = plan_memory(optimized)
    kernels = emit_kernels(optimized, plan)
    weights = pipeline._store_weights(imported(graph), kernels, WeightShelf())
    source = emit_sources(graph, optimized, kernels, plan, weights, list(BY_NAME.values()), "sealift, g++")
    assert_golden(
        name,
        {
            "1_lowered.loops": str(lowered),
            "2_optimized.loops": str(optimized),
            "3_memory.plan": f"{plan}\n",
            **source.headers,
            **source.per_isa,
            **source.common,
        },
    )


def test_golden_helper_says_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEALIFT_ACCEPT", "1")
    assert_golden("x", {"a": "one\ntwo\n", "b": "b\n"}, tmp_path)
    monkeypatch.delenv("SEALIFT_ACCEPT")
    assert_golden("x", {"a": "one\ntwo\n", "b": "b\n"}, tmp_path)
    with pytest.raises(AssertionError, match=r"(?s)-two\n\+three.*make golden"):
        assert_golden("x", {"a": "one\nthree\n", "b": "b\n"}, tmp_path)
    with pytest.raises(AssertionError, match="golden/x/b"):
        assert_golden("x", {"a": "one\ntwo\n"}, tmp_path)


def test_golden_text_is_the_same_in_another_process_order() -> None:
    """Nothing printed depends on sets or hashes: a second run in this process, in reverse, gives the same sources."""
    texts: list[list[str]] = []
    for order in (NAMES, NAMES[::-1]):
        found = []
        for name in order:
            optimized = pipeline.optimize(lower_to_loops(read_graph(name)), pipeline.new_steps(Options()))
            kernels = emit_kernels(optimized, plan_memory(optimized))
            found.append("\n".join([str(optimized), *kernels.functions, *kernels.steps]))
        texts.append(sorted(found))
    assert texts[0] == texts[1]

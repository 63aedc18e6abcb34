"""Names in generated C++: no user's name meets a word of the language, of the vocabulary or of the generated code itself."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sealift import pipeline
from sealift.backends.cpp.kernel import emit_kernels, size_names
from sealift.backends.cpp.model import emit_sources
from sealift.backends.cpp.spelling import identifier, unique_identifiers
from sealift.ir.graph.text import parse_graph, subgraphs_of
from sealift.ir.loop.expr import Buffer
from sealift.ops import OPS
from sealift.options import Options
from sealift.passes.lower_to_loops import lower_to_loops
from sealift.plan.memory import plan_memory
from sealift.targets.isa import BASELINE
from tests.expect.golden import DIRECTORY
from tests.expect.models import NAMES, read_graph
from tests.support_native import NativeBatch, optimize


@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(["x", "x_2", "x ", "x__y", "x_y", "int", "v0", "", "é"]), max_size=8)
)
def test_identifiers_are_identifiers_and_unique(names: list[str]) -> None:
    found = unique_identifiers(names, ["x"])
    assert set(found) == set(names)
    for text in found.values():
        assert re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII), text
        assert "__" not in text and not re.match("_[A-Z]", text), text  # reserved to the implementation
    assert len(set(found.values())) == len(found)
    assert "x" not in found.values()


def test_plain_names_stay() -> None:
    for name in ("x", "input_ids", "batch", "seq", "linear2", "layer_norm", "weight", "q", "key", "value"):
        assert identifier(name) == name


def test_what_generated_code_says_is_reserved() -> None:
    """Every word of the golden C++ that is none of the graphs' own names."""
    own = {"kernel"}  # a parameter of failed(), which uses no other name
    for name in NAMES:
        graph = read_graph(name)
        for part in (*subgraphs_of(graph), graph):
            own |= {s.name for s in part.sizes} | {v.name for n in part.nodes for v in n.outputs}
            own |= {v.name for v in part.inputs} | {c.value.name for c in part.constants}
        loops = pipeline.optimize(lower_to_loops(graph), pipeline.new_steps(Options()))
        for held in (*loops.parts, loops):  # rows are named after their buffers
            own |= set(unique_identifiers((b.name for b in (*held.inputs, *held.buffers, *held.outputs) if b is not None), ()).values())
    fields = set(re.findall(r"(?:\.|->)(\w+)", "".join(p.read_text() for p in DIRECTORY.glob("*/*.cpp"))))
    words: set[str] = set()
    for path in (*DIRECTORY.glob("*/kernels_*.cpp"), *DIRECTORY.glob("*/run.cpp")):
        code = re.sub(r'//.*|"[^"]*"|^#.*', "", path.read_text(), flags=re.M)
        words |= set(re.findall(r"(?<!::)\b[A-Za-z_]\w*", code))
    left = {w for w in words - own - fields if identifier(w) == w and not re.match(r"k[A-Z]|sealift_|run_|SEALIFT|inline|__|cold|noinline", w)}
    assert not left


HOSTILE = [
    "gt",
    "lt",
    "load",
    "splat",
    "count",
    "n0",
    "v0",
    "row0",
    "p0",
    "begin",
    "frame",
    "int",
    "exp",
    "INT64_MIN",
    "NULL",
    "M_PI",
    "a.b",
    "a_b",
    "a__b",
    "ü",
]


def hostile_graph(names: list[str], size: str) -> str:
    values = ", ".join(f'%"{n}"' for n in names)
    nodes = "\n".join(f'  %"{n}": f32[{size}] = aten.exp.default(%{x})' for x, n in zip(["x", "z"] * len(names), names))
    head = f"graph m({size}: 0.., a_b: 1.., a__b: 1..)\n  input %x: f32[{size}]\n  input %z: f32[{size}]\n  input %s: f32[a_b, a__b]"
    return f"{head}\n{{\n{nodes}\n  return {values}, %s\n}}\n"


def test_hostile_names_compile_and_answer() -> None:
    """Values, sizes and outputs called like everything that surrounds them."""
    sizes = ["n", "v0", "row0", "batch0", "frame", "task", "lanes", "gemm", "size_max"]
    cases = [optimize(lower_to_loops(parse_graph(hostile_graph(HOSTILE, s), OPS))) for s in sizes]
    batch = NativeBatch(cases)
    x, z = np.linspace(-1, 1, 11, dtype=np.float32), np.linspace(0, 1, 11, dtype=np.float32)
    for position, size in enumerate(sizes):
        outputs = batch.run(position, {"x": x, "z": z, "s": np.zeros((2, 3), np.float32)}, {size: 11, "a_b": 2, "a__b": 3})
        for k, out in enumerate(outputs[:-1]):
            np.testing.assert_allclose(out, np.exp(z if k % 2 else x), rtol=1e-6)


def test_comparison_returned_under_its_own_name() -> None:
    text = "graph m(n: 1..)\n  input %x: f32[n]\n{\n  %gt: bool[n] = aten.gt.Scalar(%x, other=0)\n  return %gt\n}\n"
    batch = NativeBatch([optimize(lower_to_loops(parse_graph(text, OPS)))])
    assert batch.run(0, {"x": np.float32([1, -1, 2])}, {"n": 3})[0].tolist() == [True, False, True]


def test_sizes_and_constants_have_names_of_their_own() -> None:
    graph = parse_graph(
        'graph m(a_b: 1.., a__b: 1..)\n  input %x: f32[a_b, a__b, 2]\n  parameter %p_a_b: f32[2] = "a.b"\n  parameter %p_a__b: f32[2] = "a._b"\n{\n'
        "  %y: f32[a_b, a__b, 2] = aten.add.Tensor(%x, %p_a_b)\n  %w: f32[a_b, a__b, 2] = aten.add.Tensor(%y, %p_a__b)\n  return %w\n}\n",
        OPS,
    )
    loops = optimize(lower_to_loops(graph))
    assert len(set(size_names(loops).values())) == 2
    plan = plan_memory(loops)
    source = emit_sources(graph, loops, emit_kernels(loops, plan), plan, (), [BASELINE], "g++")
    assert '"p_a_b", "a.b"' in source.common["model.cpp"] and '"p_a_b_2", "a._b"' in source.common["model.cpp"]


def test_pointer_names_of_a_kernel_are_unique() -> None:
    buffers = [Buffer(n, None, ()) for n in HOSTILE]  # type: ignore[arg-type]
    assert len(set(unique_identifiers(b.name for b in buffers).values())) == len(HOSTILE)

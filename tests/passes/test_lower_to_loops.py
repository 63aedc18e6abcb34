"""lower_to_loops: what becomes of inputs, constants, states and outputs, and of what a kernel family cannot reach."""

from __future__ import annotations

import numpy as np
import pytest
from expecttest import assert_expected_inline

from sealift import pipeline
from sealift.diag.errors import CompileError
from sealift.ir.graph.text import parse_graph
from sealift.ir.loop.interpret import interpret
from sealift.ir.loop.types import Loops
from sealift.ir.loop.verify import verify
from sealift.ops import OPS
from sealift.options import Options
from sealift.passes.lower_to_loops import lower_to_loops
from tests.passes.random_graphs import NAIVE, Recorder, assert_close, by_name, loops_after_each_pass, random_inputs, run_eager
from tests.passes.support import buffers, kernels
from tests.support_native import NativeBatch

pytestmark = pytest.mark.golden


def lower(head: str, nodes: str, outputs: str, sizes: str = "n: 1..") -> Loops:
    body = "\n  ".join(line.strip() for line in nodes.strip().splitlines())
    declared = "\n  ".join(line.strip() for line in head.strip().splitlines())
    loops = lower_to_loops(parse_graph(f"graph m({sizes})\n  {declared}\n{{\n  {body}\n  return {outputs}\n}}\n", OPS))
    verify(loops)
    return loops


def test_each_node_is_a_kernel_with_its_place() -> None:
    loops = lower("input %x: f32[n]", "%a: f32[n] = aten.neg.default(%x)  // m.py:3 act\n%b: f32[n] = aten.exp.default(%a)  // m.py:4", "%b")
    assert_expected_inline(
        kernels(loops),
        """\
kernel a [aten.neg.default]  // m.py:3 act
  map %a[i0] for i0 < n
    = neg(%x[i0])
kernel b [aten.exp.default]  // m.py:4
  map %b[i0] for i0 < n
    = exp(%a[i0])""",
    )


def test_outputs_that_are_inputs_repeated_constants_states_and_none() -> None:
    loops = lower(
        """
        input %x: f32[n]
        parameter %w: f32[3] = "w"
        state %s: f32[3] = "s" -> %t
        """,
        "%y: f32[n] = aten.neg.default(%x)\n%t: f32[3] = aten.add.Tensor(%s, %w)",
        "%x, %y, %y, %w, %s, %t, none, %x",
    )
    assert_expected_inline(
        buffers(loops),
        """\
loops m(n: 1..)
inputs
  input %x: f32[n]
buffers
  weight %w: f32[3]
  state %s: f32[3]
outputs
  %x
  output %y: f32[n]
  output %y_out2: f32[n]
  output %w_out3: f32[3]
  output %s_out4: f32[3]
  output %t: f32[3]
  none
  %x""",
    )
    assert_expected_inline(
        kernels(loops),
        """\
kernel y [aten.neg.default]
  map %y[i0] for i0 < n
    = neg(%x[i0])
kernel t [aten.add.Tensor]
  map %t[i0] for i0 < 3
    = add(%s[i0], %w[i0])
kernel y_out2 []
  map %y_out2[i0] for i0 < n
    = %y[i0]
kernel w_out3 []
  map %w_out3[i0] for i0 < 3
    = %w[i0]
kernel s_out4 []
  map %s_out4[i0] for i0 < 3
    = %s[i0]
kernel keep_s []
  map %s[i0] for i0 < 3
    = %t[i0]
state %s <- %s""",
    )
    x, w, s = np.float32([1, 2]), np.float32([1, 2, 3]), np.float32([10, 20, 30])
    states: dict[str, np.ndarray] = {}
    outputs = interpret(loops, {"x": x, "w": w, "s": s}, NAIVE, states)
    found = [None if o is None else o.tolist() for o in outputs]
    assert found == [[1, 2], [-1, -2], [-1, -2], [1, 2, 3], [10, 20, 30], [11, 22, 33], None, [1, 2]]
    assert states["s"].tolist() == [11, 22, 33]


@pytest.mark.parametrize(("b_becomes", "wanted"), [("%x", 1), ("%a", 2), ("%b", 3)])
def test_state_that_takes_over_another(b_becomes: str, wanted: int) -> None:
    """All states change at once, when the run ends."""
    loops = lower(
        f'input %x: f32[3]\nstate %a: f32[3] = "a" -> %b\nstate %b: f32[3] = "b" -> {b_becomes}', "%y: f32[3] = aten.add.Tensor(%a, %b)", "%y", ""
    )
    for passed in (loops, pipeline.optimize(loops, pipeline.new_steps(Options()))):
        states: dict[str, np.ndarray] = {}
        (y,) = interpret(passed, {name: np.full(3, k, np.float32) for name, k in (("x", 1), ("a", 2), ("b", 3))}, NAIVE, states)
        assert y is not None and y.tolist() == [5, 5, 5]
        assert states["a"].tolist() == [3, 3, 3]
        assert states["b"].tolist() == [wanted] * 3


STATEFUL = {
    "cache_row_by_row": ("%t: f32[4, 8] = aten.add.Tensor(%a, %x)", "%t", "%u: f32[4, 8] = aten.exp.default(%t)", "%u"),
    "update_inlined": ("%t: f32[4, 8] = aten.exp.default(%x)", "%t", "%u: f32[4, 8] = aten.add.Tensor(%a, %x)", "%u"),
    "product_of_the_old_state": ("%t: f32[4, 8] = aten.mm.default(%a, %w)", "%x", "%u: f32[4, 8] = aten.relu.default(%t)", "%a"),
    "attached_product": ("%t: f32[4, 8] = aten.mm.default(%a, %w)", "%x", "%u: f32[4, 8] = aten.exp.default(%t)", "%a"),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_states_through_all_passes(name: str) -> None:
    """b's update is computed from a, whose update is written first: nothing of it may move behind that."""
    first, a_becomes, second, output = STATEFUL[name]
    head = f"""
        input %x: f32[4, 8]
        parameter %w: f32[8, 8] = "w"
        state %a: f32[4, 8] = "a" -> {a_becomes}
        state %b: f32[4, 8] = "b" -> %u"""
    loops = lower(head, f"{first}\n{second}", output, "")
    rng = np.random.default_rng(0)
    values = {k: rng.standard_normal(shape).astype(np.float32) for k, shape in (("x", (4, 8)), ("w", (8, 8)), ("a", (4, 8)), ("b", (4, 8)))}
    wanted: dict[str, np.ndarray] = {}
    (y,) = interpret(loops, values, NAIVE, wanted)
    recorder = Recorder()
    pipeline.optimize(loops, recorder)
    for step, passed in recorder.results:
        states: dict[str, np.ndarray] = {}
        (got,) = interpret(passed, values, NAIVE, states)
        for state, array in wanted.items():
            np.testing.assert_allclose(states[state], array, rtol=1e-5, err_msg=f"%{state} after {step}")
        np.testing.assert_allclose(got, y, rtol=1e-5, err_msg=f"after {step}")


def test_several_results_of_a_node_one_of_them_returned_twice() -> None:
    loops = lower("input %x: f32[n, 4]", "%v: f32[n], %i: i64[n] = aten.max.dim(%x, dim=1)", "%v, %i, %i")
    v, i, again = interpret(loops, {"x": np.float32([[1, 3, 2, 3]])}, NAIVE)
    assert v is not None and i is not None and again is not None
    assert (v.tolist(), i.tolist(), again.tolist()) == ([3.0], [1], [1])


def test_order_in_memory_is_eagers() -> None:
    loops = lower("input %x: f32[n, 4]", "%y: f32[4, n] order(1, 0) = aten.permute.default(%x, dims=[1, 0])", "%y")
    assert "output %y: f32[4, n] order(1, 0)" in buffers(loops)


UNREACHABLE = {
    "operand_turned": """
        %a: f32[n, 8] order(1, 0) = aten.neg.default(%x)
        %y: f32[n, 4] = aten.linear.default(%a, %w)""",
    "result_turned": "%y: f32[n, 4] order(1, 0) = aten.linear.default(%x, %w)",
    "turned_bias": "%y: f32[n, 4] order(1, 0) = aten.linear.default(%x, %w, %c)",
    "batch_inside": """
        %a: f32[n, 2, 4] order(1, 2, 0) = aten.reshape.default(%x, shape=[n, 2, 4])
        %t: f32[n, 4, 2] order(2, 0, 1) = aten.transpose.int(%a, dim0=1, dim1=2)
        %y: f32[n, 2, 2] order(2, 1, 0) = aten.bmm.default(%a, %t)""",
    "attention_turned": """
        %a: f32[1, n, 2, 4] order(3, 2, 1, 0) = aten.reshape.default(%x, shape=[1, n, 2, 4])
        %q: f32[1, 2, n, 4] order(0, 3, 1, 2) = aten.transpose.int(%a, dim0=1, dim1=2)
        %y: f32[1, 2, n, 4] order(0, 1, 3, 2) = aten.scaled_dot_product_attention.default(%q, %q, %q)""",
    "then_an_activation": """
        %h: f32[n, 4] order(1, 0) = aten.linear.default(%x, %w)
        %y: f32[n, 4] = aten.relu.default(%h)""",
}


def unreachable(name: str) -> str:
    nodes = "\n  ".join(line.strip() for line in UNREACHABLE[name].strip().splitlines())
    return (
        f'graph m(n: 1..)\n  input %x: f32[n, 8]\n  parameter %w: f32[4, 8] = "w.0"\n  parameter %c: f32[4] = "c.0"\n{{\n  {nodes}\n  return %y\n}}\n'
    )


def test_what_a_kernel_family_cannot_reach_is_copied() -> None:
    loops = lower(
        'input %x: f32[n, 8]\nparameter %w: f32[4, 8] = "w"', UNREACHABLE["operand_turned"].replace("[n, 4] =", "[n, 4] order(1, 0) ="), "%y"
    )
    assert_expected_inline(
        kernels(loops),
        """\
kernel a [aten.neg.default]
  map %a[i0, i1] for i0 < n, i1 < 8
    = neg(%x[i0, i1])
kernel y_0 [aten.linear.default]
  map %y.a[k0, k1] for k0 < n, k1 < 8
    = %a[k0, k1]
kernel y_1 [aten.linear.default]
  call gemm(%y.plain) transpose_b=true
    a[k0 < n, k1 < 8] = %y.a[k0, k1]
    b[k2 < 4, k3 < 8] = %w[k2, k3]
kernel y [aten.linear.default]
  map %y[i0, i1] for i0 < n, i1 < 4
    = %y.plain[i0, i1]""",
    )


def test_copies_are_right_when_compiled() -> None:
    """Eager gives such orders: of x.t() + 1, of matmul(matrix, batch)."""
    graphs = {name: parse_graph(unreachable(name), OPS) for name in UNREACHABLE}
    batch = NativeBatch([loops_after_each_pass(g)[-1][1] for g in graphs.values()])
    for position, (name, graph) in enumerate(graphs.items()):
        for n in (1, 2, 33):
            inputs, weights = random_inputs(graph, {"n": n})
            wanted = run_eager(graph, inputs, weights, {"n": n})
            assert_close(batch.run(position, {**inputs, **by_name(graph, weights)}, {"n": n}), wanted, graph, f"{name}, n = {n}")


def test_arguments_that_a_row_refuses_are_the_users_error() -> None:
    node = '%y: bool[n] = aten.scatter_reduce.two(%x, dim=0, index=%i, src=%x, reduce="mean")  // m.py:7 head'
    with pytest.raises(CompileError) as caught:
        lower("input %x: bool[n]\ninput %i: i64[n]", node, "%y")
    assert caught.value.code == "E-OP-002"
    assert "aten.scatter_reduce.two" in str(caught.value) and "m.py:7" in str(caught.value)

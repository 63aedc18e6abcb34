"""Each numbered invariant, broken once; the message shows the line."""

from __future__ import annotations

from typing import Any

import pytest

from sealift.diag.errors import InternalError
from sealift.ir.dim import Dim, dim, sym
from sealift.ir.graph.interpret import interpret
from sealift.ir.graph.text import parse_graph
from sealift.ir.graph.verify import may_be_equal
from sealift.ir.graph.verify import verify as verify_graph
from sealift.ir.loop.text import parse_loops
from sealift.ir.loop.verify import verify as verify_loops
from sealift.ops import OPS
from sealift.ops.families import FAMILIES
from sealift.ops.lang import Builder, whole

GRAPH = """\
graph g(b: 1..8)
  input %x: f32[b, 4]
  parameter %w: f32[3, 4] = "w"
  state %count: f32[3] = "count" -> %sum
{
  %mm: f32[b, 3] = aten.linear.default(%x, %w)  // model.py:3 proj
  %act: f32[b, 3] = aten.relu.default(%mm)
  %sum: f32[3] = aten.add.Tensor(%count, other=1)
  return y=%act, n=none
}
"""


def test_a_good_graph_passes_and_runs() -> None:
    import numpy as np

    g = parse_graph(GRAPH, OPS)
    verify_graph(g, Builder, whole)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 4)).astype("f"), rng.standard_normal((3, 4)).astype("f")
    left: dict[str, Any] = {}
    weights = {"w": w, "count": np.zeros(3, "f")}
    y, none = interpret(g, {"x": x}, weights, Builder, whole, {n: f.naive for n, f in FAMILIES.items()}, left)
    assert y is not None and none is None
    np.testing.assert_allclose(y, np.maximum(x @ w.T, 0), rtol=1e-5)
    assert left["count"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("number", "old", "new"),
    [
        (1, "%act: f32[b, 3] =", "%mm: f32[b, 3] ="),
        (3, "aten.add.Tensor(%count, other=1)", "aten.add.Tensor(%count)"),
        (3, "aten.relu.default(%mm)", "aten.relu.default(%mm, inplace=true)"),
        (5, "%mm: f32[b, 3] =", "%mm: f32[b, 3] order(1, 1) ="),
        (6, "%sum: f32[3] =", "%sum: f32[1, 3] ="),
        (6, "return y=%act, n=none", "return y=%act, y=none"),
        (8, "%mm: f32[b, 3] =", "%mm: f32[b, 4] ="),
        (8, "%act: f32[b, 3] =", "%act: f64[b, 3] ="),
    ],
)
def test_graph_invariants(number: int, old: str, new: str) -> None:
    text = GRAPH.replace(old, new)
    assert text != GRAPH
    if "%act" in old and number == 1:
        text = text.replace("y=%act", "y=%mm")
    with pytest.raises(InternalError, match=rf"(?s)invariant {number}: .*-> "):
        verify_graph(parse_graph(text, OPS), Builder, whole)


def test_sizes_are_compared_by_value_where_they_differ_as_expressions() -> None:
    s = sym("s", 1, 100)
    assert may_be_equal(3 * s // 8 * 8, 3 * s)
    assert not may_be_equal(s, s + 1)
    assert not may_be_equal(dim(3), dim(4))


LOOPS = """\
loops g(b: 1..8)
inputs
  input %x: f32[b, 4]
buffers
  weight %w: f32[4]
  temp %t: f32[b, 4]
  row %top: f32[b] row_dims(1)
  state %n: i64[]
  temp %n_new: i64[]
outputs
  output %y: f32[b, 4]
kernel k0 [aten.mul.Tensor]
  map %t[i0, i1] for i0 < b, i1 < 4
    = mul(%x[i0, i1], %w[i1])
kernel k1 rows 1 [aten._softmax.default]
  reduce max %top for i0 < b over r0 < 4
    = %t[i0, r0]
  map %y[i2, i3] for i2 < b, i3 < 4
    = exp(sub(%t[i2, i3], %top[i2]))
kernel k2 []
  map %n_new[] for
    = add(%n[], 1:i64)
state %n <- %n_new
"""


def test_good_loops_pass() -> None:
    verify_loops(parse_loops(LOOPS))


@pytest.mark.parametrize(
    ("number", "old", "new"),
    [
        (1, "temp %t:", "tmp %t:"),
        (1, "temp %t: f32[b, 4]", "temp %t: f32[b, 4] order(0, 0)"),
        (3, "kernel k0 [aten.mul.Tensor]\n  map %t[i0, i1] for i0 < b, i1 < 4\n    = mul(%x[i0, i1], %w[i1])\n", ""),
        (3, "map %t[i0, i1]", "map %x[i0, i1]"),
        (3, "map %y[i2, i3]", "map %t[i2, i3]"),
        (4, "for i0 < b over r0 < 4\n    = %t[i0, r0]", "for i0 < b over i0 < 4\n    = %t[i0, i0]"),
        (5, "mul(%x[i0, i1], %w[i1])", "mul(%x[i0, i1], %x[i1])"),
        (5, "map %t[i0, i1]", "map %t[i0]"),
        (6, "for i2 < b, i3 < 4", "for i2 < 7, i3 < 4"),
        (7, "%top[i2]))", "%top[0]))"),
        (7, "%top[i2]))", "%top[b - 1 - i2]))"),
        (7, "  map %y[i2, i3] for", "  map %y[i6, 0] for i6 < b\n    = 0:f32\n  map %y[b - 1 - i2, i3] for"),
        (8, "= add(%n[], 1:i64)", "= add(%n[], cast.i64(%top[0]))"),
        (9, "= exp(sub", "= floor(sub".replace("floor", "eq")),
        (9, "= add(%n[], 1:i64)", "= exp(add(%n[], 1:i64))"),
        (9, "reduce max %top", "reduce any %top"),
        (10, "temp %n_new: i64[]", "temp %n_new: i64[1]"),
    ],
)
def test_loop_invariants(number: int, old: str, new: str) -> None:
    text = LOOPS.replace(old, new)
    assert text != LOOPS
    if number == 9 and "eq" in new:
        text = text.replace("eq(sub(%t[i2, i3], %top[i2]))", "cast.f64(sub(%t[i2, i3], %top[i2]))")
    if number == 10:
        text = text.replace("map %n_new[] for\n", "map %n_new[0] for\n")
    with pytest.raises(InternalError, match=rf"(?s)invariant {number}: .*-> "):
        verify_loops(parse_loops(text))


def test_a_stray_symbol_is_caught() -> None:
    from dataclasses import replace

    loops = parse_loops(LOOPS)
    stray: Dim = sym("stray", 1, 8)
    bad = replace(loops.kernels[0].stages[0], index=(stray, dim(0)))  # type: ignore[call-arg]
    with pytest.raises(InternalError, match="invariant 5: stray"):
        verify_loops(replace(loops, kernels=(replace(loops.kernels[0], stages=(bad,)), *loops.kernels[1:])))

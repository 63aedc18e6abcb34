"""inline_producers: what is computed where it is read, what is not and why. Accept printed text with EXPECTTEST_ACCEPT=1 (make golden)."""

from __future__ import annotations

import numpy as np
import pytest
from expecttest import assert_expected_inline

from sealift.ir.graph.text import parse_graph
from sealift.ir.loop.types import Call
from sealift.ops import OPS
from sealift.passes.inline_producers import inline_producers
from tests.passes.random_graphs import assert_close, loops_after_each_pass, run_eager
from tests.passes.support import buffers, changed, kernels, read, unchanged
from tests.support_native import NativeBatch

pytestmark = pytest.mark.golden
HEAD = """
loops m(n: 0.., k: 1..)
inputs
  input %x: f32[n, 8]
  input %v: f32[8]
  input %i: i64[n]
buffers
  {temps}
outputs
  output %y: f32[n, 8]
"""


def loops(temps: str, body: str) -> str:
    return HEAD.format(temps=temps.replace("; ", "\n  ")) + body.strip("\n")


def test_pointwise_chain_is_one_kernel_with_all_origins() -> None:
    after = changed(
        inline_producers,
        loops(
            "temp %t: f32[n, 8]; temp %u: f32[n, 8]",
            """
kernel t [aten.add.Tensor]  // a.py:1
  map %t[i0, i1] for i0 < n, i1 < 8
    = add(%x[i0, i1], 1.0:f32)
kernel u [aten.exp.default]  // a.py:2
  map %u[i2, i3] for i2 < n, i3 < 8
    = exp(%t[i2, i3])
kernel y [aten.mul.Tensor]  // a.py:3
  map %y[i0, i1] for i0 < n, i1 < 8
    = mul(%u[i0, i1], 2.0:f32)
""",
        ),
    )
    assert_expected_inline(
        kernels(after),
        """\
kernel y [aten.add.Tensor, aten.exp.default, aten.mul.Tensor]  // a.py:1; a.py:2; a.py:3
  map %y[i0, i1] for i0 < n, i1 < 8
    = mul(exp(add(%x[i0, i1], 1.0:f32)), 2.0:f32)""",
    )
    assert "%t" not in buffers(after)


def test_views_vanish_into_index_arithmetic() -> None:
    after = changed(
        inline_producers,
        loops(
            "temp %t: f32[8, n]; temp %u: f32[2, 4, n]; temp %w: f32[8, n]",
            """
kernel permute []
  map %t[i0, i1] for i0 < 8, i1 < n
    = %x[i1, i0]
kernel view []
  map %u[i0, i1, i2] for i0 < 2, i1 < 4, i2 < n
    = %t[4*i0 + i1, i2]
kernel view_back []
  map %w[i0, i1] for i0 < 8, i1 < n
    = %u[i0 // 4, i0 % 4, i1]
kernel y []
  map %y[i0, i1] for i0 < n, i1 < 8
    = %w[i1, i0]
""",
        ),
    )
    assert_expected_inline(
        kernels(after),
        """\
kernel y []
  map %y[i0, i1] for i0 < n, i1 < 8
    = %x[i0, i1]""",
    )


def test_guard_stays_around_what_is_inlined() -> None:
    """A padding: a load is guarded where it stands; more is chosen by the bounds, and its loads touch nothing outside them."""
    after = changed(
        inline_producers,
        loops(
            "temp %t: f32[n, 8]; temp %u: f32[n, 8]",
            """
kernel t []
  map %t[i0, i1] for i0 < n, i1 < 8
    = %x[i0, i1]
kernel u []
  map %u[i0, i1] for i0 < n, i1 < 8
    = neg(%x[i0, i1])
kernel y []
  map %y[i0, i1] for i0 < n, i1 < 8
    = add(%t[i0, i1 - 1] where(0 <= i1 - 1 < 8) else 5.0, %u[i0, i1 - 2] where(0 <= i1 - 2 < 8) else 0.0)
""",
        ),
    )
    assert_expected_inline(
        kernels(after),
        """\
kernel y []
  map %y[i0, i1] for i0 < n, i1 < 8
    = add(%x[i0, i1 - 1] where(0 <= i1 - 1 < 8) else 5.0, select(inside(0 <= i1 - 2 < 8), neg(%x[i0, i1 - 2] where(0 <= i1 - 2 < 8) else 0), 0.0:f32))""",
    )


def test_gather_reads_the_producers_source() -> None:
    after = changed(
        inline_producers,
        loops(
            "temp %t: f32[8, n]",
            """
kernel t []
  map %t[i0, i1] for i0 < 8, i1 < n
    = mul(%x[i1, i0], cast.f32(idx(i1)))
kernel y []
  map %y[i0, i1] for i0 < n, i1 < 8
    = %t[i1, @check(%i[i0], n)]
""",
        ),
    )
    assert_expected_inline(
        kernels(after),
        """\
kernel y []
  map %y[i0, i1] for i0 < n, i1 < 8
    $0 = check(%i[i0], n)
    = mul(%x[@$0, i1], cast.f32($0))""",
    )


def test_gather_becomes_arithmetic_where_the_index_is_linear() -> None:
    after = changed(
        inline_producers,
        loops(
            "temp %t: f32[4, 8]",
            """
kernel t []
  map %t[i0, i1] for i0 < 4, i1 < 8
    = %x[2*i0 + k, i1]
kernel y []
  map %y[i0, i1] for i0 < n, i1 < 8
    = %t[@check(%i[i0], 4), i1]
""",
        ),
    )
    assert_expected_inline(
        kernels(after),
        """\
kernel y []
  map %y[i0, i1] for i0 < n, i1 < 8
    = %x[@add(mul(check(%i[i0], 4), idx(2)), idx(k)), i1]""",
    )


@pytest.mark.parametrize(
    "value", ["%x[i0 // 2, i1]", "%x[i0 - 1, i1] where(0 <= i0 - 1 < 8) else 0.0", "select(inside(1 <= i0 < 9), 1.0:f32, 2.0:f32)"]
)
def test_refuses_a_gather_into_other_index_arithmetic(value: str) -> None:
    unchanged(
        inline_producers,
        loops(
            "temp %t: f32[9, 8]",
            f"""
kernel t []
  map %t[i0, i1] for i0 < 9, i1 < 8
    = {value}
kernel y []
  map %y[i0, i1] for i0 < n, i1 < 8
    = %t[@check(%i[i0], 9), i1]
""",
        ),
    )


FAILING = """
graph m(n: 1..)
  input %a: i64[n, 8]
  input %b: i64[n, 8]
  input %i: i64[n]
  parameter %w: f32[6, 2] = "w"
{
  %d: i64[n, 8] = aten.div.Tensor_mode(%a, %b, rounding_mode="floor")
  %p: i64[n, 8] = aten.constant_pad_nd.default(%d, pad=[1, -1], value=0)
  %j: i64[n] = aten.add.Scalar(%i, other=7)
  %e: f32[n, 2] = aten.index.Tensor(%w, indices=[%j])
  %q: f32[n, 2] = aten.constant_pad_nd.default(%e, pad=[0, 0, 1, -1], value=0)
  return %p, %q
}
"""


def test_padding_meets_no_division_by_zero_and_no_index_out_of_range_of_its_own() -> None:
    """Outside the guard a / b was 0 / 0 and the index was 0 + 7: the run failed where eager's does not."""
    graph = parse_graph(FAILING, OPS)
    inputs = {"a": np.tile(np.arange(8), (3, 1)), "b": np.ones((3, 8), np.int64), "i": np.array([-3, -4, -2])}
    weights = {"w": np.arange(12, dtype=np.float32).reshape(6, 2)}
    wanted = run_eager(graph, inputs, weights, {"n": 3})
    got = NativeBatch([loops_after_each_pass(graph)[-1][1]]).run(0, {**inputs, **weights}, {"n": 3})
    assert_close(got, wanted, graph, "compiled")


BROADCAST = """
kernel t []
  map %t[i0] for i0 < 8
    = {producer}
kernel y []
  map %y[i0, i1] for i0 < n, i1 < 8
    = add(%x[i0, i1], %t[i1])
"""


def test_refuses_to_compute_a_costly_row_once_for_each_reader() -> None:
    unchanged(inline_producers, loops("temp %t: f32[8]", BROADCAST.format(producer="exp(%v[i0])")))


@pytest.mark.parametrize("producer", ["neg(%v[i0])", "add(mul(%v[i0], 2.0:f32), 1.0:f32)", "%v[i0]"])
def test_a_cheap_row_is_computed_where_it_is_read(producer: str) -> None:
    assert len(changed(inline_producers, loops("temp %t: f32[8]", BROADCAST.format(producer=producer))).kernels) == 1


def test_a_costly_value_with_as_many_readers_as_elements_is_inlined() -> None:
    body = BROADCAST.replace("%t[i0] for i0 < 8", "%t[i0, i1] for i0 < n, i1 < 8").replace("%t[i1]", "%t[i0, i1]").format(producer="exp(%x[i0, i1])")
    assert len(changed(inline_producers, loops("temp %t: f32[n, 8]", body)).kernels) == 1


TWO_READERS = """
kernel t []
  map %t[i0, i1] for i0 < n, i1 < 8
    = {producer}
kernel z []
  reduce max %z for i0 < n over r0 < 8
    = %t[i0, r0]
kernel y []
  map %y[i0, i1] for i0 < n, i1 < 8
    = sub(%t[i0, i1], %z[i0])
"""


def test_several_readers_share_what_is_costly() -> None:
    unchanged(inline_producers, loops("temp %t: f32[n, 8]; temp %z: f32[n]", TWO_READERS.format(producer="exp(%x[i0, i1])")))
    unchanged(inline_producers, loops("temp %t: f32[n, 8]; temp %z: f32[n]", TWO_READERS.format(producer="add(%x[i0, i1], %v[i1])")))


def test_several_readers_each_compute_what_costs_next_to_nothing() -> None:
    after = changed(inline_producers, loops("temp %t: f32[n, 8]; temp %z: f32[n]", TWO_READERS.format(producer="add(%x[i0, i1], 1.0:f32)")))
    assert len(after.kernels) == 2


def test_refuses_two_writers_reductions_and_outputs() -> None:
    unchanged(
        inline_producers,
        """
        loops m(n: 0..)
        inputs
          input %x: f32[n, 8]
        buffers
          temp %cat: f32[n, 16]
          temp %s: f32[n]
        outputs
          output %o: f32[n, 16]
          output %y: f32[n, 16]
        kernel cat []
          map %cat[i0, i1] for i0 < n, i1 < 8
            = %x[i0, i1]
        kernel cat2 []
          map %cat[i0, i1 + 8] for i0 < n, i1 < 8
            = %x[i0, i1]
        kernel s []
          reduce sum %s for i0 < n over r0 < 8
            = %x[i0, r0]
        kernel o []
          map %o[i0, i1] for i0 < n, i1 < 16
            = add(%cat[i0, i1], %s[i0])
        kernel y []
          map %y[i0, i1] for i0 < n, i1 < 16
            = neg(%o[i0, i1])
        """,
    )


STATE = """
    loops m()
    inputs
      input %x: f32[3]
    buffers
      state %s: f32[3]
      temp %old: f32[3]
      temp %new: f32[3]
      temp %back: f32[3]
    outputs
      output %y: f32[3]
      output %z: f32[3]
    kernel old []
      map %old[i0] for i0 < 3
        = add(%s[i0], 1.0:f32)
    kernel new []
      map %new[i0] for i0 < 3
        = mul(exp(%s[i0]), %x[i0])
    kernel back []
      map %back[i0] for i0 < 3
        = add(%s[(2 - i0)], 1.0:f32)
    kernel z []
      map %z[i0] for i0 < 3
        = neg(%old[i0])
    kernel keep []
      map %s[i0] for i0 < 3
        = add({kept}, 1.0:f32)
    kernel y []
      map %y[i0] for i0 < 3
        = neg(%old[i0])
    state %s <- %s
"""


@pytest.mark.parametrize(("kept", "becomes"), [("%new[i0]", "mul(exp(%s[i0]), %x[i0])"), ("%back[i0]", "%back[i0]")])
def test_readers_of_a_state_do_not_move_behind_its_update(kept: str, becomes: str) -> None:
    """z is computed before the state is overwritten, y after it; each element may be read just before it is written, no other one."""
    text = kernels(changed(inline_producers, STATE.format(kept=kept)))
    assert "map %z[i0] for i0 < 3\n    = neg(add(%s[i0], 1.0:f32))" in text
    assert f"map %s[i0] for i0 < 3\n    = add({becomes}, 1.0:f32)" in text
    assert text.endswith("map %y[i0] for i0 < 3\n    = neg(%old[i0])\nstate %s <- %s")


GEMM = """
loops m(n: 0..)
inputs
  input %x: f32[{shape}]
buffers
  weight %w: f32[4, 8]
  temp %t: f32[n, 8]
outputs
  output %y: f32[n, 4]
kernel t []
  map %t[i0, i1] for i0 < n, i1 < 8
    = {value}
kernel y []
  call gemm(%y) transpose_b=true
    a[k0 < n, k1 < 8] = %t[k0, k1]
    b[k2 < 4, k3 < 8] = %w[k2, k3]
"""


def test_kernel_family_reads_through_a_view_whose_rows_lie_side_by_side() -> None:
    after = changed(inline_producers, GEMM.format(shape="n, 16", value="%x[i0, i1 + 8]"))
    (stage,) = after.kernels[0].stages
    assert isinstance(stage, Call)
    assert_expected_inline(
        kernels(after),
        """\
kernel y []
  call gemm(%y) transpose_b=true
    a[k0 < n, k1 < 8] = %x[k0, k1 + 8]
    b[k2 < 4, k3 < 8] = %w[k2, k3]""",
    )


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        ("8, n", "%x[i1, i0]"),  # its elements are n apart
        ("n, 16", "%x[i0, 2*i1]"),
        ("n, 8", "neg(%x[i0, i1])"),  # no view
        ("n, 7", "%x[i0, i1] where(0 <= i1 < 7) else 0.0"),
    ],
)
def test_kernel_family_refuses(shape: str, value: str) -> None:
    unchanged(inline_producers, GEMM.format(shape=shape, value=value))


def test_dead_kernels_and_their_buffers_go() -> None:
    text = loops(
        "temp %t: f32[n, 8]; temp %u: f32[n]",
        """
kernel t []
  map %t[i0, i1] for i0 < n, i1 < 8
    = exp(%x[i0, i1])
kernel u []
  reduce sum %u for i0 < n over r0 < 8
    = %t[i0, r0]
kernel y []
  map %y[i0, i1] for i0 < n, i1 < 8
    = %x[i0, i1]
""",
    )
    after = changed(inline_producers, text)
    assert [k.name for k in after.kernels] == ["y"] and not after.buffers


def test_same_axis_names_in_producer_and_reader_do_not_meet() -> None:
    """The producer's i0 is the reader's i1: both are substituted at once."""
    after = changed(
        inline_producers,
        loops(
            "temp %t: f32[8, n]",
            """
kernel t []
  map %t[i0, i1] for i0 < 8, i1 < n
    = mul(%x[i1, i0], cast.f32(idx(i0 + 100*i1)))
kernel y []
  map %y[i0, i1] for i0 < n, i1 < 8
    = %t[i1, i0]
""",
        ),
    )
    assert "cast.f32(idx(100*i0 + i1))" in kernels(after)
    assert "%x[i0, i1]" in kernels(after)


def test_same_object_when_nothing_is_inlined() -> None:
    text = loops("temp %unused: f32[2]", "kernel y []\n  map %y[i0, i1] for i0 < n, i1 < 8\n    = exp(%x[i0, i1])\n")
    before = read(text)
    assert inline_producers(before) is before

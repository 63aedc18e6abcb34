"""drop_empty: what writes no element goes, what reduces over none becomes a constant."""

from __future__ import annotations

import numpy as np
import pytest

from sealift.ir.graph.text import parse_graph
from sealift.ir.loop.interpret import interpret
from sealift.ops import OPS
from sealift.passes.drop_empty import drop_empty
from tests.passes.random_graphs import NAIVE, assert_close, by_name, loops_after_each_pass, random_inputs, run_eager
from tests.passes.support import changed, kernels, read, unchanged
from tests.support_native import NativeBatch

HEAD = """
loops m(n: 0..)
inputs
  input %x: {dtype}[n, 0]
buffers
  temp %t: {dtype}[n, 0]
outputs
  output %y: {dtype}[n]
kernel copy []
  map %t[i0, i1] for i0 < n, i1 < 0
    = %x[i0, i1]
kernel fold []
  reduce {combine} %y for i0 < n over r0 < 0
    = %t[i0, r0]
"""


@pytest.mark.parametrize(
    ("combine", "dtype", "identity"),
    [
        ("sum", "f32", "0.0:f32"), ("prod", "f32", "1.0:f32"), ("min", "f32", "inf:f32"), ("max", "f64", "-inf:f64"), ("max", "bf16", "-inf:bf16"),
        ("min", "i8", "127:i8"), ("max", "i8", "-128:i8"), ("min", "i64", f"{2**63 - 1}:i64"), ("max", "i64", f"{-(2**63)}:i64"),
        ("max", "u8", "0:u8"), ("min", "u8", "255:u8"), ("sum", "i32", "0:i32"), ("any", "bool", "false:bool"), ("all", "bool", "true:bool"),
        ("min", "bool", "true:bool"), ("max", "bool", "false:bool"),
    ],
)  # fmt: skip
def test_reduction_of_nothing_is_its_identity(combine: str, dtype: str, identity: str) -> None:
    after = changed(drop_empty, HEAD.format(combine=combine, dtype=dtype))
    assert kernels(after) == f"kernel fold []\n  map %y[i0] for i0 < n\n    = {identity}"


def test_stage_of_no_element_goes() -> None:
    after = changed(
        drop_empty,
        """
        loops m(n: 0..)
        inputs
          input %x: f32[n, 3]
        buffers
        outputs
          output %y: f32[n, 0]
          output %z: f32[n, 3]
        kernel a []
          map %y[i0, i1] for i0 < n, i1 < 0
            = %x[i0, i1]
        kernel b []
          map %z[i0, i1] for i0 < n, i1 < 3
            = %x[i0, i1]
        """,
    )
    assert [k.name for k in after.kernels] == ["b"]


def test_scatter_over_nothing_goes() -> None:
    after = drop_empty(
        read(
            """
            loops m()
            inputs
              input %x: f32[3]
            buffers
            outputs
              output %y: f32[3]
            kernel a []
              map %y[i0] for i0 < 3
                = %x[i0]
            kernel b []
              map sum %y[0] for i0 < 0
                = 1.0:f32
            """
        )
    )
    assert [k.name for k in after.kernels] == ["a"]


def test_a_symbol_that_may_be_zero_is_left_to_the_loops() -> None:
    unchanged(
        drop_empty,
        """
        loops m(n: 0..)
        inputs
          input %x: f32[n]
        buffers
        outputs
          output %y: f32[]
        kernel a []
          reduce sum %y for over r0 < n
            = %x[r0]
        """,
    )


def test_empty_buffers_need_no_writer() -> None:
    """The second is an output, the third is read by a kernel family: neither is written, and the loops still mean the same."""
    after = changed(
        drop_empty,
        """
        loops m(n: 0..)
        inputs
          input %x: f32[n, 3]
        buffers
          weight %w: f32[4, 0]
          temp %t: f32[n, 0]
          temp %u: f32[n, 0]
        outputs
          output %t2: f32[0, n]
          output %y: f32[n, 4]
        kernel t []
          map %t[i0, i1] for i0 < n, i1 < 0
            = %x[i0, i1]
        kernel u []
          map %u[i0, i1] for i0 < n, i1 < 0
            = %t[i0, i1]
        kernel t2 []
          map %t2[i0, i1] for i0 < 0, i1 < n
            = %t[i1, i0]
        kernel y []
          call gemm(%y) transpose_b=true
            a[k0 < n, k1 < 0] = %u[k0, k1]
            b[k2 < 4, k3 < 0] = %w[k2, k3]
        """,
    )
    assert [k.name for k in after.kernels] == ["y"]
    empty, product = interpret(after, {"x": np.ones((2, 3), np.float32), "w": np.ones((4, 0), np.float32)}, NAIVE)
    assert empty is not None and empty.shape == (0, 2)
    assert product is not None and product.tolist() == [[0.0] * 4] * 2


EMPTY = """
graph m(n: 0..)
  input %x: f32[n, 3]
  parameter %w: f32[4, 0] = "w"
{
  %a: f32[n, 0] = aten.slice.Tensor(%x, dim=1, start=0, end=0, step=1)
  %b: f32[n, 4] = aten.linear.default(%a, %w)
  %c: f32[n] = aten.sum.dim_IntList(%a, dim=[1])
  %d: f32[0, n] order(1, 0) = aten.permute.default(%a, dims=[1, 0])
  %e: f32[0] = aten.sum.dim_IntList(%a, dim=[0])
  %f: f32[n, 3] = aten.cat.default(tensors=[%a, %x], dim=1)
  %g: bool[n] = aten.all.dim(%a, dim=1)
  %h: f32[n, 0] = aten.softmax.int(%a, dim=1)
  %i: f32[n, 0] = aten.softmax.int(%a, dim=0)
  %j: f32[n, 0] = aten.cumsum.default(%a, dim=0)
  return %a, %b, %c, %d, %e, %f, %g, %h, %i, %j
}
"""


def test_empty_tensors_compiled() -> None:
    graph = parse_graph(EMPTY, OPS)
    batch = NativeBatch([loops_after_each_pass(graph)[-1][1]])
    for n in (0, 1, 33):
        inputs, weights = random_inputs(graph, {"n": n})
        wanted = run_eager(graph, inputs, weights, {"n": n})
        assert_close(batch.run(0, {**inputs, **by_name(graph, weights)}, {"n": n}), wanted, graph, f"n = {n}")

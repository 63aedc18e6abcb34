"""Generated kernels where shapes are awkward, against the interpreter; kernels of one structure share one function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sealift.backends.cpp.kernel import emit_kernels
from sealift.ir.graph.text import parse_graph
from sealift.ir.loop.interpret import interpret, numpy_dtype
from sealift.ir.loop.types import Loops
from sealift.ops import OPS
from sealift.passes.group_rows import group_rows
from sealift.passes.lower_to_loops import lower_to_loops
from sealift.plan.memory import plan_memory
from tests.expect.models import read_graph
from tests.passes.support import read
from tests.support_native import NativeBatch, optimize

Array = NDArray[Any]

# name -> (sizes, inputs, output type, kernel)
CASES: dict[str, tuple[str, str, str, str]] = {
    "transposed_store": ("n: 0..", "%x: f32[n, 5]", "f32[5, n] order(1, 0)", "map %y[i0, i1] for i0 < 5, i1 < n\n    = exp(%x[i1, i0])"),
    "transposed_load": ("n: 0..", "%x: f32[n, 5]", "f32[5, n]", "map %y[i0, i1] for i0 < 5, i1 < n\n    = neg(%x[i1, i0])"),
    "order_of_three": (
        "n: 0..", "%x: f32[n, 3, 4]", "f32[n, 3, 4] order(2, 0, 1)", "map %y[i0, i1, i2] for i0 < n, i1 < 3, i2 < 4\n    = mul(%x[i0, i1, i2], 2.0:f32)"),
    "ones": ("n: 0..", "%x: f32[1, n, 1]", "f32[1, n, 1]", "map %y[i0, i1, i2] for i0 < 1, i1 < n, i2 < 1\n    = neg(%x[i0, i1, i2])"),
    "all_ones": ("n: 0..", "%x: f32[n]", "f32[1, 1]", "map %y[i0, i1] for i0 < 1, i1 < 1\n    = 3.0:f32"),
    "scalar": ("n: 0..", "%x: f64[n]", "f64[]", "reduce sum %y for over r0 < n\n    = %x[r0]"),
    "reduced_outer": ("n: 0..", "%x: f32[n, 5]", "f32[5]", "reduce max %y for i0 < 5 over r0 < n\n    = %x[r0, i0]"),
    "reduced_all": ("n: 0..", "%x: i32[n, 3, 5]", "i32[]", "reduce sum %y for over r0 < n, r1 < 3, r2 < 5\n    = %x[r0, r1, r2]"),
    "reduced_inner_and_outer": ("n: 0..", "%x: f32[n, 3, 5]", "f32[3]", "reduce min %y for i0 < 3 over r0 < n, r1 < 5\n    = %x[r0, i0, r1]"),
    "any_of_columns": ("n: 0..", "%x: bool[n, 5]", "bool[5]", "reduce any %y for i0 < 5 over r0 < n\n    = %x[r0, i0]"),
    "all_of_rows": ("n: 0..", "%x: bool[n, 37]", "bool[n]", "reduce all %y for i0 < n over r0 < 37\n    = %x[i0, r0]"),
    "argmax_rows": ("n: 0..", "%x: f32[n, 19]", "i64[n]", "reduce argmax %y for i0 < n over r0 < 19\n    = %x[i0, r0]"),
    "argmin_two_axes": ("n: 0..", "%x: i8[3, n, 2]", "i64[n]", "reduce argmin %y for i0 < n over r0 < 3, r1 < 2\n    = %x[r0, i0, r1]"),
    "argmax_bool": ("n: 0..", "%x: bool[n, 3]", "i64[n]", "reduce argmax %y for i0 < n over r0 < 3\n    = %x[i0, r0]"),
    "scan_inner": ("n: 0..", "%x: f32[n, 5]", "f32[n, 5]", "scan sum %y for i0 < n, i1 < 5 along i1\n    = %x[i0, i1]"),
    "scan_outer": ("n: 0..", "%x: f64[n, 5]", "f64[n, 5]", "scan max %y for i0 < n, i1 < 5 along i0\n    = %x[i0, i1]"),
    "scan_only": ("n: 0..", "%x: i64[n]", "i64[n]", "scan prod %y for i0 < n along i0\n    = add(%x[i0], 1:i64)"),
    "guard_along_lanes": ("n: 0..", "%x: f32[n, 9]", "f32[n, 9]", "map %y[i0, i1] for i0 < n, i1 < 9\n    = %x[i0, i1 - 2] where(0 <= i1 - 2 < 9) else 7.5"),
    "guard_along_rows": ("n: 0..", "%x: f32[n, 9]", "f32[n, 9]", "map %y[i0, i1] for i0 < n, i1 < 9\n    = %x[i0 - 1, i1] where(0 <= i0 - 1 < n) else -1.0"),
    "guard_of_both": (
        "n: 0..", "%x: i16[n, 9]", "i16[n, 9]",
        "map %y[i0, i1] for i0 < n, i1 < 9\n    = %x[i0 - 1, i1 + 1] where(0 <= i0 - 1 < n; 0 <= i1 + 1 < 9) else -3"),
    "inside": ("n: 0..", "%x: f32[n, 9]", "f32[n, 9]", "map %y[i0, i1] for i0 < n, i1 < 9\n    = select(inside(i0 <= i1 < 9), %x[i0, i1], 0.0:f32)"),
    "stride_two": ("n: 0..", "%x: f32[n, 18]", "f32[n, 9]", "map %y[i0, i1] for i0 < n, i1 < 9\n    = %x[i0, 2*i1 + 1]"),
    "backwards": ("n: 0..", "%x: f32[n, 9]", "f32[n, 9]", "map %y[i0, i1] for i0 < n, i1 < 9\n    = %x[n - i0 - 1, 8 - i1]"),
    "remainder_of_the_index": ("n: 0..", "%x: f32[n, 3]", "f32[n, 12]", "map %y[i0, i1] for i0 < n, i1 < 12\n    = %x[i0, i1 % 3]"),
    "quotient_of_the_index": ("n: 0..", "%x: u8[n, 3]", "u8[n, 12]", "map %y[i0, i1] for i0 < n, i1 < 12\n    = %x[i0, i1 // 4]"),
    "index_as_number": ("n: 0..", "%x: f32[n, 9]", "i32[n, 9]", "map %y[i0, i1] for i0 < n, i1 < 9\n    = mul(idx.i32(9*i0 + i1), idx.i32(n))"),
    "index_not_linear": ("n: 0..", "%x: f32[n, 9]", "i64[n, 9]", "map %y[i0, i1] for i0 < n, i1 < 9\n    = idx((i1 * i1 - 5) // 3)"),
    "gather_rows": ("n: 1..", "%x: f32[n, 9]", "f32[n, 9]", "map %y[i0, i1] for i0 < n, i1 < 9\n    = %x[@check(sub(idx(i0), 1:i64), n), i1]"),
    "gather_lanes": ("n: 1..", "%x: f32[n, 9]", "f32[n, 9]", "map %y[i0, i1] for i0 < n, i1 < 9\n    = %x[i0, @check(sub(0:i64, idx(i1)), 9)]"),
    "bf16_in_and_out": ("n: 0..", "%x: bf16[n, 9]", "bf16[n, 9]", "map %y[i0, i1] for i0 < n, i1 < 9\n    = add.bf16(%x[i0, i1], 0.1:bf16)"),
    "f16_in_and_out": ("n: 0..", "%x: f16[n, 9]", "f16[n, 9]", "map %y[i0, i1] for i0 < n, i1 < 9\n    = mul.f16(%x[i0, i1], 0.3:f16)"),
    "bool_out": ("n: 0..", "%x: f64[n, 9]", "bool[n, 9]", "map %y[i0, i1] for i0 < n, i1 < 9\n    = and(gt(%x[i0, i1], 0.0:f64), lt(%x[i0, i1], 1.0:f64))"),
    "two_symbols": ("n: 0.., m: 0..", "%x: f32[n, m]", "f32[m, n]", "map %y[i0, i1] for i0 < m, i1 < n\n    = %x[i1, i0]"),
    "flattened": ("n: 0.., m: 1..", "%x: f32[n, m, 2]", "f32[2*n*m]", "map %y[i0] for i0 < 2*n*m\n    = %x[i0 // (2*m), i0 // 2 % m, i0 % 2]"),
}  # fmt: skip


def loops_of(name: str) -> Loops:
    sizes, inputs, output, stage = CASES[name]
    text = f"loops m({sizes})\ninputs\n  input {inputs}\nbuffers\noutputs\n  output %y: {output}\nkernel y []\n  {stage}\n"
    return read(text)


def values_of(loops: Loops, sizes: Mapping[str, int]) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    found: dict[str, Array] = {}
    for b in loops.inputs:
        shape = [d.evaluate(sizes) for d in b.shape]
        found[b.name] = (rng.integers(-12, 13, shape) / (8 if b.dtype.is_float else 1)).astype(numpy_dtype(b.dtype))
    return found


@pytest.fixture(scope="module")
def batch() -> NativeBatch:
    return NativeBatch([form(loops_of(name)) for name in CASES for form in (lambda x: x, group_rows)])


@pytest.mark.parametrize("name", CASES)
def test_kernel_answers_as_the_interpreter(name: str, batch: NativeBatch) -> None:
    """As written, and with its rows shared out."""
    for turn in (0, 1):
        position = 2 * list(CASES).index(name) + turn
        loops = batch.cases[position].loops
        least = loops.sizes[0].lo
        for n in (0, 1, 2, 7, 33):
            if n < least:
                continue
            sizes = {"n": n, "m": 3} if len(loops.sizes) > 1 else {"n": n}
            values = values_of(loops, sizes)
            (wanted,) = interpret(loops, values)
            assert wanted is not None
            (got,) = batch.run(position, values, sizes)
            assert got.shape == wanted.shape
            if wanted.dtype.kind == "f":
                np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6, err_msg=f"{name} at {sizes}")
            else:
                np.testing.assert_array_equal(got, wanted, err_msg=f"{name} at {sizes}")


def test_kernels_of_one_structure_share_a_function() -> None:
    graph = read_graph("block")
    loops = optimize(lower_to_loops(graph))
    kernels = emit_kernels(loops, plan_memory(loops))
    assert sum("dispatch(" in step for step in kernels.steps) == 2, "two layer norms"
    assert len(kernels.functions) == 1
    text = """
graph m(n: 1..)
  input %x: f32[n, 4]
{
  %a: f32[n] = aten.sum.dim_IntList(%x, dim=[1])
  %b: f32[4] = aten.sum.dim_IntList(%x, dim=[0])
  %c: f32[n] = aten.sum.dim_IntList(%x, dim=[1])
  return %a, %b, %c
}
"""
    loops = optimize(lower_to_loops(parse_graph(text, OPS)))
    kernels = emit_kernels(loops, plan_memory(loops))
    assert len(kernels.steps) > 0 and len(kernels.functions) == 2
    batch = NativeBatch([loops])
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    a, b, c = batch.run(0, {"x": x}, {"n": 3})
    assert a.tolist() == c.tolist() == x.sum(1).tolist() and b.tolist() == x.sum(0).tolist()


def test_errors_of_a_run_are_reported_with_kernel_and_value() -> None:
    text = """
graph m(n: 0..)
  input %i: i64[n]
  input %d: i64[n]
  parameter %w: f32[5, 2] = "w"
{
  %e: f32[n, 2] = aten.embedding.default(%w, %i)
  %q: i64[n] = aten.floor_divide.default(%i, %d)
  return %e, %q
}
"""
    batch = NativeBatch([optimize(lower_to_loops(parse_graph(text, OPS)))])
    w = np.zeros((5, 2), np.float32)
    good = np.arange(5)
    batch.run(0, {"i": good, "d": good + 1, "w": w}, {"n": 5})
    with pytest.raises(IndexError, match="5"):
        batch.run(0, {"i": good + 1, "d": good + 1, "w": w}, {"n": 5})
    with pytest.raises(ZeroDivisionError):
        batch.run(0, {"i": good, "d": good, "w": w}, {"n": 5})
    with pytest.raises(ZeroDivisionError):
        batch.run(0, {"i": np.arange(33) % 5, "d": np.r_[np.ones(32, np.int64), 0], "w": w}, {"n": 33})

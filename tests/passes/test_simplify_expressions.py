"""simplify_expressions: what is known about indices, and what is left alone."""

from __future__ import annotations

import pytest

from sealift.passes.simplify_expressions import simplify_expressions
from tests.passes.support import changed, kernels, unchanged

HEAD = """
loops m(n: 1.., k: 0..8)
inputs
  input %x: f32[n, 8]
  input %i: i64[n]
  input %j: i32[n]
  input %c: bool[n, 8]
buffers
outputs
  output %y: {dtype}[n, 8]
kernel a []
  map %y[i0, i1] for i0 < n, i1 < 8
    = {value}
"""


def simplified(value: str, dtype: str = "f32") -> str:
    return kernels(changed(simplify_expressions, HEAD.format(value=value, dtype=dtype))).partition("    = ")[2]


CASES = [
    # a gather from a computed position is a load
    ("%x[@check(idx(i0), n), i1]", "%x[i0, i1]"),
    ("%x[@check(cast.i64(idx.i32(i0)), n), i1]", "%x[i0, i1]"),
    ("%x[@check(add(idx(i0), 0:i64), n), i1]", "%x[i0, i1]"),
    ("%x[@check(0:i64, n), @check(-1:i64, 8)]", "%x[0, 7]"),
    ("%x[@idx(i0), @3:i64]", "%x[i0, 3]"),
    # comparisons with a known answer, and what they decide
    ("select(ge(idx(i1), 0:i64), %x[i0, i1], 1.0:f32)", "%x[i0, i1]"),
    ("select(lt(idx(i1), 0:i64), %x[i0, i1], 1.0:f32)", "1.0:f32"),
    ("select(gt(idx(8), idx(i1)), %x[i0, i1], 1.0:f32)", "%x[i0, i1]"),
    ("select(le(idx(i0), idx(n)), %x[i0, i1], 1.0:f32)", "%x[i0, i1]"),
    ("select(and(inside(0 <= i1 < 8), %c[i0, i1]), 1.0:f32, 2.0:f32)", "select(%c[i0, i1], 1.0:f32, 2.0:f32)"),
    ("select(or(%c[i0, i1], inside(0 <= i1 < 8)), 1.0:f32, 2.0:f32)", "1.0:f32"),
    ("select(or(%c[i0, i1], lt(idx(i1), 0:i64)), 1.0:f32, 2.0:f32)", "select(%c[i0, i1], 1.0:f32, 2.0:f32)"),
    ("cast.f32(true:bool)", "1.0:f32"),
    ("cast.f32(7:i32)", "7.0:f32"),
]


@pytest.mark.parametrize(("before", "after"), CASES)
def test_becomes(before: str, after: str) -> None:
    assert simplified(before) == after


def test_index_arithmetic_is_one_index() -> None:
    assert simplified("sub(add(mul(idx(i0), 8:i64), idx(i1)), 2:i64)", "i64") == "idx(8*i0 + i1 - 2)"


LEFT_ALONE = [
    "%x[@check(%i[i0], n), i1]",  # a position that is data
    "%x[@check(idx(i0 + 1), n), i1]",  # may be outside
    "%x[@check(idx(i0 - 1), n), i1]",
    "%x[@check(idx(k), n), i1]",
    "select(lt(idx(i1), idx(k)), %x[i0, i1], 1.0:f32)",  # either answer is possible
    "select(inside(1 <= i1 < 8), %x[i0, i1], 1.0:f32)",
    "select(%c[i0, i1], 1.0:f32, 2.0:f32)",
    "cast.f32(16777217:i32)",  # not exact in f32
    "add(1.0:f32, 2.0:f32)",  # floats are left to the compiler, which rounds as eager does
]


@pytest.mark.parametrize("value", LEFT_ALONE)
def test_leaves_alone(value: str) -> None:
    unchanged(simplify_expressions, HEAD.format(value=value, dtype="f32"))


@pytest.mark.parametrize("value", ["add(idx.i32(i0), 1:i32)", "mul(idx.i32(i0), idx.i32(i1))", "cast.i32(idx(n))"])
def test_leaves_alone_what_could_wrap(value: str) -> None:
    unchanged(simplify_expressions, HEAD.format(value=value, dtype="i32"))


def test_symbol_that_may_be_zero_decides_nothing() -> None:
    unchanged(simplify_expressions, HEAD.format(value="select(gt(idx(k), 0:i64), %x[i0, i1], 1.0:f32)", dtype="f32"))

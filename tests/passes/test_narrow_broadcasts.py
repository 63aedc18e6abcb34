"""narrow_broadcasts: what is the same along an axis is kept once."""

from __future__ import annotations

import pytest
from expecttest import assert_expected_inline

from sealift.passes.narrow_broadcasts import narrow_broadcasts
from tests.passes.support import buffers, changed, kernels, unchanged

pytestmark = pytest.mark.golden
MASK = """
loops m(b: 1.., s: 1..)
inputs
  input %keep: bool[b, s]
  input %x: f32[b, s, s]
buffers
  {kind} %m: f32[b, s, s]{order}
outputs
  output %y: f32[b, s, s]
kernel m []
  map %m[i0, i1, i2] for i0 < b, i1 < s, i2 < s
    = select(%keep[i0, i2], 0.0:f32, -inf:f32)
kernel y []
  map %y[i0, i1, i2] for i0 < b, i1 < s, i2 < s
    = exp(add(%x[i0, i1, i2], %m[i0, i1, i2]))
"""


def test_mask_is_kept_once_for_all_queries() -> None:
    after = changed(narrow_broadcasts, MASK.format(kind="temp", order=""))
    assert_expected_inline(
        kernels(after),
        """\
kernel m []
  map %m[i0, i1, i2] for i0 < b, i1 < 1, i2 < s
    = select(%keep[i0, i2], 0.0:f32, -inf:f32)
kernel y []
  map %y[i0, i1, i2] for i0 < b, i1 < s, i2 < s
    = exp(add(%x[i0, i1, i2], %m[i0, 0, i2]))""",
    )
    assert "temp %m: f32[b, 1, s]" in buffers(after)


def test_order_in_memory_is_kept() -> None:
    assert "temp %m: f32[b, 1, s] order(2, 0, 1)" in buffers(changed(narrow_broadcasts, MASK.format(kind="temp", order=" order(2, 0, 1)")))


def test_attention_reads_the_narrow_mask() -> None:
    after = changed(
        narrow_broadcasts,
        """
        loops m(b: 1.., s: 1..)
        inputs
          input %q: f32[b, 2, s, 4]
          input %keep: bool[b, s]
        buffers
          temp %m: bool[b, 1, s, s]
        outputs
          output %y: f32[b, 2, s, 4]
        kernel m []
          map %m[i0, i1, i2, i3] for i0 < b, i1 < 1, i2 < s, i3 < s
            = %keep[i0, i3]
        kernel y []
          call attention(%y) causal=false, scale=0.5
            q[k0 < b, k1 < 2, k2 < s, k3 < 4] = %q[k0, k1, k2, k3]
            k[k4 < b, k5 < 2, k6 < s, k7 < 4] = %q[k4, k5, k6, k7]
            v[k8 < b, k9 < 2, k10 < s, k11 < 4] = %q[k8, k9, k10, k11]
            mask[k12 < b, k13 < 1, k14 < s, k15 < s] = %m[k12, k13, k14, k15]
        """,
    )
    assert "mask[k12 < b, k13 < 1, k14 < s, k15 < s] = %m[k12, k13, 0, k15]" in kernels(after)


def test_a_chain_is_narrowed_step_by_step() -> None:
    after = changed(
        narrow_broadcasts,
        """
        loops m(n: 1..)
        inputs
          input %v: f32[n]
        buffers
          temp %a: f32[n, 8]
          temp %b: f32[n, 8]
        outputs
          output %y: f32[n, 8]
        kernel a []
          map %a[i0, i1] for i0 < n, i1 < 8
            = exp(%v[i0])
        kernel b []
          map %b[i0, i1] for i0 < n, i1 < 8
            = log(%a[i0, i1])
        kernel y []
          map %y[i0, i1] for i0 < n, i1 < 8
            = %b[i0, i1]
        """,
    )
    assert_expected_inline(
        kernels(after),
        """\
kernel a []
  map %a[i0, i1] for i0 < n, i1 < 1
    = exp(%v[i0])
kernel b []
  map %b[i0, i1] for i0 < n, i1 < 1
    = log(%a[i0, 0])
kernel y []
  map %y[i0, i1] for i0 < n, i1 < 8
    = %b[i0, 0]""",
    )


def test_refuses_outputs_several_writers_and_what_varies() -> None:
    unchanged(narrow_broadcasts, MASK.replace("  {kind} %m: f32[b, s, s]{order}\n", "").replace("outputs\n", "outputs\n  output %m: f32[b, s, s]\n"))
    unchanged(narrow_broadcasts, MASK.format(kind="temp", order="").replace("%keep[i0, i2]", "lt(idx(i1), idx(i0 + i2))"))
    unchanged(
        narrow_broadcasts,
        """
        loops m(n: 1..)
        inputs
          input %v: f32[n]
        buffers
          temp %cat: f32[n, 16]
        outputs
          output %y: f32[n, 16]
        kernel a []
          map %cat[i0, i1] for i0 < n, i1 < 8
            = %v[i0]
        kernel b []
          map %cat[i0, i1 + 8] for i0 < n, i1 < 8
            = neg(%v[i0])
        kernel y []
          map %y[i0, i1] for i0 < n, i1 < 16
            = %cat[i0, i1]
        """,
    )


def test_refuses_a_scatter() -> None:
    unchanged(
        narrow_broadcasts,
        """
        loops m(n: 1..)
        inputs
          input %i: i64[n]
        buffers
          temp %t: f32[n, 8]
        outputs
          output %y: f32[n, 8]
        kernel t []
          map %t[@check(%i[i0], n), i1] for i0 < n, i1 < 8
            = 1.0:f32
        kernel y []
          map %y[i0, i1] for i0 < n, i1 < 8
            = %t[i0, i1]
        """,
    )


def test_refuses_where_a_product_reads_the_rows() -> None:
    """A product wants its operand's elements side by side: one column read k times is not."""
    unchanged(
        narrow_broadcasts,
        """
        loops m(n: 1..)
        inputs
          input %v: f32[n]
        buffers
          weight %w: f32[4, 8]
          temp %t: f32[n, 8]
        outputs
          output %y: f32[n, 4]
        kernel t []
          map %t[i0, i1] for i0 < n, i1 < 8
            = exp(%v[i0])
        kernel y []
          call gemm(%y) transpose_b=true
            a[k0 < n, k1 < 8] = %t[k0, k1]
            b[k2 < 4, k3 < 8] = %w[k2, k3]
        """,
    )

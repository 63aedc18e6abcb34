"""group_rows: stages over the same rows are one kernel, and what passes between them stays in the row."""

from __future__ import annotations

import pytest
from expecttest import assert_expected_inline

from sealift.ir.loop.types import Loops
from sealift.passes.group_rows import group_rows, natural_rows
from tests.passes.support import buffers, changed, kernels, read, unchanged

pytestmark = pytest.mark.golden
SOFTMAX = """
loops m(n: 0..)
inputs
  input %x: f32[n, 8]
buffers
  temp %top: f32[n]
  temp %e: f32[n, 8]
  temp %s: f32[n]
outputs
  output %y: f32[n, 8]
kernel top [aten.amax.default]  // a.py:1
  reduce max %top for i0 < n over r0 < 8
    = %x[i0, r0]
kernel e [aten.exp.default]  // a.py:2
  map %e[i1, i2] for i1 < n, i2 < 8
    = exp(sub(%x[i1, i2], %top[i1]))
kernel s [aten.sum.dim_IntList]  // a.py:3
  reduce sum %s for i3 < n over r1 < 8
    = %e[i3, r1]
kernel y [aten.div.Tensor]  // a.py:3
  map %y[i4, i5] for i4 < n, i5 < 8
    = div(%e[i4, i5], %s[i4])
"""


def test_softmax_is_one_kernel_over_rows() -> None:
    after = changed(group_rows, SOFTMAX)
    assert_expected_inline(
        kernels(after),
        """\
kernel y rows 1 [aten.amax.default, aten.exp.default, aten.sum.dim_IntList, aten.div.Tensor]  // a.py:1; a.py:2; a.py:3
  reduce max %top for i0 < n over r0 < 8
    = %x[i0, r0]
  map %e[i1, i2] for i1 < n, i2 < 8
    = exp(sub(%x[i1, i2], %top[i1]))
  reduce sum %s for i3 < n over r1 < 8
    = %e[i3, r1]
  map %y[i4, i5] for i4 < n, i5 < 8
    = div(%e[i4, i5], %s[i4])""",
    )
    assert_expected_inline(
        buffers(after),
        """\
loops m(n: 0..)
inputs
  input %x: f32[n, 8]
buffers
  row %top: f32[n] row_dims(1)
  row %e: f32[n, 8] row_dims(1)
  row %s: f32[n] row_dims(1)
outputs
  output %y: f32[n, 8]""",
    )


def stages_of(loops: Loops) -> list[list[str]]:
    return [[s.out.name for s in k.stages] for k in loops.kernels]  # type: ignore[union-attr]


def test_what_others_read_too_stays_in_memory() -> None:
    after = changed(group_rows, SOFTMAX.replace("  temp %s: f32[n]\n", "").replace("outputs\n", "outputs\n  output %s: f32[n]\n"))
    assert stages_of(after) == [["top", "e", "s", "y"]]
    assert "output %s: f32[n]" in buffers(after) and "row %e" in buffers(after) and "row %top" in buffers(after)


def test_refuses_another_rows_value() -> None:
    """The row is compared with the row before it: each is computed in a kernel of its own."""
    after = changed(group_rows, SOFTMAX.replace("%s[i4]", "%s[n - i4 - 1]"))
    assert stages_of(after) == [["top", "e", "s"], ["y"]]
    after = changed(group_rows, SOFTMAX.replace("%top[i1]", "%top[0]"))
    assert stages_of(after) == [["top"], ["e", "s", "y"]]


def test_refuses_different_rows() -> None:
    after = group_rows(
        read(
            """
            loops m(n: 0.., k: 0..)
            inputs
              input %x: f32[n, 8]
            buffers
              temp %s: f32[n]
            outputs
              output %y: f32[k, 8]
            kernel s []
              reduce sum %s for i0 < n over r0 < 8
                = %x[i0, r0]
            kernel y []
              map %y[i0, i1] for i0 < k, i1 < 8
                = %s[0]
            """
        )
    )
    assert stages_of(after) == [["s"], ["y"]]


def test_refuses_where_rows_would_take_the_vector_axis() -> None:
    """Sums down the columns run over lanes of i0, which the rows would take."""
    after = group_rows(
        read(
            """
            loops m(n: 0..)
            inputs
              input %x: f32[8, n]
            buffers
              temp %s: f32[n]
            outputs
              output %y: f32[n, 8]
            kernel s []
              reduce sum %s for i0 < n over r0 < 8
                = %x[r0, i0]
            kernel y []
              map %y[i0, i1] for i0 < n, i1 < 8
                = mul(%x[i1, i0], %s[i0])
            """
        )
    )
    assert stages_of(after) == [["s"], ["y"]]


def test_refuses_scatters_and_kernel_families() -> None:
    scatter = """
        loops m(n: 0..)
        inputs
          input %x: f32[n, 8]
          input %i: i64[n]
        buffers
          temp %t: f32[n, 8]
        outputs
          output %y: f32[n, 8]
        kernel t []
          map %t[i0, i1] for i0 < n, i1 < 8
            = exp(%x[i0, i1])
        kernel y []
          map %y[@check(%i[i0], n), i1] for i0 < n, i1 < 8
            = %t[i0, i1]
        """
    after = group_rows(read(scatter))
    assert stages_of(after) == [["t"], ["y"]]
    assert [k.num_row_axes for k in after.kernels] == [1, 0]
    unchanged(
        group_rows,
        """
        loops m(n: 0..)
        inputs
          input %x: f32[n, 8]
        buffers
          weight %w: f32[8, 8]
          temp %h: f32[n, 8]
        outputs
          output %y: f32[n]
        kernel h []
          call gemm(%h) transpose_b=true
            a[k0 < n, k1 < 8] = %x[k0, k1]
            b[k2 < 8, k3 < 8] = %w[k2, k3]
        kernel y []
          map %y[i0] for i0 < n
            = %h[i0, 0]
        """,
    )


def test_does_not_move_a_writer_behind_what_reads_it() -> None:
    """y would join s, and s's kernel move behind mid, which reads s."""
    after = group_rows(
        read(
            """
            loops m(n: 0..)
            inputs
              input %x: f32[n, 8]
            buffers
              temp %s: f32[n]
            outputs
              output %mid: f32[]
              output %y: f32[n, 8]
            kernel s []
              reduce sum %s for i0 < n over r0 < 8
                = %x[i0, r0]
            kernel mid []
              reduce sum %mid for over r0 < n
                = %s[r0]
            kernel y []
              map %y[i0, i1] for i0 < n, i1 < 8
                = div(%x[i0, i1], %s[i0])
            """
        )
    )
    assert stages_of(after) == [["s"], ["mid"], ["y"]]


def test_unrelated_kernel_between_is_no_hindrance() -> None:
    text = (
        SOFTMAX.replace("kernel y [", "kernel z []\n  map %z[i0] for i0 < 8\n    = %x[0, i0]\nkernel y [")
        .replace("outputs\n", "outputs\n  output %z: f32[8]\n")
        .replace("n: 0..", "n: 1..")
    )
    after = changed(group_rows, text)
    assert stages_of(after) == [["z"], ["top", "e", "s", "y"]]


WRITTEN_OVER = """
loops m()
inputs
  input %x: f32[5, 5, 5]
  input %y: f32[5, 5]
buffers
outputs
  output %z: f32[5, 5, 5]
kernel copy []
  map %z[i0, i1, i2] for i0 < 5, i1 < 5, i2 < 5
    = %x[i0, i1, i2]
kernel slice []
  map %z[i3, AT, i4] for i3 < 5, i4 < 5
    = %y[i3, i4]
"""


def test_writing_over_another_rows_values_waits_for_them() -> None:
    after = group_rows(read(WRITTEN_OVER.replace("AT", "2")))
    assert [(k.name, k.num_row_axes) for k in after.kernels] == [("copy", 2), ("slice", 1)]  # in row (0, 0) z[0, 2] is not copied yet


def test_scan_rows_end_before_the_axis_it_runs_along() -> None:
    text = """
        loops m(n: 0..)
        inputs
          input %x: f32[n, 8, 3]
        buffers
        outputs
          output %y: f32[n, 8, 3]
        kernel y []
          scan sum %y for i0 < n, i1 < 8, i2 < 3 along i1
            = %x[i0, i1, i2]
        """
    assert natural_rows(read(text).kernels[0].stages[0]) == 1


def test_same_object_when_there_are_no_rows() -> None:
    unchanged(
        group_rows,
        """
        loops m(n: 0..)
        inputs
          input %x: f32[n]
        buffers
        outputs
          output %y: f32[n]
        kernel y []
          map %y[i0] for i0 < n
            = neg(%x[i0])
        """,
    )

"""assign_layouts: images lie channels last from convolution to convolution, and loops follow."""

from __future__ import annotations

import pytest
from expecttest import assert_expected_inline

from sealift.passes.assign_layouts import assign_layouts
from tests.passes.support import changed, kernels, unchanged

pytestmark = pytest.mark.golden


def test_windows_and_pointwise_stages_follow_and_a_product_gets_its_copy() -> None:
    loops = changed(
        assign_layouts,
        """
        loops m(b: 1..)
        inputs
          input %x: f32[b, 3, 8, 8]
        buffers
          weight %w: f32[16, 3, 3, 3]
          weight %v: f32[256, 10]
          temp %c: f32[b, 16, 8, 8]
          temp %m: f32[b, 16, 4, 4]
          temp %d: f32[b, 16, 4, 4]
        outputs
          output %y: f32[b, 10]
        kernel c [aten.c.default]
          call conv(%c) dilation=[1, 1], groups=1, padding=[1, 1], stride=[1, 1]
            x[k0 < b, k1 < 3, k2 < 8, k3 < 8] = %x[k0, k1, k2, k3]
            w[k4 < 16, k5 < 3, k6 < 3, k7 < 3] = %w[k4, k5, k6, k7]
        kernel m [aten.m.default]
          reduce max %m for i0 < b, i1 < 16, i2 < 4, i3 < 4 over r4 < 2, r5 < 2
            = %c[i0, i1, 2*i2 + r4, 2*i3 + r5]
        kernel d [aten.d.default]
          map %d[i0, i1, i2, i3] for i0 < b, i1 < 16, i2 < 4, i3 < 4
            = exp(%m[i0, i1, i2, i3])
        kernel y [aten.y.default]
          call gemm(%y)
            a[k0 < b, k1 < 256] = %d[k0, k1//16, k1//4 % 4, k1 % 4]
            b[k2 < 256, k3 < 10] = %v[k2, k3]
        """,
    )
    assert_expected_inline(
        kernels(loops),
        """\
kernel c [aten.c.default]
  call conv(%c) channels_last=true, dilation=[1, 1], groups=1, padding=[1, 1], stride=[1, 1]
    x[k0 < b, k1 < 3, k2 < 8, k3 < 8] = %x[k0, k1, k2, k3]
    w[k4 < 16, k5 < 3, k6 < 3, k7 < 3] = %w[k4, k5, k6, k7]
kernel m [aten.m.default]
  reduce max %m for i0 < b, i2 < 4, i3 < 4, i1 < 16 over r4 < 2, r5 < 2
    = %c[i0, 2*i2 + r4, 2*i3 + r5, i1]
kernel d [aten.d.default]
  map %d[i0, i2, i3, i1] for i0 < b, i2 < 4, i3 < 4, i1 < 16
    = exp(%m[i0, i2, i3, i1])
kernel y.a [aten.y.default]
  map %y.a[k0, k1] for k0 < b, k1 < 256
    = %d[k0, (((k1 // 4)) % 4), (k1 % 4), (k1 // 16)]
kernel y [aten.y.default]
  call gemm(%y)
    a[k0 < b, k1 < 256] = %y.a[k0, k1]
    b[k2 < 256, k3 < 10] = %v[k2, k3]""",
    )


def test_nothing_moves_without_a_convolution() -> None:
    unchanged(
        assign_layouts,
        """
        loops m(b: 1..)
        inputs
          input %x: f32[b, 3, 8, 8]
        buffers
          temp %m: f32[b, 3, 4, 4]
        outputs
          output %y: f32[b, 3, 4, 4]
        kernel m [aten.m.default]
          reduce max %m for i0 < b, i1 < 3, i2 < 4, i3 < 4 over r4 < 2, r5 < 2
            = %x[i0, i1, 2*i2 + r4, 2*i3 + r5]
        kernel y [aten.y.default]
          map %y[i0, i1, i2, i3] for i0 < b, i1 < 3, i2 < 4, i3 < 4
            = exp(%m[i0, i1, i2, i3])
        """,
    )

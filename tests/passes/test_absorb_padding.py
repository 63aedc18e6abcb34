"""absorb_padding: zeros around an image become the convolution's own padding; everything else keeps its copy."""

from __future__ import annotations

import pytest
from expecttest import assert_expected_inline

from sealift.passes.absorb_padding import absorb_padding
from tests.passes.support import changed, kernels, unchanged

pytestmark = pytest.mark.golden
TEXT = """
    loops m(b: 1..)
    inputs
      input %x: f32[b, 4, 9, 8]
    buffers
      weight %w: f32[6, 4, 3, 3]
      temp %p: f32[b, 4, 12, 10]
    outputs
      output %y: f32[b, 6, 12, 5]
    kernel p [aten.p.default]
      map %p[i0, i1, i2, i3] for i0 < b, i1 < 4, i2 < 12, i3 < 10
        = {value}
    kernel y [aten.y.default]
      call conv(%y) dilation=[1, 1], groups=1, padding=[1, 1], stride=[1, 2]
        x[k0 < b, k1 < 4, k2 < 12, k3 < 10] = %p[k0, k1, k2, k3]
        w[k4 < 6, k5 < 4, k6 < 3, k7 < 3] = %w[k4, k5, k6, k7]
"""


def test_the_rest_of_the_padding_stands_at_the_end() -> None:
    value = "%x[i0, i1, i2 - 2, i3 - 1] where(0 <= i2 - 2 < 9; 0 <= i3 - 1 < 8) else 0.0"
    assert_expected_inline(
        kernels(changed(absorb_padding, TEXT.format(value=value))).split("kernel y")[1],
        """\
 [aten.p.default, aten.y.default]
  call conv(%y) dilation=[1, 1], groups=1, padding=[3, 2], padding_end=[2, 2], stride=[1, 2]
    x[k0 < b, k1 < 4, k2 < 9, k3 < 8] = %x[k0, k1, k2, k3]
    w[k4 < 6, k5 < 4, k6 < 3, k7 < 3] = %w[k4, k5, k6, k7]""",
    )


@pytest.mark.parametrize(
    "value",
    [
        "%x[i0, i1, i2 - 2, i3 - 1] where(0 <= i2 - 2 < 9; 0 <= i3 - 1 < 8) else 1.0",
        "%x[i0, i1 - 1, i2 - 2, i3 - 1] where(0 <= i1 - 1 < 3; 0 <= i2 - 2 < 9; 0 <= i3 - 1 < 8) else 0.0",
        "%x[i0, i1, i2 + 1, i3 - 1] where(0 <= i2 + 1 < 9; 0 <= i3 - 1 < 8) else 0.0",
        "%x[i0, i1, i2 - 2, i3 - 1] where(1 <= i2 - 2 < 9; 0 <= i3 - 1 < 8) else 0.0",
        "%x[i0, i1, i2 - 4, i3 - 1] where(0 <= i2 - 4 < 9; 0 <= i3 - 1 < 8) else 0.0",
    ],
    ids=["another value", "channels", "cropped before", "from the second row on", "cropped after"],
)
def test_refuses(value: str) -> None:
    unchanged(absorb_padding, TEXT.format(value=value))

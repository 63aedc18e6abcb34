"""group_heads: keys and values that were repeated for every query head are read once a group."""

from __future__ import annotations

from sealift.passes.group_heads import group_heads
from tests.passes.support import changed, kernels, unchanged

TEXT = """
    loops m(t: 1..)
    inputs
      input %q: f32[1, 8, 1, 4]
      input %k: f32[1, 2, t, 4]
      input %v: f32[1, 2, t, 4]
    buffers
      temp %wide: f32[1, 2, 4, t, 4]
      temp %rk: f32[1, 8, t, 4]
      temp %rv: f32[1, 8, t, 4]
    outputs
      output %y: f32[1, 8, 1, 4]
    kernel wide []
      map %wide[i0, i1, i2, i3, i4] for i0 < 1, i1 < 2, i2 < 4, i3 < t, i4 < 4
        = %k[i0, i1, i3, i4]
    kernel rk []
      map %rk[i0, i1, i2, i3] for i0 < 1, i1 < 8, i2 < t, i3 < 4
        = %wide[i0, (i1 // 4), (i1 % 4), i2, i3]
    kernel rv []
      map %rv[i0, i1, i2, i3] for i0 < 1, i1 < 8, i2 < t, i3 < 4
        = %v[i0, {head}, i2, i3]
    kernel y []
      call attention(%y) causal=false, scale=0.5
        q[a0 < 1, a1 < 8, a2 < 1, a3 < 4] = %q[a0, a1, a2, a3]
        k[b0 < 1, b1 < 8, b2 < t, b3 < 4] = %rk[b0, b1, b2, b3]
        v[c0 < 1, c1 < 8, c2 < t, c3 < 4] = %rv[c0, c1, c2, c3]
"""


def test_repeated_keys_and_values_are_read_where_they_lie() -> None:
    call = kernels(changed(group_heads, TEXT.format(head="(i1 // 4)"))).split("kernel y")[1]
    assert "k[b0 < 1, b1_group < 2, b2 < t, b3 < 4] = %k[b0, b1_group, b2, b3]" in call
    assert "v[c0 < 1, c1_group < 2, c2 < t, c3 < 4] = %v[c0, c1_group, c2, c3]" in call


def test_values_that_are_repeated_otherwise_stay() -> None:
    unchanged(group_heads, TEXT.format(head="(i1 % 2)"))

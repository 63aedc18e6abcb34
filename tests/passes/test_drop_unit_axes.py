"""drop_unit_axes: text in, text out."""

from __future__ import annotations

from sealift.ir.loop.text import parse_loops
from sealift.passes.drop_unit_axes import drop_unit_axes

ROWS = """loops m()
inputs
  input %x: f32[1, 8, 4]
buffers
  temp %mean: f32[1, 8]
outputs
  output %y: f32[1, 8, 4]
kernel mean [mean]
  reduce sum %mean for i0 < 1, i1 < 8 over r2 < 4
    = %x[0, i1, r2]
kernel y [sub]
  map %y[0, i1, i2] for i0 < 1, i1 < 8, i2 < 4
    = sub(%x[0, i1, i2], %mean[0, i1])
"""

SCAN = """loops m(n: 0..9)
inputs
  input %x: f32[n, 1]
buffers
  temp %c: f32[n, 1]
outputs
  output %y: f32[n, 1]
kernel c [cumsum]
  scan sum %c for i0 < n, i1 < 1 along i1
    = %x[i0, 0]
kernel y [neg]
  map %y[i0, 0] for i0 < n, i1 < 1
    = neg(%c[i0, 0])
"""

NOTHING = """loops m()
inputs
  input %x: f32[8, 4]
buffers
outputs
  output %y: f32[8, 4]
kernel y [neg]
  map %y[i0, i1] for i0 < 8, i1 < 4
    = neg(%x[i0, i1])
"""


def test_a_temporary_and_its_loops_lose_the_dimension() -> None:
    dropped = str(drop_unit_axes(parse_loops(ROWS)))
    assert "temp %mean: f32[8]" in dropped
    assert "reduce sum %mean for i1 < 8 over r2 < 4" in dropped
    assert "map %y[0, i1, i2] for i1 < 8, i2 < 4" in dropped  # the output keeps its shape
    assert "%mean[i1]" in dropped


def test_a_scan_over_one_element_is_that_element() -> None:
    dropped = str(drop_unit_axes(parse_loops(SCAN)))
    assert "scan" not in dropped and "map %c[i0] for i0 < n" in dropped


def test_nothing_to_drop_gives_the_same_object() -> None:
    loops = parse_loops(NOTHING)
    assert drop_unit_axes(loops) is loops

"""update_in_place: states are written where they lie; whatever would read a value that is gone keeps the copy."""

from __future__ import annotations

from sealift.passes.update_in_place import update_in_place
from tests.passes.support import changed, kernels, unchanged

HEAD = """
    loops m()
    inputs
      input %x: f32[2, 4]
      input %at: i64[2]
    buffers
      state %s: f32[3, 8, 4]
      temp %u: f32[3, 8, 4]
      temp %v: f32[3, 8, 4]
      temp %part: f32[8, 4]
      temp %w: f32[8, 4]
    outputs
      output %y: f32[8, 4]
"""
COPY = """
    kernel u []
      map %u[i0, i1, i2] for i0 < 3, i1 < 8, i2 < 4
        = %s[i0, i1, i2]
"""
WRITE = """
    kernel write []
      map %u[0, @check(%at[j0], 8), j1] for j0 < 2, j1 < 4
        = %x[j0, j1]
"""
READ = """
    kernel y []
      map %y[k0, k1] for k0 < 8, k1 < 4
        = %{}[1, k0, k1]
"""
KEEP = """
    kernel keep []
      map %s[i0, i1, i2] for i0 < 3, i1 < 8, i2 < 4
        = %{}[i0, i1, i2]
    state %s <- %s
"""


def test_rows_are_written_into_the_state() -> None:
    passed = kernels(changed(update_in_place, HEAD + COPY + WRITE + READ.format("u") + KEEP.format("u")))
    assert passed.split("\n") == [
        "kernel write []",
        "  map %s[0, @check(%at[j0], 8), j1] for j0 < 2, j1 < 4",
        "    = %x[j0, j1]",
        "kernel y []",
        "  map %y[k0, k1] for k0 < 8, k1 < 4",
        "    = %s[1, k0, k1]",
        "state %s <- %s",
    ]


def test_the_old_value_may_be_read_before_the_write_only() -> None:
    before = kernels(changed(update_in_place, HEAD + COPY + READ.format("s") + WRITE + KEEP.format("u")))
    assert "map %s[0, @check" in before
    unchanged(update_in_place, HEAD + COPY + WRITE + READ.format("s") + KEEP.format("u"))


def test_what_is_written_may_not_be_made_of_the_old_value_elsewhere() -> None:
    shifted = COPY + "kernel write []\n      map %u[j0, j1 + 1, j2] for j0 < 3, j1 < 7, j2 < 4\n        = %s[j0, j1, j2]\n" + READ.format("u")
    unchanged(update_in_place, HEAD + shifted + KEEP.format("u"))


def test_a_second_version_on_the_first() -> None:
    second = COPY.replace("%u", "%v").replace("%s", "%u").replace("kernel u", "kernel v") + WRITE.replace("%u[0", "%v[2").replace("write", "write2")
    passed = kernels(changed(update_in_place, HEAD + COPY + WRITE + READ.format("u") + second + KEEP.format("v")))
    assert "map %s[0, @check" in passed and "map %s[2, @check" in passed and "%u" not in passed and "%v" not in passed
    unchanged(update_in_place, HEAD + COPY + WRITE + second + READ.format("u") + KEEP.format("v"))  # u is read after v's write


PART = """
    kernel part []
      map %part[i0, i1] for i0 < 8, i1 < 4
        = %s[{}, i0, i1]
    kernel w []
      map %w[i0, i1] for i0 < 8, i1 < 4
        = %part[i0, i1]
    kernel fill []
      map %w[@check(%at[j0], 8), j1] for j0 < 2, j1 < 4
        = %x[j0, j1]
"""
PUT = """
    kernel put []
      map %u[1, i0, i1] for i0 < 8, i1 < 4
        = %w[i0, i1]
"""


def test_a_write_through_a_view_writes_the_rows_alone() -> None:
    passed = changed(update_in_place, HEAD + PART.format(1) + COPY + PUT + READ.format("u") + KEEP.format("u"))
    assert "map %s[1, @check(%at[j0], 8), j1] for j0 < 2, j1 < 4" in kernels(passed)
    assert "%w" not in kernels(passed)


def test_a_part_that_goes_elsewhere_is_copied() -> None:
    passed = changed(update_in_place, HEAD + PART.format(0) + COPY + PUT + READ.format("u") + KEEP.format("u"))
    assert "map %s[1, i0, i1] for i0 < 8, i1 < 4\n    = %w[i0, i1]" in kernels(passed)
    assert "map %w[@check" in kernels(passed)


def test_a_value_made_element_by_element_is_made_in_place() -> None:
    whole = "kernel u []\n      map %u[i0, i1, i2] for i0 < 3, i1 < 8, i2 < 4\n        = mul(%s[i0, i1, i2], 0.5:f32)\n"
    passed = kernels(changed(update_in_place, HEAD + whole + READ.format("u") + KEEP.format("u")))
    assert "map %s[i0, i1, i2] for i0 < 3, i1 < 8, i2 < 4\n    = mul(%s[i0, i1, i2], 0.5:f32)" in passed
    turned = whole.replace("%s[i0, i1, i2]", "%s[i0, (7 - i1), i2]")
    unchanged(update_in_place, HEAD + turned + READ.format("u") + KEEP.format("u"))


def test_two_states_of_one_value() -> None:
    """The first becomes the value, the second a copy of it."""
    head = HEAD.replace("temp %v", "state %v")
    second = KEEP.format("u").replace("keep", "keep2").replace("%s", "%v").split("    state")[0]
    passed = kernels(changed(update_in_place, head + COPY + WRITE + READ.format("u") + second + KEEP.format("u") + "    state %v <- %v\n"))
    assert "map %s[0, @check" in passed and "map %v[i0, i1, i2] for i0 < 3, i1 < 8, i2 < 4\n    = %s[i0, i1, i2]" in passed

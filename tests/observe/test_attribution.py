"""Kernels in the user's terms: origins, flame graphs, rates beside the machine's peak."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealift.ir.dim import dim_max, dim_min, sym
from sealift.observe.attribution import Frame, Place, by_line, call_tree, flame, parse_origin
from sealift.observe.attribution_flame import flame_html, flame_svg
from sealift.observe.attribution_rates import Peak, evaluate, measure_peak, rates
from sealift.observe.snapshot import Event, Histogram, Series, Snapshot


def kernel(name: str, total_ns: int, origin: str, count: int = 1) -> Series:
    return Series(
        name,
        "sealift",
        "kernel",
        "bert:1",
        count=count,
        samples=count,
        total_ns=total_ns,
        origin=origin,
        histogram=Histogram.of([total_ns // count] * count),
    )


def torch_series(name: str, total_ns: int, self_ns: int | None) -> Series:
    return Series(name, count=1, samples=1, total_ns=total_ns, self_ns=self_ns)


def test_origin() -> None:
    origin = parse_origin("aten.mm, aten.gelu @ model.py:12 encoder.layer.0.up; a b.py:13 encoder.layer.0.act; model.py:14")
    assert origin.ops == ("aten.mm", "aten.gelu")
    assert origin.places == (Place("model.py", 12, "encoder.layer.0.up"), Place("a b.py", 13, "encoder.layer.0.act"), Place("model.py", 14, ""))
    assert origin.module == "encoder.layer.0"
    assert parse_origin("").module == "" and parse_origin("aten.mm").ops == ("aten.mm",)
    assert parse_origin("aten.mm @ m.py:1 head; m.py:2 tail").module == "head"  # nothing shared: the first


def test_kernels_by_module() -> None:
    root = flame(Snapshot(0, 1, (
        kernel("k0_mm", 70, "aten.mm @ m.py:1 enc.0.up; m.py:1 enc.0.act"), kernel("k1_mm", 20, "aten.mm @ m.py:1 enc.1.up"), kernel("k2_sum", 10, ""),
    )))  # fmt: skip
    model = root.children["bert:1"]
    assert root.total_ns == model.total_ns == 100
    assert (model.children["enc"].total_ns, model.children["enc"].children["0"].total_ns) == (90, 70)
    leaf = model.children["enc"].children["0"].children["k0_mm"]
    assert leaf.note == "aten.mm @ m.py:1 enc.0.up; m.py:1 enc.0.act"
    assert model.children["k2_sum"].total_ns == 10


def call(name: str, start: int, dur: int, thread: int = 1, step: int = 0) -> Event:
    return Event(name, "torch", "function", start, dur, thread, step)


def test_calls_nest_by_time_and_thread() -> None:
    events = [
        call("linear", 0, 100),
        call("t", 5, 10),
        call("addmm", 20, 70),
        call("mm", 20, 60),
        call("relu", 100, 10),
        call("other", 30, 5, thread=2),
    ]
    root = call_tree(reversed(events))
    assert root.total_ns == 115
    assert set(root.children) == {"linear", "relu", "other"}
    linear = root.children["linear"]
    assert set(linear.children) == {"t", "addmm"} and linear.children["addmm"].children["mm"].total_ns == 60


def test_pytorch_in_the_flame_graph() -> None:
    series = (torch_series("linear", 1000, 200), torch_series("addmm", 800, 800))
    root = flame(Snapshot(0, 1, series, events=(call("linear", 0, 10), call("addmm", 1, 8))))
    assert root.children["PyTorch"].children["linear"].total_ns == 1000 == root.total_ns  # stretched from 10 to all that was estimated
    assert root.children["PyTorch"].children["linear"].children["addmm"].total_ns == 800
    flat = flame(Snapshot(0, 1, series))
    assert {n: f.total_ns for n, f in flat.children["PyTorch"].children.items()} == {"linear": 200, "addmm": 800}
    assert flame(Snapshot(0, 1, (torch_series("linear", 1000, None),))).total_ns == 0  # without self times nested totals would count twice


def test_by_line() -> None:
    lines = by_line(Snapshot(0, 1, (kernel("k0", 70, "aten.mm @ m.py:1 a; m.py:2 b; m.py:1 c"), kernel("k1", 20, "aten.mm @ m.py:2"))))
    assert lines == {("m.py", 2): 55, ("m.py", 1): 35}


# ---- flame graph -----------------------------------------------------------------------------------------------------------------


def rectangles(svg: str) -> dict[str, tuple[float, float, float]]:
    tree = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    frames = [g for g in tree.iter(f"{space}g")]
    return {g.attrib["data-name"]: (float(g[1].attrib["x"]), float(g[1].attrib["width"]), float(g[1].attrib["y"])) for g in frames}


def test_flame_svg_is_xml_and_to_scale() -> None:
    root = Frame("all")
    root.add([("a<b", 'says "x"'), ("c", "")], 75)
    root.add([("d", "")], 25)
    root.add([("tiny", "")], 0)
    found = rectangles(flame_svg(root))
    assert found == {"all": (0, 1200, 0), "a<b": (0, 900, 20), "c": (0, 900, 40), "d": (900, 300, 20)}


def test_flame_html_needs_nothing_else() -> None:
    root = Frame("all")
    root.add([("model", ""), ("</script><script>alert(1)</script>", "")], 10)
    page = flame_html(root, "a & b")
    assert "<title>a &amp; b</title>" in page and "10 ns of operators" in page
    assert "alert(1)</script>" not in page
    assert not re.search(r'(src|href)="', page) and page.count("http") == 1  # the SVG's name space
    assert "no operators were recorded" in flame_html(Frame("all"), "t")


# ---- rates -----------------------------------------------------------------------------------------------------------------------

N, M = sym("n", 1, 100), sym("m", 1, 100)


@given(st.integers(1, 100), st.integers(1, 100), st.integers(1, 9), st.integers(-9, 9))
def test_the_manifests_expressions_read_back(n: int, m: int, divisor: int, offset: int) -> None:
    sizes = {"n": n, "m": m}
    for one in (N * M * 2 + offset, (N * 3 + offset) // divisor, (M + N) % divisor, dim_min(N, M * 2), dim_max(N + offset, M) * N, -N + offset):
        assert evaluate(str(one), sizes) == one.evaluate(sizes)


@pytest.mark.parametrize("text", ["k + 1", "n.real", "__import__('os')", "n if n else 1", "1.5", "n +", "n // 0", "min(n)", "pow(n, 2)", "'a'"])
def test_nothing_but_sizes_is_evaluated(text: str) -> None:
    with pytest.raises(ValueError):
        evaluate(text, {"n": 3})


def test_rates() -> None:
    kernels = [
        {"name": "k0_mm", "flops": "2000*n", "bytes": "10*n", "ops": ["aten.mm"], "origin": ["m.py:1"]},
        {"name": "k1_copy", "flops": "0", "bytes": "1000*n", "ops": [], "origin": []},
        {"name": "k2_never_ran", "flops": "1", "bytes": "1"},
        {"name": "k3_of_an_old_package"},
    ]
    series = {s.operator: s for s in (kernel("k0_mm", 800, "", 2), kernel("k1_copy", 500, "x @ m.py:2"), kernel("k3_of_an_old_package", 1, ""))}
    mm, copy = rates(series, kernels, {"n": 3}, Peak(20e9, 10e9))
    assert (mm.operator, mm.flops, mm.bytes, mm.limit) == ("k0_mm", 6000, 30, "compute")
    near = lambda value: pytest.approx(value, rel=0.045)  # noqa: E731  by a histogram's median
    assert (mm.flops_per_s, mm.share, mm.median_ns) == (near(15e9), near(0.75), near(400))
    assert mm.origin == "aten.mm @ m.py:1"
    assert (copy.limit, copy.bytes_per_s, copy.share, copy.origin) == ("memory", near(6e9), near(0.6), "x @ m.py:2")
    assert Peak(20e9, 10e9).ridge == 2


def test_the_peak_is_measured() -> None:
    peak = measure_peak(1, seconds=0.02)
    assert 1e8 < peak.flops_per_s < 1e14 and 1e8 < peak.bytes_per_s < 1e13

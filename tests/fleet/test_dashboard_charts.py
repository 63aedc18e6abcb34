"""The dashboard's charts as numbers: where bars, cells and frames lie, and what happens at the edges."""

from __future__ import annotations

import math
import re

import pytest

pytest.importorskip("markupsafe")

from sealift.fleet.dashboard.charts import series
from sealift.fleet.dashboard.charts.flame import flame
from sealift.fleet.dashboard.charts.forest import Ratio, forest
from sealift.fleet.dashboard.charts.heatmap import heatmap
from sealift.fleet.dashboard.charts.series import Line
from sealift.fleet.dashboard.charts.svg import Frame, Times, element, linear_ticks, log_ticks
from sealift.fleet.statistics import bucket_high_ns, bucket_low_ns
from sealift.observe.attribution import Frame as Node

FRAME = Frame(width=200, height=100, left=0, right=0, top=0, bottom=0)
TIMES = Times(FRAME, 0, 100, 10)


def test_names_are_escaped_and_attributes_quoted() -> None:
    made = element("text", "<b>&", class_="a", data_tip='"><script>', x=1.5, y=None)
    assert made == '<text class="a" data-tip="&#34;&gt;&lt;script&gt;" x="1.5">&lt;b&gt;&amp;</text>'


def test_bars_stand_on_one_another() -> None:
    lines = [Line("a", 0, {0: 1.0, 10: 3.0}), Line("b", 1, {0: 1.0, 20: 2.0})]
    made = series.stacked(TIMES, lines, "t", "d", str)
    # The axis ends at 3: a bar of 1 is a third of the height; b stands on a.
    a, b = re.findall(r'<path d="([^"]*)" class="fill c(?:0|1)"', made)
    assert a == "M0.0 66.7h17.2V100.0h-17.2zM20.0 0.0h17.2V100.0h-17.2z"
    assert b == "M0.0 33.3h17.2V66.7h-17.2zM40.0 33.3h17.2V100.0h-17.2z"
    tips = re.findall(r'data-tip="([^"]*)"', made)
    assert len(tips) == 3 and tips[0].splitlines()[1:] == ["2.0 in all", "1.0  b", "1.0  a"] and tips[1].startswith("1970-01-01 00:00:10")


def test_a_gap_breaks_a_line_and_a_lone_point_is_a_dot() -> None:
    made = series.lines(TIMES, [Line("p50", 0, {0: 100.0, 10: 200.0, 40: 150.0})], "t", "d", str)
    assert len(re.findall(r'class="line c0"', made)) == 1 and len(re.findall("<circle", made)) == 1
    # Unknown bounds and equal values are drawn, not divided by.
    flat = Line("p99", 6, {0: 5.0, 10: 5.0}, {0: 0.0, 10: 5.0}, {0: math.inf, 10: 5.0})
    made = series.lines(TIMES, [flat], "t", "d", str)
    assert "nan" not in made and "inf" not in made and 'class="band c6"' in made
    assert series.lines(TIMES, [Line("p50", 0, {0: 0.0})], "t", "d", str) == ""


def test_ticks_are_round() -> None:
    assert linear_ticks(0.9) == [0.0, 0.25, 0.5, 0.75, 1.0] and linear_ticks(0) == [0.0, 1.0]
    assert log_ticks(1.0, 1000.0) == [1.0, 10.0, 100.0, 1000.0] and log_ticks(10.0, 60.0) == [10.0, 20.0, 50.0]
    assert log_ticks(6.0, 7.0) == [pytest.approx(math.sqrt(42))]


def cell(time: int, bucket: int, count: int) -> dict[str, float]:
    return {"time": time, "bucket": bucket, "low_ns": bucket_low_ns(bucket), "high_ns": bucket_high_ns(bucket), "count": count}


def test_heat_map_cells_hold_every_call_once() -> None:
    rows = [cell(0, 80, 100), cell(0, 81, 25), cell(50, 87, 1)]
    made = heatmap(TIMES, rows, "t", "d")
    shades = {int(h): d.count("M") for d, h in re.findall(r'<path d="([^"]*)" class="heat h(\d)"', made)}
    assert shades == {8: 1, 4: 1, 1: 1}  # by the root: 1, 1/2, 1/10
    assert "125 calls" in made and "1 calls" in made
    # More octaves than rows: neighbouring buckets are put together; durations of zero have a place, too.
    wide = heatmap(TIMES, [cell(0, b, 1) for b in range(0, 240)] + [cell(10, -32768, 7)], "t", "d")
    assert sum(d.count("M") for d in re.findall(r'<path d="([^"]*)" class="heat', wide)) < 80 and "nan" not in wide


def test_frames_are_as_wide_as_their_time() -> None:
    root = Node("model")
    for layer, ns in ((10, 30), (2, 60), (2, 10)):
        root.add([(str(layer), "module"), (f"k{ns}", "model.py:3")], ns)
    made = flame(root, "t", "d", width=1000)
    found = re.findall(r'<rect x="([\d.]+)" y="(\d+)" width="([\d.]+)"[^>]*data-tip="([^"\n]*)', made)
    # Layer 2 before layer 10, though it came later and "10" sorts before "2" as text.
    assert [(float(x), float(w) + 1, name) for x, y, w, name in found] == [
        (0, 1000, "model"), (0, 700, "2"), (0, 100, "k10"), (100, 600, "k60"), (700, 300, "10"), (700, 300, "k30"),
    ]  # fmt: skip
    assert "<rect" not in flame(Node("empty"), "t", "d")


def test_a_forest_has_the_ratio_between_its_bounds() -> None:
    rows = [Ratio("slow", 1.4, 1.3, 1.5, "slower"), Ratio("unsure", 1.1, 0.0, math.inf, "same")]
    made = forest(rows, "t", "d")
    ticks = re.findall(r">([+−][\d.]+%)</text>", str(forest([Ratio("a", 1.38, 1.36, 1.4, "slower")], "t", "d")))[:6]
    assert ticks == ["−20%", "−10%", "−5%", "+5%", "+10%", "+30%"]  # in steps that a reader counts in
    lines = [tuple(float(v) for v in m) for m in re.findall(r'x1="([\d.]+)" x2="([\d.]+)"[^>]*class="interval', made)]
    dots = [float(x) for x in re.findall(r'cx="([\d.]+)"', made)]
    assert all(low < dot < high for (low, high), dot in zip(lines, dots)) and "nan" not in made and "+40%" in made
    assert lines[1][0] < lines[0][0] and lines[1][1] > lines[0][1]

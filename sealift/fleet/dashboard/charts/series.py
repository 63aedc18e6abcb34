"""Values over time: stacked bars, and lines with a band for how far they can be off."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from sealift.fleet.dashboard.charts.svg import Frame, Times, drawing, element, linear_ticks, log_ticks, slots, time_axis, value_axis
from sealift.fleet.dashboard.numbers import moment

Text = Callable[[float], str]


@dataclass(frozen=True)
class Line:
    name: str
    colour: int
    values: Mapping[int, float]  # by time
    low: Mapping[int, float] | None = None
    high: Mapping[int, float] | None = None


def stacked(times: Times, lines: Sequence[Line], title: str, description: str, text: Text) -> Markup:
    """Bars, the first line lowest. `text` writes a value."""
    frame = times.frame
    found = sorted({t for line in lines for t in line.values})
    sums = {t: sum(line.values.get(t, 0.0) for line in lines) for t in found}
    ticks = linear_ticks(max(sums.values(), default=0.0))
    top = ticks[-1]

    def y(value: float) -> float:
        return frame.floor - value / top * frame.inner_height

    below = dict.fromkeys(found, 0.0)
    bars = []
    width = max(times.slot * (0.86 if times.slot > 5 else 1.0), 0.6)
    for line in lines:
        path = []
        for t, value in line.values.items():
            if value > 0:
                x, low, high = times.x(t), y(below[t]), y(below[t] + value)
                path.append(f"M{x:.1f} {high:.1f}h{width:.1f}V{low:.1f}h{-width:.1f}z")
                below[t] += value
        if path:
            bars.append(element("path", d="".join(path), class_=f"fill c{line.colour}"))
    tips = [
        (
            t,
            "\n".join([moment(t), f"{text(sums[t])} in all", *(f"{text(one.values[t])}  {one.name}" for one in reversed(lines) if t in one.values)]),
        )
        for t in found
    ]
    return drawing(frame, title, description, value_axis(frame, ticks, y, text), *bars, time_axis(times), slots(times, tips))


def lines(times: Times, drawn: Sequence[Line], title: str, description: str, text: Text, logarithmic: bool = True) -> Markup:
    frame = times.frame
    values = [v for line in drawn for part in (line.values, line.low or {}, line.high or {}) for v in part.values() if v > 0 and math.isfinite(v)]
    middles = [v for line in drawn for v in line.values.values() if v > 0]
    if not middles:
        return Markup("")
    if logarithmic:
        # A bound far away must not press the lines together: the axis shows half a decade beyond them at most.
        low, high = max(min(values), min(middles) / 3) * 0.9, min(max(values), max(middles) * 3) * 1.1
        ticks = log_ticks(low, high)

        def y(value: float) -> float:
            inside = min(max(value, low), high)
            return frame.floor - math.log(inside / low) / math.log(high / low) * frame.inner_height
    else:
        ticks = linear_ticks(max(values))

        def y(value: float) -> float:
            return frame.floor - min(value, ticks[-1]) / ticks[-1] * frame.inner_height

    middle = times.slot / 2
    shapes = []
    for line in drawn:
        for run in _runs(sorted(line.values), times.step_s):
            if line.low is not None and line.high is not None:
                upper = [f"{times.x(t) + middle:.1f} {y(_finite(line.high.get(t), 1e30)):.1f}" for t in run]
                lower = [f"{times.x(t) + middle:.1f} {y(line.low.get(t) or 1e-9):.1f}" for t in reversed(run)]
                shapes.append(element("path", d=f"M{'L'.join(upper + lower)}z", class_=f"band c{line.colour}"))
            points = [f"{times.x(t) + middle:.1f} {y(line.values[t]):.1f}" for t in run]
            if len(points) == 1:
                x, at = points[0].split()
                shapes.append(element("circle", cx=x, cy=at, r=2.5, class_=f"fill c{line.colour}"))
            else:
                shapes.append(element("path", d=f"M{'L'.join(points)}", class_=f"line c{line.colour}"))
    found = sorted({t for line in drawn for t in line.values})
    tips = [(t, "\n".join([moment(t), *(f"{text(line.values[t])}  {line.name}" for line in reversed(drawn) if t in line.values)])) for t in found]
    return drawing(frame, title, description, value_axis(frame, ticks, y, text), *shapes, time_axis(times), slots(times, tips))


def _runs(found: Sequence[int], step: int) -> list[list[int]]:
    """Neighbouring times: a gap breaks a line."""
    return [[t for _, t in run] for _, run in groupby(enumerate(found), key=lambda p: p[1] - p[0] * step)]


def _finite(value: float | None, otherwise: float) -> float:
    return value if value is not None and math.isfinite(value) else otherwise


def frame_for(wide: bool, height: int = 230) -> Frame:
    return Frame(1120 if wide else 548, height)

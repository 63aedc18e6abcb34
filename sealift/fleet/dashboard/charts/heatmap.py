"""How many calls took how long, over time: one column for each step, one row for each bucket, darker for more."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from sealift.fleet.dashboard import numbers
from sealift.fleet.dashboard.charts.svg import Times, drawing, element, log_ticks, slots, time_axis, value_axis

SHADES = 8
_ROWS = 60  # more buckets are put together by twos, fours ...
_ZERO_NS = 0.5  # where durations of zero are drawn


def heatmap(times: Times, rows: Sequence[dict[str, Any]], title: str, description: str) -> Markup:
    """`rows`: time, low_ns, high_ns, count."""
    frame = times.frame
    low = min(r["low_ns"] or _ZERO_NS for r in rows)
    high = max(r["high_ns"] or _ZERO_NS * 2 for r in rows)
    octave = 8  # rows of a factor of two
    while math.log2(high / low) * octave > _ROWS:
        octave /= 2  # type: ignore[assignment]
    first = math.floor(math.log2(low) * octave)
    last = math.ceil(math.log2(high) * octave - 1e-9)
    cells: dict[tuple[int, int], int] = defaultdict(int)
    for r in rows:
        middle = math.sqrt((r["low_ns"] or _ZERO_NS) * (r["high_ns"] or _ZERO_NS * 2))
        cells[r["time"], math.floor(math.log2(middle) * octave)] += r["count"]
    tallest = frame.inner_height / max(last - first, 1)

    def y(ns: float) -> float:
        return frame.floor - (math.log2(ns) * octave - first) * tallest

    most = max(cells.values())
    paths: dict[int, list[str]] = defaultdict(list)
    for (time, row), count in cells.items():
        # By the root: single slow calls stay visible beside thousands of usual ones.
        shade = max(1, math.ceil(math.sqrt(count / most) * SHADES))
        top = frame.floor - (row + 1 - first) * tallest
        paths[shade].append(f"M{times.x(time):.1f} {top:.1f}h{times.slot + 0.15:.2f}v{tallest + 0.15:.2f}h{-times.slot - 0.15:.2f}z")
    drawn = [element("path", d="".join(paths[shade]), class_=f"heat h{shade}") for shade in sorted(paths)]
    ticks = log_ticks(2 ** (first / octave), 2 ** (last / octave))
    return drawing(
        frame, title, description, value_axis(frame, ticks, y, numbers.duration), *drawn, time_axis(times), slots(times, _tips(rows))
    )  # fmt: skip


def _tips(rows: Sequence[dict[str, Any]]) -> list[tuple[int, str]]:
    columns: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for r in rows:
        columns[r["time"]].append(r)
    found = []
    for time, column in sorted(columns.items()):
        largest = max(column, key=lambda r: r["count"])
        column.sort(key=lambda r: r["low_ns"])
        text = [
            numbers.moment(time),
            f"{numbers.count(sum(r['count'] for r in column))} calls",
            f"{numbers.duration(column[0]['low_ns'])} to {numbers.duration(column[-1]['high_ns'])}",
            f"most: {numbers.duration(largest['low_ns'])} to {numbers.duration(largest['high_ns'])}",
        ]
        found.append((time, "\n".join(text)))
    return found

"""Ratios with their intervals, one row for each: what got slower lies right of the line at 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sealift.fleet.dashboard import numbers
from sealift.fleet.dashboard.charts.svg import Frame, drawing, element

_ROW = 24
_NAMES = 330  # width of the names
_WIDTH = 1120


@dataclass(frozen=True)
class Ratio:
    name: str
    ratio: float
    low: float
    high: float  # may be infinite
    kind: str  # "slower", "faster", "same"


def forest(rows: Sequence[Ratio], title: str, description: str) -> Markup:
    frame = Frame(_WIDTH, len(rows) * _ROW + 40, left=_NAMES, right=90, top=8, bottom=30)
    ends = [v for r in rows for v in (r.ratio, max(r.low, r.ratio / 3), min(r.high, r.ratio * 3)) if v > 0 and math.isfinite(v)]
    reach = max(1.15, *(max(v, 1 / v) for v in ends)) ** 1.05

    def x(ratio: float) -> float:
        inside = min(max(ratio, 1 / reach), reach)
        return frame.left + (math.log(inside) / math.log(reach) + 1) / 2 * frame.inner_width

    parts = []
    for tick in _ticks(reach):
        parts.append(element("line", x1=x(tick), x2=x(tick), y1=frame.top, y2=frame.floor, class_="axis" if tick == 1 else "grid"))
        parts.append(element("text", "same" if tick == 1 else numbers.change(tick), x=x(tick), y=frame.floor + 18, text_anchor="middle"))
    for i, r in enumerate(rows):
        y = frame.top + (i + 0.5) * _ROW
        name = r.name if len(r.name) <= 46 else r.name[:45] + "…"
        tip = f"{r.name}\n{numbers.change(r.ratio)} ({numbers.interval(r.low, r.high)})"
        parts.append(
            element(
                "g",
                element("rect", x=0, y=y - _ROW / 2, width=_WIDTH, height=_ROW, class_="slot", data_tip=tip),
                element("text", name, x=frame.left - 14, y=y + 4, text_anchor="end", class_="name"),
                element("line", x1=x(r.low if r.low > 0 else 1 / reach), x2=x(r.high), y1=y, y2=y, class_=f"interval {r.kind}"),
                element("circle", cx=x(r.ratio), cy=y, r=4.5, class_=f"dot {r.kind}"),
                element("text", numbers.change(r.ratio), x=_WIDTH - 8, y=y + 4, text_anchor="end", class_=f"value {r.kind}"),
            )
        )
    return drawing(frame, title, description, *parts)


_SLOWER = (1000, 100, 10, 5, 3, 2, 1.5, 1.3, 1.2, 1.1, 1.05)
_FASTER = (0.001, 0.01, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)  # round as a reader counts, -10 %, not the reciprocals, -9.1 %


def _ticks(reach: float) -> list[float]:
    """Three round changes at most on each side, not close together."""
    found = [1.0]
    for side in (_SLOWER, _FASTER):
        kept: list[float] = []
        for ratio in side:
            distance = abs(math.log(ratio))
            if distance < math.log(reach) and (not kept or distance < 0.62 * abs(math.log(kept[-1]))) and len(kept) < 3:
                kept.append(ratio)
        found += kept
    return sorted(found)

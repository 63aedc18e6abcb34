"""SVG elements as escaped text, and the frame that charts share: sizes, scales, axes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from markupsafe import Markup, escape


def element(name: str, *children: str, **attributes: object) -> Markup:
    """`class_` is class, `stroke_width` is stroke-width; None leaves an attribute out. Children that are no Markup are escaped."""
    parts = [f'{key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"' for key, value in attributes.items() if value is not None]
    inner = Markup("").join(children)
    return Markup(f"<{' '.join([name, *parts])}>{inner}</{name}>")


def _text(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Frame:
    """In the SVG's own units, about pixels at the usual window."""

    width: int = 1120
    height: int = 230
    left: int = 66
    right: int = 14
    top: int = 12
    bottom: int = 26

    @property
    def inner_width(self) -> int:
        return self.width - self.left - self.right

    @property
    def inner_height(self) -> int:
        return self.height - self.top - self.bottom

    @property
    def floor(self) -> int:
        return self.height - self.bottom


HALF = Frame(width=548)


@dataclass(frozen=True)
class Times:
    """The time axis: [start, end) in unix seconds onto the frame's width."""

    frame: Frame
    start_s: int
    end_s: int
    step_s: int

    def x(self, time_s: float) -> float:
        return self.frame.left + (time_s - self.start_s) / max(self.end_s - self.start_s, 1) * self.frame.inner_width

    @property
    def slot(self) -> float:
        return self.step_s / max(self.end_s - self.start_s, 1) * self.frame.inner_width


def drawing(frame: Frame, title: str, description: str, *children: str, keyboard: bool = True) -> Markup:
    """`title` names it and is unlike any other on the page. `keyboard`: it can be focused, and arrow keys go through its slots."""
    name = "chart-" + re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", description, id=f"{name}-text"),
        *children,
        viewBox=f"0 0 {frame.width} {frame.height}",
        role="img",
        class_="chart",
        tabindex="0" if keyboard else None,
        aria_labelledby=f"{name}-title {name}-text",
    )


def time_axis(times: Times) -> Markup:
    frame, span = times.frame, times.end_s - times.start_s
    most = 10 if frame.width > 800 else 5
    steps = (10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000)
    step = next((s for s in steps if span / s <= most), 31536000)
    pattern = "%H:%M:%S" if step < 60 else "%H:%M" if span <= 86_400 * 2 else "%d %b" if step >= 86_400 else "%d %b %H:%M"
    marks = []
    for at in range(-(-times.start_s // step) * step, times.end_s + 1, step):
        x = times.x(at)
        anchor = "start" if x < frame.left + 20 else "end" if x > frame.width - frame.right - 20 else "middle"
        marks.append(element("line", x1=x, x2=x, y1=frame.floor, y2=frame.floor + 4, class_="tick"))
        text = datetime.fromtimestamp(at, timezone.utc).strftime(pattern)
        marks.append(element("text", text, x=x, y=frame.floor + 17, text_anchor=anchor))
    base = element("line", x1=frame.left, x2=frame.width - frame.right, y1=frame.floor, y2=frame.floor, class_="axis")
    return element("g", base, *marks, class_="axes", aria_hidden="true")


def value_axis(frame: Frame, ticks: Sequence[float], y: Callable[[float], float], text: Callable[[float], str]) -> Markup:
    marks = []
    for tick in ticks:
        marks.append(element("line", x1=frame.left, x2=frame.width - frame.right, y1=y(tick), y2=y(tick), class_="grid"))
        marks.append(element("text", text(tick), x=frame.left - 8, y=y(tick) + 4, text_anchor="end"))
    return element("g", *marks, class_="axes", aria_hidden="true")


def linear_ticks(most: float, wanted: int = 4) -> list[float]:
    """Round numbers from 0 to about `most`."""
    if most <= 0 or not math.isfinite(most):
        return [0.0, 1.0]
    raw = most / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    return [i * step for i in range(math.ceil(most / step - 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten within, with 2 and 5 between them where there are few."""
    found = [10.0**i for i in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    if len([t for t in found if low <= t <= high]) < 3:
        found = sorted(m * t for t in found for m in (1, 2, 5))
    return [t for t in found if low <= t <= high] or [math.sqrt(low * high)]


def slots(times: Times, tips: Sequence[tuple[int, str]]) -> Markup:
    """Invisible columns that carry what the pointer and the arrow keys show; `tips`: (time, lines)."""
    frame = times.frame
    columns = [
        element("rect", x=times.x(at), y=frame.top, width=max(times.slot, 0.5), height=frame.inner_height, class_="slot", data_tip=text)
        for at, text in tips
    ]
    return element("g", *columns, class_="slots", aria_hidden="true")


def bar(share: float | None, colour: int = 0) -> Markup:
    """A small bar for a table's cell; its number stands beside it."""
    if share is None or not math.isfinite(share):
        return Markup("")
    width = max(0.0, min(share, 1.0)) * 100
    return element(
        "svg",
        element("rect", width=100, height=6, rx=3, class_="bar-back"),
        element("rect", width=max(width, 1.0), height=6, rx=3, class_=f"fill c{colour}"),
        viewBox="0 0 100 6",
        class_="bar",
        aria_hidden="true",
        preserveAspectRatio="none",
    )

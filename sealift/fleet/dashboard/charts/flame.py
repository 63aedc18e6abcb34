"""A flame graph, the root on top: a frame's width is its time, what it contains lies below."""

from __future__ import annotations

import re
import zlib

from markupsafe import Markup

from sealift.fleet.dashboard import numbers
from sealift.fleet.dashboard.charts.svg import Frame as Size
from sealift.fleet.dashboard.charts.svg import drawing, element
from sealift.observe.attribution import Frame

_ROW = 22
_CHARACTER = 6.7  # width of one at the chart's font
_NARROWEST = 1.0


def flame(root: Frame, title: str, description: str, width: int = 1120) -> Markup:
    depth = _depth(root, root.total_ns, width)
    size = Size(width, depth * _ROW + 4)
    return drawing(size, title, description, *_drawn(root, root, 0.0, 0, width / max(root.total_ns, 1)))


def _drawn(frame: Frame, root: Frame, x: float, row: int, scale: float) -> list[Markup]:
    width = frame.total_ns * scale
    if width < _NARROWEST:
        return []
    share = numbers.percent(frame.total_ns / max(root.total_ns, 1))
    tip = "\n".join(t for t in (frame.name, f"{numbers.duration(frame.total_ns)}, {share}", frame.note) if t)
    room = int((width - 10) / _CHARACTER)
    name = frame.name if len(frame.name) <= room else frame.name[: room - 1] + "…" if room >= 4 else ""
    colour = "root" if frame is root else f"c{zlib.crc32(frame.name.encode()) % 8}" if not frame.children else "inner"
    parts = [element("rect", x=x, y=row * _ROW + 1, width=max(width - 1, 0.5), height=_ROW - 2, rx=2, class_=f"frame {colour}", data_tip=tip)]
    if name:
        parts.append(element("text", name, x=x + 6, y=row * _ROW + 15, class_="frame-name"))
    found = [element("g", *parts)]
    for child in sorted(frame.children.values(), key=_by_name):
        found += _drawn(child, root, x, row + 1, scale)
        x += child.total_ns * scale
    return found


def _by_name(frame: Frame) -> list[tuple[int, str]]:
    """Layer 2 before layer 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", frame.name)]


def _depth(frame: Frame, total: int, width: int) -> int:
    seen = [c for c in frame.children.values() if c.total_ns * width / max(total, 1) >= _NARROWEST]
    return 1 + max((_depth(c, total, width) for c in seen), default=0)

"""A flame graph as one HTML file that needs nothing else: SVG rectangles and a page of readable JavaScript to zoom."""

from __future__ import annotations

import html
import zlib
from collections.abc import Iterator

from sealift.observe.attribution import Frame
from sealift.observe.sinks.table import duration_text

WIDTH, ROW, PAD = 1200.0, 20, 40  # px
_NARROWEST = 0.3  # px: narrower frames are not drawn
_CHAR = 6.6  # px of the font at 11 px

_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
  body {{ font: 13px system-ui, sans-serif; margin: 16px; color: #222; background: #fff; }}
  svg {{ width: 100%; height: auto; }}
  text {{ font: 11px ui-monospace, monospace; pointer-events: none; }}
  rect {{ stroke: #fff; stroke-width: 0.5; cursor: pointer; }}
  rect:hover {{ stroke: #000; }}
  .faded {{ opacity: 0.35; }}
</style>
<h1 style="font-size: 16px">{title}</h1>
<p id="told">{total}. Point at a frame to see what it is; click to zoom, click the lowest frame to go back.</p>
{svg}
<script>
  // Every frame is a <g data-x data-width data-depth> in units of the whole width. Zooming maps one frame's span to the whole.
  const WIDTH = {width}, CHAR = {char};
  const frames = [...document.querySelectorAll("g.frame")];
  const told = document.getElementById("told");

  function zoom(to) {{
    const x0 = Number(to.dataset.x), span = Number(to.dataset.width), depth = Number(to.dataset.depth);
    for (const frame of frames) {{
      const x = Number(frame.dataset.x), width = Number(frame.dataset.width);
      const isBelow = Number(frame.dataset.depth) < depth;           // an ancestor keeps the whole width
      const inside = x >= x0 - 1e-9 && x + width <= x0 + span + 1e-9;
      const covers = isBelow && x <= x0 + 1e-9 && x + width >= x0 + span - 1e-9;
      frame.style.display = inside || covers ? "" : "none";
      if (!inside && !covers) continue;
      const left = covers ? 0 : (x - x0) / span * WIDTH, shown = covers ? WIDTH : width / span * WIDTH;
      const rect = frame.querySelector("rect"), text = frame.querySelector("text");
      rect.setAttribute("x", left);
      rect.setAttribute("width", shown);
      rect.classList.toggle("faded", covers);
      text.setAttribute("x", left + 3);
      const room = Math.floor((shown - 6) / CHAR), name = frame.dataset.name;
      text.textContent = room < 3 ? "" : name.length <= room ? name : name.slice(0, room - 1) + "…";
    }}
  }}

  for (const frame of frames) {{
    frame.addEventListener("click", () => zoom(frame));
    frame.addEventListener("mouseenter", () => {{ told.textContent = frame.querySelector("title").textContent; }});
  }}
</script>
</html>
"""


def flame_html(root: Frame, title: str) -> str:
    total = f"{duration_text(root.total_ns)} of operators" if root.total_ns else "no operators were recorded"
    svg = flame_svg(root)
    return _PAGE.format(title=html.escape(title), total=total, svg=svg, width=WIDTH, char=_CHAR)


def flame_svg(root: Frame) -> str:
    """Wide is long; what a frame holds stands below it (an icicle)."""
    depth = _depth(root)
    height = (depth + 1) * ROW
    frames = "\n".join(_frames(root, root, 0.0, 0)) if root.total_ns else ""
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height}" role="img">\n{frames}\n</svg>'


def _depth(frame: Frame) -> int:
    return 1 + max((_depth(c) for c in frame.children.values()), default=0)


def _frames(root: Frame, frame: Frame, x: float, depth: int) -> Iterator[str]:
    """x and width are shares of the whole, in the attributes that zooming reads."""
    width = frame.total_ns / root.total_ns
    if width * WIDTH < _NARROWEST:
        return
    yield _frame(root, frame, x, width, depth)
    for child in sorted(frame.children.values(), key=lambda c: (-c.total_ns, c.name)):
        yield from _frames(root, child, x, depth + 1)
        x += child.total_ns / root.total_ns


def _frame(root: Frame, frame: Frame, x: float, width: float, depth: int) -> str:
    name, note = html.escape(frame.name, quote=True), html.escape(frame.note, quote=True)
    told = f"{name}: {duration_text(frame.total_ns)}, {frame.total_ns / root.total_ns:.1%}" + (f" ({note})" if note else "")
    room = int((width * WIDTH - 6) / _CHAR)
    shown = "" if room < 3 else frame.name if len(frame.name) <= room else frame.name[: room - 1] + "…"
    left, y = x * WIDTH, depth * ROW
    return (
        f'<g class="frame" data-x="{x:.9g}" data-width="{width:.9g}" data-depth="{depth}" data-name="{name}"><title>{told}</title>'
        f'<rect x="{left:.2f}" y="{y}" width="{width * WIDTH:.2f}" height="{ROW - 1}" rx="2" fill="{_colour(frame.name)}"/>'
        f'<text x="{left + 3:.2f}" y="{y + 13}">{html.escape(shown)}</text></g>'
    )


def _colour(name: str) -> str:
    """The same name, the same colour; light enough for black text."""
    kind = name.rpartition(".")[2].lstrip("k0123456789_")
    number = zlib.crc32(kind.encode())
    return f"hsl({number % 360}, {55 + number // 360 % 20}%, {72 + number // 7200 % 10}%)"

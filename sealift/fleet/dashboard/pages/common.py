"""What pages share: what they are given, links to one another, charts of trends, and what to say when there is nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sealift.fleet import questions
from sealift.fleet.collector.app import Collector
from sealift.fleet.dashboard import numbers
from sealift.fleet.dashboard.charts import series
from sealift.fleet.dashboard.charts.svg import Frame, Times
from sealift.fleet.dashboard.panels import MEASURES, Cell, Grid, Legend, Maker, Page, Panel, plain
from sealift.fleet.dashboard.view import View
from sealift.fleet.model import SLOT_S
from sealift.fleet.questions import Question, step_for
from sealift.fleet.store.interface import Store

SERIES = 8  # colours; what comes after is "other"
OTHER = 8  # its colour
_GROUPS = 40  # asked for; the smaller ones are "other" too, but their own time is known
NO_MODEL = "(no model)"
LIMIT = 50  # rows of a table, unless the address says otherwise


@dataclass(frozen=True)
class Asked:
    collector: Collector
    view: View
    now_s: float

    @property
    def store(self) -> Store:
        return self.collector.store

    @property
    def limit(self) -> int:
        text = self.view.choice("limit", str(LIMIT))
        return min(int(text), 5000) if text.isdecimal() and int(text) else LIMIT


Rows = list[dict[str, Any]]


def key_link(view: View, key: str, value: str) -> str:
    """Where a key's value leads: an operator, a model, a process to its own page, anything else to the overview of it alone."""
    if key == "operator" and value:
        return view.to("/operator", name=value)
    if key == "model" and value:
        return view.to("/model", name=value)
    if key == "instance" and value:
        return view.to("/process", instance=value)
    if key == "host" and value:
        return view.to("/host", name=value)
    return view.picking("/", key, value) if key in ("service", "version") and value else ""


def key_cell(view: View, key: str, colours: Mapping[str, int] | None = None) -> Maker:
    def make(row: Mapping[str, Any]) -> Cell:
        value = row[key]
        text = value or (NO_MODEL if key == "model" else "(none)")
        return Cell(text, href=key_link(view, key, value), swatch=None if colours is None else colours.get(value, OTHER), code=key == "operator")

    return make


def files(view: View, question: str, **more: Any) -> tuple[tuple[str, str], ...]:
    return tuple((text, view.download(question, format, **more)) for text, format in (("CSV", "csv"), ("Parquet", "parquet")))


def own_time(row: Mapping[str, Any]) -> float:
    """Self time, which adds up over operators; total time where no process knew it, as of kernels, which call nothing."""
    return float(row["total_ns"] if row["self_ns"] is None else row["self_ns"])


def times_of(view: View, frame: Frame, step_s: int) -> Times:
    return Times(frame, view.start_s // step_s * step_s, -(-view.end_s // step_s) * step_s, step_s)


def covered(view: View, time: int, step_s: int) -> float:
    """Seconds of the step that lie in the range, rounded outward to the store's 10 s, so that a rate at its edges is not of a whole step."""
    return max(min(time + step_s, -(-view.end_s // SLOT_S) * SLOT_S) - max(time, view.start_s // SLOT_S * SLOT_S), 1)


def rate_text(value: float) -> str:
    return "0" if not value else numbers.duration(value * 1e9) + "/s"


@dataclass(frozen=True)
class Trend:
    panel: Panel
    colours: Mapping[str, int]  # of the key's values, by rank
    own_ns: float  # of everything, over the whole range


def trend(asked: Asked, view: View, key: str, panel: Panel, wide: bool = True, height: int = 230) -> Trend:
    """Operators' own time a second, stacked by the key's values; the panel's title and note are given."""
    step = step_for(view.start_s, view.end_s)
    rows = questions.trend(asked.store, view.question(key, limit=_GROUPS, step_s=step)).to_pylist()
    sums: dict[str, float] = defaultdict(float)
    for r in rows:
        sums[r[key]] += own_time(r)
    ranked = sorted(sums, key=lambda name: (-sums[name], name))
    colours = {name: i for i, name in enumerate(ranked[:SERIES])}
    values: dict[str, dict[int, float]] = {name: {} for name in colours}
    other = defaultdict[int, float](float)
    if len(sums) >= _GROUPS:
        everything = Question(view.start_s, view.end_s, (), view.filters, step_s=step)
        other = _unlisted(rows, questions.trend(asked.store, everything).to_pylist())
    own_ns = sum(sums.values()) + sum(other.values())
    for r in rows:
        if r[key] in colours:
            values[r[key]][r["time"]] = own_time(r) / 1e9 / covered(view, r["time"], step)
        else:
            other[r["time"]] += own_time(r)
    drawn = [series.Line(name or (NO_MODEL if key == "model" else "(none)"), colours[name], values[name]) for name in colours]
    legend = [Legend(line.name, line.colour, key_link(view, key, name)) for line, name in zip(drawn, colours)]
    if any(other.values()):
        drawn.append(series.Line("other", OTHER, {t: v / 1e9 / covered(view, t, step) for t, v in other.items() if v}))
        legend.append(Legend("other", OTHER))
    times = times_of(view, series.frame_for(wide, height), step)
    description = f"Stacked bars, one for each {span_text(step)}, of {len(drawn)} parts" + (f"; the largest is {drawn[0].name}." if drawn else ".")
    made = replace(
        panel,
        chart=series.stacked(times, drawn, panel.title, description, rate_text) if rows else None,
        legend=legend,
        files=files(view, "trend", by=key, limit=SERIES, step=step),
        wide=wide,
    )
    if any(r["self_ns"] is None for r in rows):
        made = replace(made, note=f"{panel.note} Where processes did not measure own time, callees are included.".strip())
    return Trend(made, colours, own_ns)


def _unlisted(rows: Rows, whole: Rows) -> defaultdict[int, float]:
    """Own time of the groups beyond `_GROUPS`, by time: their total time is known; of it, as much is taken for their own as of the listed ones'."""
    listed, own = defaultdict[int, int](int), defaultdict[int, float](float)
    for r in rows:
        listed[r["time"]] += r["total_ns"]
        own[r["time"]] += own_time(r)
    return defaultdict(float, {r["time"]: (r["total_ns"] - listed[r["time"]]) * own[r["time"]] / max(listed[r["time"]], 1) for r in whole})


def quantiles(asked: Asked, view: View, title: str = "Time of a call", wide: bool = True, height: int = 230) -> Panel:
    step = step_for(view.start_s, view.end_s)
    rows = questions.quantile_trend(asked.store, Question(view.start_s, view.end_s, (), view.filters, step_s=step)).to_pylist()
    drawn = [
        series.Line(
            name,
            colour,
            {r["time"]: r[f"{name}_ns"] for r in rows},
            {r["time"]: r[f"{name}_ns_low"] for r in rows},
            {r["time"]: r[f"{name}_ns_high"] for r in rows},
        )
        for name, colour in (("p50", 0), ("p90", 1), ("p99", 6))
    ]
    times = times_of(view, series.frame_for(wide, height), step)
    last = rows[-1] if rows else None
    text = f"Lines for each {span_text(step)}, logarithmic." + (f" The last p50 is {numbers.duration(last['p50_ns'])}." if last else "")
    chart = series.lines(times, drawn, f"{title}: p50, p90, p99", text, numbers.duration) if rows else None
    note = "Bands: 95 % bounds of sampling and of the histograms' buckets (up to 4.3 %)."
    grid = _quantile_grid(rows, f"{title}: p50, p90, p99")
    return Panel(
        "quantiles", f"{title}: p50, p90, p99", note, chart, [Legend(line.name, line.colour) for line in drawn], grid=grid, folded=True,
        files=files(view, "quantiles", by=",", step=step), wide=wide, empty="" if rows else "No calls in this range.",
    )  # fmt: skip


def _quantile_grid(rows: Rows, caption: str) -> Grid:
    columns: list[tuple[str, bool, Maker]] = [("Time (UTC)", False, lambda r: Cell(numbers.moment(r["time"])))]
    columns.append(("Calls", True, lambda r: Cell(numbers.count(r["count"]))))
    columns += [(name, True, MEASURES[f"{name}_ns"][1]) for name in ("p50", "p90", "p99")]
    return plain(caption, rows, columns)


def span_text(seconds: float) -> str:
    for unit, scale in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.0f} s"


def nothing(asked: Asked, what: str = "Nothing") -> Panel:
    """Says why there is nothing, and what to do."""
    first, last = asked.store.time_range()
    if not last:
        return Panel(
            "empty", "No data yet", empty="The collector runs, and no process has reported to it. Let one report, or try it with a simulated fleet:",
            hint="sealift fleet simulate --url URL --hosts 50 --minutes 10 --speed 60",
        )  # fmt: skip
    view = asked.view
    links = [("Everything there is", view.during("all"), False)]
    if view.texts:
        links.append(("Without filters", View(view.path, view.start, view.end, choices=view.choices, default_start=view.default_start).url, False))
    text = f"The store has data from {numbers.moment(first)} to {numbers.moment(last)} UTC."
    return Panel("empty", f"{what} in this range", empty=text, switch=links)


def bare(page: Page, title: str, text: str, hint: str) -> Page:
    """A page that has nothing to show, and says what would change that."""
    return replace(page, rows=((Panel("empty", title, empty=text, hint=hint),),))


def more_rows(asked: Asked, shown: int, view: View) -> tuple[tuple[str, str, bool], ...]:
    return (("Show more", view.choosing(limit=str(min(asked.limit * 10, 5000))), False),) if shown >= asked.limit and asked.limit < 5000 else ()


def total_tiles(row: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(title, text, note)"""
    return [
        ("Total time", numbers.duration(row["total_ns"]), numbers.error(row, "total_ns")),
        ("Self time", numbers.duration(row["self_ns"]), "" if row["self_ns"] is not None else "not measured"),
        ("Calls", numbers.count(row["count"]), numbers.error(row, "count")),
        ("Mean", numbers.duration(row["mean_ns"]), ""),
        *((name, numbers.duration(row[f"{name}_ns"]), numbers.error(row, f"{name}_ns")) for name in ("p50", "p90", "p99")),
    ]


PageMaker = Callable[[Asked], Any]


def listed(texts: Sequence[str], most: int = 3) -> str:
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")

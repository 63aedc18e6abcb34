"""One operator: how its calls' times are spread and how that changes, on which hosts and in which models."""

from __future__ import annotations

from dataclasses import replace

from sealift.fleet import questions
from sealift.fleet.dashboard import numbers
from sealift.fleet.dashboard.charts import heatmap, series
from sealift.fleet.dashboard.pages.common import Asked, files, key_cell, nothing, quantiles, span_text, times_of, total_tiles, trend
from sealift.fleet.dashboard.panels import Cell, Page, Panel, Tile, measured
from sealift.fleet.dashboard.view import View, at
from sealift.fleet.errors import QuestionError
from sealift.fleet.questions import Question, step_for

_FEW = ("share", "p50_ns", "p99_ns")


def operator(asked: Asked) -> Page:
    name = asked.view.choice("name")
    if not name:
        raise QuestionError("an operator's page without its name; help: /operator?name=aten::mm")
    view = asked.view.also(f"operator={name}")
    crumbs = (("Overview", asked.view.to("/")), ("Operators", asked.view.to("/operators")))
    page = Page(name, crumbs, (), "operators", actions=(("Compare", comparison(asked.view, name)),))
    rows = questions.top(asked.store, view.question("operator", "source")).to_pylist()
    if not rows:
        return replace(page, rows=((nothing(asked, f"No calls of {name}"),),))
    whole = questions.top(asked.store, Question(view.start_s, view.end_s, (), view.filters)).to_pylist()[0]
    by_model = questions.top(asked.store, view.question("model", limit=12)).to_pylist()
    by_host = questions.top(asked.store, view.question("host", limit=12)).to_pylist()
    by_shape = questions.top(asked.store, view.question("shapes", limit=12)).to_pylist()
    over_time = trend(asked, view, "model", Panel("trend", "Operator time by model"), wide=False)
    plain = asked.view
    narrow = [
        Panel(
            "by-model", "By model", "", files=files(view, "top", by="model", limit=12), wide=False,
            grid=measured(by_model, [("Model", key_cell(plain, "model", over_time.colours))], f"{name} by model", _FEW),
        ),
        Panel(
            "by-host", "By host", "", files=files(view, "top", by="host", limit=12), wide=False,
            grid=measured(by_host, [("Host", key_cell(plain, "host"))], f"{name} by host", _FEW),
            switch=[("All hosts", plain.picking("/hosts", "operator", name), False)],
        ),
    ]  # fmt: skip
    blocks: list[tuple[Panel, ...]] = [(heat(asked, view),), (quantiles(asked, view, wide=False), over_time.panel), tuple(narrow)]
    if any(r["shapes"] for r in by_shape):
        grid = measured(by_shape, [("Shapes", lambda r: Cell(r["shapes"] or "(not recorded)", code=True))], f"{name} by shapes", _FEW)
        blocks.append((Panel("by-shapes", "By shapes", "", grid=grid, files=files(view, "top", by="shapes", limit=12)),))
    tiles = [Tile(*texts) for texts in total_tiles(whole)]
    subtitle = f"From {', '.join(sorted({r['source'] or 'an unknown source' for r in rows}))}"
    return replace(page, tiles=tiles, rows=tuple(blocks), subtitle=subtitle)


def comparison(view: View, operator: str = "") -> str:
    """This range against the one before it."""
    span = view.end_s - view.start_s
    before = replace(view, start=at(view.start_s - span), end=at(view.start_s), choices={})
    if operator:
        before = replace(before, picked={**view.picked, "operator": operator})
    return before.to("/compare", b_from=at(view.start_s), b_to=at(view.end_s))


def heat(asked: Asked, view: View, title: str = "Latency over time") -> Panel:
    step = step_for(view.start_s, view.end_s)
    rows = questions.heatmap(asked.store, Question(view.start_s, view.end_s, (), view.filters, step_s=step)).to_pylist()
    if not rows:
        return Panel("heatmap", title, empty="No calls in this range.")
    times = times_of(view, series.frame_for(True, 280), step)
    low, high = min(r["low_ns"] for r in rows), max(r["high_ns"] for r in rows)
    text = f"One column for each {span_text(step)}; calls took from {numbers.duration(low)} to {numbers.duration(high)}. A table has the quantiles."
    note = f"Each column is {span_text(step)}, each row a duration; the more calls, the stronger the colour."
    return Panel("heatmap", title, note, heatmap.heatmap(times, rows, title, text), files=files(view, "heatmap", step=step))

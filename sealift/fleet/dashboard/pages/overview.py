"""Where the fleet's time goes: by operator, by model, over time; and the full lists of operators, models and hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow.compute as pc

from sealift.fleet import questions
from sealift.fleet.dashboard import numbers
from sealift.fleet.dashboard.pages.common import Asked, files, key_cell, more_rows, nothing, trend
from sealift.fleet.dashboard.panels import Cell, Page, Panel, Tile, measured
from sealift.fleet.questions import Question

SPLITS = ("model", "operator", "service", "version", "host")
_OPERATORS = 15


def overview(asked: Asked) -> Page:
    view = asked.view
    split = view.choice("by", "model")
    split = split if split in SPLITS else "model"
    whole = questions.top(asked.store, Question(view.start_s, view.end_s, (), view.filters)).to_pylist()
    page = Page("Overview", (), (), "overview", subtitle="Where the fleet's time goes")
    if not whole or not whole[0]["count"]:
        return replace(page, rows=((nothing(asked),),))
    over_time = trend(
        asked,
        view,
        split,
        Panel(
            "trend",
            f"Operator time by {split}",
            "Seconds of operators' own time in each second: how many threads they keep busy.",
            switch=[(s, view.choosing(by="" if s == "model" else s), s == split) for s in SPLITS],
        ),
    )
    operators = questions.top(asked.store, view.question("operator", order=_order(asked), limit=_OPERATORS)).to_pylist()
    models = questions.top(asked.store, view.question("model", limit=10)).to_pylist()
    by_operator = Panel(
        "operators", "Operators", "", grid=measured(
            operators, [("Operator", key_cell(view, "operator", over_time.colours if split == "operator" else None))], "Time by operator",
            sort=lambda name: view.choosing(order="" if name == "total_ns" else name), order=_order(asked),
        ),
        files=files(view, "ops", order=_order(asked), limit=_OPERATORS), switch=[("All operators", view.to("/operators"), False)],
    )  # fmt: skip
    by_model = Panel(
        "models", "Models", "", grid=measured(
            models, [("Model", key_cell(view, "model", over_time.colours if split == "model" else None))], "Time by model",
        ),
        files=files(view, "top", by="model", limit=10), switch=[("All models", view.to("/models"), False)],
    )  # fmt: skip
    return replace(page, tiles=_tiles(asked, whole[0], len(models), over_time.own_ns), rows=((over_time.panel,), (by_operator,), (by_model,)))


def _order(asked: Asked) -> str:
    order = asked.view.choice("order", "total_ns")
    return order if order in questions.ORDERS else "total_ns"


def _tiles(asked: Asked, whole: dict[str, Any], models: int, own_ns: float) -> list[Tile]:
    view = asked.view
    known = asked.store.processes()
    recent = known.filter(pc.greater_equal(known.column("last_s"), int(asked.now_s) - 120))
    hosts = len(pc.unique(recent.column("host")))
    busy = own_ns / 1e9 / max(view.end_s - view.start_s, 1)
    alarms = len(asked.collector.watch.alarms) if asked.collector.watch else 0
    return [
        Tile("Operator time", numbers.duration(whole["total_ns"]), f"{numbers.error(whole, 'total_ns')} · callees included".removeprefix(" · ")),
        Tile("Busy threads", f"{busy:.3g}", "time a second, on average"),
        Tile("Calls", numbers.count(whole["count"]), numbers.error(whole, "count")),
        Tile("p50 of a call", numbers.duration(whole["p50_ns"]), f"p99 {numbers.duration(whole['p99_ns'])}"),
        Tile("Models", f"{models}{'+' if models >= 10 else ''}", "with time in this range", view.to("/models")),
        Tile(
            "Reporting now",
            numbers.count(recent.num_rows),
            f"of {known.num_rows:,} processes; {numbers.many(hosts, 'host')}",
            view.to("/processes"),
        ),
        Tile("Alarms", str(alarms), "see the rules" if alarms else "nothing got slower", view.to("/alerts"), "bad" if alarms else "good"),
    ]


def operators(asked: Asked) -> Page:
    view, order = asked.view, _order(asked)
    rows = questions.top(asked.store, view.question("operator", "source", order=order, limit=asked.limit)).to_pylist()
    page = Page("Operators", (("Overview", view.to("/")),), (), "operators", subtitle="Every operator, from PyTorch and from compiled models")
    if not rows:
        return replace(page, rows=((nothing(asked),),))
    grid = measured(
        rows, [("Operator", key_cell(view, "operator")), ("From", lambda r: Cell(r["source"] or "(unknown)"))], "Time by operator",
        sort=lambda name: view.choosing(order="" if name == "total_ns" else name), order=order,
    )  # fmt: skip
    panel = Panel(
        "operators", numbers.many(len(rows), "operator"), "Columns sort; ± and +? are the bounds of sampling and buckets.", grid=grid,
        files=files(view, "top", by="operator,source", order=order, limit=asked.limit), switch=more_rows(asked, len(rows), view),
    )  # fmt: skip
    return replace(page, rows=((panel,),))


def models(asked: Asked) -> Page:
    view, order = asked.view, _order(asked)
    rows = questions.models(asked.store, view.question("model", order=order, limit=asked.limit)).to_pylist()
    page = Page("Models", (("Overview", view.to("/")),), (), "models", subtitle="Which models spend the time, and where their files came from")
    if not rows:
        return replace(page, rows=((nothing(asked),),))
    over_time = trend(asked, view, "model", Panel("trend", "Operator time by model"), height=180)
    grid = measured(
        rows, [("Model", key_cell(view, "model", over_time.colours))], "Models", ("total_ns", "share", "count", "p50_ns", "p99_ns"),
        [
            ("Hosts", True, lambda r: Cell(numbers.count(r["hosts"]))),
            ("Format", False, lambda r: Cell(r["format"])),
            ("Producer", False, lambda r: Cell(r["producer"])),
            ("Digest", False, lambda r: Cell(short(r["digest"]), code=True)),
            ("Signature", False, lambda r: signed(r["signed"], bool(r["digest"] or r["producer"]))),
        ],
        sort=lambda name: view.choosing(order="" if name == "total_ns" else name), order=order,
    )  # fmt: skip
    panel = Panel(
        "models", numbers.many(len(rows), "model"), "", grid=grid, files=files(view, "models", order=order, limit=asked.limit),
        switch=(("Lineage of every file", view.to("/lineage"), False), *more_rows(asked, len(rows), view)),
    )  # fmt: skip
    return replace(page, rows=((over_time.panel,), (panel,)))


def short(digest: str) -> str:
    kind, _, value = digest.partition(":")
    return f"{kind}:{value[:12]}…" if len(value) > 14 else digest


def signed(value: str, known: bool = True) -> Cell:
    if value == "true":
        return Cell("signed", tag="good")
    return Cell("unsigned", tag="warn") if known else Cell("no file known")


def hosts(asked: Asked) -> Page:
    view, order, budget = asked.view, _order(asked), asked.collector.budget.overhead
    rows = questions.hosts(asked.store, view.question("host", order=order, limit=asked.limit)).to_pylist()
    page = Page("Hosts", (("Overview", view.to("/")),), (), "hosts", subtitle="Time by host, and how each host's agents fare")
    if not rows:
        return replace(page, rows=((nothing(asked),),))
    grid = measured(
        rows, [("Host", key_cell(view, "host"))], "Hosts", ("total_ns", "share", "count", "mean_ns", "p50_ns", "p99_ns"),
        [
            ("Processes", True, lambda r: Cell(numbers.count(r["processes"]))),
            ("Overhead", True, lambda r: Cell(numbers.percent(r["overhead"]), tag="warn" if (r["overhead"] or 0) > budget else "")),
            ("Dropped", True, lambda r: Cell(numbers.count(r["dropped"]), tag="warn" if r["dropped"] else "")),
            ("Last heard", True, lambda r: Cell(numbers.ago(r["last_s"], asked.now_s))),
        ],
        sort=lambda name: view.choosing(order="" if name == "total_ns" else name), order=order,
    )  # fmt: skip
    panel = Panel(
        "hosts", numbers.many(len(rows), "host"), f"Overhead: the largest that a process measured; the budget is {budget:.1%}.",
        grid=grid, files=files(view, "hosts", order=order, limit=asked.limit), switch=more_rows(asked, len(rows), view),
    )  # fmt: skip
    return replace(page, rows=((panel,),))

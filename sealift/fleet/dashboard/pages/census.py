"""The small tables: which APIs are called, which model files go where, which processes report, and what got slower."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sealift.fleet import questions
from sealift.fleet.dashboard import numbers
from sealift.fleet.dashboard.charts.svg import bar
from sealift.fleet.dashboard.pages.common import Asked, bare, files, key_cell, more_rows
from sealift.fleet.dashboard.pages.overview import signed
from sealift.fleet.dashboard.panels import Cell, Page, Panel, Tile, plain
from sealift.fleet.dashboard.view import View
from sealift.fleet.rules import Alarm, Rule, check

HEARD_S = 60  # a process that reported within so many seconds counts as running


def _ignored(view: View, keys: tuple[str, ...]) -> tuple[str, ...]:
    left_out = [text for text in view.texts if text not in view.texts_of(keys)]
    return (f"Not applied here: {', '.join(left_out)}. This page can be filtered by {', '.join(keys)}.",) if left_out else ()


def apis(asked: Asked) -> Page:
    view, keys = asked.view, ("service", "version", "host", "instance")
    by = view.choice("by")
    by = by if by in ("service", "version", "host") else ""
    rows = questions.apis(asked.store, view.filters_of(keys), (by,) if by else ()).to_pylist()
    page = Page(
        "API census",
        (("Overview", view.to("/")),),
        (),
        "apis",
        subtitle="Which PyTorch APIs the fleet's processes call",
        notes=_ignored(view, keys),
        controls="filters",
    )
    if not rows:
        return bare(
            page,
            "No API use reported",
            "Agents report it by themselves; sealift.observe's guide says which keys there are.",
            "docs/guides/observe.md",
        )
    most = max(r["processes"] for r in rows)
    grid = plain(
        "API use",
        rows[: asked.limit],
        [
            ("API", False, lambda r: Cell(r["api"], code=True)),
            *([(by.capitalize(), False, key_cell(view, by))] if by else []),
            ("Processes", True, lambda r: Cell(numbers.count(r["processes"]), bar=bar(r["processes"] / most))),
            ("Hosts", True, lambda r: Cell(numbers.count(r["hosts"]))),
            ("First seen (UTC)", False, lambda r: Cell(numbers.moment(r["first_s"]))),
            ("Last seen (UTC)", False, lambda r: Cell(numbers.moment(r["last_s"]))),
        ],
    )  # fmt: skip
    switch = [("total", view.choosing(by=""), not by), *((f"by {k}", view.choosing(by=k), k == by) for k in ("service", "version", "host"))]
    panel = Panel(
        "apis",
        numbers.many(len(rows), "row"),
        grid=grid,
        files=files(view, "apis", by=by, where=view.texts_of(keys)),
        switch=(*switch, *more_rows(asked, len(rows), view)),
    )
    return replace(page, rows=((panel,),))


def lineage(asked: Asked) -> Page:
    view, keys = asked.view, ("model", "service", "version", "host", "instance")
    rows = questions.lineage(asked.store, view.filters_of(keys)).to_pylist()
    page = Page(
        "Lineage",
        (("Overview", view.to("/")),),
        (),
        "lineage",
        subtitle="Which model file was written by whom and loaded where",
        notes=_ignored(view, keys),
        controls="filters",
    )
    if not rows:
        return bare(
            page, "No model files reported", "Processes report the files that they save and load once they are observed.", "docs/guides/observe.md"
        )
    concerns = sum(1 for r in rows if r["concern"])
    grid = plain(
        "Model files",
        rows[: asked.limit],
        [
            ("File", False, lambda r: Cell(r["file"], code=True)),
            ("Model", False, key_cell(view, "model")),
            ("Concern", False, lambda r: Cell(r["concern"], tag="warn") if r["concern"] else Cell("none", tag="good")),
            ("Signature", False, lambda r: signed(r["signed"])),
            ("Format", False, lambda r: Cell(r["format"])),
            ("Producer", False, lambda r: Cell(r["producer"] or "unknown")),
            ("Written by", False, lambda r: Cell(r["written_by"] or "nobody here")),
            ("Loaded by", False, lambda r: Cell(r["loaded_by"] or "nobody")),
            ("Loads", True, lambda r: Cell(numbers.count(r["loads"]))),
            ("Hosts", True, lambda r: Cell(numbers.count(r["load_hosts"]))),
            ("Last seen (UTC)", False, lambda r: Cell(numbers.moment(r["last_s"]))),
        ],
    )  # fmt: skip
    panel = Panel(
        "lineage",
        numbers.many(len(rows), "model file"),
        grid=grid,
        files=files(view, "lineage", where=view.texts_of(keys)),
        switch=more_rows(asked, len(rows), view),
    )
    tiles = [
        Tile("Files", numbers.count(len(rows))),
        Tile("Of concern", numbers.count(concerns), "unsigned or of unknown origin", tag="warn" if concerns else "good"),
        Tile("Loads", numbers.count(sum(r["loads"] for r in rows))),
    ]  # fmt: skip
    return replace(page, tiles=tiles, rows=((panel,),))


def processes(asked: Asked) -> Page:
    view, keys = asked.view, ("service", "version", "host", "instance", "container", "attribute")
    rows = questions.processes(asked.store, view.filters_of(keys)).to_pylist()
    page = Page(
        "Processes",
        (("Overview", view.to("/")),),
        (),
        "processes",
        subtitle="Every process ever heard of, the latest first",
        notes=_ignored(view, keys),
        controls="filters",
    )
    if not rows:
        return bare(
            page,
            "No processes",
            "Let a process of yours report, in two lines or with an environment variable:",
            "SEALIFT_OBSERVE=otlp:http://127.0.0.1:4318 python program.py",
        )
    grid = process_grid(asked, rows[: asked.limit])
    running = sum(1 for r in rows if r["last_s"] >= asked.now_s - HEARD_S)
    tiles = [
        Tile("Known", numbers.count(len(rows))),
        Tile("Reporting", numbers.count(running), f"within {HEARD_S} s", tag="good" if running else ""),
        Tile("Hosts", numbers.count(len({r["host"] for r in rows}))),
        Tile("Dropped", numbers.count(sum(r["dropped"] for r in rows)), "calls that agents could not keep"),
    ]  # fmt: skip
    panel = Panel(
        "processes",
        numbers.many(len(rows), "process"),
        grid=grid,
        files=files(view, "processes", where=view.texts_of(keys)),
        switch=more_rows(asked, len(rows), view),
    )
    return replace(page, tiles=tiles, rows=((panel,),))


def process_grid(asked: Asked, rows: list[dict[str, Any]], caption: str = "Processes") -> Any:
    view = asked.view
    return plain(
        caption,
        rows,
        [
            ("Process", False, lambda r: Cell(r["instance"], href=view.to("/process", instance=r["instance"]), code=True)),
            ("State", False, lambda r: state(asked, r)),
            ("Service", False, key_cell(view, "service")),
            ("Version", False, lambda r: Cell(r["version"])),
            ("Host", False, key_cell(view, "host")),
            ("pid", True, lambda r: Cell(str(r["pid"] or ""))),
            ("Overhead", True, lambda r: Cell(numbers.percent(r["overhead"]))),
            ("Dropped", True, lambda r: Cell(numbers.count(r["dropped"]), tag="warn" if r["dropped"] else "")),
            ("Last heard", True, lambda r: Cell(numbers.ago(r["last_s"], asked.now_s))),
        ],
    )  # fmt: skip


def state(asked: Asked, row: Mapping[str, Any]) -> Cell:
    return Cell("reporting", tag="good") if row["last_s"] >= asked.now_s - HEARD_S else Cell("silent")


def alerts(asked: Asked) -> Page:
    view, watch = asked.view, asked.collector.watch
    checked = view.choice("check") == "1"
    rules = tuple(watch.rules) if watch and watch.rules else (Rule(),)
    alarms = check(asked.store, rules, int(asked.now_s)) if checked else list(watch.alarms) if watch else []
    page = Page(
        "Alerts", (("Overview", view.to("/")),), (), "alerts", subtitle="What got slower, by the collector's rules",
        actions=(("Check now", view.choosing(check="1")),), controls="none",
    )  # fmt: skip
    if alarms:
        first = Panel(
            "alarms",
            numbers.many(len(alarms), "regression"),
            grid=_alarm_grid(asked, alarms),
            note="The costliest first. p is corrected for everything that was looked at.",
        )
    elif watch is None and not checked:
        first = Panel("alarms", "Nobody watches", empty="This collector was started without rules.", hint="sealift fleet serve --rules rules.json")
    else:
        first = Panel(
            "alarms", "No regressions", empty=f"{'Just now' if checked else 'At the last look'} no operator was slower than the rules allow."
        )
    return replace(page, rows=((first,), (_rules_panel(rules, watch is not None),)))


def _alarm_grid(asked: Asked, alarms: list[Alarm]) -> Any:
    view = asked.view
    rows = [dict(a.as_dict(), alarm=a) for a in alarms]

    def what(row: Mapping[str, Any]) -> Cell:
        keys = row["keys"]
        text = ", ".join(v for v in keys.values() if v)
        href = (
            view.to("/operator", name=keys["operator"])
            if keys.get("operator")
            else view.to("/model", name=keys["model"])
            if keys.get("model")
            else ""
        )
        return Cell(text, href=href, code=True)

    return plain(
        "Regressions",
        rows,
        [
            ("Rule", False, lambda r: Cell(r["rule"])),
            ("What", False, what),
            ("Change", True, lambda r: Cell(numbers.change(r["ratio"]), numbers.interval(r["ratio_low"], r["ratio_high"]), tag="bad")),
            ("Before", True, lambda r: Cell(numbers.duration(r["before_ns"]))),
            ("Now", True, lambda r: Cell(numbers.duration(r["after_ns"]))),
            ("p", True, lambda r: Cell(numbers.p_value(r["p_value"]))),
            ("Share", True, lambda r: Cell(numbers.percent(r["share"]))),
            ("Costs", True, lambda r: Cell(numbers.duration(r["cost_ns"]))),
            ("Hosts", True, lambda r: Cell(numbers.count(r["hosts"]))),
            ("Since about (UTC)", False, lambda r: Cell(numbers.moment(r["since"]))),
        ],
    )  # fmt: skip


def _rules_panel(rules: tuple[Rule, ...], watched: bool) -> Panel:
    grid = plain(
        "Rules",
        [{"rule": r} for r in rules],
        [
            ("Rule", False, lambda r: Cell(r["rule"].name)),
            ("By", False, lambda r: Cell(", ".join(r["rule"].by))),
            ("Where", False, lambda r: Cell(", ".join(f.key + f.operation + f.value for f in r["rule"].where) or "everything")),
            ("Slower by", True, lambda r: Cell(numbers.percent(r["rule"].change))),
            ("Share at least", True, lambda r: Cell(numbers.percent(r["rule"].share))),
            ("p below", True, lambda r: Cell(f"{r['rule'].p_value:g}")),
            ("Window", True, lambda r: Cell(f"{r['rule'].window_s / 60:g} min")),
            ("Compared with", False, lambda r: Cell("the version before" if r["rule"].versions else f"up to {r['rule'].days} days before")),
            ("Webhook", False, lambda r: Cell("yes" if r["rule"].webhook else "no")),
        ],
    )  # fmt: skip
    return Panel("rules", "Rules", "Looked at every minute." if watched else "The default rule; it is looked at when asked.", grid=grid)

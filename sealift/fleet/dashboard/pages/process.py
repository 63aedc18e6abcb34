"""One process, live; and one host with its processes."""

from __future__ import annotations

import json
from dataclasses import replace

from sealift.fleet import questions
from sealift.fleet.dashboard import numbers
from sealift.fleet.dashboard.pages.census import process_grid, state
from sealift.fleet.dashboard.pages.common import Asked, files, key_cell, key_link, nothing, own_time, quantiles, trend
from sealift.fleet.dashboard.pages.operator import comparison
from sealift.fleet.dashboard.panels import Cell, Page, Panel, Tile, measured
from sealift.fleet.errors import QuestionError
from sealift.fleet.store.interface import Filter


def process(asked: Asked) -> Page:
    instance = asked.view.choice("instance")
    if not instance:
        raise QuestionError("a process's page without its instance; help: /processes lists them")
    view = asked.view.also(f"instance={instance}")
    crumbs = (("Overview", asked.view.to("/")), ("Processes", asked.view.to("/processes")))
    known = questions.processes(asked.store, (Filter("instance", "=", instance),)).to_pylist()
    if not known:
        raise QuestionError(f"no process {instance!r}; help: /processes lists those that were heard of")
    one = known[0]
    page = Page(
        f"{one['service'] or 'process'} · pid {one['pid']}", crumbs, (), "processes",
        subtitle=f"Live view of {instance} on {one['host'] or 'an unknown host'}",
        live=True, form={"kind": "trace", "instance": instance},
    )  # fmt: skip
    facts = [
        ("State", state(asked, one)),
        ("Service", Cell(one["service"], href=key_link(asked.view, "service", one["service"]))),
        ("Version", Cell(one["version"])),
        ("Host", Cell(one["host"], href=key_link(asked.view, "host", one["host"]))),
        ("pid", Cell(str(one["pid"]))),
        ("Container", Cell(one["container"], code=True)),
        ("First heard", Cell(numbers.moment(one["first_s"]) + " UTC")),
        ("Last heard", Cell(numbers.moment(one["last_s"]) + " UTC")),
        *((name, Cell(str(value), code=True)) for name, value in sorted(json.loads(one["attributes"] or "{}").items())),
    ]
    about = Panel("about", "The process", facts=[(n, c) for n, c in facts if c.text], files=files(view, "processes", where=[f"instance={instance}"]))
    tiles = [
        Tile("Last heard", numbers.ago(one["last_s"], asked.now_s), "reporting" if state(asked, one).tag else "silent", tag=state(asked, one).tag),
        Tile("Overhead", numbers.percent(one["overhead"]), f"budget {asked.collector.budget.overhead:.1%}"),
        Tile("Dropped", numbers.count(one["dropped"]), "calls the agent could not keep"),
        Tile("Overflow", numbers.count(one["overflow"]), "calls of operators beyond its table"),
    ]
    rows = questions.top(asked.store, view.question("operator", "model", limit=20)).to_pylist()
    apis = questions.apis(asked.store, (Filter("instance", "=", instance),)).to_pylist()
    used = Panel("apis", "APIs it called", facts=[(r["api"], Cell(numbers.moment(r["first_s"]) + " UTC")) for r in apis], wide=False)
    if not rows:
        return replace(page, tiles=tiles, rows=((nothing(asked, "Nothing from this process"),), (about,)))
    busy = sum(own_time(r) for r in rows) / 1e9 / max(view.end_s - view.start_s, 1)
    tiles.insert(1, Tile("Busy threads", f"{busy:.3g}", "own time a second, on average"))
    over_time = trend(asked, view, "operator", Panel("trend", "Operator time by operator"), wide=False)
    keys = [("Operator", key_cell(asked.view, "operator", over_time.colours)), ("Model", key_cell(asked.view, "model"))]
    grid = measured(rows, keys, "Operators of this process", ("total_ns", "self_ns", "share", "count", "mean_ns", "p50_ns", "p99_ns"))
    operators = Panel("operators", "Operators", grid=grid, files=files(view, "top", by="operator,model", limit=20))
    last = (replace(about, wide=False), used) if apis else (about,)
    return replace(page, tiles=tiles, rows=((over_time.panel, quantiles(asked, view, wide=False)), (operators,), last))


def host(asked: Asked) -> Page:
    name = asked.view.choice("name")
    if not name:
        raise QuestionError("a host's page without its name; help: /hosts lists them")
    view = asked.view.also(f"host={name}")
    crumbs = (("Overview", asked.view.to("/")), ("Hosts", asked.view.to("/hosts")))
    compare = comparison(replace(asked.view, picked={**asked.view.picked, "host": name}))
    others = asked.view.to("/compare", a_where=f"host!={name}", b_where=f"host={name}")
    actions = (("Compare with before", compare), ("Compare with the others", others))
    page = Page(name, crumbs, (), "hosts", subtitle="One host: what runs on it", actions=actions)
    known = questions.processes(asked.store, (Filter("host", "=", name),)).to_pylist()
    table = process_grid(asked, known[: asked.limit], "Processes of this host")
    running = Panel("processes", numbers.many(len(known), "process"), grid=table, files=files(view, "processes", where=[f"host={name}"]))
    rows = questions.top(asked.store, view.question("operator", "model", limit=20)).to_pylist()
    if not rows:
        return replace(page, rows=((nothing(asked, "Nothing from this host"),), (running,)))
    over_time = trend(asked, view, "operator", Panel("trend", "Operator time by operator"), wide=False)
    keys = [("Operator", key_cell(asked.view, "operator", over_time.colours)), ("Model", key_cell(asked.view, "model"))]
    operators = Panel(
        "operators", "Operators", grid=measured(rows, keys, "Operators of this host"), files=files(view, "top", by="operator,model", limit=20)
    )
    return replace(page, rows=((over_time.panel, quantiles(asked, view, wide=False)), (running,), (operators,)))

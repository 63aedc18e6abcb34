"""What got slower, by the collector's rules: at the last look, or looked at now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sealift.fleet.collector.app import Collector
from sealift.fleet.dashboard import numbers
from sealift.fleet.dashboard.pages.common import Asked
from sealift.fleet.dashboard.panels import Cell, Page, Panel, plain
from sealift.fleet.rules import Alarm, Rule, check


def rules_of(collector: Collector) -> tuple[Rule, ...]:
    watch = collector.watch
    return tuple(watch.rules) if watch and watch.rules else (Rule(),)


def found(collector: Collector, now_s: float, look: bool) -> list[Alarm]:
    """`look`: now, else what the collector's own watch saw last."""
    if look:
        return check(collector.store, rules_of(collector), int(now_s))
    return list(collector.watch.alarms) if collector.watch else []


_NUMBERS = ("ratio", "ratio_low", "ratio_high", "p_value", "share", "before_ns", "after_ns", "cost_ns")
_SCHEMA = pa.schema(
    [("rule", pa.string()), ("operator", pa.string()), ("model", pa.string()), ("keys", pa.string())]
    + [(name, pa.float64()) for name in _NUMBERS]
    + [(name, pa.int64()) for name in ("since", "from", "to", "hosts")]
)


def table(alarms: list[Alarm]) -> pa.Table:
    """One row for each; `keys`: all that the rule goes by, as JSON."""
    rows = []
    for alarm in alarms:
        row = alarm.as_dict()
        keys = row["keys"]
        rows.append(row | {"keys": json.dumps(keys), "operator": keys.get("operator", ""), "model": keys.get("model", "")})
    return pa.Table.from_pylist(rows, _SCHEMA)


def alerts(asked: Asked) -> Page:
    view, collector = asked.view, asked.collector
    look = view.choice("check") == "1"
    alarms = found(collector, asked.now_s, look)
    page = Page(
        "Alerts", (("Overview", view.to("/")),), (), "alerts", subtitle="What got slower, by the collector's rules",
        actions=(("Check now", view.choosing(check="1")),), controls="none",
    )  # fmt: skip
    query = "?check=1" if look else ""
    files = tuple((text, f"/download/alarms.{format}{query}") for text, format in (("CSV", "csv"), ("Parquet", "parquet")))
    if alarms:
        note = "The costliest first. p is corrected for everything that was looked at."
        first = Panel("alarms", numbers.many(len(alarms), "regression"), note, grid=_alarm_grid(asked, alarms), files=files)
    elif collector.watch is None and not look:
        first = Panel("alarms", "Nobody watches", empty="This collector was started without rules.", hint="sealift fleet serve --rules rules.json")
    else:
        when = "Just now" if look else "At the last look"
        first = Panel("alarms", "No regressions", empty=f"{when} no operator was slower than the rules allow.", files=files)
    return replace(page, rows=((first,), (_rules_panel(rules_of(collector), collector.watch is not None),)))


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

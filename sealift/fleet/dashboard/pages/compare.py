"""Two times, versions or hosts beside one another: what got slower or faster, and how surely."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from sealift.fleet.collector import api
from sealift.fleet.dashboard import numbers
from sealift.fleet.dashboard.charts.forest import Ratio, forest
from sealift.fleet.dashboard.pages.common import Asked, key_cell
from sealift.fleet.dashboard.panels import Cell, Page, Panel, Tile, plain
from sealift.fleet.dashboard.view import at, encoded
from sealift.fleet.statistics import CONFIDENCE

KEYS = ("operator", "operator,model", "model", "service", "host")
_DRAWN = 16
DEFAULT = "/compare?" + urlencode({"from": "-2h", "to": "-1h", "b_from": "-1h", "b_to": "now"})


def parameters(asked: Asked) -> dict[str, list[str]]:
    """As the API takes them."""
    view = asked.view
    found = {"from": [view.start], "to": [view.end], "by": [_by(asked)], "where": list(view.texts), "limit": [str(asked.limit)]}
    found |= {name: [view.choice(name)] for name in ("b_from", "b_to") if view.choice(name)}
    # Several filters of a side are written with commas, as in version=2.0,host~web-*
    found |= {name: [t for t in view.choice(name).split(",") if t] for name in ("a_where", "b_where") if view.choice(name)}
    return found


def _by(asked: Asked) -> str:
    by = asked.view.choice("by", "operator")
    return by if by in KEYS else "operator"


def compare(asked: Asked) -> Page:
    view, by = asked.view, _by(asked)
    asking = parameters(asked)
    table, about = api.answer(asked.store, "diff", asking, asked.now_s)
    rows = table.to_pylist()
    form = {
        "kind": "compare", "from": view.start, "to": view.end, "b_from": view.choice("b_from"), "b_to": view.choice("b_to"),
        "a_where": view.choice("a_where"), "b_where": view.choice("b_where"), "by": by, "keys": KEYS,
        "kept": [(k, v) for k, v in view.parameters if k in (*view.picked, "where")], "presets": presets(asked),
    }  # fmt: skip
    sides = [f"{numbers.moment(a)} to {numbers.moment(b)} UTC" for a, b in (about["a"], about["b"])]
    names = [f"{side}{' where ' + view.choice(w) if view.choice(w) else ''}" for side, w in zip(sides, ("a_where", "b_where"))]
    page = Page("Comparison", (("Overview", view.to("/")),), (), "compare", subtitle=f"A: {names[0]}.  B: {names[1]}.", form=form)
    files_ = _files(asked, asking, about)
    if not rows:
        empty = Panel("empty", "Neither side has calls", empty="Choose other times or filters above; the row below the form has usual ones.")
        return replace(page, rows=((empty,),))
    found = [r | {"kind": kind_of(r)} for r in rows]
    slower, faster = ([r for r in found if r["kind"] == kind] for kind in ("slower", "faster"))
    one_sided = sum(1 for r in found if not r["a_count"] or not r["b_count"])
    cost = sum(r["cost_ns"] for r in (*slower, *faster))
    tiles = [
        Tile("Slower in B", str(len(slower)), "beyond chance", tag="bad" if slower else ""),
        Tile("Faster in B", str(len(faster)), "beyond chance", tag="good" if faster else ""),
        Tile("No evidence", str(len(found) - len(slower) - len(faster) - one_sided), "of a difference"),
        Tile("On one side only", str(one_sided), "cannot be compared"),
        Tile(
            "What that costs B",
            ("+" if cost > 0 else "") + numbers.duration(cost),
            "time, of what differs beyond chance",
            tag="bad" if cost > 0 else "",
        ),
    ]
    keys = by.split(",")
    known = [r for r in found if r["ratio"] is not None][:_DRAWN]
    blocks: list[tuple[Panel, ...]] = []
    if known:
        ratios = [
            Ratio(", ".join(r[k] or "(none)" for k in keys), r["ratio"], r["ratio_low"] or 0.0, r["ratio_high"] or float("inf"), r["kind"])
            for r in known
        ]
        title = "Mean time of a call, B against A"
        text = f"{len(known)} rows with 95 % intervals; {len(slower)} are slower and {len(faster)} faster beyond chance. A table has the numbers."
        note = "Lines: 95 % intervals. Coloured where p, corrected for all rows, is below 0.05. Hosts are set against themselves where they can be."
        blocks.append((Panel("ratios", title, note, forest(ratios, title, text)),))
    grid = plain(
        "Comparison",
        found,
        [
            *((k.capitalize(), False, key_cell(view, k)) for k in keys),
            ("Verdict", False, verdict),
            ("Change", True, _change),
            ("A", True, lambda r: Cell(numbers.duration(r["a_mean_ns"]))),
            ("B", True, lambda r: Cell(numbers.duration(r["b_mean_ns"]))),
            ("p", True, lambda r: Cell(numbers.p_value(r["p_value"]) if r["ratio"] is not None else numbers.UNKNOWN)),
            ("Costs B", True, lambda r: Cell(("+" if r["cost_ns"] > 0 else "") + numbers.duration(r["cost_ns"]))),
            ("Share of A", True, lambda r: Cell(numbers.percent(r["a_share"]))),
            ("Share of B", True, lambda r: Cell(numbers.percent(r["b_share"]))),
            ("Calls A", True, lambda r: Cell(numbers.count(r["a_count"]))),
            ("Calls B", True, lambda r: Cell(numbers.count(r["b_count"]))),
        ],
    )  # fmt: skip
    blocks.append((Panel("rows", f"By {by.replace(',', ' and ')}", grid=grid, files=files_),))
    return replace(page, tiles=tiles, rows=tuple(blocks))


def _files(asked: Asked, asking: Mapping[str, list[str]], about: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Times as shown."""
    fixed = {**asking, "from": [about["a"][0]], "to": [about["a"][1]]}
    if "b_from" in asking:
        fixed |= {"b_from": [about["b"][0]], "b_to": [about["b"][1]]}
    query = urlencode([(k, v) for k, values in fixed.items() for v in values])
    return tuple((text, f"/download/diff.{format}?{query}") for text, format in (("CSV", "csv"), ("Parquet", "parquet")))


def kind_of(row: Mapping[str, Any]) -> str:
    if row["ratio"] is None or row["p_value"] > 1 - CONFIDENCE:
        return "same"
    return "slower" if row["ratio"] > 1 else "faster"


def verdict(row: Mapping[str, Any]) -> Cell:
    if not row["a_count"]:
        return Cell("only in B")
    if not row["b_count"]:
        return Cell("only in A")
    return {"slower": Cell("slower", tag="bad"), "faster": Cell("faster", tag="good"), "same": Cell("no evidence")}[row["kind"]]


def _change(row: Mapping[str, Any]) -> Cell:
    if row["ratio"] is None:
        return Cell(numbers.UNKNOWN)
    return Cell(numbers.change(row["ratio"]), numbers.interval(row["ratio_low"], row["ratio_high"]))


def presets(asked: Asked) -> list[tuple[str, str]]:
    """(text, URL): the usual questions, and the versions and hosts that the store knows."""
    now = int(asked.now_s)
    kept = [(k, v) for k, v in asked.view.parameters if k in (*asked.view.picked, "where")]

    def url(**more: Any) -> str:
        pairs = [(k.rstrip("_"), v) for k, v in more.items()]
        return "/compare?" + encoded([*pairs, *kept])

    found = [
        ("Last hour, the hour before", url(from_="-2h", to="-1h", b_from="-1h", b_to="now")),
        ("Last hour, same hour yesterday", url(from_="-25h", to="-24h", b_from="-1h", b_to="now")),
        ("Last day, the day before", url(from_="-2d", to="-1d", b_from="-1d", b_to="now")),
    ]
    first, last = asked.store.time_range()
    if last and last < now - 3600:
        middle = (first + last) // 2 // 10 * 10
        found.append(("First and second half of all data", url(from_=at(first), to=at(middle), b_from=at(middle), b_to=at(last))))
    versions: dict[str, dict[str, int]] = defaultdict(dict)
    known = asked.store.processes()
    for service, version, seen in zip(*(known.column(c).to_pylist() for c in ("service", "version", "first_s"))):
        if version:
            versions[service][version] = min(seen, versions[service].get(version, seen))
    for service, seen_at in sorted(versions.items()):
        if len(seen_at) > 1 and len(found) < 8:
            before, after = sorted(seen_at, key=lambda v: seen_at[v])[-2:]
            sides = {"a_where": f"service={service},version={before}", "b_where": f"service={service},version={after}"}
            found.append((f"{service}: {before}, {after}", url(from_="-1h", to="now", **sides)))
    return found

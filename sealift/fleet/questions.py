"""The questions, as pure functions of a store: every answer is a pyarrow Table. The command line, the HTTP API, Python and the dashboard ask through
these and nothing else.

Times are unix seconds; durations are ns. Columns that end in `_low` and `_high` enclose the true value with 95 % confidence."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sealift.fleet import statistics
from sealift.fleet.cells import MOST_NAMED, Side, by_host, with_steps
from sealift.fleet.errors import QuestionError
from sealift.fleet.store.interface import Filter, Selection, Store

QUANTILES = (0.5, 0.9, 0.99)
ORDERS = ("total_ns", "self_ns", "count", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "name")


@dataclass(frozen=True)
class Question:
    start_s: int
    end_s: int
    by: tuple[str, ...] = ("operator",)
    where: tuple[Filter, ...] = ()
    order: str = "total_ns"
    limit: int = 50
    step_s: int = 0

    def selection(self, **changes: Any) -> Selection:
        return replace(Selection(self.start_s, self.end_s, self.by, self.where, self.step_s), **changes)


def top(store: Store, question: Question) -> pa.Table:
    """Time by the question's keys. Columns: the keys; count, total_ns, self_ns with their bounds; share of the selection's total; samples; mean_ns;
    p50_ns, p90_ns, p99_ns with their bounds. `self_ns` is null where no point knew it."""
    if question.order not in ORDERS:
        raise QuestionError(f"order {question.order!r}; help: one of {', '.join(ORDERS)}")
    # Without keys SQL answers one row even for nothing: of nulls.
    totals = [r for r in store.totals(question.selection(quantiles=True)).to_pylist() if r["count"] is not None]
    everything = sum(r["total_ns"] for r in totals)
    rows = {tuple(str(r[k]) for k in question.by): r | _summary(r, everything) for r in totals}
    selection = question.selection()
    if not question.order.startswith("p") and len(rows) > question.limit:  # quantiles of a thousand hosts take longer than all else: only those shown
        rows = dict(_ordered(rows, question)[: question.limit])
        shown = [(key, tuple({k[i] for k in rows})) for i, key in enumerate(question.by)]
        selection = replace(selection, among=tuple((key, values) for key, values in shown if len(values) <= MOST_NAMED))
    for r in _quantile_rows(store, selection, list(rows.values())):
        rows[tuple(str(r[k]) for k in question.by)] |= _only_quantiles(r)
    return _table([r for _, r in _ordered(rows, question)[: question.limit]], question.by)


def _ordered(rows: Mapping[tuple[str, ...], dict[str, Any]], question: Question) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    if question.order == "name":
        return sorted(rows.items(), key=lambda item: item[0])
    return sorted(rows.items(), key=lambda item: (-(item[1][question.order] if item[1][question.order] is not None else -1), *item[0]))


def trend(store: Store, question: Question) -> pa.Table:
    """Like `top`, over time: one row for each group and step, oldest first, for the `limit` groups with the largest total. Without quantiles."""
    step = question.step_s or step_for(question.start_s, question.end_s)
    rows = store.totals(question.selection(step_s=step)).to_pylist()
    sums: dict[tuple[str, ...], int] = defaultdict(int)
    for r in rows:
        sums[tuple(r[k] for k in question.by)] += r["total_ns"]
    kept = set(sorted(sums, key=lambda k: (-sums[k], k))[: question.limit])
    slots: dict[int, int] = defaultdict(int)
    for r in rows:
        slots[r["time"]] += r["total_ns"]
    chosen = [
        {"time": r["time"]} | _summary(r, slots[r["time"]])
        for r in sorted(rows, key=lambda r: (r["time"], *(r[k] for k in question.by)))
        if tuple(r[k] for k in question.by) in kept
    ]
    return _table(chosen, question.by, first={"time": pa.int64()}, quantiles=False)


def heatmap(store: Store, question: Question) -> pa.Table:
    """How many calls took how long, over time: time, bucket, low_ns, high_ns, count. Groups are not kept apart."""
    step = question.step_s or step_for(question.start_s, question.end_s)
    table = store.buckets(question.selection(by=(), step_s=step)).sort_by([("time", "ascending"), ("bucket", "ascending")])
    bucket = table.column("bucket").to_pylist()
    return pa.table(
        {
            "time": table.column("time"),
            "bucket": table.column("bucket"),
            "low_ns": pa.array([statistics.bucket_low_ns(b) for b in bucket], pa.float64()),
            "high_ns": pa.array([statistics.bucket_high_ns(b) for b in bucket], pa.float64()),
            "count": table.column("n"),
        }
    )


def quantile_trend(store: Store, question: Question) -> pa.Table:
    """time, the question's keys, and count, p50_ns, p90_ns, p99_ns with their bounds, oldest first."""
    step = question.step_s or step_for(question.start_s, question.end_s)
    selection = question.selection(step_s=step)
    rows = _quantile_rows(store, selection, store.totals(selection).to_pylist())
    rows.sort(key=lambda r: (r["time"], *(r[k] for k in question.by)))
    fields = [("time", pa.int64()), *((k, pa.string()) for k in question.by), ("count", pa.int64()), *((n, pa.float64()) for n in _QUANTILE_COLUMNS)]
    return pa.Table.from_pylist(rows, pa.schema(fields))


def models(store: Store, question: Question) -> pa.Table:
    """`top` by model, with where each came from: digest, producer, format and signature of its file as last loaded, and on how many hosts it ran."""
    table = top(store, replace(question, by=("model",)))
    hosts: dict[str, set[str]] = defaultdict(set)
    for row in store.present(question.selection(by=("model", "host"))).to_pylist():
        hosts[row["model"]].add(row["host"])
    about = {row["model"]: row for row in store.model_events().to_pylist()}  # by time, so the last one stays
    names = table.column("model").to_pylist()
    table = table.append_column("hosts", pa.array([len(hosts[n]) for n in names], pa.int64()))
    for column in ("digest", "producer", "format", "signed"):
        table = table.append_column(column, pa.array([about.get(n, {}).get(column, "") for n in names], pa.string()))
    return table


def hosts(store: Store, question: Question) -> pa.Table:
    """`top` by host, with its processes, when it was last heard of, what it dropped, and its largest overhead."""
    table = top(store, replace(question, by=("host",)))
    seen: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in store.processes().to_pylist():
        seen[row["host"]].append(row)
    names = table.column("host").to_pylist()
    table = table.append_column("processes", pa.array([len(seen[n]) for n in names], pa.int64()))
    table = table.append_column("last_s", pa.array([max((p["last_s"] for p in seen[n]), default=None) for n in names], pa.int64()))
    table = table.append_column("dropped", pa.array([sum(p["dropped"] for p in seen[n]) for n in names], pa.int64()))
    overhead = [max((p["overhead"] for p in seen[n] if p["overhead"] is not None), default=None) for n in names]
    return table.append_column("overhead", pa.array(overhead, pa.float64()))


def apis(store: Store, where: Sequence[Filter] = (), by: Sequence[str] = ()) -> pa.Table:
    """Which PyTorch APIs the fleet's processes call: key, `by` (service, version, host), processes, hosts, first_s, last_s."""
    for key in by:
        if key not in ("service", "version", "host"):
            raise QuestionError(f"key {key!r}; help: service, version or host")
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in _filtered(store.api_uses().to_pylist(), where, ("service", "version", "host", "instance")):
        group = (row["key"], *(row[k] for k in by))
        groups[group].append(row)
    rows: list[dict[str, Any]] = [
        dict[str, Any](zip(("api", *by), key))
        | {
            "processes": len({r["instance"] for r in found}),
            "hosts": len({r["host"] for r in found}),
            "first_s": min(r["first_ns"] for r in found) // 10**9,
            "last_s": max(r["last_ns"] for r in found) // 10**9,
        }
        for key, found in groups.items()
    ]
    rows.sort(key=lambda r: (-r["processes"], r["api"], *(r[k] for k in by)))
    fields = [(k, pa.string()) for k in ("api", *by)] + [(k, pa.int64()) for k in ("processes", "hosts", "first_s", "last_s")]
    return pa.Table.from_pylist(rows, pa.schema(fields))


_LINEAGE_TEXTS = ("file", "model", "digest", "serialization_id", "format", "producer", "signed", "written_by", "loaded_by", "paths", "concern")


def lineage(store: Store, where: Sequence[Filter] = ()) -> pa.Table:
    """One row for each model file (by digest, else serialization id, else path): who wrote it, who loaded it, and a concern: "unsigned", "unknown
    origin" for a file loaded that nobody in the fleet wrote and that names no producer, or both."""
    files: dict[str, list[dict[str, Any]]] = defaultdict(list)
    names = dict[str, str]()  # a serialization id joins a save that knew no digest with its loads
    for row in store.model_events().to_pylist():
        if row["digest"] and row["serialization_id"]:
            names[row["serialization_id"]] = row["digest"]
    for row in _filtered(store.model_events().to_pylist(), where, ("model", "service", "version", "host", "instance")):
        identity = row["digest"] or names.get(row["serialization_id"]) or row["serialization_id"] or row["path"]
        files[identity].append(row)
    rows = []
    for identity, events in files.items():
        saved = [e for e in events if e["kind"] == "saved"]
        loaded = [e for e in events if e["kind"] == "loaded"]
        about = {
            k: next((e[k] for e in reversed(events) if e[k]), "") for k in ("model", "digest", "serialization_id", "format", "producer", "signed")
        }
        concerns = []
        if loaded and about["signed"] != "true":
            concerns.append("unsigned")
        if loaded and not saved and not about["producer"]:
            concerns.append("unknown origin")
        rows.append(
            {"file": identity}
            | about
            | {
                "written_by": _listed(e["service"] or e["host"] for e in saved),
                "loaded_by": _listed(e["service"] or e["host"] for e in loaded),
                "loads": len(loaded),
                "load_hosts": len({e["host"] for e in loaded}),
                "first_s": min(e["time_ns"] for e in events) // 10**9,
                "last_s": max(e["time_ns"] for e in events) // 10**9,
                "paths": _listed(e["path"] for e in events if e["path"]),
                "concern": ", ".join(concerns),
            }
        )
    rows.sort(key=lambda r: (not r["concern"], -r["loads"], r["file"]))
    numbers = ("loads", "load_hosts", "first_s", "last_s")
    return pa.Table.from_pylist(rows, pa.schema([(k, pa.string()) for k in _LINEAGE_TEXTS] + [(k, pa.int64()) for k in numbers]))


def processes(store: Store, where: Sequence[Filter] = ()) -> pa.Table:
    """Every process ever heard of, latest first."""
    table = store.processes()
    kept = _filtered(table.to_pylist(), where, ("service", "version", "host", "instance", "container"))
    return pa.Table.from_pylist(sorted(kept, key=lambda r: (-r["last_s"], r["instance"])), table.schema)


def diff(store: Store, a: Side, b: Side, by: tuple[str, ...] = ("operator",), where: tuple[Filter, ...] = (), limit: int = 50) -> pa.Table:
    """What got slower or faster from `a` to `b`: mean time of a call, the ratio of each host to itself with bounds, how sure (p_value,
    Holm-corrected over the rows), and what that costs in `b`. Rows: by significance, then by that cost. What only one side has has no ratio."""
    a, b = (replace(side, where=where + side.where) for side in (a, b))
    cells_a, cells_b = (by_host(store, side, by) for side in (a, b))
    cells_a, cells_b = with_steps(store, a, by, cells_a, cells_b), with_steps(store, b, by, cells_b, cells_a)
    total_a, total_b = (sum(_sum(hosts, 0) for hosts in cells.values()) or 1.0 for cells in (cells_a, cells_b))
    rows: list[dict[str, Any]] = []
    for key in sorted(set(cells_a) | set(cells_b)):
        hosts_a, hosts_b = cells_a.get(key, {}), cells_b.get(key, {})
        d = statistics.compare_hosts(hosts_a, hosts_b)
        known = not math.isnan(d.ratio)
        time_a, time_b, calls_a, calls_b = (_sum(hosts, i) for i in (0, 1) for hosts in (hosts_a, hosts_b))
        rows.append(
            dict[str, Any](zip(by, key))
            | {
                "a_mean_ns": time_a / calls_a if calls_a else None,
                "b_mean_ns": time_b / calls_b if calls_b else None,
                "ratio": d.ratio if known else None,
                "ratio_low": d.ratio_low if known else None,
                "ratio_high": d.ratio_high if known and math.isfinite(d.ratio_high) else None,
                "p_value": d.p_value,
                "a_count": int(calls_a),
                "b_count": int(calls_b),
                "a_share": time_a / total_a,
                "b_share": time_b / total_b,
                "cost_ns": time_b * (1 - 1 / d.ratio) if known and d.ratio else time_b - time_a,
            }
        )
    for row, p in zip(rows, statistics.adjusted([r["p_value"] for r in rows])):
        row["p_value"] = p
    rows.sort(key=lambda r: (r["p_value"] > 1 - statistics.CONFIDENCE, -round(abs(r["cost_ns"]))))  # less than 1 ns is the sums' order
    numbers = ("a_mean_ns", "b_mean_ns", "ratio", "ratio_low", "ratio_high", "p_value", "a_share", "b_share", "cost_ns")
    fields = [(k, pa.string()) for k in by] + [(k, pa.float64()) for k in numbers] + [("a_count", pa.int64()), ("b_count", pa.int64())]
    return pa.Table.from_pylist(rows[:limit], pa.schema(fields))


def _sum(hosts: Mapping[str, Sequence[tuple[float, float]]], which: int) -> float:
    return sum(cell[which] for cells in hosts.values() for cell in cells)


def overview(store: Store, question: Question) -> dict[str, pa.Table]:
    """What a first look needs, by name: operators, models, trend (by model)."""
    return {
        "operators": top(store, replace(question, by=("operator",))),
        "models": top(store, replace(question, by=("model",))),
        "trend": trend(store, replace(question, by=("model",), limit=8)),
    }


def step_for(start_s: int, end_s: int, points: int = 120) -> int:
    """A round step that cuts the range into at most `points`."""
    wanted = (end_s - start_s) / points
    return next(
        (s for s in (10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400) if s >= wanted),
        math.ceil(wanted / 86400) * 86400,
    )


_QUANTILE_COLUMNS = [f"p{round(q * 100)}_ns{end}" for q in QUANTILES for end in ("", "_low", "_high")]


def _quantile_rows(store: Store, selection: Selection, totals: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    keys = [*selection.by, *(["time"] if selection.step_s else [])]
    table = store.buckets(selection)
    groups: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    columns = [table.column(k).to_pylist() for k in (*keys, "bucket", "n")]
    for *named, bucket, n in zip(*columns):
        groups[tuple(named)].append((bucket, n))
    rows = []
    for r in totals:
        key = tuple(r[k] for k in keys)
        cells = sorted(groups.get(key, ()))
        buckets, counts = np.array([b for b, _ in cells], np.int64), np.array([n for _, n in cells], np.int64)
        n_effective = statistics.effective_samples(r["count"], r["count_var"])
        row: dict[str, Any] = dict(zip(keys, key)) | {"count": r["count"]}
        for q in QUANTILES:
            found = statistics.quantile(buckets, counts, q, n_effective, r["samples"] < r["count"])
            name = f"p{round(q * 100)}_ns"
            row |= {name: found.value_ns, f"{name}_low": found.low_ns, f"{name}_high": found.high_ns}
        rows.append(row)
    return rows


def _only_quantiles(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in _QUANTILE_COLUMNS}


def _summary(r: Mapping[str, Any], everything: int) -> dict[str, Any]:
    count_error = statistics.Z * math.sqrt(max(r["count_var"], 0.0))
    total_error = statistics.Z * math.sqrt(max(r["total_var"], 0.0))
    keys = {k: v for k, v in r.items() if k not in _RAW}
    return keys | {
        "count": r["count"],
        "count_low": max(r["count"] - count_error, r["samples"]),
        "count_high": r["count"] + count_error,
        "total_ns": r["total_ns"],
        "total_ns_low": max(r["total_ns"] - total_error, 0.0),
        "total_ns_high": r["total_ns"] + total_error,
        "share": r["total_ns"] / everything if everything else 0.0,
        # Only some points know their self time: the rest is taken to be like them, and none is longer than the whole.
        "self_ns": min(round(r["self_ns"] * (r["count"] / r["self_count"])), r["total_ns"]) if r["self_count"] else None,
        "mean_ns": r["total_ns"] / r["count"] if r["count"] else 0.0,
        "samples": r["samples"],
    }


_RAW = ("count", "samples", "total_ns", "self_ns", "self_count", "zero", "count_var", "total_var", "time")
_SUMMARY_TYPES = {
    "count": pa.int64(),
    "count_low": pa.float64(),
    "count_high": pa.float64(),
    "total_ns": pa.int64(),
    "total_ns_low": pa.float64(),
    "total_ns_high": pa.float64(),
    "share": pa.float64(),
    "self_ns": pa.int64(),
    "mean_ns": pa.float64(),
    "samples": pa.int64(),
}


def _table(rows: Sequence[Mapping[str, Any]], by: Sequence[str], first: Mapping[str, pa.DataType] | None = None, quantiles: bool = True) -> pa.Table:
    fields = [*(first or {}).items(), *((k, pa.string()) for k in by), *_SUMMARY_TYPES.items()]
    if quantiles:
        fields += [(name, pa.float64()) for name in _QUANTILE_COLUMNS]
    return pa.Table.from_pylist(list(rows), pa.schema(fields))


def _filtered(rows: list[dict[str, Any]], where: Sequence[Filter], keys: Sequence[str]) -> list[dict[str, Any]]:
    """The same filters as a Selection's, on the small tables. `keys`: those that make sense there."""
    tests: list[Callable[[dict[str, Any]], bool]] = []
    for f in where:
        if f.key.startswith("attribute:") and rows and "attributes" in rows[0]:
            name = f.key.partition(":")[2]
            tests.append(partial(_attribute_matches, f, name))
        elif f.key in keys:
            tests.append(partial(_column_matches, f))
        else:
            raise QuestionError(f"key {f.key!r} does not apply to this question; help: {', '.join(keys)}")
    return [r for r in rows if all(test(r) for test in tests)]


def _attribute_matches(f: Filter, name: str, row: dict[str, Any]) -> bool:
    return _matches(f, str(json.loads(row["attributes"] or "{}").get(name, "")))


def _column_matches(f: Filter, row: dict[str, Any]) -> bool:
    return _matches(f, str(row[f.key]))


def _matches(f: Filter, value: str) -> bool:
    if f.operation in ("=", "!="):
        return (value == f.value) == (f.operation == "=")
    pattern = re.escape(f.value).replace(r"\*", ".*").replace(r"\?", ".")
    return (re.fullmatch(pattern, value, re.DOTALL) is not None) == (f.operation == "~")


def _listed(values: Any) -> str:
    return ", ".join(sorted(set(values)))


def without_decimals(table: pa.Table) -> pa.Table:
    """DuckDB's 128-bit sums as 64-bit integers where they fit, as JSON and pandas want them."""
    for i, f in enumerate(table.schema):
        if pa.types.is_decimal(f.type) and f.type.scale == 0:
            column = table.column(i)
            try:
                table = table.set_column(i, f.name, pc.cast(column, pa.int64()))
            except pa.ArrowInvalid:
                table = table.set_column(i, f.name, pc.cast(column, pa.float64()))
    return table

"""A question's answer as text for people: units, shares, and bounds where they matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from sealift.fleet.questions import without_decimals
from sealift.fleet.times import time_text

_HIDDEN = ("count_low", "count_high", "a_count", "b_count")


def text_of(table: pa.Table) -> str:
    table = without_decimals(table)
    if not table.num_rows:
        return "nothing"
    columns = [c for c in table.column_names if not _is_bound(c, table.column_names) and c not in _HIDDEN]
    rows = table.to_pylist()
    cells = [[_heading(c) for c in columns]] + [[_cell(row, c) for c in columns] for row in rows]
    right = [all(_is_number(row[c]) for row in rows) for c in columns]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join("  ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(line, widths, right)).rstrip() for line in cells)


def _is_bound(column: str, columns: list[str]) -> bool:
    return column.endswith(("_low", "_high")) and column.rsplit("_", 1)[0] in columns


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _heading(column: str) -> str:
    return column.removesuffix("_ns").removesuffix("_s").replace("_", " ")


def duration(ns: float) -> str:
    for unit, scale in (("d", 86_400e9), ("h", 3600e9), ("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= scale:
            return f"{ns / scale:.3g} {unit}" if abs(ns) < 1000 * scale else f"{ns / scale:,.0f} {unit}"
    return f"{ns:.3g} ns"


def _cell(row: dict[str, Any], column: str) -> str:
    value = row[column]
    if value is None:
        return "?"
    text = _format(column)(value)
    low, high = row.get(f"{column}_low"), row.get(f"{column}_high")
    if low is None or not value or column == "ratio":
        return text
    if high is None or high == float("inf"):
        return f"{text} +?"
    error = max(value - low, high - value) / value
    return f"{text} ±{error:.0%}" if error >= 0.005 else text


def _format(column: str) -> Callable[[Any], str]:
    if column.endswith("_ns"):
        return duration
    if column in ("time", "first_s", "last_s") or column.endswith("_time_s"):
        return time_text
    if column.endswith("share") or column == "overhead":
        return lambda value: f"{value:.1%}"
    if column in ("ratio", "p_value"):
        return lambda value: f"{value:.3g}"
    return lambda value: f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)

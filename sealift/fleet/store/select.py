"""A Selection to SQL. Both stores share it; what differs between DuckDB and ClickHouse is in their Dialect."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sealift.fleet.columns import SUMMED
from sealift.fleet.errors import QuestionError
from sealift.fleet.model import ZERO_BUCKET
from sealift.fleet.store.interface import RESOURCE_KEYS, SERIES_KEYS, Filter, Selection


class Dialect(Protocol):
    def json_text(self, column: str, name: str) -> str:
        """The text that a JSON object in `column` has under `name`, '' for none."""

    def quoted(self, text: str) -> str:
        """A string literal."""

    def sum_int(self, column: str) -> str:
        """The sum as a 64-bit integer."""

    def floor_to(self, column: str, step: int) -> str: ...

    def text(self, column: str) -> str: ...

    def like(self, expression: str, pattern: str) -> str:
        """LIKE with the backslash as its escape."""


@dataclass(frozen=True)
class Part:
    """Facts of one time range: a FROM clause over `time_s`, `series`, `resource` and the columns, and the range."""

    source: str
    start_s: int
    end_s: int
    where: str = ""


STEPS = (10, 60, 3600)  # of the roll-ups
EVER_S = 1 << 41  # after any time


def split(selection: Selection, horizon: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """The selection's time as (start, end, step): hours where whole hours are asked for, minutes and 10 s at the edges. Where the finer step is
    no longer kept, that is before `horizon[step]`, the edge is rounded outward to the coarser one."""
    coarsest = next(s for s in reversed(STEPS) if not selection.step_s or selection.step_s % s == 0)
    start, end = selection.start_s // 10 * 10, -(-selection.end_s // 10) * 10
    for finer, coarser in itertools.pairwise(STEPS):
        if coarser <= coarsest:
            start = start // coarser * coarser if start < horizon.get(finer, 0) else start
            end = -(-end // coarser) * coarser if end < horizon.get(finer, 0) else end
    found: list[tuple[int, int, int]] = []

    def add(a: int, b: int, level: int) -> None:
        if a >= b:
            return
        step = STEPS[level]
        low, high = -(-a // step) * step, b // step * step
        if level == 0:
            found.append((a, b, step))
        elif low >= high:
            add(a, b, level - 1)
        else:
            add(a, low, level - 1)
            found.append((low, high, step))
            add(high, b, level - 1)

    add(start, end, STEPS.index(coarsest))
    return found


def totals(selection: Selection, parts: list[Part], dialect: Dialect) -> str:
    sums = ", ".join(f"{dialect.sum_int(c) if not c.endswith('_var') else f'sum({c})'} AS {c}" for c in SUMMED)
    return _assembled(selection, parts, dialect, ", ".join(SUMMED), sums, "")


def buckets(selection: Selection, parts: list[Part], dialect: Dialect, spread: str) -> str:
    """`spread`: SQL that turns the inner rows with `first`, `counts` and `zero` into rows of `bucket` and `n`, with {inner} in it."""
    return _assembled(selection, parts, dialect, spread, f"bucket, {dialect.sum_int('n')} AS n", "bucket")


def present(selection: Selection, parts: list[Part], dialect: Dialect) -> str:
    return f"SELECT DISTINCT * FROM ({_assembled(selection, parts, dialect, '', '', '')}) AS found"


def series_condition(selection: Selection, dialect: Dialect) -> str:
    """What the selection asks of a row of `series`; empty: nothing."""
    return " AND ".join(text for key, text in _conditions(selection, dialect) if _of_series(key))


def names_processes(selection: Selection) -> bool:
    """Whether it asks for some processes, hosts or services only."""
    return any(not _of_series(key) for key in (*(f.key for f in selection.where), *(key for key, _ in selection.among)))


def _conditions(selection: Selection, dialect: Dialect) -> list[tuple[str, str]]:
    found = [(f.key, _condition(f, _expression(f.key, dialect), dialect)) for f in selection.where]
    return found + [(key, _is_one_of(_expression(key, dialect), values, dialect)) for key, values in selection.among]


def _assembled(selection: Selection, parts: list[Part], dialect: Dialect, columns: str, sums: str, extra_key: str) -> str:
    conditions_of = _conditions(selection, dialect)
    series_where = [condition for key, condition in conditions_of if _of_series(key)]
    resource_where = [condition for key, condition in conditions_of if not _of_series(key)]
    time = f"{dialect.floor_to('time_s', selection.step_s)} AS time" if selection.step_s else ""
    # Series and resource stay apart below only where a key needs them: by host there are a thousand groups, by host and series a hundred thousand.
    ids = (["series"] if any(map(_of_series, selection.by)) else []) + (["resource"] if not all(map(_of_series, selection.by)) else [])
    keys = [*ids, *(["time"] if time else [])]
    conditions = ""
    if series_where:
        conditions += f" AND series IN (SELECT id FROM series WHERE {' AND '.join(series_where)})"
    if resource_where:
        conditions += f" AND resource IN (SELECT id FROM resource WHERE {' AND '.join(resource_where)})"
    selects = []
    for part in parts:
        where = f"time_s >= {part.start_s} AND time_s < {part.end_s}{part.where}{conditions}"
        selects.append(f"SELECT {', '.join(filter(None, [*ids, time, columns]))} FROM {part.source} WHERE {where}")
    union = " UNION ALL ".join(selects)
    group = ", ".join([*keys, *([extra_key] if extra_key else [])])
    inner = f"SELECT {', '.join(filter(None, [*keys, sums]))} FROM ({union}) AS facts" + (f" GROUP BY {group}" if group else "")
    outer = [f"{_expression(key, dialect)} AS {_name(key)}" for key in selection.by] + (["time"] if time else [])
    names = [_name(key) for key in selection.by] + (["time"] if time else []) + ([extra_key] if extra_key else [])
    joins = ""
    if any(_of_series(key) for key in selection.by):
        joins += " JOIN series ON series.id = grouped.series"
    if any(not _of_series(key) for key in selection.by):
        joins += " JOIN resource ON resource.id = grouped.resource"
    listed = ", ".join(filter(None, [*outer, sums]))
    return f"SELECT {listed} FROM ({inner}) AS grouped{joins}" + (f" GROUP BY {', '.join(names)}" if names else "")


def _of_series(key: str) -> bool:
    return key in SERIES_KEYS or key.startswith("label:")


def _name(key: str) -> str:
    return '"k_' + key.replace('"', '""') + '"'


def _expression(key: str, dialect: Dialect) -> str:
    if key in SERIES_KEYS:
        return f"series.{key}"
    if key == "pid":
        return dialect.text("resource.pid")
    if key in RESOURCE_KEYS:
        return f"resource.{key}"
    kind, _, name = key.partition(":")
    if '"' in name or "\\" in name:
        raise QuestionError(f"key {key!r}; help: no quotes and backslashes in a label's name")
    return dialect.json_text("series.labels" if kind == "label" else "resource.attributes", name)


def _condition(filter: Filter, expression: str, dialect: Dialect) -> str:
    if filter.operation in ("=", "!="):
        return f"{expression} {'=' if filter.operation == '=' else '<>'} {dialect.quoted(filter.value)}"
    escaped = filter.value.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    pattern = dialect.quoted(escaped.replace("*", "%").replace("?", "_"))
    return f"{'NOT ' if filter.operation == '!~' else ''}({dialect.like(expression, pattern)})"


def _is_one_of(expression: str, values: Sequence[str], dialect: Dialect) -> str:
    return f"{expression} IN ({', '.join(map(dialect.quoted, values)) or 'NULL'})"


ZERO = ZERO_BUCKET

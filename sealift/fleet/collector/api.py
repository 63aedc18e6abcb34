"""The reading half of HTTP: /api/v1/NAME with the question in the query string.

from, to     unix seconds, ISO 8601, now, -90m ...   (default: the last hour)
by           keys, separated by commas
where        KEY=VALUE, may repeat
order, limit, step, format (json, csv, parquet, arrow)"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from sealift.fleet import questions
from sealift.fleet.cells import Side
from sealift.fleet.errors import QuestionError
from sealift.fleet.questions import Question
from sealift.fleet.store.interface import Filter, Store, checked_key
from sealift.fleet.times import parse_span, parse_time

Parameters = Mapping[str, list[str]]


def answer(store: Store, name: str, parameters: Parameters, now_s: float) -> tuple[pa.Table, dict[str, Any]]:
    """(table, what was asked, for the JSON answer)"""
    ask = QUESTIONS.get(name)
    if ask is None:
        raise QuestionError(f"question {name!r}; help: one of {', '.join(QUESTIONS)}")
    unknown = set(parameters) - _PARAMETERS
    if unknown:
        raise QuestionError(f"parameter {', '.join(sorted(unknown))}; help: one of {', '.join(sorted(_PARAMETERS))}")
    return ask(store, parameters, now_s)


def one(parameters: Parameters, name: str, default: str = "") -> str:
    values = parameters.get(name) or [default]
    return values[-1]


def whole(parameters: Parameters, name: str, default: int) -> int:
    text = one(parameters, name, str(default))
    if not text.isdecimal() or len(text) > 9:
        raise QuestionError(f"{name}={text!r}; help: a whole number")
    return int(text)


def filters(parameters: Parameters, name: str = "where") -> tuple[Filter, ...]:
    return tuple(Filter.parse(text) for text in parameters.get(name, []) if text)


def keys(parameters: Parameters, default: str) -> tuple[str, ...]:
    return tuple(checked_key(k.strip()) for k in one(parameters, "by", default).split(",") if k.strip())


def times(store: Store, parameters: Parameters, now_s: float, start: str = "from", end: str = "to") -> tuple[int, int]:
    if one(parameters, start) == "all":
        first, last = store.time_range()
        return (first, last) if last else (0, 10)
    return parse_time(one(parameters, start, "-1h"), now_s), parse_time(one(parameters, end, "now"), now_s)


def question(store: Store, parameters: Parameters, now_s: float, by: str) -> Question:
    start, end = times(store, parameters, now_s)
    step = one(parameters, "step")
    return Question(
        start,
        end,
        keys(parameters, by),
        filters(parameters),
        one(parameters, "order", "total_ns"),
        whole(parameters, "limit", 50),
        parse_span(step) if step else 0,
    )


def _over(function: Callable[[Store, Question], pa.Table], by: str) -> Callable[[Store, Parameters, float], tuple[pa.Table, dict[str, Any]]]:
    def ask(store: Store, parameters: Parameters, now_s: float) -> tuple[pa.Table, dict[str, Any]]:
        asked = question(store, parameters, now_s, by)
        return function(store, asked), {"from": asked.start_s, "to": asked.end_s, "by": list(asked.by)}

    return ask


def _diff(store: Store, parameters: Parameters, now_s: float) -> tuple[pa.Table, dict[str, Any]]:
    """`from`, `to`, `a_where` against `b_from`, `b_to`, `b_where`; without b's times the two sides share a's."""
    a = times(store, parameters, now_s)
    b = times(store, parameters, now_s, "b_from", "b_to") if "b_from" in parameters else a
    table = questions.diff(
        store,
        Side(*a, filters(parameters, "a_where")),
        Side(*b, filters(parameters, "b_where")),
        keys(parameters, "operator"),
        filters(parameters),
        whole(parameters, "limit", 50),
    )
    return table, {"a": list(a), "b": list(b)}


QUESTIONS: dict[str, Callable[[Store, Parameters, float], tuple[pa.Table, dict[str, Any]]]] = {
    "top": _over(questions.top, "operator,model"),
    "ops": _over(questions.top, "operator"),
    "models": _over(questions.models, "model"),
    "hosts": _over(questions.hosts, "host"),
    "trend": _over(questions.trend, "operator"),
    "quantiles": _over(questions.quantile_trend, "operator"),
    "heatmap": _over(questions.heatmap, ""),
    "diff": _diff,
    "apis": lambda store, p, now_s: (questions.apis(store, filters(p), keys(p, "")), {}),
    "lineage": lambda store, p, now_s: (questions.lineage(store, filters(p)), {}),
    "processes": lambda store, p, now_s: (questions.processes(store, filters(p)), {}),
}
_PARAMETERS = {"from", "to", "b_from", "b_to", "by", "where", "a_where", "b_where", "order", "limit", "step", "format"}

"""What a page shows, as its address says it: the time range, the filters and the page's own choices. A View and its URL are the same thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qsl, urlencode

from sealift.fleet.errors import QuestionError
from sealift.fleet.questions import Question
from sealift.fleet.store.interface import Filter, Store
from sealift.fleet.times import parse_time

PICKED = ("service", "version", "host", "model", "operator")  # the filters that have a field of their own; any other goes into `where`
CHOICES = (  # what pages choose beside time and filters
    "name", "instance", "by", "order", "limit", "live", "next", "check", "a_where", "b_where", "b_from", "b_to",
)  # fmt: skip
RANGES = (("-15m", "15 min"), ("-1h", "1 h"), ("-24h", "24 h"), ("-7d", "7 d"), ("all", "All"))


def at(seconds: int) -> str:
    """A moment for an address, as people read it."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M" + (":%S" if seconds % 60 else ""))


def encoded(parameters: Sequence[tuple[str, str]]) -> str:
    return urlencode(parameters, safe=":*")


@dataclass(frozen=True)
class View:
    path: str
    start: str = "-1h"  # as typed
    end: str = "now"
    picked: Mapping[str, str] = field(default_factory=dict)
    where: tuple[str, ...] = ()
    choices: Mapping[str, str] = field(default_factory=dict)
    start_s: int = 0  # as meant
    end_s: int = 0
    default_start: str = "-1h"

    @classmethod
    def parse(cls, path: str, query: str, store: Store, now_s: float, default_start: str = "-1h") -> View:
        """Unknown parameters are an error: a mistyped filter must not show the whole fleet as if it were the part asked for."""
        start, end, picked, where, choices = default_start, "now", dict[str, str](), list[str](), dict[str, str]()
        for name, value in parse_qsl(query, keep_blank_values=True, max_num_fields=100):
            if not value:
                continue
            if name == "from":
                start = value
            elif name == "to":
                end = value
            elif name in PICKED:
                picked[name] = value
            elif name == "where":
                Filter.parse(value)
                where.append(value)
            elif name in CHOICES:
                choices[name] = value
            else:
                raise QuestionError(f"parameter {name!r}; help: from, to, where, {', '.join((*PICKED, *CHOICES))}")
        if start == "all":
            first, last = store.time_range()
            start_s, end_s = (first, last) if last else (int(now_s) - 3600, int(now_s))
        else:
            start_s, end_s = parse_time(start, now_s), parse_time(end, now_s)
        if start_s >= end_s:
            raise QuestionError(f"from {start} to {end}; help: the start comes before the end")
        return cls(path, start, end, picked, tuple(where), choices, start_s, end_s, default_start)

    def choice(self, name: str, default: str = "") -> str:
        return self.choices.get(name, default)

    @property
    def texts(self) -> tuple[str, ...]:
        """All filters, as `where` writes them."""
        return (*(f"{k}={v}" for k, v in self.picked.items()), *self.where)

    @property
    def filters(self) -> tuple[Filter, ...]:
        return tuple(Filter.parse(text) for text in self.texts)

    def texts_of(self, keys: Sequence[str]) -> list[str]:
        """Those that make sense for a small table; "attribute" among the keys stands for all attributes."""
        return [t for t, f in zip(self.texts, self.filters) if f.key in keys or (f.key.startswith("attribute:") and "attribute" in keys)]

    def filters_of(self, keys: Sequence[str]) -> tuple[Filter, ...]:
        return tuple(Filter.parse(text) for text in self.texts_of(keys))

    def question(self, *by: str, **more: Any) -> Question:
        return Question(self.start_s, self.end_s, by, self.filters, **more)

    def also(self, *texts: str) -> View:
        """With filters that the page itself implies: its operator, say."""
        return replace(self, where=(*self.where, *texts))

    @property
    def parameters(self) -> list[tuple[str, str]]:
        found = [] if (self.start, self.end) == (self.default_start, "now") else [("from", self.start)]
        if self.end != "now" and self.start != "all":
            found.append(("to", self.end))
        return [*found, *self.picked.items(), *(("where", text) for text in self.where), *self.choices.items()]

    @property
    def url(self) -> str:
        return self.path + ("?" + encoded(self.parameters) if self.parameters else "")

    def to(self, path: str, **choices: str) -> str:
        """Another page's URL with this time range and these filters, and that page's choices."""
        moved = replace(self, path=path, choices=choices)
        # A page has its own default range, so what is shown here is said there.
        parameters = moved.parameters if (self.start, self.end) != ("-1h", "now") else [p for p in moved.parameters if p[0] not in ("from", "to")]
        return path + ("?" + encoded(parameters) if parameters else "")

    def during(self, start: str, end: str = "now") -> str:
        return replace(self, start=start, end=end).url

    def choosing(self, **choices: str) -> str:
        return replace(self, choices={k: v for k, v in {**self.choices, **choices}.items() if v}).url

    def without(self, text: str) -> str:
        """Less one filter."""
        picked = {k: v for k, v in self.picked.items() if f"{k}={v}" != text}
        return replace(self, picked=picked, where=tuple(t for t in self.where if t != text)).url

    def picking(self, path: str, key: str, value: str) -> str:
        """Another page, with one filter more."""
        if not value:
            return replace(self, path=path, where=(*self.where, f"{key}="), choices={}).url
        return replace(self, path=path, picked={**self.picked, key: value}, choices={}).url

    def shifted(self, direction: int) -> str:
        """The range of the same length before (-1) or after (1)."""
        span = self.end_s - self.start_s
        return replace(self, start=at(max(self.start_s + direction * span, 0)), end=at(self.end_s + direction * span)).url

    def download(self, question: str, format: str, **more: Any) -> str:
        """The answer behind a table or chart as a file; times as they are shown, whenever it is fetched."""
        parameters: list[tuple[str, str]] = []
        if question not in ("apis", "lineage", "processes"):
            parameters += [("from", str(self.start_s)), ("to", str(self.end_s))]
        where = more.pop("where", None)
        parameters += [("where", text) for text in (self.texts if where is None else where)]
        parameters += [(k, str(v)) for k, v in more.items() if v]
        return f"/download/{question}.{format}" + ("?" + encoded(parameters) if parameters else "")

"""What a store does: it takes batches, each once, and answers the two questions from which every other one is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from sealift.fleet.errors import QuestionError
from sealift.fleet.model import Batch

SERIES_KEYS = ("operator", "source", "scope", "model", "shapes", "origin")
RESOURCE_KEYS = ("service", "version", "host", "instance", "pid", "container")
GROUP_KEYS = ("service", "version")  # the resource keys that the fleet's roll-ups keep
OPERATIONS = ("=", "!=", "~", "!~")  # ~: a pattern with * and ?


@dataclass(frozen=True)
class Filter:
    key: str
    operation: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Filter:
        """`operator=aten::mm`, `model!=`, `host~web-*`, `label:phase=train`"""
        for i, character in enumerate(text):
            if character in "=~!":
                operation = text[i : i + 2] if character == "!" else character
                if operation in OPERATIONS and i:
                    return cls(checked_key(text[:i]), operation, text[i + len(operation) :])
                break
        raise QuestionError(f"filter {text!r}; help: KEY=VALUE, KEY!=VALUE, KEY~PATTERN or KEY!~PATTERN, as in operator~aten::*")


def checked_key(key: str) -> str:
    if key in SERIES_KEYS or key in RESOURCE_KEYS or (key.startswith(("label:", "attribute:")) and len(key) > 6):
        return key
    raise QuestionError(f"key {key!r}; help: {', '.join((*SERIES_KEYS, *RESOURCE_KEYS))}, label:NAME or attribute:NAME")


@dataclass(frozen=True)
class Selection:
    """Which points, grouped how. Times are unix seconds, the start is in, the end is not; both are rounded outward to the store's grid."""

    start_s: int
    end_s: int
    by: tuple[str, ...] = ()
    where: tuple[Filter, ...] = ()
    step_s: int = 0  # with it, one group more for each step: "time"
    among: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (key, values): only these
    quantiles: bool = False  # the same selection's buckets are asked for, too: a store may then read once for both

    def __post_init__(self) -> None:
        for key in self._keys:
            checked_key(key)
        if len(set(self.by)) != len(self.by):
            raise QuestionError(f"a key twice in {', '.join(self.by)}; help: each key once")
        if self.step_s < 0 or self.step_s % 10:
            raise QuestionError(f"step of {self.step_s} s; help: a multiple of 10 s")
        if not 0 <= self.start_s < self.end_s < 1 << 40:
            raise QuestionError(f"from {self.start_s} to {self.end_s}; help: the start comes before the end")

    @property
    def _keys(self) -> list[str]:
        return [*self.by, *(f.key for f in self.where), *(key for key, _ in self.among)]

    @property
    def needs_processes(self) -> bool:
        """Whether the fleet's roll-ups, which know no host, do not answer it."""
        return any((key in RESOURCE_KEYS and key not in GROUP_KEYS) or key.startswith("attribute:") for key in self._keys)

    @property
    def needs_series(self) -> bool:
        """Whether the hosts' roll-ups, which know no series, do not answer it."""
        return any(key in SERIES_KEYS or key.startswith("label:") for key in self._keys)


@dataclass(frozen=True)
class Retention:
    """How long each step is kept, in seconds. None: for ever."""

    keep_10s: int | None = 2 * 86_400
    keep_60s: int | None = 14 * 86_400
    keep_3600s: int | None = 400 * 86_400
    keep_processes: int | None = 400 * 86_400  # their numbers, APIs and model events, after they were last heard of

    def of(self, step_s: int) -> int | None:
        return {10: self.keep_10s, 60: self.keep_60s, 3600: self.keep_3600s}[step_s]


@dataclass(frozen=True)
class Receipt:
    counted: int  # batches kept
    repeated: int  # batches that had been kept before
    points: int


@dataclass(frozen=True)
class StoreInfo:
    """The store's own figures, for /metrics and `sealift fleet info`."""

    figures: Mapping[str, float] = field(default_factory=dict)


class Store(Protocol):
    name: str

    def commit(self, batches: Sequence[Batch], now_ns: int) -> Receipt:
        """Keeps what it has not kept before. When it returns, all of it is durable; when it raises, none of it is kept."""

    def totals(self, selection: Selection) -> pa.Table:
        """Columns: the keys as text, `time` (int64, with a step), and SUMMED of columns.py, added up."""

    def buckets(self, selection: Selection) -> pa.Table:
        """Columns: the keys, `time`, `bucket` (ZERO_BUCKET for durations of zero), `n`."""

    def present(self, selection: Selection) -> pa.Table:
        """The keys as text, one row for each combination that has points: `totals` without its numbers, which need not be read then."""

    def processes(self) -> pa.Table:
        """One row for each process ever heard of: instance, service, version, host, pid, container, attributes, first_s, last_s, dropped, overflow,
        overhead."""

    def api_uses(self) -> pa.Table:
        """service, version, host, instance, key, first_ns, last_ns, count"""

    def model_events(self) -> pa.Table:
        """kind, time_ns, model, digest, serialization_id, path, format, producer, signed, attributes, service, version, host, instance"""

    def time_range(self) -> tuple[int, int]:
        """(first slot, end of the last) of what is kept, in unix seconds; (0, 0) for nothing."""

    def sql(self, text: str, limit: int, timeout_s: float) -> pa.Table:
        """One SELECT of the user's over the views that docs/guides/fleet.md lists."""

    def maintain(self, now_ns: int, expire_ns: int | None = None) -> Mapping[str, int]:
        """One round of roll-ups, compaction and retention; what it did, counted. `expire_ns`: the time by which rows are old, if not now."""

    def info(self) -> StoreInfo: ...

    def close(self) -> None: ...


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return list(table.to_pylist())

"""What a recorder saw, as data: histograms of durations, one series for each operator and its labels, and a snapshot of all of them.

Everything adds: the same numbers come out whether snapshots are merged by thread, by process or by host, in any order. Imports nothing but
the standard library, so that a collector can read snapshots without torch and without the recorder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

SCALE = 3  # of the OTLP exponential histogram; fixed, so that merging is integer addition
BASE = 2.0 ** (1 / 8)  # 2 ** (2 ** -SCALE)
QUANTILE_ERROR = (BASE - 1) / (BASE + 1)  # relative, of a bucket's middle: 4.33 %
FORMAT = "sealift.snapshot/1"

SeriesKey = tuple[str, str, str, str, tuple[tuple[str, str], ...], str, str]


def bucket_index(value_ns: int) -> int:
    """The bucket of a duration above zero: index i holds (BASE**i, BASE**(i + 1)]. Exact, by integers: v <= 2**(k/8) is v**8 <= 2**k."""
    return int(value_ns**8 - 1).bit_length() - 1


def bucket_bounds_ns(index: int) -> tuple[float, float]:
    """(exclusive lower, inclusive upper)"""
    return 2.0 ** (index / 8), 2.0 ** ((index + 1) / 8)


def bucket_middle_ns(index: int) -> float:
    """The value whose relative error is smallest over the whole bucket: at most QUANTILE_ERROR."""
    low, high = bucket_bounds_ns(index)
    return 2 * low * high / (low + high)


@dataclass(frozen=True)
class Histogram:
    """Weighted counts of durations in nanoseconds, in the buckets of an OTLP exponential histogram of scale 3."""

    zero_count: int = 0
    buckets: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, durations_ns: Iterable[int], weight: int = 1) -> Histogram:
        zero, buckets = 0, dict[int, int]()
        for value in durations_ns:
            if value <= 0:
                zero += weight
            else:
                index = bucket_index(value)
                buckets[index] = buckets.get(index, 0) + weight
        return cls(zero, buckets)

    @property
    def count(self) -> int:
        return self.zero_count + sum(self.buckets.values())

    def merge(self, other: Histogram) -> Histogram:
        return Histogram(self.zero_count + other.zero_count, _added(self.buckets, other.buckets, 1))

    def minus(self, earlier: Histogram) -> Histogram:
        return Histogram(self.zero_count - earlier.zero_count, _added(self.buckets, earlier.buckets, -1))

    def quantile_bounds_ns(self, q: float) -> tuple[float, float]:
        """An interval that holds the value at rank ceil(q * count), the smallest for q = 0. (0, 0) for a zero and for an empty histogram."""
        if not 0 <= q <= 1:
            raise ValueError(f"quantile {q}; help: from 0 to 1")
        count = self.count
        rank = max(1, math.ceil(q * count))
        seen = self.zero_count
        if count == 0 or rank <= seen:
            return 0.0, 0.0
        for index in sorted(self.buckets):
            seen += self.buckets[index]
            if rank <= seen:
                break
        return bucket_bounds_ns(index)

    def quantile(self, q: float) -> float:
        """The value at rank ceil(q * count) in ns, with a relative error of at most QUANTILE_ERROR."""
        low, high = self.quantile_bounds_ns(q)
        return 2 * low * high / (low + high) if high else 0.0

    def sum_of_squares(self) -> float:
        """In ns squared, by the buckets' middles: within about 9 %."""
        return sum(n * bucket_middle_ns(i) ** 2 for i, n in self.buckets.items())

    def to_dict(self) -> dict[str, Any]:
        return {"zero": self.zero_count, "buckets": {str(i): self.buckets[i] for i in sorted(self.buckets)}}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Histogram:
        return cls(int(value.get("zero", 0)), {int(i): int(n) for i, n in value.get("buckets", {}).items()})


@dataclass(frozen=True)
class Series:
    """One operator under one set of labels."""

    operator: str  # "aten::mm", or a sealift kernel: "k7_mm_gelu"
    source: str = "torch"  # or "sealift"
    scope: str = "function"  # "backward_function", "kernel", ...
    model_id: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    shapes: str = ""
    origin: str = ""  # sealift kernels: "aten.mm, aten.gelu @ model.py:12 encoder.layer.0"
    count: int = 0  # weighted: an unbiased estimate of the calls
    samples: int = 0  # really recorded
    total_ns: int = 0  # weighted
    self_ns: int | None = None  # weighted, of the samples that bursts recorded; None: unknown
    histogram: Histogram = field(default_factory=Histogram)

    @property
    def key(self) -> SeriesKey:
        return (self.operator, self.source, self.scope, self.model_id, self.labels, self.shapes, self.origin)

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.count if self.count else 0.0

    @property
    def sampling_probability(self) -> float:
        """What share of the calls was recorded, as seen."""
        return min(1.0, self.samples / self.count) if self.count else 1.0

    @property
    def count_standard_error(self) -> float:
        """Of `count`, in calls, for calls sampled independently: count * sqrt((1 - p) / samples). Windows of a duty cycle that see unlike
        phases of a program add to it."""
        return self.count * math.sqrt((1 - self.sampling_probability) / self.samples) if self.samples else 0.0

    @property
    def total_standard_error_ns(self) -> float:
        """Of `total_ns`: the Horvitz-Thompson estimate sqrt((1 - p) / p * weighted sum of squares), squares by the histogram."""
        p = self.sampling_probability
        return math.sqrt((1 - p) / p * self.histogram.sum_of_squares()) if self.samples else 0.0

    @property
    def mean_standard_error_ns(self) -> float:
        """Of `mean_ns`, the ratio of the two estimates: sqrt((1 - p) * variance / samples)."""
        if not self.samples:
            return 0.0
        counted = self.histogram.count
        variance = max(0.0, self.histogram.sum_of_squares() / counted - self.mean_ns**2) if counted else 0.0
        return math.sqrt((1 - self.sampling_probability) * variance / self.samples)

    def merge(self, other: Series) -> Series:
        return self._combined(other, 1)

    def minus(self, earlier: Series) -> Series:
        return self._combined(earlier, -1)

    def _combined(self, other: Series, sign: int) -> Series:
        if self.key != other.key:
            raise ValueError(f"{other.operator} cannot be added to {self.operator}: their keys differ")
        known = [s for s in (self.self_ns, None if other.self_ns is None else sign * other.self_ns) if s is not None]
        return replace(
            self,
            count=self.count + sign * other.count,
            samples=self.samples + sign * other.samples,
            total_ns=self.total_ns + sign * other.total_ns,
            self_ns=sum(known) if known else None,
            histogram=self.histogram.merge(other.histogram) if sign > 0 else self.histogram.minus(other.histogram),
        )

    def to_dict(self) -> dict[str, Any]:
        """Without what is empty."""
        value: dict[str, Any] = {"operator": self.operator, "source": self.source, "scope": self.scope}
        texts = {"model_id": self.model_id, "shapes": self.shapes, "origin": self.origin, "labels": dict(self.labels)}
        value |= {name: text for name, text in texts.items() if text}
        value |= {"count": self.count, "samples": self.samples, "total_ns": self.total_ns}
        if self.self_ns is not None:
            value["self_ns"] = self.self_ns
        return {**value, "histogram": self.histogram.to_dict()}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Series:
        texts = {name: str(value[name]) for name in ("operator", "source", "scope", "model_id", "shapes", "origin") if name in value}
        self_ns = value.get("self_ns")
        return cls(
            **texts,
            labels=tuple(sorted((str(k), str(v)) for k, v in value.get("labels", {}).items())),
            count=int(value["count"]),
            samples=int(value["samples"]),
            total_ns=int(value["total_ns"]),
            self_ns=None if self_ns is None else int(self_ns),
            histogram=Histogram.from_dict(value.get("histogram", {})),
        )


@dataclass(frozen=True)
class Event:
    """One call that a burst recorded; a burst records every call of a whole step."""

    operator: str
    source: str
    scope: str
    start_unix_ns: int
    dur_ns: int
    thread: int  # the kernel's thread id
    step: int = 0  # which burst
    model_id: str = ""
    shapes: str = ""
    origin: str = ""


@dataclass(frozen=True)
class ModelInfo:
    """A model that the process's operators belong to."""

    name: str = ""
    version: str = ""
    digest: str = ""  # "sha256:..."
    serialization_id: str = ""  # joins a file's writing with its later readings
    path: str = ""


@dataclass(frozen=True)
class ModelEvent:
    """A model file written or read."""

    kind: str  # "saved" | "loaded"
    unix_ns: int
    model_id: str = ""
    digest: str = ""
    serialization_id: str = ""
    path: str = ""
    format: str = ""  # "torchscript" | "torch.save" | "torch.export" | "sealift"
    producer: str = ""
    signed: bool = False


@dataclass(frozen=True)
class Sampling:
    """How the recorder samples now, and what it measured itself to cost."""

    probability: float = 1.0
    duty_cycle: float = 1.0
    overhead: float = 0.0  # share of the process's running time


@dataclass(frozen=True)
class Process:
    pid: int = 0
    host: str = ""
    start_id: str = ""  # a random uuid for each start of a process; new after fork


@dataclass(frozen=True)
class Snapshot:
    """One process from start_unix_ns to end_unix_ns: since the recorder started, or, as a difference, since the snapshot before."""

    start_unix_ns: int
    end_unix_ns: int
    series: tuple[Series, ...] = ()
    overflow: int = 0  # events that no series had room for
    dropped: int = 0  # events lost
    sampling: Sampling = Sampling()
    process: Process = Process()
    api_usage: Mapping[str, int] = field(default_factory=dict)  # key -> when it was first used, unix ns
    models: Mapping[str, ModelInfo] = field(default_factory=dict)  # by model id
    model_events: tuple[ModelEvent, ...] = ()
    events: tuple[Event, ...] = ()  # of bursts

    @property
    def total_ns(self) -> int:
        return sum(s.total_ns for s in self.series)

    def merge(self, other: Snapshot) -> Snapshot:
        """Both together. The process and the sampling are the later one's; their sum, not their order, decides every number."""
        later = self if (self.end_unix_ns, self.process.start_id) >= (other.end_unix_ns, other.process.start_id) else other
        usage = dict(self.api_usage)
        for key, when in other.api_usage.items():
            usage[key] = min(when, usage.get(key, when))
        return Snapshot(
            start_unix_ns=min(self.start_unix_ns, other.start_unix_ns),
            end_unix_ns=max(self.end_unix_ns, other.end_unix_ns),
            series=merged_series(chain(self.series, other.series)),
            overflow=self.overflow + other.overflow,
            dropped=self.dropped + other.dropped,
            sampling=later.sampling,
            process=later.process,
            api_usage=usage,
            models={i: max((p.models[i] for p in (self, other) if i in p.models), key=_filled) for i in {**self.models, **other.models}},
            model_events=_in_order(self.model_events, other.model_events),
            events=tuple(sorted((*self.events, *other.events), key=lambda e: (e.start_unix_ns, e.thread, -e.dur_ns, e.operator))),
        )

    def minus(self, earlier: Snapshot) -> Snapshot:
        """What happened after `earlier`, a snapshot of the same process; series without a new sample are left out.

        A recorder that was started anew has smaller counts than before: then everything in this snapshot is new."""
        if self.process != earlier.process:
            raise ValueError(f"process {earlier.process} cannot be taken from {self.process}; help: take differences for each process apart")
        if earlier.start_unix_ns != self.start_unix_ns:
            return self
        before = {s.key: s for s in earlier.series}
        changes = (s.minus(before[s.key]) if s.key in before else s for s in self.series)
        spent_ns = self.sampling.overhead * (self.end_unix_ns - self.start_unix_ns) - earlier.sampling.overhead * (
            earlier.end_unix_ns - earlier.start_unix_ns
        )
        passed_ns = self.end_unix_ns - earlier.end_unix_ns
        return replace(
            self,
            start_unix_ns=earlier.end_unix_ns,
            sampling=replace(self.sampling, overhead=max(0.0, spent_ns / passed_ns) if passed_ns > 0 else self.sampling.overhead),
            series=tuple(s for s in changes if s.samples),
            overflow=self.overflow - earlier.overflow,
            dropped=self.dropped - earlier.dropped,
            api_usage={k: when for k, when in self.api_usage.items() if k not in earlier.api_usage},
            model_events=_without(self.model_events, earlier.model_events),
            events=_without(self.events, earlier.events),
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON's types only, without what is empty."""
        value: dict[str, Any] = {
            "format": FORMAT,
            "start_unix_ns": self.start_unix_ns,
            "end_unix_ns": self.end_unix_ns,
            "process": vars(self.process),
            "sampling": vars(self.sampling),
            "overflow": self.overflow,
            "dropped": self.dropped,
            "series": [s.to_dict() for s in self.series],
        }
        more = {
            "api_usage": dict(self.api_usage),
            "models": {i: _nonempty(m) for i, m in self.models.items()},
            "model_events": [_nonempty(e) for e in self.model_events],
            "events": [_nonempty(e) for e in self.events],
        }
        return value | {name: part for name, part in more.items() if part}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Snapshot:
        """Reads what to_dict wrote; members that it does not know are passed over."""
        if value.get("format") != FORMAT:
            raise ValueError(f"format {value.get('format')!r} where {FORMAT!r} was expected")
        return cls(
            start_unix_ns=int(value["start_unix_ns"]),
            end_unix_ns=int(value["end_unix_ns"]),
            series=tuple(Series.from_dict(s) for s in value.get("series", ())),
            overflow=int(value.get("overflow", 0)),
            dropped=int(value.get("dropped", 0)),
            sampling=Sampling(**_known(Sampling, value.get("sampling", {}))),
            process=Process(**_known(Process, value.get("process", {}))),
            api_usage={str(k): int(v) for k, v in value.get("api_usage", {}).items()},
            models={str(i): ModelInfo(**_known(ModelInfo, m)) for i, m in value.get("models", {}).items()},
            model_events=tuple(ModelEvent(**_known(ModelEvent, e)) for e in value.get("model_events", ())),
            events=tuple(Event(**_known(Event, e)) for e in value.get("events", ())),
        )


def merged_series(series: Iterable[Series]) -> tuple[Series, ...]:
    """One for each key, the ones that took longest first."""
    by_key: dict[SeriesKey, Series] = {}
    for one in series:
        before = by_key.get(one.key)
        by_key[one.key] = one if before is None else before.merge(one)
    return tuple(sorted(by_key.values(), key=lambda s: (-s.total_ns, s.key)))


def merged(snapshots: Iterable[Snapshot]) -> Snapshot | None:
    """All of them as one; None of none."""
    rest: Iterator[Snapshot] = iter(snapshots)
    total = next(rest, None)
    for one in rest:
        total = one if total is None else total.merge(one)
    return total


def _added(left: Mapping[int, int], right: Mapping[int, int], sign: int) -> dict[int, int]:
    out = dict(left)
    for index, count in right.items():
        out[index] = out.get(index, 0) + sign * count
    return {i: n for i, n in out.items() if n}


def _in_order(left: tuple[ModelEvent, ...], right: tuple[ModelEvent, ...]) -> tuple[ModelEvent, ...]:
    return tuple(sorted((*left, *right), key=lambda e: (e.unix_ns, e.kind, e.path, e.serialization_id)))


def _without(now: tuple[Any, ...], before: tuple[Any, ...]) -> tuple[Any, ...]:
    seen = set(before)
    return tuple(one for one in now if one not in seen)


def _filled(model: ModelInfo) -> tuple[int, tuple[str, ...]]:
    """The more of a model is known, the greater; then by the text, so that the order of merging does not matter."""
    texts = tuple(vars(model).values())
    return sum(map(bool, texts)), texts


def _nonempty(value: Any) -> dict[str, Any]:
    return {name: part for name, part in vars(value).items() if part not in ("", False, None)}


def _known(kind: type, value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value[name] for name in kind.__dataclass_fields__ if name in value}  # type: ignore[attr-defined]

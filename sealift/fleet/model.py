"""What the collector keeps: series and resources by number, points by columns, and the rarer events as records.

A point is one histogram of one series in one process and time slot. Series (operator, model, labels ...) and resources (service, host,
process ...) repeat in every batch, so points name them by a 63-bit hash; sums and group-bys then work on integers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SLOT_S = 10  # the finest time the store keeps: a point falls in the slot of its window's middle
BUCKET_MIN, BUCKET_MAX = -1, 511  # of 1 ns .. 2**64 ns at scale 3; what lies outside is counted at the end
ZERO_BUCKET = -32768  # where a query's answer counts durations of zero
TEXT_MAX = 1024  # characters of one attribute; the rest is cut, so that a hostile sender cannot fill the dictionary with megabytes

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def stable_id(*parts: str) -> int:
    """A 63-bit number for the texts, the same in every process. 1e6 texts collide with probability 5e-8."""
    digest = blake2b("\x00".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class SeriesKey(NamedTuple):
    operator: str
    source: str = ""
    scope: str = ""
    model: str = ""
    shapes: str = ""
    origin: str = ""
    labels: str = ""  # canonical JSON of the labels, "" for none

    @property
    def id(self) -> int:
        return stable_id(*self)


def labels_text(labels: Mapping[str, str]) -> str:
    return json.dumps(dict(sorted(labels.items())), ensure_ascii=False, separators=(",", ":")) if labels else ""


class Resource(NamedTuple):
    service: str = ""
    version: str = ""
    host: str = ""
    instance: str = ""
    pid: int = 0
    container: str = ""
    attributes: str = ""  # canonical JSON of every other resource attribute

    @property
    def id(self) -> int:
        return stable_id(*(str(part) for part in self))

    @property
    def group(self) -> Resource:
        """What is left of it in the fleet's roll-ups: neither host nor process."""
        return Resource(self.service, self.version)


@dataclass(frozen=True)
class Points:
    """Histograms by columns, one row per point. The buckets are dense runs: row i holds counts[offsets[i]:offsets[i + 1]] from `first[i]` on."""

    series: Ints
    time_s: Ints  # start of the slot
    count: Ints  # weighted: an unbiased estimate of the calls
    samples: Ints  # really recorded
    total_ns: Ints
    self_ns: Ints  # -1: unknown
    zero: Ints
    first: Ints
    offsets: Ints  # rows + 1
    counts: Ints

    def __len__(self) -> int:
        return len(self.series)

    @classmethod
    def empty(cls) -> Points:
        none = np.zeros(0, np.int64)
        return cls(none, none, none, none, none, none, none, none, np.zeros(1, np.int64), none)

    @classmethod
    def concatenate(cls, parts: Sequence[Points]) -> Points:
        if not parts:
            return cls.empty()
        if len(parts) == 1:
            return parts[0]
        names = ("series", "time_s", "count", "samples", "total_ns", "self_ns", "zero", "first", "counts")
        columns = {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}
        starts = np.cumsum([0, *(len(p.counts) for p in parts)])
        offsets = np.concatenate([p.offsets[:-1] + start for p, start in zip(parts, starts)] + [starts[-1:]])
        return cls(**columns, offsets=offsets.astype(np.int64))


class ApiUse(NamedTuple):
    key: str
    time_ns: int


class ModelEvent(NamedTuple):
    kind: str  # "saved" | "loaded"
    time_ns: int
    model: str = ""
    digest: str = ""
    serialization_id: str = ""
    path: str = ""
    format: str = ""
    producer: str = ""
    signed: str = ""  # "true", "false" or "": unknown
    attributes: str = ""  # canonical JSON of the rest


@dataclass(frozen=True)
class Meters:
    """A process's own counters over the batch; None where the batch says nothing."""

    dropped: int = 0
    overflow: int = 0
    overhead: float | None = None


@dataclass(frozen=True)
class Batch:
    """One ResourceMetrics or ResourceLogs: what is counted once, or not at all."""

    signal: str  # "metrics" | "logs"
    resource: Resource
    sequence: int | None  # None: the sender numbers nothing, so nothing can be recognised as a repetition
    digest: int  # of the content, so that the parts into which a relay cut a batch are told from repetitions
    points: Points = field(default_factory=Points.empty)
    series: Mapping[int, SeriesKey] = field(default_factory=dict)
    api_uses: tuple[ApiUse, ...] = ()
    model_events: tuple[ModelEvent, ...] = ()
    meters: Meters = Meters()


@dataclass(frozen=True)
class Decoded:
    batches: tuple[Batch, ...]
    rejected: int = 0  # points or records that were understood and are not kept
    reason: str = ""  # the first one's

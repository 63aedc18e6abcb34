"""Which points a ResourceMetrics holds and what is kept of them: the definition, in Python.

The collector reads with bindings/otlp.cpp, which gives the same for any bytes (tests/fleet/test_native_points.py) and takes less than 1 us a point
where this takes 40. What is not kept is counted, with the reason of the first."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sealift.fleet.errors import WireError
from sealift.fleet.model import BUCKET_MAX, BUCKET_MIN, SLOT_S, Points
from sealift.fleet.otlp import wire

SCALE = 3
MAX_RUN = 4096  # buckets of one point: at scale 20 a nanosecond-to-hour spread needs more, and nobody sends that
MAX_COUNT = 1 << 53  # of one point: beyond it sums of many would leave 64 bits
MAX_TOTAL_NS = 1 << 60
FUTURE_NS = 300 * 10**9  # a sender's clock may be this far ahead; what is further is filed at the time it arrived

REASONS = (
    "",
    "{name} is not of delta temporality",
    "metric {name!r} is not one the fleet keeps",
    f"a histogram of a scale below {SCALE} or above 20",
    "a bucket offset out of range",
    f"a histogram of more than {MAX_RUN} buckets",
    "a sum that is negative, not finite or too large",
    "an empty histogram or one of too many calls",
    "buckets that do not add up to the count",
    "a point without sealift.operator",
)
_NOT_DELTA, _FOREIGN, _SCALE, _OFFSET, _RUN, _SUM, _COUNT, _ADDS_UP, _OPERATOR = range(1, 10)
_METERS = (b"sealift.observe.dropped", b"sealift.observe.overflow", b"sealift.observe.overhead")
_DURATION, _SIDES = b"sealift.operator.duration", (b"sealift.operator.samples", b"sealift.operator.self_time")

LookUp = Callable[[bytes], tuple[int, bool]]  # attributes as they stand in a point -> (series, whether it names an operator)


class Reading(NamedTuple):
    points: Points
    dropped: float
    overflow: float
    overhead: float  # -1: not said
    refused: int
    reason: int  # in REASONS
    name: bytes  # of the first metric refused


@dataclass
class _Found:
    """`kept`: series, time_s, count, total_ns, zero, first, counts and end of each point; the sides by (series, end)."""

    kept: list[tuple[int, int, int, int, int, int, list[int], int]] = field(default_factory=list)
    sides: tuple[dict[tuple[int, int], float], dict[tuple[int, int], float]] = field(default_factory=lambda: (defaultdict(float), defaultdict(float)))
    meters: list[float] = field(default_factory=lambda: [0.0, 0.0, -1.0])
    refused: int = 0
    reason: int = 0
    name: bytes = b""

    def refuse(self, count: int, reason: int, name: bytes = b"") -> None:
        if count and not self.refused:
            self.reason, self.name = reason, name
        self.refused += count


def read_points(body: bytes, start: int, end: int, now_ns: int, look_up: LookUp) -> Reading:
    found = _Found()
    for number, a, b in wire.messages(body, start, end):
        if number == 2:
            for inner, c, d in wire.messages(body, a, b):
                if inner == 2:
                    _metric(body, c, d, now_ns, look_up, found)
    series, time_s, count, total_ns, zero, first, runs, ends = zip(*found.kept) if found.kept else [()] * 8
    samples, self_ns = ([side.get(place, -1.0) for place in zip(series, ends)] for side in found.sides)
    points = Points(
        series=_ints(series),
        time_s=_ints(time_s),
        count=_ints(count),
        samples=_ints([max(int(s), 1) if 0 <= s <= n else n for s, n in zip(samples, count)]),
        total_ns=_ints(total_ns),
        self_ns=_ints([round(s) if s < MAX_TOTAL_NS else -1 for s in self_ns]),
        zero=_ints(zero),
        first=_ints(first),
        offsets=np.cumsum([0, *map(len, runs)]),
        counts=_ints([n for run in runs for n in run]),
    )
    dropped, overflow, overhead = found.meters
    return Reading(points, dropped, overflow, overhead, found.refused, found.reason, found.name)


def _ints(values: object) -> np.typing.NDArray[np.int64]:
    return np.array(values, np.int64)


def _metric(body: bytes, start: int, end: int, now_ns: int, look_up: LookUp, found: _Found) -> None:
    name, data = b"", list[tuple[int, int, int]]()
    for number, a, b in wire.messages(body, start, end):
        if number == 1:
            name = body[a:b]
        elif number in (5, 7, 9, 10, 11):  # gauge, sum, histogram, exponential histogram, summary
            data.append((number, a, b))
    for number, a, b in data:
        spans = [(x, y) for inner, x, y in wire.messages(body, a, b) if inner == 1]
        if number in (5, 7) and name in _METERS:
            which = _METERS.index(name)
            for x, y in spans:
                value = _number(body, x, y)[1]
                if 0 <= value < MAX_COUNT:  # not for NaN
                    found.meters[which] = value if which == 2 else found.meters[which] + value
        elif (number == 10 and name == _DURATION) or (number == 7 and name in _SIDES):
            if wire.number(body, a, b, 2) != 1:
                found.refuse(len(spans), _NOT_DELTA, name)
            elif number == 10:
                for x, y in spans:
                    _histogram(body, x, y, now_ns, look_up, found)
            else:
                side = found.sides[_SIDES.index(name)]
                for x, y in spans:
                    attributes, value, time_ns = _number(body, x, y)
                    series, _ = look_up(attributes)
                    if value >= 0:
                        side[series, time_ns] += value
        else:
            found.refuse(len(spans), _FOREIGN, name)


def _number(body: bytes, start: int, end: int) -> tuple[bytes, float, int]:
    """(attributes, value, time) of a NumberDataPoint"""
    attributes, value, time_ns = b"", 0.0, 0
    for tag, whole, a, b in _fields(body, start, end):
        if tag == 0x19:
            (time_ns,) = struct.unpack_from("<Q", body, a)
        elif tag == 0x21:
            (value,) = struct.unpack_from("<d", body, a)
        elif tag == 0x31:
            value = float(struct.unpack_from("<q", body, a)[0])
        elif tag == 0x3A:
            attributes += body[whole:b]
    return attributes, value, time_ns


def _histogram(body: bytes, start: int, end: int, now_ns: int, look_up: LookUp, found: _Found) -> None:
    attributes, run = b"", list[int]()
    begin = last = count = zero = scale = first = 0
    total = 0.0
    for tag, whole, a, b in _fields(body, start, end):
        if tag == 0x0A:
            attributes += body[whole:b]
        elif tag == 0x11:
            (begin,) = struct.unpack_from("<Q", body, a)
        elif tag == 0x19:
            (last,) = struct.unpack_from("<Q", body, a)
        elif tag == 0x21:
            (count,) = struct.unpack_from("<Q", body, a)
        elif tag == 0x29:
            (total,) = struct.unpack_from("<d", body, a)
        elif tag == 0x30:
            scale = _sint32(wire.varint(body, a, b)[0])
        elif tag == 0x39:
            (zero,) = struct.unpack_from("<Q", body, a)
        elif tag == 0x42:
            for inner, _, c, d in _fields(body, a, b):
                if inner == 0x08:
                    first = _sint32(wire.varint(body, c, d)[0])
                elif inner in (0x10, 0x12):  # one by itself; packed
                    run += _counts(body, c, d)
    series, has_operator = look_up(attributes)
    reason = _judged(scale, first, run, total, count, zero, has_operator)
    if reason:
        found.refuse(1, reason)
        return
    first, run = _rescaled(scale, first, run)
    found.kept.append((series, _slot(begin, last, now_ns), count, round(total), zero, first, run, last))


def _fields(body: bytes, pos: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(tag, start of the field, start and end of its value)"""
    while pos < end:
        whole = pos
        tag, pos = wire.varint(body, pos, end)
        after = wire.skip(body, pos, end, tag & 7)
        if tag & 7 == wire.BYTES:
            _, pos = wire.varint(body, pos, end)
        yield tag, whole, pos, after
        pos = after


def _sint32(value: int) -> int:
    return wire.signed(value & 0xFFFFFFFF)


def _counts(body: bytes, pos: int, end: int) -> list[int]:
    found = []
    while pos < end:
        value, after = wire.varint(body, pos, end)
        if value >> 63 or after - pos > 9:
            raise WireError("a count of 2**63 or more")
        found.append(value)
        pos = after
    return found


def _judged(scale: int, first: int, run: list[int], total: float, count: int, zero: int, has_operator: bool) -> int:
    """0, or the number of the reason why it is not kept."""
    if not SCALE <= scale <= 20:
        return _SCALE
    if abs(first) >= 1 << 30:
        return _OFFSET
    if len(run) > MAX_RUN:
        return _RUN
    if not 0 <= total < MAX_TOTAL_NS:  # nor NaN
        return _SUM
    if not 0 < count < MAX_COUNT or zero >= MAX_COUNT or sum(run) >= MAX_COUNT:
        return _COUNT
    if sum(run) + zero != count:
        return _ADDS_UP
    return 0 if has_operator else _OPERATOR


def _rescaled(scale: int, first: int, run: list[int]) -> tuple[int, list[int]]:
    """The same histogram at SCALE and within BUCKET_MIN .. BUCKET_MAX: buckets of a finer scale fall together exactly."""
    if not run:
        return 0, run
    index = [min(max((first + i) >> (scale - SCALE), BUCKET_MIN), BUCKET_MAX) for i in range(len(run))]
    sums = [0] * (index[-1] - index[0] + 1)
    for i, n in zip(index, run):
        sums[i - index[0]] += n
    return index[0], sums


def _slot(start: int, end: int, now_ns: int) -> int:
    """The slot of the window's middle. A window without a start, or that ends before it starts, is at its end; one without a time, or from the
    future, is at the time it arrived."""
    if end == 0 or end > now_ns + FUTURE_NS:
        start = end = now_ns
    if start == 0 or start > end:
        start = end
    return (start + (end - start) // 2) // (SLOT_S * 10**9) * SLOT_S

"""An OTLP request's bytes to batches: what a batch keeps of metrics and logs, and what is turned down and why.

Whatever the bytes are, the outcome is batches or a WireError."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage

from sealift.fleet.errors import WireError
from sealift.fleet.model import (
    BUCKET_MAX,
    BUCKET_MIN,
    SLOT_S,
    TEXT_MAX,
    ApiUse,
    Batch,
    Decoded,
    Meters,
    ModelEvent,
    Points,
    Resource,
    SeriesKey,
    labels_text,
)
from sealift.fleet.otlp import wire

SCALE = 3
MAX_RUN = 4096  # buckets of one point: at scale 20 a nanosecond-to-hour spread needs more, and nobody sends that
MAX_COUNT = 1 << 53  # of one point: beyond it sums of many would leave 64 bits
MAX_TOTAL_NS = 1 << 60
FUTURE_NS = 300 * 10**9  # a sender's clock may be this far ahead; what is further is filed at the time it arrived

_DURATION, _SAMPLES, _SELF = "sealift.operator.duration", "sealift.operator.samples", "sealift.operator.self_time"
_METERS = {"sealift.observe.dropped": "dropped", "sealift.observe.overflow": "overflow", "sealift.observe.overhead": "overhead"}
_DELTA = 1


def inflate(body: bytes, encoding: str, limit: int) -> bytes:
    """The request's body without its Content-Encoding; WireError if it would be larger than `limit` bytes."""
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise WireError(f"Content-Encoding {encoding}; help: gzip or none")
    parts, room = [], limit
    while body:
        stream = zlib.decompressobj(wbits=31)
        try:
            part = stream.decompress(body, room + 1)
        except zlib.error as error:
            raise WireError(f"not gzip: {error}") from None
        room -= len(part)
        if room < 0:
            raise WireError(f"more than {limit} bytes after gzip; help: smaller batches")
        if not stream.eof:
            raise WireError("a gzip stream that ends early")
        parts.append(part)
        body = stream.unused_data
    return b"".join(parts)


def from_json(body: bytes, signal: str) -> bytes:
    """The same request in protobuf's encoding."""
    message: Any = ExportMetricsServiceRequest() if signal == "metrics" else ExportLogsServiceRequest()
    try:
        json_format.Parse(body.decode("utf-8"), message, ignore_unknown_fields=True)
        return bytes(message.SerializeToString())
    except (json_format.ParseError, UnicodeDecodeError, ValueError, RecursionError, TypeError, AttributeError, KeyError, OverflowError) as error:
        raise WireError(f"not an OTLP {signal} request in JSON: {str(error)[:200]}") from None


class _Seen:
    """The attributes met so far, as bytes -> the series' number, and what each number stands for."""

    def __init__(self) -> None:
        self.ids: dict[bytes, int] = {}
        self.keys: dict[int, SeriesKey] = {}

    def look_up(self, attributes: bytes) -> int:
        """`attributes`: as they stand in a histogram's point (field 1) or in a number's (field 7)."""
        found = self.ids.get(attributes)
        if found is None:
            key = _series_key(attributes)
            found = key.id
            self.keys[found] = key  # before the number can be found
            self.ids[attributes] = found
        return found


class Decoder:
    """Requests to batches. Any number of threads may share one: what it remembers only grows, and is replaced whole."""

    def __init__(self, cache_size: int = 200_000) -> None:
        self._seen = _Seen()
        self._cache_size = cache_size

    def metrics(self, body: bytes, now_ns: int) -> Decoded:
        """`now_ns`: unix time of arrival, for points without a time or from a clock that is ahead."""
        if len(self._seen.ids) > self._cache_size:  # a fleet has thousands; only a hostile sender gets here
            self._seen = _Seen()
        seen = self._seen
        turned_down = _TurnedDown()
        try:
            batches = [
                self._resource_metrics(body, start, end, now_ns, turned_down, seen)
                for field, start, end in wire.messages(body, 0, len(body))
                if field == 1
            ]
        except (DecodeError, struct.error, IndexError, OverflowError, UnicodeDecodeError) as error:
            raise WireError(f"not an OTLP metrics request: {error}") from None
        return Decoded(tuple(batches), turned_down.count, turned_down.reason)

    def logs(self, body: bytes, now_ns: int) -> Decoded:
        turned_down = _TurnedDown()
        try:
            batches = [_resource_logs(body, start, end, now_ns, turned_down) for field, start, end in wire.messages(body, 0, len(body)) if field == 1]
        except (DecodeError, struct.error, IndexError, OverflowError, UnicodeDecodeError) as error:
            raise WireError(f"not an OTLP logs request: {error}") from None
        return Decoded(tuple(batches), turned_down.count, turned_down.reason)

    def _resource_metrics(self, body: bytes, start: int, end: int, now_ns: int, turned_down: _TurnedDown, seen: _Seen) -> Batch:
        resource, sequence, digest = _envelope(body, start, end)
        rows = _Rows()
        meters: dict[str, float] = {}
        for field, scope_start, scope_end in wire.messages(body, start, end):
            if field != 2:
                continue
            for metric_field, metric_start, metric_end in wire.messages(body, scope_start, scope_end):
                if metric_field == 2:
                    self._metric(body, metric_start, metric_end, rows, meters, turned_down, seen)
        points, series = self._points(rows, now_ns, turned_down, seen)
        overhead = meters.get("overhead")
        return Batch(
            "metrics",
            resource,
            sequence,
            digest,
            points,
            series,
            meters=Meters(int(meters.get("dropped", 0)), int(meters.get("overflow", 0)), None if overhead is None else float(overhead)),
        )

    def _metric(self, body: bytes, start: int, end: int, rows: _Rows, meters: dict[str, float], turned_down: _TurnedDown, seen: _Seen) -> None:
        name, data = "", list[tuple[int, int, int]]()
        for field, a, b in wire.messages(body, start, end):
            if field == 1:
                name = body[a:b].decode("utf-8")
            elif field in (5, 7, 9, 10, 11):  # gauge, sum, histogram, exponential histogram, summary
                data.append((field, a, b))
        for field, a, b in data:
            if name in _METERS and field in (5, 7):
                for value in _number_values(body, a, b):
                    key = _METERS[name]
                    meters[key] = value if key == "overhead" else meters.get(key, 0) + value
            elif (name, field) == (_DURATION, 10) or (name in (_SAMPLES, _SELF) and field == 7):
                temporality, spans = _data_points(body, a, b)
                if temporality != _DELTA:
                    turned_down.add(len(spans), f"{name} is not of delta temporality")
                elif name == _DURATION:
                    look_up, append = seen.look_up, rows.histograms.append
                    for x, y in spans:
                        append(_histogram_point(body, x, y, look_up))
                else:
                    look_up, into = seen.look_up, rows.samples if name == _SAMPLES else rows.self_ns
                    for x, y in spans:
                        _number_point(body, x, y, look_up, into)
            else:
                turned_down.add(sum(1 for f, _, _ in wire.messages(body, a, b) if f == 1), f"metric {name[:100]!r} is not one the fleet keeps")

    def _points(self, rows: _Rows, now_ns: int, turned_down: _TurnedDown, seen: _Seen) -> tuple[Points, dict[int, SeriesKey]]:
        if not rows.histograms:
            return Points.empty(), {}
        ids, starts, ends, *numbers, packed = zip(*rows.histograms)
        counts, offsets = wire.packed_varints(packed)
        count, zero = np.array(numbers[0], np.uint64), np.array(numbers[3], np.uint64)
        total = np.array(numbers[1], np.float64)
        scale, first = np.array(numbers[2], np.int64), np.array(numbers[4], np.int64)
        keep, reason = _valid(scale, count, zero, total, first, counts, offsets)
        series = {i: seen.keys[i] for i in set(ids)}
        if not all(key.operator for key in series.values()):
            named = np.array([bool(series[i].operator) for i in ids])
            keep, reason = keep & named, reason or "a point without sealift.operator"
        if not keep.all():
            turned_down.add(int((~keep).sum()), reason)
            if not keep.any():
                return Points.empty(), {}
        first, counts, offsets = _rescaled(scale, first, counts, offsets)
        places = list(zip(ids, ends))
        samples = np.array([rows.samples.get(place, -1) for place in places], np.float64)
        self_ns = np.array([rows.self_ns.get(place, -1) for place in places], np.float64)
        whole = count.astype(np.int64, casting="unsafe")
        recorded = np.maximum(np.where((samples < 0) | (samples > whole), whole, samples).astype(np.int64), np.minimum(whole, 1))
        points = Points(
            series=np.array(ids, np.int64),
            time_s=_slots(np.array(starts, np.uint64), np.array(ends, np.uint64), now_ns),
            count=whole,
            samples=recorded,
            total_ns=np.rint(np.where(keep, total, 0)).astype(np.int64),
            self_ns=np.where(np.isfinite(self_ns) & (self_ns < MAX_TOTAL_NS), np.rint(self_ns), -1).astype(np.int64),
            zero=zero.astype(np.int64, casting="unsafe"),
            first=first,
            offsets=offsets,
            counts=counts,
        )
        if keep.all():
            return points, series
        points = _selected(points, keep)
        return points, {i: series[i] for i in set(points.series.tolist())}


class _TurnedDown:
    def __init__(self) -> None:
        self.count, self.reason = 0, ""

    def add(self, count: int, reason: str) -> None:
        self.count += count
        self.reason = self.reason or (reason if count else "")


class _Rows:
    """What a batch's points say, as they are read: (series, start, end, count, sum, scale, zero, first, packed counts) of each histogram;
    `samples` and `self_ns` by (series, end of the window)."""

    def __init__(self) -> None:
        self.histograms: list[tuple[Any, ...]] = []
        self.samples: dict[tuple[int, int], float] = {}
        self.self_ns: dict[tuple[int, int], float] = {}


_fixed64 = struct.Struct("<Q").unpack_from
_sfixed64 = struct.Struct("<q").unpack_from
_double = struct.Struct("<d").unpack_from
# The two layouts that every known sender writes: fields in the order of their numbers. What is laid out otherwise takes the loop below it.
_histogram_head = struct.Struct("<BQBQBQBdBB")  # start, time, count, sum, scale, each after its tag
_number_head = struct.Struct("<BQBQBQ")  # start, time, value


def _histogram_point(body: bytes, start: int, stop: int, look_up: Callable[[bytes], int]) -> tuple[Any, ...]:
    pos = start
    while body[pos] == 0x0A and body[pos + 1] < 0x80:
        pos += 2 + body[pos + 1]
        if pos + 40 > stop:
            break
    else:
        t1, begin, t2, last, t3, count, t4, total, t5, scale = _histogram_head.unpack_from(body, pos)
        if (t1, t2, t3, t4, t5) == (0x11, 0x19, 0x21, 0x29, 0x30) and scale < 0x80:
            attributes = body[start:pos]
            pos += 38
            zero = 0
            if body[pos] == 0x39 and pos + 9 < stop:
                (zero,) = _fixed64(body, pos + 1)
                pos += 9
            if body[pos] == 0x42 and body[pos + 1] < 0x80 and pos + 2 + body[pos + 1] == stop:
                first, packed = _buckets(body, pos + 2, stop)
                return look_up(attributes), begin, last, count, total, (scale >> 1) ^ -(scale & 1), zero, first, packed
    return _any_histogram_point(body, start, stop, look_up)


def _any_histogram_point(body: bytes, pos: int, stop: int, look_up: Callable[[bytes], int]) -> tuple[Any, ...]:
    attributes = packed = b""
    begin = last = count = zero = scale = first = 0
    total = 0.0
    while pos < stop:
        field_start = pos
        tag, pos = wire.varint(body, pos, stop)
        value_start = pos
        pos = wire.skip(body, pos, stop, tag & 7)
        if tag == 0x0A:
            attributes += body[field_start:pos]
        elif tag == 0x11:
            (begin,) = _fixed64(body, value_start)
        elif tag == 0x19:
            (last,) = _fixed64(body, value_start)
        elif tag == 0x21:
            (count,) = _fixed64(body, value_start)
        elif tag == 0x29:
            (total,) = _double(body, value_start)
        elif tag == 0x30:
            scale = wire.signed(wire.varint(body, value_start, stop)[0] & 0xFFFFFFFF)
        elif tag == 0x39:
            (zero,) = _fixed64(body, value_start)
        elif tag == 0x42:
            first, packed = _buckets(body, wire.varint(body, value_start, stop)[1], pos)
    return look_up(attributes), begin, last, count, total, scale, zero, first, packed


def _number_point(body: bytes, start: int, stop: int, look_up: Callable[[bytes], int], into: dict[tuple[int, int], float]) -> None:
    if start + 28 < stop and body[start + 27] == 0x3A:
        t1, _, t2, last, t3, value = _number_head.unpack_from(body, start)
        if t1 == 0x11 and t2 == 0x19 and t3 == 0x31 and value < 1 << 62:
            key = (look_up(body[start + 27 : stop]), last)
            into[key] = into.get(key, 0) + value
            return
    point = NumberDataPoint.FromString(body[start:stop])
    number = float(point.as_int if point.WhichOneof("value") == "as_int" else point.as_double)
    if number >= 0:
        key = (look_up(ResourceMessage(attributes=point.attributes).SerializeToString()), point.time_unix_nano)
        into[key] = into.get(key, 0) + number


def _data_points(body: bytes, start: int, end: int) -> tuple[int, list[tuple[int, int]]]:
    """(aggregation temporality, the span of each point) of a Sum or an ExponentialHistogram"""
    temporality, spans, pos = 0, list[tuple[int, int]](), start
    while pos < end:
        if body[pos] == 0x0A:
            size = body[pos + 1]
            pos += 2
            if size >= 0x80:
                size, pos = wire.varint(body, pos - 1, end)
            spans.append((pos, pos + size))
            pos += size
        else:
            tag, pos = wire.varint(body, pos, end)
            if tag == 0x10:
                temporality, pos = wire.varint(body, pos, end)
            else:
                pos = wire.skip(body, pos, end, tag & 7)
    if pos != end:
        raise WireError("a field runs past its message")
    return temporality, spans


def _buckets(body: bytes, pos: int, stop: int) -> tuple[int, bytes]:
    first, packed = 0, b""
    while pos < stop:
        tag = body[pos]
        pos += 1
        if tag == 0x08:
            first, pos = wire.varint(body, pos, stop)
            first = wire.signed(first & 0xFFFFFFFF)
        elif tag == 0x12:
            size, pos = wire.varint(body, pos, stop)
            packed += body[pos : pos + size]
            pos += size
        elif tag == 0x10:  # one count by itself, not packed
            value_start = pos
            _, pos = wire.varint(body, pos, stop)
            packed += body[value_start:pos]
        else:
            tag, pos = wire.varint(body, pos - 1, stop)
            pos = wire.skip(body, pos, stop, tag & 7)
        if pos > stop:
            raise WireError("a field runs past its message")
    return first, packed


def _number_values(body: bytes, start: int, end: int) -> Iterator[float]:
    for field, a, b in wire.messages(body, start, end):
        if field == 1:
            point = NumberDataPoint.FromString(body[a:b])
            value = float(point.as_int if point.WhichOneof("value") == "as_int" else point.as_double)
            if 0 <= value < MAX_COUNT:  # not for NaN
                yield value


def _valid(scale: Any, count: Any, zero: Any, total: Any, first: Any, counts: Any, offsets: Any) -> tuple[Any, str]:
    """(which points can be kept, why the first of the others cannot)"""
    sums = np.concatenate([[0.0], np.cumsum(counts, dtype=np.float64)])[offsets]
    exact = np.concatenate([[0], np.cumsum(counts)])[offsets]  # wraps for a hostile sum; the line above catches those
    reasons = (
        ((scale >= SCALE) & (scale <= 20), f"a histogram of a scale below {SCALE} or above 20"),
        (np.abs(first) < 1 << 30, "a bucket offset out of range"),
        (np.diff(offsets) <= MAX_RUN, f"a histogram of more than {MAX_RUN} buckets"),
        (np.isfinite(total) & (total >= 0) & (total < MAX_TOTAL_NS), "a sum that is negative, not finite or too large"),
        ((count > 0) & (count < MAX_COUNT) & (zero < MAX_COUNT) & (np.diff(sums) < MAX_COUNT), "an empty histogram or one of too many calls"),
        (
            np.diff(exact) + zero.astype(np.int64, casting="unsafe") == count.astype(np.int64, casting="unsafe"),
            "buckets that do not add up to the count",
        ),
    )
    keep, why = np.ones(len(scale), bool), ""
    for holds, reason in reasons:
        if not why and not holds.all():
            why = reason
        keep &= holds
    return keep, why


def _rescaled(scale: Any, first: Any, counts: Any, offsets: Any) -> tuple[Any, Any, Any]:
    """The same histograms at SCALE and within BUCKET_MIN .. BUCKET_MAX: buckets of a finer scale fall together exactly."""
    last = first + np.diff(offsets) - 1
    if (scale == SCALE).all() and (first >= BUCKET_MIN).all() and (last <= BUCKET_MAX).all():
        return first, counts, offsets
    firsts, runs = np.zeros(len(first), np.int64), []
    for i, (low, a, b) in enumerate(zip(first.tolist(), offsets.tolist(), offsets[1:].tolist())):
        shift = min(max(int(scale[i]) - SCALE, 0), 17)
        index = np.clip((low + np.arange(b - a)) >> shift, BUCKET_MIN, BUCKET_MAX)
        if len(index):
            firsts[i] = index[0]
            run = np.zeros(index[-1] - index[0] + 1, np.int64)
            np.add.at(run, index - index[0], counts[a:b])
            runs.append(run)
        else:
            runs.append(counts[a:b])
    return firsts, np.concatenate(runs), np.concatenate([[0], np.cumsum([len(r) for r in runs])]).astype(np.int64)


def _slots(start: Any, end: Any, now_ns: int) -> Any:
    """The slot of each window's middle. A window without a start, or that ends before it starts, is at its end; one without a time, or from
    the future, is at the time it arrived."""
    limit = now_ns + FUTURE_NS
    late = (end == 0) | (end > limit)
    end = np.where(late, now_ns, end).astype(np.int64)
    start = np.where(late | (start == 0) | (start > limit), end, start).astype(np.int64)
    middle = np.where(start <= end, start + (end - start) // 2, end)
    return middle // (SLOT_S * 10**9) * SLOT_S


def _selected(points: Points, keep: Any) -> Points:
    lengths = np.diff(points.offsets)
    elements = np.repeat(keep, lengths)
    names = ("series", "time_s", "count", "samples", "total_ns", "self_ns", "zero", "first")
    columns = {name: getattr(points, name)[keep] for name in names}
    offsets = np.concatenate([[0], np.cumsum(lengths[keep])]).astype(np.int64)
    return Points(**columns, offsets=offsets, counts=points.counts[elements])


def text(value: AnyValue) -> str:
    kind = value.WhichOneof("value")
    if kind is None:
        return ""
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    if kind in ("string_value", "int_value", "double_value"):
        return str(getattr(value, kind)).replace("\x00", "")[:TEXT_MAX]
    if kind == "bytes_value":
        return value.bytes_value[: TEXT_MAX // 2].hex()
    return str(value)[:TEXT_MAX]


def texts(attributes: Iterable[KeyValue]) -> dict[str, str]:
    return {a.key[:TEXT_MAX].replace("\x00", ""): text(a.value) for a in attributes}


def _series_key(attributes: bytes) -> SeriesKey:
    """A Resource's attributes are field 1, too, so it reads a histogram's; fields other than the attributes are passed over."""
    is_number = attributes[:1] == b"\x3a"
    found = texts((NumberDataPoint if is_number else ResourceMessage).FromString(attributes).attributes)
    prefix = "sealift.label."
    return SeriesKey(
        operator=found.get("sealift.operator", ""),
        source=found.get("sealift.source", ""),
        scope=found.get("sealift.scope", ""),
        model=found.get("sealift.model.id", ""),
        shapes=found.get("sealift.shapes", ""),
        origin=found.get("sealift.origin", ""),
        labels=labels_text({k[len(prefix) :]: v for k, v in found.items() if k.startswith(prefix)}),
    )


def _envelope(body: bytes, start: int, end: int) -> tuple[Resource, int | None, int]:
    """(resource, sequence number, digest of all but the resource) of a ResourceMetrics or ResourceLogs."""
    message = b""
    digest = blake2b(digest_size=8)
    for field, a, b in wire.messages(body, start, end):
        if field == 1:
            message += body[a:b]
        elif field == 2:
            digest.update(body[a:b])
    found = texts(ResourceMessage.FromString(message).attributes)
    sequence = _integer(found.pop("sealift.batch.sequence", ""))
    resource = Resource(
        service=found.pop("service.name", ""),
        version=found.pop("service.version", ""),
        host=found.pop("host.name", ""),
        instance=found.pop("service.instance.id", ""),
        pid=_integer(found.pop("process.pid", "")) or 0,
        container=found.pop("container.id", ""),
        attributes=labels_text(found),
    )
    return resource, sequence if resource.instance else None, int.from_bytes(digest.digest(), "little") >> 1


def _integer(value: str) -> int | None:
    try:
        number = int(value)
    except ValueError:
        return None
    return number if 0 <= number < 1 << 62 else None


def _resource_logs(body: bytes, start: int, end: int, now_ns: int, turned_down: _TurnedDown) -> Batch:
    resource, sequence, digest = _envelope(body, start, end)
    uses: list[ApiUse] = []
    events: list[ModelEvent] = []
    for field, scope_start, scope_end in wire.messages(body, start, end):
        if field != 2:
            continue
        for record_field, a, b in wire.messages(body, scope_start, scope_end):
            if record_field == 2 and not _log(LogRecord.FromString(body[a:b]), now_ns, uses, events):
                turned_down.add(1, "a log record that is no event of sealift's")
    return Batch("logs", resource, sequence, digest, api_uses=tuple(uses), model_events=tuple(events))


def _log(record: LogRecord, now_ns: int, uses: list[ApiUse], events: list[ModelEvent]) -> bool:
    found = texts(record.attributes)
    name = record.event_name or found.get("event.name", "")
    found.pop("event.name", "")
    time_ns = record.time_unix_nano or record.observed_time_unix_nano
    if not 0 < time_ns <= now_ns + FUTURE_NS:
        time_ns = now_ns
    if name == "sealift.api_usage" and found.get("sealift.api.key"):
        uses.append(ApiUse(found["sealift.api.key"], time_ns))
        return True
    if name in ("sealift.model.saved", "sealift.model.loaded"):
        known = {
            field: found.pop(f"sealift.model.{key}", "")
            for field, key in (
                ("model", "id"),
                ("digest", "digest"),
                ("serialization_id", "serialization_id"),
                ("path", "path"),
                ("format", "format"),
                ("producer", "producer"),
                ("signed", "signed"),
            )
        }
        events.append(ModelEvent(name.rsplit(".", 1)[1], time_ns, **known, attributes=labels_text(found)))
        return True
    return False

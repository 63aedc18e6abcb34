"""An OTLP request's bytes to batches: what a batch keeps of metrics and logs, and what is turned down and why.

Whatever the bytes are, the outcome is batches or a WireError."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
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

from sealift._runtime import SeriesIds, digest
from sealift.fleet.errors import WireError
from sealift.fleet.model import (
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
from sealift.fleet.otlp.points import FUTURE_NS, REASONS, Reading


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
        self.ids = SeriesIds()
        self.keys: dict[int, SeriesKey] = {}

    def learn(self, attributes: bytes) -> None:
        """`attributes`: as they stand in a histogram's point (field 1) or in a number's (field 7)."""
        key = series_key(attributes)
        self.keys[key.id] = key  # before the number can be found
        self.ids.learn(attributes, key.id, bool(key.operator))

    def read_points(self, body: bytes, start: int, end: int, now_ns: int) -> Reading:
        while True:
            found = self.ids.read(body, start, end, now_ns)
            if not isinstance(found, list):
                break
            for attributes in found:
                self.learn(attributes)
        rows, data, dropped, overflow, overhead, refused, reason, name = found
        numbers = np.frombuffer(data, np.int64)
        series, time_s, count, samples, total_ns, self_ns, zero, first = numbers[: 8 * rows].reshape(8, rows)
        offsets, counts = numbers[8 * rows : 9 * rows + 1], numbers[9 * rows + 1 :]
        points = Points(series, time_s, count, samples, total_ns, self_ns, zero, first, offsets, counts)
        return Reading(points, dropped, overflow, overhead, refused, reason, name)


class Decoder:
    """Requests to batches. Any number of threads may share one: what it remembers only grows, and is replaced whole."""

    def __init__(self, cache_bytes: int = 64 << 20) -> None:
        self._seen = _Seen()
        self._cache_bytes = cache_bytes

    def metrics(self, body: bytes, now_ns: int) -> Decoded:
        """`now_ns`: unix time of arrival, for points without a time or from a clock that is ahead."""
        if self._seen.ids.size_bytes > self._cache_bytes:  # a fleet's take a few megabytes; only a hostile sender gets here
            self._seen = _Seen()
        seen = self._seen
        turned_down = _TurnedDown()
        try:
            batches = [
                self._resource_metrics(body, start, end, now_ns, turned_down, seen)
                for field, start, end in wire.messages(body, 0, len(body))
                if field == 1
            ]
        except (DecodeError, ValueError) as error:  # ValueError: the native reader's
            raise WireError(f"not an OTLP metrics request: {error}") from None
        return Decoded(tuple(batches), turned_down.count, turned_down.reason)

    def logs(self, body: bytes, now_ns: int) -> Decoded:
        turned_down = _TurnedDown()
        try:
            batches = [_resource_logs(body, start, end, now_ns, turned_down) for field, start, end in wire.messages(body, 0, len(body)) if field == 1]
        except DecodeError as error:
            raise WireError(f"not an OTLP logs request: {error}") from None
        return Decoded(tuple(batches), turned_down.count, turned_down.reason)

    def _resource_metrics(self, body: bytes, start: int, end: int, now_ns: int, turned_down: _TurnedDown, seen: _Seen) -> Batch:
        resource, sequence, digest = _envelope(body, start, end)
        found = seen.read_points(body, start, end, now_ns)
        if found.refused:
            name = found.name.decode("utf-8", "replace")[:100]
            turned_down.add(found.refused, REASONS[found.reason].format(name=name))
        series = {i: seen.keys[i] for i in set(found.points.series.tolist())}
        meters = Meters(int(found.dropped), int(found.overflow), found.overhead if found.overhead >= 0 else None)
        return Batch("metrics", resource, sequence, digest, found.points, series, meters=meters)


class _TurnedDown:
    def __init__(self) -> None:
        self.count, self.reason = 0, ""

    def add(self, count: int, reason: str) -> None:
        self.count += count
        self.reason = self.reason or (reason if count else "")


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


def series_key(attributes: bytes) -> SeriesKey:
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
    content = 0
    for field, a, b in wire.messages(body, start, end):
        if field == 1:
            message += body[a:b]
        elif field == 2:
            content = digest(body, a, b, content)
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
    return resource, sequence if resource.instance else None, content >> 1


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

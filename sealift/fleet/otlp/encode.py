"""Histograms and events to OTLP requests in protobuf's encoding: for the simulator, the load generator and the tests.

Written by hand and not through protobuf's classes, which take 15 us a point: the load generator shares its two cores with what it loads."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

Value = str | int | float | bool
Attributes = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Histogram:
    """One point: attributes without the empty ones, counts from bucket `first` on at scale 3."""

    attributes: Attributes
    count: int
    samples: int
    total_ns: int
    self_ns: int | None
    zero: int
    first: int
    counts: Sequence[int]


def metrics_request(
    resource: Mapping[str, Value],
    sequence: int | None,
    start_ns: int,
    end_ns: int,
    histograms: Sequence[Histogram],
    meters: Mapping[str, float] | None = None,
) -> bytes:
    """One batch. `meters`: "dropped", "overflow", "overhead"."""
    points, samples, self_times = [], [], []
    window = struct.pack("<BQBQ", 0x11, start_ns, 0x19, end_ns)
    for h in histograms:
        buckets = b"\x08" + _varint(_zigzag(h.first)) + _field(2, b"".join(map(_varint, h.counts)))
        head = window + struct.pack("<BQBdBB", 0x21, h.count, 0x29, float(h.total_ns), 0x30, _zigzag(3))
        zero = struct.pack("<BQ", 0x39, h.zero) if h.zero else b""
        points.append(_field(1, _attributes(h.attributes, 1) + head + zero + _field(8, buckets)))
        samples.append(_field(1, window + struct.pack("<Bq", 0x31, h.samples) + _attributes(h.attributes, 7)))
        if h.self_ns is not None:
            self_times.append(_field(1, window + struct.pack("<Bq", 0x31, h.self_ns) + _attributes(h.attributes, 7)))
    metrics = [_metric("sealift.operator.duration", "ns", 10, points, b"\x10\x01")]
    metrics.append(_metric("sealift.operator.samples", "{sample}", 7, samples, b"\x10\x01\x18\x01"))
    if self_times:
        metrics.append(_metric("sealift.operator.self_time", "ns", 7, self_times, b"\x10\x01\x18\x01"))
    for name, value in (meters or {}).items():
        if name == "overhead":
            metrics.append(_metric("sealift.observe.overhead", "1", 5, [_field(1, window + struct.pack("<Bd", 0x21, value))], b""))
        else:
            point = _field(1, window + struct.pack("<Bq", 0x31, int(value)))
            metrics.append(_metric(f"sealift.observe.{name}", "{event}", 7, [point], b"\x10\x01\x18\x01"))
    return _field(1, _field(1, _resource(resource, sequence)) + _field(2, _SCOPE + b"".join(metrics)))


def logs_request(resource: Mapping[str, Value], sequence: int | None, events: Sequence[tuple[str, int, Mapping[str, Value]]]) -> bytes:
    """One batch of (event name, unix time in ns, attributes)."""
    records = [
        _field(
            2,
            struct.pack("<BQ", 0x09, time_ns)
            + b"".join(_key_value(k, v, 6) for k, v in {"event.name": name, **attributes}.items())
            + _text(12, name),
        )
        for name, time_ns, attributes in events
    ]
    return _field(1, _field(1, _resource(resource, sequence)) + _field(2, _SCOPE + b"".join(records)))


def _varint(value: int) -> bytes:
    if value < 0x80:
        return value.to_bytes(1, "little")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _text(number: int, value: str) -> bytes:
    return _field(number, value.encode())


_SCOPE = _field(1, _text(1, "sealift.observe"))


def _key_value(key: str, value: Value, number: int) -> bytes:
    if isinstance(value, bool):
        data = b"\x10" + _varint(int(value))
    elif isinstance(value, int):
        data = b"\x18" + _varint(value & 0xFFFFFFFFFFFFFFFF)
    elif isinstance(value, float):
        data = struct.pack("<Bd", 0x21, value)
    else:
        data = _text(1, value)
    return _field(number, _text(1, key) + _field(2, data))


@lru_cache(maxsize=100_000)
def _attributes(attributes: Attributes, number: int) -> bytes:
    return b"".join(_key_value(k, v, number) for k, v in attributes)


def _resource(resource: Mapping[str, Value], sequence: int | None) -> bytes:
    items = dict(resource) if sequence is None else {**resource, "sealift.batch.sequence": sequence}
    return b"".join(_key_value(k, v, 1) for k, v in items.items())


def _metric(name: str, unit: str, kind: int, points: list[bytes], tail: bytes) -> bytes:
    return _field(2, _text(1, name) + _text(3, unit) + _field(kind, b"".join(points) + tail))

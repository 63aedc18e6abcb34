"""OTLP: what is kept is what protobuf's own classes read, and no bytes whatever crash the decoder."""

from __future__ import annotations

import contextlib
import gzip
import json
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from sealift.fleet.errors import WireError
from sealift.fleet.model import Batch, SeriesKey
from sealift.fleet.otlp import encode, wire
from sealift.fleet.otlp.decode import Decoder, from_json, inflate

NOW = 1_760_000_000 * 10**9
RESOURCE: dict[str, encode.Value] = {"service.name": "s", "service.version": "1", "host.name": "h", "service.instance.id": "i", "process.pid": 7}
MM = (("sealift.operator", "aten::mm"), ("sealift.model.id", "m"), ("sealift.label.phase", "train"))


def one(**changes: Any) -> encode.Histogram:
    return encode.Histogram(
        **({"attributes": MM, "count": 70, "samples": 7, "total_ns": 1000, "self_ns": 900, "zero": 10, "first": 40, "counts": (20, 0, 40)} | changes)
    )


def request(*histograms: encode.Histogram, sequence: int = 3, start: int = NOW - 20 * 10**9, end: int = NOW - 10 * 10**9) -> bytes:
    return encode.metrics_request(RESOURCE, sequence, start, end, histograms or [one()], {"dropped": 2, "overflow": 1, "overhead": 0.01})


def only(body: bytes) -> Batch:
    decoded = Decoder().metrics(body, NOW)
    assert decoded.rejected == 0, decoded.reason
    (batch,) = decoded.batches
    return batch


def columns(batch: Batch) -> list[tuple[Any, ...]]:
    p = batch.points
    runs = [tuple(p.counts[a:b].tolist()) for a, b in zip(p.offsets, p.offsets[1:])]
    scalars = [c.tolist() for c in (p.series, p.time_s, p.count, p.samples, p.total_ns, p.self_ns, p.zero, p.first)]
    return list(zip(*scalars, runs))


def test_one_point_in_full() -> None:
    batch = only(request())
    key = SeriesKey("aten::mm", model="m", labels='{"phase":"train"}')
    assert batch.series == {key.id: key}
    assert columns(batch) == [(key.id, 1_759_999_980, 70, 7, 1000, 900, 10, 40, (20, 0, 40))]
    assert (batch.resource.service, batch.resource.host, batch.resource.instance, batch.resource.pid) == ("s", "h", "i", 7)
    assert (batch.sequence, batch.meters.dropped, batch.meters.overflow, batch.meters.overhead) == (3, 2, 1, 0.01)


def test_the_hand_written_encoder_is_protobuf() -> None:
    body = request(one(), one(first=-1, zero=0, self_ns=None))
    message = ExportMetricsServiceRequest.FromString(body)
    points = message.resource_metrics[0].scope_metrics[0].metrics[0].exponential_histogram.data_points
    assert [(p.count, p.sum, p.scale, p.zero_count, p.positive.offset, list(p.positive.bucket_counts)) for p in points] == [
        (70, 1000.0, 3, 10, 40, [20, 0, 40]),
        (70, 1000.0, 3, 0, -1, [20, 0, 40]),
    ]
    assert message.SerializeToString() == body
    logs = encode.logs_request(RESOURCE, 1, [("sealift.api_usage", NOW, {"sealift.api.key": "torch.load", "n": -5, "x": 1.5, "b": True})])
    assert ExportLogsServiceRequest.FromString(logs).SerializeToString() == logs


histograms = st.builds(
    lambda first, counts, zero, samples, operator, label: one(
        attributes=(("sealift.operator", operator), *((("sealift.label.x", label),) if label else ())),
        first=first, counts=counts, zero=zero, count=sum(counts) + zero, samples=samples,
    ),
    st.integers(-1, 400), st.lists(st.integers(0, 1 << 40), min_size=1, max_size=60).map(tuple), st.integers(1, 1000), st.integers(1, 5),
    st.text("ab:é", min_size=1, max_size=200), st.text(max_size=3),
)  # fmt: skip


@given(st.lists(histograms, min_size=1, max_size=6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_field_order_and_json_give_the_same(points: list[encode.Histogram], numbers: bool) -> None:
    """The decoder's two layouts against the same request from JSON, and against one whose points put their fields the other way round."""
    body = request(*points)
    batch = only(body)
    expected = columns(batch)
    message = ExportMetricsServiceRequest.FromString(body)
    text = json_format.MessageToJson(message)
    assert columns(only(from_json(text.encode(), "metrics"))) == expected
    assert columns(only(reversed_points(body))) == expected
    by_key = {key.operator + key.labels: key.id for key in batch.series.values()}
    assert len(by_key) == len(batch.series)


def reversed_points(body: bytes) -> bytes:
    """The same message with the fields of every data point in the other order (attributes keep theirs)."""

    def rewrite(data: bytes, path: tuple[int, ...]) -> bytes:
        fields, pos = [], 0
        while pos < len(data):
            start = pos
            tag, pos = wire.varint(data, pos, len(data))
            value_start = pos
            pos = wire.skip(data, pos, len(data), tag & 7)
            number = tag >> 3
            if tag & 7 == 2 and (*path, number) in {(1,), (1, 2), (1, 2, 2), (1, 2, 2, 10), (1, 2, 2, 7), (1, 2, 2, 10, 1), (1, 2, 2, 7, 1)}:
                _, inner = wire.varint(data, value_start, len(data))
                fields.append((number, encode._field(number, rewrite(data[inner:pos], (*path, number)))))
            else:
                fields.append((number, data[start:pos]))
        if len(path) == 5:
            attribute = 1 if path[3] == 10 else 7
            fields = [f for f in reversed(fields) if f[0] != attribute] + [f for f in fields if f[0] == attribute]
        return b"".join(f for _, f in fields)

    return rewrite(body, ())


def test_attributes_in_two_runs_are_one_series() -> None:
    body = request()
    message = ExportMetricsServiceRequest.FromString(body)
    point = message.resource_metrics[0].scope_metrics[0].metrics[0].exponential_histogram.data_points[0]
    raw = point.SerializeToString()
    first = encode._attributes(MM[:1], 1)
    split = raw[: len(first)] + raw[len(encode._attributes(MM, 1)) :] + encode._attributes(MM[1:], 1)
    assert split != raw and len(split) == len(raw)
    assert columns(only(body.replace(raw, split)))[0][0] == SeriesKey("aten::mm", model="m", labels='{"phase":"train"}').id


def test_a_finer_scale_falls_together_exactly() -> None:
    message = ExportMetricsServiceRequest.FromString(request())
    point = message.resource_metrics[0].scope_metrics[0].metrics[0].exponential_histogram.data_points[0]
    point.scale, point.positive.offset = 5, -3
    del point.positive.bucket_counts[:]
    point.positive.bucket_counts.extend(range(1, 12))
    point.count = sum(range(1, 12)) + 10
    batch = only(message.SerializeToString())
    # index >> 2: -3..-1 -> -1, 0..3 -> 0, 4..7 -> 1
    assert columns(batch)[0][7:] == (-1, (1 + 2 + 3, 4 + 5 + 6 + 7, 8 + 9 + 10 + 11))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda p: setattr(p, "scale", 2), "scale"),
        (lambda p: setattr(p, "scale", -(1 << 31)), "scale"),
        (lambda p: setattr(p, "count", 5), "add up"),
        (lambda p: setattr(p, "count", 1 << 60), "calls"),
        (lambda p: setattr(p, "sum", float("nan")), "sum"),
        (lambda p: setattr(p, "sum", -1.0), "sum"),
        (lambda p: setattr(p, "zero_count", (1 << 64) - 1), "calls"),
        (lambda p: setattr(p.positive, "offset", (1 << 31) - 1), "offset"),
        (lambda p: p.positive.bucket_counts.extend([0] * 5000), "buckets"),
        (lambda p: p.ClearField("attributes"), "sealift.operator"),
    ],
)
def test_what_is_turned_down_is_counted_and_the_rest_kept(change: Any, reason: str) -> None:
    message = ExportMetricsServiceRequest.FromString(request(one(), one(attributes=(("sealift.operator", "other"),))))
    change(message.resource_metrics[0].scope_metrics[0].metrics[0].exponential_histogram.data_points[0])
    decoded = Decoder().metrics(message.SerializeToString(), NOW)
    assert decoded.rejected == 1 and reason in decoded.reason
    (batch,) = decoded.batches
    assert [key.operator for key in batch.series.values()] == ["other"] and len(batch.points) == 1


def test_foreign_metrics_and_cumulative_ones_are_turned_down() -> None:
    message = ExportMetricsServiceRequest.FromString(request())
    metrics = message.resource_metrics[0].scope_metrics[0].metrics
    metrics[0].exponential_histogram.aggregation_temporality = 2
    metrics[1].name = "http.server.duration"
    decoded = Decoder().metrics(message.SerializeToString(), NOW)
    assert decoded.rejected == 2 and "temporality" in decoded.reason and not len(decoded.batches[0].points)


@pytest.mark.parametrize(
    ("start", "end", "slot"),
    [
        (NOW - 20 * 10**9, NOW - 10 * 10**9, 1_759_999_980),  # the middle of the window
        (0, NOW - 10 * 10**9, 1_759_999_990),  # no start: its end
        (NOW - 10 * 10**9, NOW - 20 * 10**9, 1_759_999_980),  # a clock that jumped back within the window
        (NOW + 10**14, NOW + 10**14 + 10**10, 1_760_000_000),  # a clock that is a day ahead: when it arrived
        (0, 0, 1_760_000_000),
        ((1 << 64) - 1, (1 << 64) - 1, 1_760_000_000),
        (1, 2, 0),  # a clock at 1970 is believed
    ],
)
def test_clocks(start: int, end: int, slot: int) -> None:
    assert only(request(start=start, end=end)).points.time_s.tolist() == [slot]


def test_logs() -> None:
    events: list[Any] = [
        ("sealift.api_usage", NOW - 5, {"sealift.api.key": "torch.load"}),
        ("sealift.model.loaded", NOW - 4, {"sealift.model.id": "m", "sealift.model.digest": "sha256:1", "sealift.model.signed": True, "more": "x"}),
        ("other", NOW, {}),
        ("sealift.api_usage", NOW + 10**18, {"sealift.api.key": "late"}),
    ]
    decoded = Decoder().logs(encode.logs_request(RESOURCE, 9, events), NOW)
    (batch,) = decoded.batches
    assert decoded.rejected == 1 and batch.sequence == 9
    assert batch.api_uses == (("torch.load", NOW - 5), ("late", NOW))
    (event,) = batch.model_events
    assert (event.kind, event.model, event.digest, event.signed, event.attributes) == ("loaded", "m", "sha256:1", "true", '{"more":"x"}')


# ---- hostile bytes --------------------------------------------------------------------------------------------------------------------


def survives(body: bytes) -> None:
    for signal in ("metrics", "logs"):
        try:
            decoded = getattr(Decoder(), signal)(body, NOW)
        except WireError:
            continue
        for batch in decoded.batches:
            p = batch.points
            assert len(p.offsets) == len(p) + 1 and p.offsets[-1] == len(p.counts)
            assert (p.count > 0).all() and (p.samples > 0).all() and (p.counts >= 0).all() and (p.first >= -1).all()
            sums = np.add.reduceat(np.append(p.counts, 0), p.offsets[:-1]) * (np.diff(p.offsets) > 0) if len(p) else np.zeros(0)
            assert (sums + p.zero == p.count).all()


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_random_bytes(body: bytes) -> None:
    survives(body)


@given(st.data())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_requests(data: st.DataObject) -> None:
    body = bytearray(data.draw(st.sampled_from([VALID, VALID_LOGS])))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(body) - 1))
        match data.draw(st.integers(0, 3)):
            case 0:
                body[place] = data.draw(st.integers(0, 255))
            case 1:
                del body[place:]
            case 2:
                body[place:place] = data.draw(st.binary(max_size=12))
            case _:
                del body[place : place + data.draw(st.integers(1, 9))]
        if not body:
            break
    survives(bytes(body))


VALID = request(one(), one(attributes=(("sealift.operator", "aten::add"),), counts=(300, 70000), count=70310))
VALID_LOGS = encode.logs_request(RESOURCE, 1, [("sealift.model.saved", NOW, {"sealift.model.id": "m"})])

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["resourceMetrics", "resource", "attributes", "key", "value", "stringValue", "sum", "x"]), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@given(json_values)
@settings(max_examples=150, deadline=None)
def test_hostile_json(value: Any) -> None:
    for body in (json.dumps(value).encode(), json.dumps({"resourceMetrics": [value]}).encode(), json.dumps({"resourceLogs": value}).encode()):
        for signal in ("metrics", "logs"):
            with contextlib.suppress(WireError):
                survives(from_json(body, signal))


@pytest.mark.parametrize(
    "body",
    [b"\xff\xfe", b"[" * 100_000, b'{"resourceMetrics":' * 5000, b"", b"null", b'{"resourceMetrics":[{"resource":{"attributes":' + b"[" * 50_000],
)
def test_deep_and_broken_json(body: bytes) -> None:
    with contextlib.suppress(WireError):
        assert Decoder().metrics(from_json(body, "metrics"), NOW).batches == ()


def test_gzip_bombs_are_not_unpacked() -> None:
    bomb = gzip.compress(bytes(50 << 20), 9)
    with pytest.raises(WireError, match="more than 1048576 bytes"):
        inflate(bomb, "gzip", 1 << 20)
    with pytest.raises(WireError, match="more than"):
        inflate(gzip.compress(bytes(800_000)) * 2, "gzip", 1 << 20)
    with pytest.raises(WireError, match="ends early"):
        inflate(gzip.compress(VALID)[:-9], "gzip", 1 << 20)
    with pytest.raises(WireError, match="not gzip"):
        inflate(VALID, "gzip", 1 << 20)
    with pytest.raises(WireError, match="Content-Encoding br"):
        inflate(VALID, "br", 1 << 20)
    assert inflate(gzip.compress(VALID[:50]) + gzip.compress(VALID[50:]), "gzip", 1 << 20) == VALID


def test_attributes_are_cut_to_size() -> None:
    batch = only(request(one(attributes=(("sealift.operator", "x" * 100_000),))))
    assert [len(key.operator) for key in batch.series.values()] == [1024]

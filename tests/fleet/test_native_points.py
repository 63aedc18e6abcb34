"""bindings/otlp.cpp against sealift/fleet/otlp/points.py, which defines what a message holds, and against protobuf's own classes; and under the
sanitizers, that no bytes whatever make it read where nothing is."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint, ResourceMetrics

from sealift._runtime import SeriesIds, add_runs, digest, weigh_runs
from sealift.fleet.errors import WireError
from sealift.fleet.otlp import encode, points
from sealift.fleet.otlp.points import Reading
from tests.fleet.test_decode import NOW, one, request

ROOT = Path(__file__).parents[2]


def series_of(attributes: bytes) -> tuple[int, bool]:
    """Any function of the bytes will do here."""
    return digest(attributes, 0, len(attributes), 0) >> 1, b"sealift.operator" in attributes


def native(message: bytes, before: bytes = b"", after: bytes = b"") -> Any:
    """What it reads as plain values, or the error's type; the bytes around the message are not to be seen."""
    ids = SeriesIds()
    for _ in range(2):
        try:
            found = ids.read(before + message + after, len(before), len(before) + len(message), NOW)
        except ValueError:
            return "error"
        if not isinstance(found, list):
            break
        for attributes in found:
            ids.learn(attributes, *series_of(attributes))
    assert isinstance(found, tuple), "what was learned is not asked for again"
    rows, data, *rest = found
    return rows, np.frombuffer(data, np.int64).tolist(), rest


def reference(message: bytes) -> Any:
    try:
        found = points.read_points(message, 0, len(message), NOW, series_of)
    except WireError:
        return "error"
    return plain(found)


def plain(found: Reading) -> Any:
    p, *rest = found
    columns = (p.series, p.time_s, p.count, p.samples, p.total_ns, p.self_ns, p.zero, p.first, p.offsets, p.counts)
    return len(p), [n for column in columns for n in column.tolist()], rest


# ---- messages that a sender might have meant -----------------------------------------------------------------------------------------

small = st.integers(0, 40)
wide = st.one_of(small, st.sampled_from([NOW, NOW - 10**10, NOW + 10**12, 1 << 52, (1 << 53) - 1, 1 << 53, 1 << 62, (1 << 64) - 1]))
doubles = st.one_of(st.integers(0, 1000).map(float), st.floats(), st.sampled_from([0.5, 1.5, 2.5, 2.0**60, 2.0**59]))


def fixed(tag: int, values: Any, form: str) -> Any:
    return values.map(lambda v: bytes([tag]) + struct.pack(form, v))


def varint(tag: int, values: Any) -> Any:
    return values.map(lambda v: bytes([tag]) + encode._varint(v))


def in_any_order(*fields: Any, most: int = 2) -> Any:
    """A message of those fields, each from none to `most` times."""
    return (
        st.tuples(*(st.lists(f, max_size=most) for f in fields)).flatmap(lambda made: st.permutations([f for fs in made for f in fs])).map(b"".join)
    )


def attributes(number: int) -> Any:
    pairs = st.sampled_from([(("sealift.operator", "aten::mm"),), (("sealift.operator", "aten::add"),), (("x", "y"),)])
    return pairs.map(lambda a: encode._attributes(a, number))


zigzag = st.integers(-6, 6).map(encode._zigzag)
bucket_lists = in_any_order(
    varint(0x08, st.one_of(st.integers(-4, 530).map(encode._zigzag), st.just(0xFFFFFFFF))),
    st.lists(wide.map(encode._varint), max_size=12).map(lambda packed: encode._field(2, b"".join(packed))),
    varint(0x10, small),
)
histograms = in_any_order(
    attributes(1), fixed(0x11, wide, "<Q"), fixed(0x19, wide, "<Q"), fixed(0x21, wide, "<Q"), fixed(0x29, doubles, "<d"),
    varint(0x30, st.integers(0, 44)), fixed(0x39, small, "<Q"), bucket_lists.map(lambda b: encode._field(8, b)),
    fixed(0x61, doubles, "<d"), varint(0x50, small),
)  # fmt: skip


def adding_up(first: int, counts: list[int], scale: int, zero: int, total: float, window: tuple[int, int], operator: str) -> bytes:
    buckets = b"\x08" + encode._varint(encode._zigzag(first)) + encode._field(2, b"".join(map(encode._varint, counts)))
    head = struct.pack("<BQBQBQBdBB", 0x11, window[0], 0x19, window[1], 0x21, sum(counts) + zero, 0x29, total, 0x30, scale << 1)
    return encode._attributes((("sealift.operator", operator),), 1) + head + struct.pack("<BQ", 0x39, zero) + encode._field(8, buckets)


whole_histograms = st.builds(
    adding_up, st.integers(-9, 5000), st.lists(small, max_size=30), st.integers(3, 7), small, st.floats(0, 1e12),
    st.tuples(wide, wide), st.sampled_from(["aten::mm", "aten::add"]),
)  # fmt: skip
numbers = in_any_order(
    attributes(7), fixed(0x11, wide, "<Q"), fixed(0x19, wide, "<Q"), fixed(0x21, doubles, "<d"), fixed(0x31, st.integers(-2, 1 << 62), "<q")
)


def metric(name: Any, kind: int, data_points: Any) -> Any:
    temporality = st.sampled_from([b"\x10\x01", b"\x10\x01", b"\x10\x01", b"\x10\x02", b""])
    data = st.tuples(st.lists(data_points.map(lambda p: encode._field(1, p)), max_size=4), temporality).map(lambda d: b"".join(d[0]) + d[1])
    return st.tuples(name, data).map(lambda m: encode._field(2, encode._text(1, m[0]) + encode._field(kind, m[1])))


metrics = st.one_of(
    metric(st.just("sealift.operator.duration"), 10, st.one_of(histograms, whole_histograms, whole_histograms)),
    metric(st.sampled_from(["sealift.operator.samples", "sealift.operator.self_time", "other"]), 7, numbers),
    metric(st.sampled_from(["sealift.observe.dropped", "sealift.observe.overflow", "sealift.observe.overhead"]), 5, numbers),
    metric(st.sampled_from(["http.server.duration", "sealift.operator.duration", "\xff"]), 9, histograms),
)
messages = st.lists(metrics, max_size=5).map(lambda ms: encode._field(1, b"") + encode._field(2, b"".join(ms)))


@given(messages)
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_reads_what_the_definition_reads(message: bytes) -> None:
    assert native(message) == reference(message)


AGENTS = request(one(), one(attributes=(("sealift.operator", "aten::add"),), counts=(300, 70000), count=70310))


def inner(body: bytes) -> bytes:
    """Of a request with one batch: its ResourceMetrics."""
    from sealift.fleet.otlp import wire

    ((_, start, end),) = wire.messages(body, 0, len(body))
    return body[start:end]


@given(
    st.one_of(st.just(inner(AGENTS)), messages), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1 << 20), st.binary(max_size=12)), max_size=4)
)
@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_messages_too(message: bytes, damage: list[tuple[int, int, bytes]]) -> None:
    body = bytearray(message)
    for kind, where, data in damage:
        place = where % (len(body) + 1)
        body[place : place + (len(data), 0, 1 + where % 9, len(body))[kind]] = data if kind < 2 else b""
    damaged = bytes(body)
    assert native(damaged, before=b"\x0a\x7f", after=b"\x01\x12\x05xxxxx") == reference(damaged)


@given(whole_histograms)
@example(adding_up(-1, [1, 2], 3, 0, 0.5, (0, 0), "aten::mm"))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_the_definition_reads_what_protobuf_reads(point: bytes) -> None:
    message = encode._field(2, encode._metric("sealift.operator.duration", "ns", 10, [encode._field(1, point)], b"\x10\x01"))
    (parsed,) = ResourceMetrics.FromString(message).scope_metrics[0].metrics[0].exponential_histogram.data_points
    found = points.read_points(message, 0, len(message), NOW, series_of).points
    expected = expected_buckets(parsed)
    assert found.count.tolist() == ([parsed.count] if parsed.count else [])
    if parsed.count:
        assert {int(found.first[0]) + i: n for i, n in enumerate(found.counts.tolist()) if n} == expected
        assert found.total_ns.tolist() == [round(parsed.sum)] and found.zero.tolist() == [parsed.zero_count]


def expected_buckets(point: ExponentialHistogramDataPoint) -> dict[int, int]:
    found: dict[int, int] = {}
    for i, n in enumerate(point.positive.bucket_counts):
        bucket = min(max((point.positive.offset + i) >> (point.scale - 3), -1), 511)
        found[bucket] = found.get(bucket, 0) + n
    return {b: n for b, n in found.items() if n}


def test_too_many_buckets_and_counts_too_wide() -> None:
    long = adding_up(0, [1] * 5000, 8, 0, 1.0, (NOW, NOW), "aten::mm")
    message = encode._field(2, encode._metric("sealift.operator.duration", "ns", 10, [encode._field(1, long)], b"\x10\x01"))
    assert native(message) == reference(message) and native(message)[2][3:5] == [1, 5]
    buckets = encode._field(8, encode._field(2, b"\xff" * 9 + b"\x01"))
    message = encode._field(2, encode._metric("sealift.operator.duration", "ns", 10, [encode._field(1, buckets)], b"\x10\x01"))
    assert native(message) == reference(message) == "error"


def test_digests_tell_contents_apart() -> None:
    contents = [bytes([i]) * n for i in range(4) for n in range(40)]
    found = {digest(c, 0, len(c), 0) for c in contents}
    assert len(found) == len(set(contents))
    assert digest(b"ab", 0, 2, digest(b"c", 0, 1, 0)) != digest(b"cab", 0, 3, 0) != digest(b"xcab", 1, 4, 1)
    assert digest(b"xabx", 1, 3, 5) == digest(b"ab", 0, 2, 5)
    with pytest.raises(ValueError, match="beyond"):
        digest(b"ab", 0, 3, 0)
    with pytest.raises(ValueError, match="beyond"):
        SeriesIds().read(b"ab", 3, 2, 0)


def test_runs_from_a_damaged_file_are_refused() -> None:
    def ints(*values: int) -> Any:
        return np.array(values, np.int64)

    first, offsets, counts = ints(3, 4), ints(0, 2, 3), ints(1, 2, 3)
    assert [np.frombuffer(b, np.int64).tolist() for b in add_runs(first, offsets, counts, ints(1, 0), ints(0, 2), -1, 511)] == [[3], [0, 2], [1, 5]]
    assert np.frombuffer(weigh_runs(first, offsets, counts, np.array([1.0, 10.0, 100.0]), 3)).tolist() == [21.0, 30.0]
    for damaged in (
        (ints(3), offsets),
        (first, ints(0, 2, 4)),
        (first, ints(1, 2, 3)),
        (first, ints(0, 4, 3)),
        (ints(3, 600), offsets),
        (ints(-2, 4), offsets),
    ):
        with pytest.raises(ValueError, match="do not fit"):
            add_runs(*damaged, counts, ints(1, 0), ints(0, 2), -1, 511)
    for order, bounds in (
        (ints(1, 2), ints(0, 2)),
        (ints(-1, 0), ints(0, 2)),
        (ints(0, 1), ints(0, 3)),
        (ints(0, 1), ints(0, 2, 1, 2)),
        (ints(0, 1), ints()),
    ):
        with pytest.raises(ValueError, match="not there"):
            add_runs(first, offsets, counts, order, bounds, -1, 511)
    with pytest.raises(ValueError, match="do not fit"):
        weigh_runs(first, offsets, counts, np.array([1.0]), 3)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_never_reads_where_nothing_is(tmp_path: Path) -> None:
    """Every cut and thousands of mutations of real messages, each in an allocation of exactly its size, under the address and undefined-behaviour
    sanitizers."""
    program = tmp_path / "mutations"
    sources = [ROOT / "tests" / "fleet" / "otlp_mutations.cpp", ROOT / "bindings" / "otlp.cpp"]
    options = ["-std=c++17", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-static-libasan", "-static-libubsan"]
    built = subprocess.run(
        ["g++", *options, f"-I{ROOT / 'bindings'}", *map(str, sources), "-o", str(program)], capture_output=True, text=True, check=False
    )
    if built.returncode and "cannot find" in built.stderr:
        pytest.skip("this compiler has no sanitizers")
    assert built.returncode == 0, built.stderr
    files = []
    for i, body in enumerate((AGENTS, request(one(first=-1)), request(*[one(attributes=(("sealift.operator", f"op{j}"),)) for j in range(5)]))):
        files.append(tmp_path / f"{i}.bin")
        files[-1].write_bytes(inner(body))
    ran = subprocess.run([str(program), "3000", *map(str, files)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert int(ran.stdout.split()[0]) > 9000

"""Each sink writes what its readers read: a terminal, json, Perfetto's format, Prometheus' parser, an OTLP receiver, Arrow and DuckDB."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from sealift.observe.sinks import Delivery, Exporter, SinkError, SinkLibraryError, SinkSpecError, parse_sink
from sealift.observe.sinks.chrome_trace import ChromeTraceSink
from sealift.observe.sinks.json_lines import JsonLinesSink, read_json_lines
from sealift.observe.sinks.parquet import ParquetSink
from sealift.observe.sinks.prometheus import CONTENT_TYPE, PrometheusSink
from sealift.observe.sinks.resource import container_id, resource_attributes
from sealift.observe.sinks.sink import import_library
from sealift.observe.sinks.spec import FORMS
from sealift.observe.sinks.table import TableSink, duration_text, plain_text, rich_table, table_rows
from sealift.observe.snapshot import Process, Snapshot, bucket_middle_ns, merged
from tests.observe.sinks.otlp_receiver import hanging_server, receiver, refusing_url, wait_until
from tests.observe.sinks.samples import PROCESS, START, delta, series

ROOT = Path(__file__).parents[3]


# ---- names ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        "table",
        "json:a.jsonl",
        "chrome:t.json",
        "prometheus:9464",
        "prometheus:0.0.0.0:1",
        "otlp",
        "otlp:http://h:4318",
        "parquet:d",
        "fleet:http://h:4318",
    ],
)
def test_specs(spec: str) -> None:
    name, make = parse_sink(spec)
    assert name == spec
    make().close()


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "xml:a",
        "json",
        "json:",
        "chrome",
        "parquet",
        "prometheus",
        "prometheus:x",
        "prometheus:70000",
        "otlp:localhost",
        "fleet:localhost",
        "table:x",
    ],
)
def test_wrong_specs_say_the_way_out(spec: str) -> None:
    with pytest.raises(SinkSpecError, match="help: ") as caught:
        parse_sink(spec)
    assert caught.value.code == "E-SINK-002"


def test_every_form_is_known() -> None:
    for form in FORMS:
        kind = form.partition(":")[0].partition("[")[0]
        argument = {"json": ":a", "chrome": ":a", "prometheus": ":1", "parquet": ":a"}.get(kind, "")
        parse_sink(kind + argument)


def test_a_missing_library_names_the_extra() -> None:
    with pytest.raises(SinkLibraryError, match=r"sink 'x' needs no_such_library: .*help: pip install 'sealift\[observe\]'") as caught:
        import_library("no_such_library.part", "x")
    assert caught.value.code == "E-SINK-001" and isinstance(caught.value, ImportError)


# ---- table ---------------------------------------------------------------------------------------------------------------------


def test_table() -> None:
    text = plain_text(table_rows(delta()))
    assert (
        text
        == r"""1.00 s, 1 process, 7 samples (probability 0.01, duty cycle 0.5), overhead 0.20%
operator                model              calls    total  busy     self     mean      p50      p99  stands for
aten::mm [8, 8] [8, 8]  tenant=a"b\c?d  400 ±98%   800 us  0.1%           2.00 us   980 ns  5.08 us
k7_mm_gelu              ranker:7               3  8.19 us  0.0%  8.19 us  2.73 us  3.92 us  4.27 us  aten.mm @ model.py:12 enc.0
an operator's total holds the operators it calls
3 events had no room for an operator of their own
1 events were lost"""
    )


def test_table_leaves_out_empty_columns_and_short_rows() -> None:
    many = Snapshot(0, 1000, tuple(series(f"op{i}", [i + 1], source="sealift") for i in range(30)))
    text = plain_text(table_rows(many, limit=5))
    assert "self" not in text and "model" not in text
    assert "and 25 more operators with 325 ns" in text
    assert text.count("\nop") == 6  # heading and five
    assert plain_text(table_rows(Snapshot(0, 1))) == "1 ns, 1 process, 0 samples: no operators"


def test_rich_table_has_every_cell() -> None:
    console = pytest.importorskip("rich.console")
    out = io.StringIO()
    console.Console(file=out, width=200).print(rich_table(table_rows(delta())))
    for text in ("aten::mm", "k7_mm_gelu", "ranker:7", "400 ±98%", "aten.mm @ model.py:12 enc.0", "1 events were lost"):
        assert text in out.getvalue()


def test_a_narrow_terminal_loses_columns_not_digits() -> None:
    console = pytest.importorskip("rich.console")
    for width in (50, 60, 80, 100, 140):
        out = io.StringIO()
        console.Console(file=out, width=width).print(rich_table(table_rows(delta()), width))
        assert "aten::mm" in out.getvalue() and "5.08 us" in out.getvalue() and "400 ±98%" in out.getvalue() and "800 us" in out.getvalue()
        assert max(map(len, out.getvalue().splitlines())) <= width
        assert ("busy" in out.getvalue()) == (width == 140)


def test_table_sink_prints_the_sum_once() -> None:
    out = io.StringIO()
    sink = TableSink(out)
    sink.write(delta(0))
    sink.write(delta(1, Process(1, "b", "other")))
    assert out.getvalue() == ""
    sink.close()
    assert out.getvalue().startswith("2.00 s, 2 processes, 14 samples")
    assert " 800 ±69%" in out.getvalue()


@pytest.mark.parametrize(
    ("ns", "text"), [(0, "0 ns"), (999, "999 ns"), (1000, "1.00 us"), (12_340, "12.3 us"), (999_000_000, "999 ms"), (61e9, "61.0 s")]
)
def test_durations(ns: float, text: str) -> None:
    assert duration_text(ns) == text


# ---- JSON lines ----------------------------------------------------------------------------------------------------------------


def test_json_lines_round_trip_by_process(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "sub" / "{pid}-{id}.jsonl")
    other = Process(12, "host", "b")
    for one in (delta(0), delta(1), delta(0, other)):
        sink.write(one)
    sink.close()
    assert read_json_lines(tmp_path / "sub" / f"4711-{PROCESS.start_id}.jsonl") == [delta(0), delta(1)]
    assert read_json_lines(tmp_path / "sub" / "12-b.jsonl") == [delta(0, other)]


FULL_DISK = """
import resource, signal, sys, time
from sealift.observe.sinks import Delivery, Exporter, parse_sink
from sealift.observe.snapshot import Snapshot
from tests.observe.sinks.samples import delta
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
exporter = Exporter(lambda: Snapshot(0, 1), dict([parse_sink(sys.argv[1])]), 60, Delivery(first_retry_s=0.01, exit_deadline_s=1)).start()
for i in range(40):
    exporter.put(delta(i))
while not exporter.status[0].last_error:
    time.sleep(0.01)
if sys.argv[3] == "freed":
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    exporter.flush(20)
status, = exporter.close(0.2, final_tick=False)
print(status.written, status.lost_samples, status.lost_events)
"""


def full_disk(spec: str, limit: int, then: str) -> tuple[int, int, int]:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, spec, str(limit), then], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"sink {spec}: ")  # said once, and what was lost at the end
    assert ("lost" in done.stderr) == (then == "full")
    written, samples, events = map(int, done.stdout.split())
    return written, samples, events


@pytest.mark.parametrize("then", ["full", "freed"])
def test_json_lines_on_a_full_disk(tmp_path: Path, then: str) -> None:
    path = tmp_path / "a.jsonl"
    _, lost, _ = full_disk(f"json:{path}", 5000, then)
    total = merged(read_json_lines(path))
    assert total is not None
    samples = sum(s.samples for s in total.series)
    assert samples + lost == 40 * 7
    assert (lost == 0) == (then == "freed")
    assert samples > 0


@pytest.mark.parametrize("then", ["full", "freed"])
def test_chrome_trace_on_a_full_disk(tmp_path: Path, then: str) -> None:
    path = tmp_path / "t.json"
    _, _, lost = full_disk(f"chrome:{path}", 2000, then)
    text = path.read_text()
    if then == "freed":
        assert lost == 0
        assert len([e for e in json.loads(text) if e["ph"] == "X"]) == 80
    else:
        assert lost > 0
        assert text.startswith("[\n{")


@pytest.mark.parametrize("kind", ["json", "chrome"])
def test_a_descriptor_that_the_program_closed_and_uses_again(tmp_path: Path, kind: str) -> None:
    """As programs that become daemons do: nothing is written into what is the program's now."""
    path, own = tmp_path / "out", tmp_path / "own"
    sink = parse_sink(f"{kind}:{path}")[1]()
    sink.write(delta(0))
    (number,) = [int(p.name) for p in Path("/proc/self/fd").iterdir() if os.path.realpath(p) == str(path)]
    with open(own, "wb") as file:
        os.dup2(file.fileno(), number)
    sink.write(delta(1))
    sink.write(delta(2))
    sink.close()
    os.close(number)
    assert own.read_bytes() == b""
    if kind == "json":
        assert read_json_lines(path) == [delta(i) for i in range(3)]
    else:
        assert len([e for e in json.loads(path.read_text()) if e["ph"] == "X"]) == 3 * len(delta(0).events)


# ---- Chrome trace --------------------------------------------------------------------------------------------------------------


def test_chrome_trace_is_what_perfetto_reads(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    sink = ChromeTraceSink(path)
    sink.write(replace(delta(0), events=()))
    assert not path.exists()
    sink.write(delta(0))
    sink.write(delta(1, Process(12, "host-b", "b")))
    unclosed = path.read_text()
    sink.close()
    events = json.loads(path.read_text())
    assert json.loads(unclosed + "]") == events  # a killed process leaves an array without its bracket
    calls = [e for e in events if e["ph"] == "X"]
    assert [(e["pid"], e["tid"], e["ts"], e["dur"]) for e in calls] == [
        (4711, 11, 0.0, 0.999),
        (4711, 12, 1.0, 0.999),
        (12, 11, 1_000_000.0, 0.999),
        (12, 12, 1_000_001.0, 0.999),
    ]
    assert calls[0]["name"] == "aten::mm" and calls[0]["args"] == {"step": 0, "shapes": "[8, 8]"}
    names = {(e["name"], e["pid"], e["tid"]): e["args"] for e in events if e["ph"] == "M"}
    assert names["process_name", 4711, 0] == {"name": "host-a 4711", "start_id": PROCESS.start_id, "base_unix_ns": str(START)}
    assert ("thread_name", 12, 12) in names
    named_first = {(e["pid"], e["tid"]) for e in events[:3] if e["ph"] == "M"}
    assert (4711, 11) in named_first


# ---- Prometheus ----------------------------------------------------------------------------------------------------------------


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"] == CONTENT_TYPE
        return str(answer.read().decode())


def test_prometheus_parses_the_exposition() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    sink = PrometheusSink(0)
    sink.write(delta(0))
    sink.write(delta(1))
    families = {f.name: f for f in parser.text_string_to_metric_families(scrape(sink.port))}
    sink.close()
    duration = families["sealift_operator_duration_seconds"]
    assert duration.type == "histogram"
    mm = [s for s in duration.samples if s.labels["operator"] == "aten::mm"]
    assert all(s.labels["label_tenant"] == 'a"b\\c\nd' for s in mm)  # escaped and back
    buckets = {float(s.labels["le"]): s.value for s in mm if s.name.endswith("_bucket")}
    assert buckets[float("inf")] == 800 == next(s.value for s in mm if s.name.endswith("_count"))
    assert buckets[512e-9] == 0 and buckets[1024e-9] == 400 and buckets[2048e-9] == 600 and buckets[4096e-9] == 600 and buckets[8192e-9] == 800
    assert list(buckets.values()) == sorted(buckets.values())
    assert next(s.value for s in mm if s.name.endswith("_sum")) == pytest.approx(2 * 800_000e-9)
    kernel = {s.labels["le"]: s.value for s in duration.samples if s.labels["operator"] == "k7_mm_gelu" and s.name.endswith("_bucket")}
    assert kernel["2.56e-07"] == 2  # the zeros
    assert kernel["4.096e-06"] == 4  # 4096 is in the bucket that ends there, 4097 is not
    assert {f for f in families if not f.startswith("sealift_operator")} == {
        "sealift_observe_dropped", "sealift_observe_overflow", "sealift_observe_overhead_ratio", "sealift_observe_sampling_probability"}  # fmt: skip
    assert families["sealift_observe_dropped"].samples[0].value == 2
    assert families["sealift_operator_samples"].samples[0].value == 8


def test_prometheus_series_are_bounded_and_counters_never_fall() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    sink = PrometheusSink(0, max_series=3)
    before: dict[object, float] = {}
    for round in range(3):
        sink.write(Snapshot(round, round + 1, tuple(series(f"op{i}", [100 * (i + round)]) for i in range(10))))
        samples = [s for f in parser.text_string_to_metric_families(scrape(sink.port)) for s in f.samples if s.labels.get("operator")]
        now = {(s.name, *sorted(s.labels.items())): s.value for s in samples}
        assert all(now[key] >= value for key, value in before.items())
        assert len({s.labels["operator"] for s in samples}) == 4
        before = now
    assert sum(s.value for s in samples if s.name.endswith("_count")) == 30
    sink.close()


def test_a_taken_port_is_refused_with_the_way_out() -> None:
    first = PrometheusSink(0)
    first.write(delta())
    with pytest.raises(SinkError, match=r"cannot listen on .*help: another port") as caught:
        PrometheusSink(first.port).write(delta())
    assert caught.value.code == "E-SINK-003"
    first.close()


def test_a_slow_scraper_does_not_hold_up_the_sink() -> None:
    import socket

    sink = PrometheusSink(0)
    sink.write(delta())
    with socket.create_connection(("127.0.0.1", sink.port)):  # says nothing
        assert "sealift_operator" in scrape(sink.port)
        start = time.monotonic()
        sink.write(delta(1))
        sink.close()
        assert time.monotonic() - start < 5


# ---- OTLP ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def otel() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")


def attributes_of(items: object) -> dict[str, object]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in items}  # type: ignore[attr-defined]


@pytest.mark.usefixtures("otel")
def test_otlp_carries_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "ranker-service")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("POD_NAME", "pod-1")
    with receiver() as got:
        sink = parse_sink(f"otlp:{got.url}")[1]()
        sink.write(delta(0))
        sink.write(delta(1))
        sink.close()
    first, second = (m.resource_metrics[0] for m in got.metrics)
    resource = attributes_of(first.resource.attributes)
    expected = {
        "service.name": "ranker-service", "service.instance.id": PROCESS.start_id, "host.name": "host-a", "process.pid": 4711, "slurm.job_id": "77",
        "k8s.pod.name": "pod-1", "deployment.environment": "test", "telemetry.sdk.language": "python", "sealift.batch.sequence": 0}  # fmt: skip
    assert resource.items() >= expected.items()
    assert attributes_of(second.resource.attributes)["sealift.batch.sequence"] == 2  # 1 was the logs'
    assert first.scope_metrics[0].scope.name == "sealift.observe"
    metrics = {m.name: m for m in first.scope_metrics[0].metrics}
    assert set(metrics) == {"sealift.operator.duration", "sealift.operator.samples", "sealift.operator.self_time", "sealift.observe.dropped",
                            "sealift.observe.overflow", "sealift.observe.overhead"}  # fmt: skip
    duration = metrics["sealift.operator.duration"]
    assert duration.unit == "ns"
    assert duration.exponential_histogram.aggregation_temporality == 1  # delta
    mm, kernel = duration.exponential_histogram.data_points
    assert attributes_of(mm.attributes) == {"sealift.operator": "aten::mm", "sealift.source": "torch", "sealift.scope": "function",
                                            "sealift.shapes": "[8, 8] [8, 8]", "sealift.label.tenant": 'a"b\\c\nd'}  # fmt: skip
    assert attributes_of(kernel.attributes)["sealift.model.id"] == "ranker:7"
    assert attributes_of(kernel.attributes)["sealift.origin"] == "aten.mm @ model.py:12 enc.0"
    assert (mm.scale, mm.count, mm.sum, mm.zero_count) == (3, 400, 800_000, 0)
    assert (mm.start_time_unix_nano, mm.time_unix_nano) == (START, START + 1_000_000_000)
    buckets = {mm.positive.offset + i: n for i, n in enumerate(mm.positive.bucket_counts) if n}
    assert buckets == delta().series[0].histogram.buckets
    assert (kernel.count, kernel.zero_count, sum(kernel.positive.bucket_counts)) == (3, 1, 2)
    assert kernel.positive.offset == 95 and list(kernel.positive.bucket_counts) == [1, 1]  # 4096 = 2**12 closes bucket 8*12 - 1
    assert not mm.HasField("min") and not mm.HasField("max")
    samples = metrics["sealift.operator.samples"].sum
    assert samples.is_monotonic and samples.aggregation_temporality == 1 and [p.as_int for p in samples.data_points] == [4, 3]
    assert [p.as_int for p in metrics["sealift.operator.self_time"].sum.data_points] == [8193]
    assert metrics["sealift.observe.dropped"].sum.data_points[0].as_int == 1
    assert metrics["sealift.observe.overflow"].sum.data_points[0].as_int == 3
    assert metrics["sealift.observe.overhead"].gauge.data_points[0].as_double == 0.002
    assert len(got.logs) == 1
    records = got.logs[0].resource_logs[0].scope_logs[0].log_records
    by_name = {r.event_name: attributes_of(r.attributes) for r in records}
    assert by_name["sealift.api_usage"] == {"event.name": "sealift.api_usage", "sealift.api.key": "torch.save"}
    assert by_name["sealift.model.loaded"] == {
        "event.name": "sealift.model.loaded", "sealift.model.id": "ranker:7", "sealift.model.digest": "sha256:ab", "sealift.model.serialization_id": "sid",
        "sealift.model.path": "m.pt2", "sealift.model.format": "sealift", "sealift.model.producer": "ci", "sealift.model.signed": True}  # fmt: skip
    assert records[0].time_unix_nano == START + 5
    assert attributes_of(got.logs[0].resource_logs[0].resource.attributes)["sealift.batch.sequence"] == 1


@pytest.mark.usefixtures("otel")
def test_otlp_retries_keep_the_sequence_and_send_nothing_twice() -> None:
    """The first metrics request is refused, then the logs are: what was taken is not sent again."""
    with receiver(lambda path, count: 400 if count == 0 else 200) as got:
        exporter = Exporter(lambda: Snapshot(0, 1), dict([parse_sink(f"otlp:{got.url}")]), 60, Delivery(first_retry_s=0.01)).start()
        exporter.put(delta(0))
        assert exporter.flush(20)
        exporter.close(final_tick=False)
    assert (len(got.metrics), len(got.logs), got.requests) == (1, 1, 4)
    assert attributes_of(got.metrics[0].resource_metrics[0].resource.attributes)["sealift.batch.sequence"] == 0
    assert exporter.status[0].retries == 2


@pytest.mark.usefixtures("otel")
@pytest.mark.parametrize("kind", ["hangs", "refuses", "errors"])
def test_an_otlp_server_that_is_down_never_blocks(kind: str) -> None:
    def check(url: str) -> None:
        exporter = Exporter(lambda: Snapshot(0, 1), dict([parse_sink(f"otlp:{url}")]), 60, Delivery(first_retry_s=0.01)).start()
        start = time.monotonic()
        for i in range(5):
            exporter.put(delta(i))
        assert time.monotonic() - start < 1
        assert not exporter.flush(0.5)
        status = exporter.close(0.5, final_tick=False)[0]
        assert time.monotonic() - start < 6
        assert (status.written, status.lost_batches, status.lost_samples) == (0, 5, 35)

    if kind == "hangs":
        with hanging_server() as url:
            check(url)
    elif kind == "refuses":
        check(refusing_url())
    else:
        with receiver(lambda path, count: 503) as got:
            check(got.url)


@pytest.mark.usefixtures("otel")
def test_an_otlp_server_that_comes_back_gets_everything() -> None:
    up = False
    with receiver(lambda path, count: 200 if up else 500) as got:
        exporter = Exporter(lambda: Snapshot(0, 1), dict([parse_sink(f"otlp:{got.url}")]), 60, Delivery(first_retry_s=0.01, queue_batches=3)).start()
        for i in range(10):
            exporter.put(delta(i))
        assert wait_until(lambda: exporter.status[0].retries > 1)
        up = True
        assert exporter.flush(30)
        exporter.close(final_tick=False)
    points = [
        p
        for m in got.metrics
        for x in m.resource_metrics[0].scope_metrics[0].metrics
        if x.name == "sealift.operator.samples"
        for p in x.sum.data_points
    ]
    assert sum(p.as_int for p in points) == 70
    assert len(got.metrics) <= 4
    sequences = [attributes_of(m.resource_metrics[0].resource.attributes)["sealift.batch.sequence"] for m in got.metrics]
    assert sequences == sorted(set(sequences))  # type: ignore[type-var]


def test_resource_attributes(tmp_path: Path) -> None:
    found = resource_attributes({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "pod-9", "SLURM_PROCID": "3"}, tmp_path)
    assert found["k8s.pod.name"] == "pod-9" and found["slurm.procid"] == "3" and found["host.name"] and "container.id" not in found
    identity = "ab" * 32
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "mountinfo").write_text(
        f"1 2 0:1 /var/lib/docker/overlay2/{'cd' * 32} / rw\n3 4 0:1 /var/lib/docker/containers/{identity}/hostname /etc/hostname rw\n"
    )
    assert container_id(tmp_path) == identity
    (tmp_path / "cgroup").write_text(f"12:cpu:/docker/{'ef' * 32}\n")
    assert container_id(tmp_path) == "ef" * 32


# ---- Parquet -------------------------------------------------------------------------------------------------------------------


def test_parquet_is_read_by_arrow(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    sink = parse_sink(f"parquet:{tmp_path / 'd'}")[1]()
    sink.write(delta(0))
    sink.write(delta(1))
    sink.write(Snapshot(0, 1))  # empty: no file
    files = sorted((tmp_path / "d").iterdir())
    assert len(files) == 2 and all(f.suffix == ".parquet" for f in files)
    rows = parquet.read_table(tmp_path / "d").to_pylist()
    assert len(rows) == 4
    mm = next(r for r in rows if r["operator"] == "aten::mm")
    assert (mm["count"], mm["samples"], mm["total_ns"], mm["self_ns"], mm["start_id"]) == (400, 4, 800_000, None, PROCESS.start_id)
    assert dict(mm["buckets"]) == delta().series[0].histogram.buckets
    assert dict(mm["labels"]) == {"tenant": 'a"b\\c\nd'}


def test_parquet_is_read_by_duckdb(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    sink = parse_sink(f"parquet:{tmp_path}")[1]()
    for i in range(3):
        sink.write(delta(i))
    query = f"select operator, sum(count), sum(total_ns) from '{tmp_path}/*.parquet' group by 1 order by 3 desc"
    assert duckdb.sql(query).fetchall() == [("aten::mm", 1200, 2_400_000), ("k7_mm_gelu", 9, 24_579)]
    quantile = f"""
        with buckets as (select unnest(map_entries(buckets)) as e from '{tmp_path}/*.parquet' where operator = 'aten::mm')
        select quantile_disc(2 ** (e.key / 8.0), 0.5) from buckets"""
    assert bucket_middle_ns(79) * 0.9 < duckdb.sql(quantile).fetchall()[0][0] < 5000


def test_parquet_on_a_full_disk_leaves_no_half_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    _, lost, _ = full_disk(f"parquet:{tmp_path}", 3000, "full")
    assert lost == 280
    assert [p for p in tmp_path.iterdir() if not p.name.startswith(".")] == []  # none that a reader would take
    # The process may end in the middle of a try; whoever writes there next sweeps up.
    ParquetSink(tmp_path).write(delta(0))
    assert [p.suffix for p in tmp_path.iterdir()] == [".parquet"]


DIES_WRITING = """
import os, sys
import pyarrow.parquet
from sealift.observe.sinks.parquet import ParquetSink
from tests.observe.sinks.samples import delta
def write_table(table, file, **options):
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.readline()
    os._exit(1)
pyarrow.parquet.write_table = write_table
ParquetSink(sys.argv[1]).write(delta(0))
"""


def test_parquet_sweeps_what_the_dead_left_and_nothing_of_the_living(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    command = [sys.executable, "-c", DIES_WRITING, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "writing\n"
        ParquetSink(tmp_path).write(delta(1))
        assert sorted(p.suffix for p in tmp_path.iterdir()) == [".parquet", ".tmp"]
        writer.communicate("die\n")
    ParquetSink(tmp_path).write(delta(2))
    assert {p.suffix for p in tmp_path.iterdir()} == {".parquet"}

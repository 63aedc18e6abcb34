"""Programs that are not ours: OpenTelemetry's SDK sends to the collector, with its own exporter and through observe's
sink; rotel stands between."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sealift.fleet import connect
from sealift.fleet.agent import FleetSink
from sealift.fleet.collector.limits import Limits
from sealift.fleet.store.embedded import EmbeddedStore
from tests.fleet.conftest import START_S, Fleet, fill
from tests.fleet.test_agent import delta, free_port, kept, wait_for

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http.metric_exporter")
ROOT = Path(__file__).resolve().parents[2]
Serving = Callable[..., str]


def test_observe_s_own_otlp_sink(store: EmbeddedStore, serving: Serving) -> None:
    from sealift.observe.sinks.otlp import OtlpSink

    url = serving(store)
    sink = OtlpSink(url)
    for i in range(3):
        sink.write(delta(i))
    sink.close()
    (row,) = connect(url).top(by=["operator", "model", "host", "label:phase"], start=START_S, end=START_S + 100).to_pylist()
    assert (row["operator"], row["model"], row["host"], row["label:phase"]) == ("aten::mm", "m", "h1", "train")
    assert (row["count"], row["samples"], row["total_ns"], row["self_ns"]) == (30, 15, 60_000, 27_000)
    assert connect(url).apis().to_pylist()[0]["api"] == "torch.load" and connect(url).lineage().num_rows == 1


def test_the_sdk_s_exporter_with_an_instrument_of_the_user_s(store: EmbeddedStore, serving: Serving) -> None:
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import Histogram, MeterProvider
    from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
    from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View

    url = serving(store)
    exporter = OTLPMetricExporter(
        endpoint=f"{url}/v1/metrics", compression=Compression.Gzip, preferred_temporality={Histogram: AggregationTemporality.DELTA}
    )
    view = View(instrument_name="sealift.operator.duration", aggregation=ExponentialBucketHistogramAggregation(max_size=160, max_scale=10))
    provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)], views=[view])
    meter = provider.get_meter("mine")
    histogram = meter.create_histogram("sealift.operator.duration", unit="ns")
    values = [1000 * (i + 1) for i in range(500)]
    for value in values:
        histogram.record(value, {"sealift.operator": "mine::step", "sealift.label.phase": "x"})
    meter.create_counter("other").add(1)
    provider.shutdown()
    (row,) = connect(url).top(by=["operator", "label:phase"], start="-1h", end=time.time() + 100).to_pylist()
    assert (row["operator"], row["count"], row["total_ns"], row["label:phase"]) == ("mine::step", 500, sum(values), "x")
    assert row["p50_ns"] == pytest.approx(250_000, rel=0.0434) and row["p99_ns"] == pytest.approx(495_000, rel=0.0434)
    assert row["p90_ns_low"] <= 450_000 <= row["p90_ns_high"]


def test_rotel_between_agent_and_collector(
    store: EmbeddedStore, serving: Serving, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """A relay that joins and compresses batches as it likes: the numbers arrive as they left, and once. SEALIFT_TEST_ROTEL names its program (PyPI: rotel)."""
    program = os.environ.get("SEALIFT_TEST_ROTEL", "")
    if not program:
        pytest.skip("no rotel")
    url, http_port, grpc_port = serving(store), free_port(), free_port()
    command = [program, "start", "--otlp-http-endpoint", f"127.0.0.1:{http_port}", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc_port}", "--exporter", "otlp",
               "--otlp-exporter-endpoint", url, "--otlp-exporter-protocol", "http"]  # fmt: skip
    with open(tmp_path / "log", "w") as log:
        relay = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        agent = FleetSink(f"http://127.0.0.1:{http_port}", spool=tmp_path / "spool", attributes={"service.name": "trainer"})
        for i in range(8):
            agent.write(delta(i))
        wait_for(lambda: agent.delivered == 9)
        agent.close()
        wait_for(lambda: store.committed_points == 8)
        record_property("rotel_batches", agent.delivered)
        record_property("rotel_points", store.committed_points)
    finally:
        relay.terminate()
        relay.wait(600)
    row = kept(store)
    assert (row["count"], row["samples"], row["total_ns"], row["self_ns"]) == (80, 40, 10_000 * 36, 72_000), (tmp_path / "log").read_text()
    wait_for(lambda: connect(url).apis().num_rows == 1)


def test_prometheus_scrapes_the_collector(
    store: EmbeddedStore, serving: Serving, fleet: Fleet, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Its own checks find no fault in the page, it scrapes it with a token, and what it keeps is what the collector counts."""
    programs = os.environ.get("SEALIFT_TEST_PROMETHEUS", "")
    if not programs:
        pytest.skip("no Prometheus: make fleet-peers")
    url = serving(store, limits=Limits(read_tokens=("r",), query_seconds=600.0), clock_ns=lambda: fleet.end_s * 10**9)
    fill(store, fleet.batches())
    request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": "Bearer r"})
    page = urllib.request.urlopen(request, timeout=600).read()
    checked = subprocess.run([f"{programs}/promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr.decode()
    config = tmp_path / "prometheus.yml"
    target = urllib.parse.urlsplit(url).netloc
    config.write_text(
        f"scrape_configs: [{{job_name: fleet, scrape_interval: 1s, authorization: {{credentials: r}}, static_configs: [{{targets: ['{target}']}}]}}]"
    )
    command = [f"{programs}/prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}", "--web.listen-address=127.0.0.1:0"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        listening = re.compile(r'msg="Listening on" address=(\S+)')
        wait_for(lambda: listening.search((tmp_path / "log").read_text()) is not None)
        found = listening.search((tmp_path / "log").read_text())
        assert found

        def is_ready() -> bool:
            try:
                return bool(urllib.request.urlopen(f"http://{found[1]}/-/ready", timeout=600).status == 200)
            except urllib.error.HTTPError:  # 503: it reads its log of writes
                return False

        wait_for(is_ready)

        def ask(query: str) -> list[dict[str, Any]]:
            with urllib.request.urlopen(f"http://{found[1]}/api/v1/query?{urllib.parse.urlencode({'query': query})}", timeout=600) as answer:
                results: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                return results

        wait_for(lambda: [r["value"][1] for r in ask('up{job="fleet"}')] == ["1"])
        wanted = connect(url, "r").top(by=["operator", "model"], start=fleet.end_s - 300, end=fleet.end_s + 10, limit=30).to_pylist()
        seconds = {(r["operator"], r["model"]): pytest.approx(r["total_ns"] / 1e9, rel=1e-12) for r in wanted}

        def kept_of(name: str) -> dict[tuple[str, str], float]:
            return {(r["metric"]["operator"], r["metric"].get("model", "")): float(r["value"][1]) for r in ask(name)}  # an empty label is none

        wait_for(lambda: kept_of("sealift_operator_seconds") == seconds)
        board = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
        expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        for expression in expressions:
            ask(re.sub(r"\$\w+", ".*", expression))  # an error of its grammar is a status 400
        record_property("prometheus_series", len(ask('{job="fleet"}')))
        record_property("prometheus_expressions", len(expressions))
    finally:
        process.terminate()
        process.wait(600)

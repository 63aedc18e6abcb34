"""Programs that are not ours: OpenTelemetry's SDK sends to the collector, with its own exporter and through observe's sink."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from sealift.fleet import connect
from sealift.fleet.store.embedded import EmbeddedStore
from tests.fleet.conftest import START_S
from tests.fleet.test_agent import delta

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http.metric_exporter")
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

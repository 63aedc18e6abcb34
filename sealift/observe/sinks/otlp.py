"""OTLP over HTTP, encoded and sent by the official OpenTelemetry SDK's exporters: exponential histograms with delta temporality for any
OpenTelemetry pipeline. The names are documented in docs/guides/profile.md."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from sealift.observe.sinks.resource import process_name, resource_attributes
from sealift.observe.sinks.sink import LANE_THREADS, import_library
from sealift.observe.snapshot import SCALE, Histogram, ModelEvent, Series, Snapshot
from sealift.version import VERSION

_log = logging.getLogger("sealift.observe")
SCOPE = "sealift.observe"
_TIMEOUT_S = 5.0  # of one request; the exporter tries again by itself within it, our lane after it


class OtlpSink:
    """Every request carries resource attribute sealift.batch.sequence, which counts up for each process and stays the same when a request
    is tried again, so that a receiver can count it once."""

    def __init__(self, endpoint: str = "", timeout_s: float = _TIMEOUT_S) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._timeout_s = timeout_s
        self._sequences: dict[str, int] = {}  # by process start
        self._requests: tuple[Snapshot, list[Callable[[], bool]]] | None = None  # of the batch under way, those not yet taken
        self._sdk: _Sdk | None = None
        self._logs: _Logs | None = None

    def open(self) -> None:
        self._sdk = _Sdk(self._endpoint, self._timeout_s)
        with suppress(RuntimeError):  # the program is ending already: write() tells what that costs
            self._logs = _Logs(self._sdk)

    def write(self, delta: Snapshot) -> None:
        sdk = self._sdk = self._sdk or _Sdk(self._endpoint, self._timeout_s)
        if self._requests is None or self._requests[0] is not delta:
            self._requests = (delta, self._prepared(sdk, delta))
        waiting = self._requests[1]
        while waiting:
            if not waiting[0]():
                raise ConnectionError(f"{self._endpoint or 'the OTLP endpoint'} did not take the batch")
            waiting.pop(0)
        self._requests = None

    def close(self) -> None:
        for one in (self._sdk, self._logs):
            if one is not None:
                one.shutdown()

    def _prepared(self, sdk: _Sdk, delta: Snapshot) -> list[Callable[[], bool]]:
        metrics = sdk.metrics_data(delta, self._next_sequence(delta))
        requests: list[Callable[[], bool]] = [lambda: sdk.send_metrics(metrics)]
        if delta.api_usage or delta.model_events:
            try:
                logs = self._logs = self._logs or _Logs(sdk)
            except RuntimeError as error:  # a program that ends before open() has imported it
                _log.warning("%d log records are lost: %s", len(delta.api_usage) + len(delta.model_events), error)
                return requests
            records = logs.records(delta, self._next_sequence(delta))
            requests.append(lambda: logs.send(records))
        return requests

    def _next_sequence(self, delta: Snapshot) -> int:
        sequence = self._sequences.get(delta.process.start_id, 0)
        self._sequences[delta.process.start_id] = sequence + 1
        return sequence


class _Sdk:
    """The parts of the SDK we use: its data classes, its encoder and its exporters. No global provider is touched."""

    def __init__(self, endpoint: str, timeout_s: float) -> None:
        self.export: Any = import_library("opentelemetry.sdk.metrics.export", "otlp")
        self.resources: Any = import_library("opentelemetry.sdk.resources", "otlp")
        scope = import_library("opentelemetry.sdk.util.instrumentation", "otlp")
        metric_exporter = import_library("opentelemetry.exporter.otlp.proto.http.metric_exporter", "otlp")
        gzip = import_library("opentelemetry.exporter.otlp.proto.http", "otlp").Compression.Gzip
        self.options = {"timeout": timeout_s, "compression": gzip}
        self.endpoint = endpoint
        self.scope = scope.InstrumentationScope(SCOPE, VERSION)
        self._metrics = metric_exporter.OTLPMetricExporter(endpoint=f"{endpoint}/v1/metrics" if endpoint else None, **self.options)
        _quieten(metric_exporter)
        version = import_library("opentelemetry.sdk.version", "otlp").__version__
        sdk = {"telemetry.sdk.language": "python", "telemetry.sdk.name": "opentelemetry", "telemetry.sdk.version": version}
        self._own = {"service.name": process_name(sys.argv), **sdk, **resource_attributes(os.environ)}

    def send_metrics(self, data: Any) -> bool:
        return bool(self._metrics.export(data) == self.export.MetricExportResult.SUCCESS)

    def shutdown(self) -> None:
        self._metrics.shutdown()

    def resource(self, delta: Snapshot, sequence: int) -> Any:
        """Ours, over which OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win."""
        process = {"service.instance.id": delta.process.start_id, "process.pid": delta.process.pid, "sealift.batch.sequence": sequence}
        if delta.process.host:
            process["host.name"] = delta.process.host
        # Not Resource.create(), which asks its detectors on a thread pool: at the end of a process there are none.
        kind = self.resources.Resource
        return kind(self._own).merge(self.resources.OTELResourceDetector().detect()).merge(kind(process))

    # ---- metrics

    def metrics_data(self, delta: Snapshot, sequence: int) -> Any:
        times = {"start_time_unix_nano": delta.start_unix_ns, "time_unix_nano": delta.end_unix_ns}
        rows = [(one, attributes(one)) for one in delta.series if one.samples or one.count]
        metrics = []
        if rows:
            points = [self._histogram_point(one, keys, times) for one, keys in rows]
            histogram = self.export.ExponentialHistogram(points, self.export.AggregationTemporality.DELTA)
            metrics.append(self._metric("sealift.operator.duration", "ns", "Durations of an operator's calls; counts are estimates.", histogram))
            metrics.append(self._sum("sealift.operator.samples", "{sample}", [(keys, one.samples) for one, keys in rows], times))
        known = [(keys, one.self_ns) for one, keys in rows if one.self_ns is not None]
        if known:
            metrics.append(self._sum("sealift.operator.self_time", "ns", known, times))
        metrics.append(self._sum("sealift.observe.dropped", "{event}", [({}, delta.dropped)], times))
        metrics.append(self._sum("sealift.observe.overflow", "{event}", [({}, delta.overflow)], times))
        overhead = self.export.Gauge([self.export.NumberDataPoint({}, value=float(delta.sampling.overhead), **times)])
        metrics.append(self._metric("sealift.observe.overhead", "1", "Share of the running time that recording took.", overhead))
        scope = self.export.ScopeMetrics(self.scope, metrics, "")
        return self.export.MetricsData([self.export.ResourceMetrics(self.resource(delta, sequence), [scope], "")])

    def _histogram_point(self, one: Series, keys: dict[str, str], times: dict[str, int]) -> Any:
        offset, counts = dense_buckets(one.histogram)
        return self.export.ExponentialHistogramDataPoint(
            attributes=keys,
            count=one.histogram.count,  # of the buckets, as OTLP requires
            sum=one.total_ns,
            scale=SCALE,
            zero_count=one.histogram.zero_count,
            positive=self.export.Buckets(offset, counts),
            negative=self.export.Buckets(0, []),
            flags=0,
            min=None,
            max=None,
            **times,
        )

    def _sum(self, name: str, unit: str, values: Iterable[tuple[dict[str, str], int]], times: dict[str, int]) -> Any:
        points = [self.export.NumberDataPoint(keys, value=value, **times) for keys, value in values]
        return self._metric(name, unit, "", self.export.Sum(points, self.export.AggregationTemporality.DELTA, True))

    def _metric(self, name: str, unit: str, description: str, data: Any) -> Any:
        return self.export.Metric(name, description, unit, data)


class _Logs:
    """The SDK's part for log records. Its import asks resource detectors on a thread pool, which the end of a process has not."""

    def __init__(self, sdk: _Sdk) -> None:
        self._sdk = sdk
        self._records: Any = import_library("opentelemetry.sdk._logs", "otlp")
        self._export: Any = import_library("opentelemetry.sdk._logs.export", "otlp")
        self._api: Any = import_library("opentelemetry._logs", "otlp")
        module = import_library("opentelemetry.exporter.otlp.proto.http._log_exporter", "otlp")
        self._exporter = module.OTLPLogExporter(endpoint=f"{sdk.endpoint}/v1/logs" if sdk.endpoint else None, **sdk.options)
        _quieten(module)

    def send(self, records: Any) -> bool:
        return bool(self._exporter.export(records) == self._export.LogRecordExportResult.SUCCESS)

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def records(self, delta: Snapshot, sequence: int) -> list[Any]:
        resource = self._sdk.resource(delta, sequence)
        events = [("sealift.api_usage", when, {"sealift.api.key": key}) for key, when in delta.api_usage.items()]
        events += [(f"sealift.model.{event.kind}", event.unix_ns, model_attributes(event)) for event in delta.model_events]
        return [self._record(resource, name, when, values, delta.end_unix_ns) for name, when, values in events]

    def _record(self, resource: Any, name: str, unix_ns: int, values: dict[str, Any], seen_unix_ns: int) -> Any:
        record = self._api.LogRecord(
            timestamp=unix_ns,
            observed_timestamp=seen_unix_ns,
            severity_number=self._api.SeverityNumber.INFO,
            attributes={"event.name": name, **values},
            event_name=name,
        )
        return self._records.ReadableLogRecord(log_record=record, resource=resource, instrumentation_scope=self._sdk.scope)


def _quieten(exporter_module: Any) -> None:
    if not any(isinstance(f, _NotFromOurThreads) for f in exporter_module._logger.filters):
        exporter_module._logger.addFilter(_NotFromOurThreads())


class _NotFromOurThreads(logging.Filter):
    """The exporters log every failed request; the lane says once what is wrong. What the program sends itself is logged as ever."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.threadName or "").startswith(LANE_THREADS)


def attributes(one: Series) -> dict[str, str]:
    """A point's, without what is empty."""
    named = {
        "sealift.operator": one.operator,
        "sealift.source": one.source,
        "sealift.scope": one.scope,
        "sealift.model.id": one.model_id,
        "sealift.shapes": one.shapes,
        "sealift.origin": one.origin,
    }
    return {name: text for name, text in named.items() if text} | {f"sealift.label.{k}": v for k, v in one.labels}


def model_attributes(event: ModelEvent) -> dict[str, Any]:
    named = {
        "sealift.model.id": event.model_id,
        "sealift.model.digest": event.digest,
        "sealift.model.serialization_id": event.serialization_id,
        "sealift.model.path": event.path,
        "sealift.model.format": event.format,
        "sealift.model.producer": event.producer,
    }
    return {name: text for name, text in named.items() if text} | {"sealift.model.signed": event.signed}


def dense_buckets(histogram: Histogram) -> tuple[int, list[int]]:
    """(offset, counts from there on): OTLP's form."""
    if not histogram.buckets:
        return 0, []
    low, high = min(histogram.buckets), max(histogram.buckets)
    return low, [histogram.buckets.get(i, 0) for i in range(low, high + 1)]

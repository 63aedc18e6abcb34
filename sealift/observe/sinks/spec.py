"""Sinks by name, as a command line and SEALIFT_OBSERVE give them: "json:PATH", "otlp:URL", "prometheus:PORT"."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from sealift.observe.sinks.sink import Sink, SinkFactory, SinkSpecError

FORMS = {
    "table": "a table on stderr when the program ends",
    "json:PATH": "JSON lines, one for each interval; {pid} and {id} in PATH stand for the process",
    "chrome:PATH": "a trace of the bursts for ui.perfetto.dev",
    "prometheus:[HOST:]PORT": "a text endpoint to scrape, /metrics (HOST: 127.0.0.1)",
    "otlp[:URL]": "OTLP over HTTP to URL/v1/metrics and /v1/logs (without URL: OTEL_EXPORTER_OTLP_ENDPOINT)",
    "parquet:DIRECTORY": "one Parquet file for each interval",
    "fleet[:URL]": "sealift's collector: OTLP through a spool on disk; it may lower what recording costs, and ask for traces",
}


def parse_sink(spec: str) -> tuple[str, SinkFactory]:
    """(the name to show, what makes the sink). Imports the sink's module, not the library it needs.

    Error: SinkSpecError."""
    kind, _, argument = spec.partition(":")
    if kind not in _MAKERS:
        raise SinkSpecError(f"no sink {spec!r}; help: one of {', '.join(FORMS)}")
    if kind in _NEED_ARGUMENT and not argument:
        raise SinkSpecError(f"sink {kind!r} needs a place to write to; help: {next(f for f in FORMS if f.startswith(kind))}")
    if kind == "table" and argument:
        raise SinkSpecError(f"sink 'table' takes no {argument!r}; help: table")
    return spec, _MAKERS[kind](argument)


def _table(_: str) -> SinkFactory:
    from sealift.observe.sinks.table import TableSink

    return TableSink


def _json(argument: str) -> SinkFactory:
    from sealift.observe.sinks.json_lines import JsonLinesSink

    return lambda: JsonLinesSink(argument)


def _chrome(argument: str) -> SinkFactory:
    from sealift.observe.sinks.chrome_trace import ChromeTraceSink

    return lambda: ChromeTraceSink(argument)


def _prometheus(argument: str) -> SinkFactory:
    from sealift.observe.sinks.prometheus import PrometheusSink

    host, _, port = argument.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise SinkSpecError(f"prometheus:{argument}: {port!r} is no port; help: prometheus:9464 or prometheus:0.0.0.0:9464")
    return lambda: PrometheusSink(int(port), host.strip("[]") or "127.0.0.1")


def _otlp(argument: str) -> SinkFactory:
    from sealift.observe.sinks.otlp import OtlpSink

    if argument and not argument.startswith(("http://", "https://")):
        raise SinkSpecError(f"otlp:{argument}: no URL; help: otlp:http://localhost:4318")
    return lambda: OtlpSink(argument)


def _parquet(argument: str) -> SinkFactory:
    from sealift.observe.sinks.parquet import ParquetSink

    return lambda: ParquetSink(argument)


def _fleet(argument: str) -> SinkFactory:
    """The agent is the fleet's, which stands above this package."""
    if argument and not argument.startswith(("http://", "https://")):
        raise SinkSpecError(f"fleet:{argument}: no URL; help: fleet:http://localhost:4318")
    factory: SinkFactory = importlib.import_module("sealift.fleet.agent").sink_factory(argument)
    return factory


_MAKERS: dict[str, Callable[[str], Callable[[], Sink]]] = {
    "table": _table,
    "json": _json,
    "chrome": _chrome,
    "prometheus": _prometheus,
    "otlp": _otlp,
    "parquet": _parquet,
    "fleet": _fleet,
}
_NEED_ARGUMENT = ("json", "chrome", "prometheus", "parquet")

"""Where snapshots go: a terminal table, JSON lines, a Chrome trace, a Prometheus endpoint, OTLP, Parquet.

A sink is anything with `write(delta)` and `close()` (sink.py); an Exporter (exporter.py) feeds any number of them in the background and
keeps what goes wrong with one of them away from the program. A third-party library is imported by the sink that needs it, when it is used."""

from sealift.observe.sinks.exporter import Delivery, Exporter, SinkStatus
from sealift.observe.sinks.sink import Sink, SinkError, SinkFactory, SinkLibraryError, SinkSpecError
from sealift.observe.sinks.spec import parse_sink

__all__ = ["Delivery", "Exporter", "Sink", "SinkError", "SinkFactory", "SinkLibraryError", "SinkSpecError", "SinkStatus", "parse_sink"]

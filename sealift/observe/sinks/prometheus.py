"""A text endpoint for Prometheus to scrape (exposition format 0.0.4), served by the standard library.

Prometheus wants classic buckets that stay the same: powers of two nanoseconds from 256 ns to 17 s, which are bounds of our buckets, too, so
that nothing is rounded. Operators beyond the longest-running ones are added up as "(other)", so that the number of time series is bounded."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sealift.observe.sinks.sink import SinkError
from sealift.observe.snapshot import Histogram, Sampling, Series, Snapshot, merged_series

_FIRST_POWER, _LAST_POWER = 8, 34  # of two, in ns
MAX_SERIES = 200
OTHER = "(other)"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass
class _Totals:
    """Counters only grow, also where a series moves into "(other)": once shown, a series stays."""

    series: dict[object, Series]
    overflow: int = 0
    dropped: int = 0
    sampling: Sampling = field(default_factory=Sampling)


class PrometheusSink:
    """Adds deltas up and serves the sums at http://HOST:PORT/metrics. Port 0: any free one; `port` says which."""

    def __init__(self, port: int, host: str = "127.0.0.1", max_series: int = MAX_SERIES) -> None:
        self._host = host
        self._wanted_port = port
        self._max_series = max_series
        self._totals = _Totals({})
        self._text = ""
        self._server: ThreadingHTTPServer | None = None

    @property
    def port(self) -> int:
        return self._server.server_address[1] if self._server else self._wanted_port

    def write(self, delta: Snapshot) -> None:
        if self._server is None:
            self._serve()
        self._add(delta)
        self._text = exposition(self._totals.series.values(), self._totals.overflow, self._totals.dropped, self._totals.sampling)

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _add(self, delta: Snapshot) -> None:
        for one in merged_series(delta.series):
            key: object = one.key
            if key not in self._totals.series and len(self._totals.series) >= self._max_series:
                one = Series(OTHER, one.source, one.scope, count=one.count, samples=one.samples, total_ns=one.total_ns, histogram=one.histogram)
                key = one.key
            before = self._totals.series.get(key)
            self._totals.series[key] = one if before is None else before.merge(one)
        self._totals.overflow += delta.overflow
        self._totals.dropped += delta.dropped
        self._totals.sampling = delta.sampling

    def _serve(self) -> None:
        sink = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 10  # s: a scraper that stalls gives its thread back
            server_version, sys_version = "sealift", ""

            def do_GET(self) -> None:
                found = self.path.partition("?")[0] in ("/metrics", "/")
                body = sink._text.encode() if found else b"metrics are at /metrics\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", CONTENT_TYPE if found else "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass  # the program's stderr is the program's

        try:
            self._server = _Server((self._host, self._wanted_port), Handler)
        except OSError as error:
            raise SinkError(
                f"cannot listen on {self._host}:{self._wanted_port}: {error.strerror or error}; help: another port; of several processes only one "
                "can have it: `sealift profile --sink prometheus:PORT` serves the sum of all"
            ) from error
        _servers.add(self._server)
        threading.Thread(target=self._server.serve_forever, name="sealift-prometheus", daemon=True).start()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that went away


_servers: weakref.WeakSet[_Server] = weakref.WeakSet()


def _close_servers_in_child() -> None:
    """A forked child holds the parent's listening socket open, and would keep its port after the parent's end."""
    for server in list(_servers):
        server.socket.close()
    _servers.clear()


os.register_at_fork(after_in_child=_close_servers_in_child)


def exposition(series: Iterable[Series], overflow: int, dropped: int, sampling: Sampling) -> str:
    rows = list(series)
    lines = [
        "# HELP sealift_operator_duration_seconds How long calls of an operator took; counts are estimates of all calls.",
        "# TYPE sealift_operator_duration_seconds histogram",
    ]
    for one in rows:
        lines += _histogram_lines(one)
    lines += [
        "# HELP sealift_operator_samples_total Calls that were really recorded.",
        "# TYPE sealift_operator_samples_total counter",
        *(f"sealift_operator_samples_total{_labels(_of(one))} {one.samples}" for one in rows),
        "# HELP sealift_observe_dropped_total Events lost.",
        "# TYPE sealift_observe_dropped_total counter",
        f"sealift_observe_dropped_total {dropped}",
        "# HELP sealift_observe_overflow_total Events that no series had room for.",
        "# TYPE sealift_observe_overflow_total counter",
        f"sealift_observe_overflow_total {overflow}",
        "# HELP sealift_observe_overhead_ratio Share of the running time that recording took.",
        "# TYPE sealift_observe_overhead_ratio gauge",
        f"sealift_observe_overhead_ratio {sampling.overhead!r}",
        "# HELP sealift_observe_sampling_probability Probability that a call is recorded while the recorder listens.",
        "# TYPE sealift_observe_sampling_probability gauge",
        f"sealift_observe_sampling_probability {sampling.probability!r}",
    ]
    return "\n".join(lines) + "\n"


def _of(one: Series) -> dict[str, str]:
    named = {"operator": one.operator, "source": one.source, "scope": one.scope, "model_id": one.model_id, "shapes": one.shapes, "origin": one.origin}
    return {name: text for name, text in named.items() if text} | {f"label_{_name(k)}": v for k, v in one.labels}


def _name(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text)


def _labels(labels: Mapping[str, str]) -> str:
    escaped = (f'{k}="{_escaped(v)}"' for k, v in labels.items())
    return "{" + ",".join(escaped) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _histogram_lines(one: Series) -> list[str]:
    labels = _of(one)
    name = "sealift_operator_duration_seconds"
    lines = [f"{name}_bucket{_labels({**labels, 'le': bound})} {count}" for bound, count in _cumulative(one.histogram)]
    # count is +Inf's bucket by definition, also where a series' count was read a moment before its buckets
    total = one.histogram.count
    lines.append(f"{name}_bucket{_labels({**labels, 'le': '+Inf'})} {total}")
    return [*lines, f"{name}_sum{_labels(labels)} {one.total_ns / 1e9!r}", f"{name}_count{_labels(labels)} {total}"]


def _cumulative(histogram: Histogram) -> list[tuple[str, int]]:
    """(upper bound in seconds, how many are at most that): bucket i is at most 2**power where i + 1 <= 8 * power."""
    out, seen = [], histogram.zero_count
    indices = sorted(histogram.buckets)
    at = 0
    for power in range(_FIRST_POWER, _LAST_POWER + 1):
        while at < len(indices) and indices[at] + 1 <= 8 * power:
            seen += histogram.buckets[indices[at]]
            at += 1
        out.append((repr(2**power / 1e9), seen))
    return out

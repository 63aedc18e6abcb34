"""The agent in an observed process: snapshots' differences to the collector, through a spool on disk, each counted once.

    from sealift.fleet.agent import report
    report("http://collector:4318")

A sink of sealift.observe: `write` only encodes and spools; a thread of the agent's own sends. The collector's answers carry orders (control.py),
which `on_orders` hands to the recorder. The observed program never waits for any of it."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import io
import json
import logging
import os
import random
import ssl
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sealift.fleet.errors import QuestionError
from sealift.fleet.otlp import encode
from sealift.fleet.spool import Spool, Spooled

if TYPE_CHECKING:
    from sealift.observe.recorder import Rates
    from sealift.observe.sinks.exporter import Exporter
    from sealift.observe.snapshot import Series, Snapshot

_LOG = logging.getLogger(__name__)
_TOGETHER_BYTES = 1 << 20  # spooled requests are joined up to this size
_FAR_APART_S = 60.0  # the longest pause between two tries
_TRACE_TIMEOUT_S = 60.0
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Orders:
    """What the collector asks of this process. It may only ask for less than the process was started with."""

    duty: float = 1.0  # times the share of windows that it was started with
    probability: float = 0.0  # 0: as it was started
    budget: float = 0.0  # 0: as it was started
    hosts: float = 1.0  # the share of processes that record now
    records: bool = True  # whether this is one of them
    trace: str = ""
    trace_seconds: float = 0.0


class FleetSink:
    def __init__(
        self,
        endpoint: str = "",
        token: str = "",
        spool: Path | None = None,
        *,
        spool_bytes: int = 64 << 20,
        timeout_s: float = 5.0,
        on_orders: Callable[[Orders], None] | None = None,
        record_trace: Callable[[float], bytes] | None = None,
        attributes: Mapping[str, encode.Value] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """`endpoint`: http(s)://HOST:PORT, default OTEL_EXPORTER_OTLP_ENDPOINT. `spool`: a folder that several processes may share (default: in the
        user's cache). `record_trace`: seconds -> a Chrome trace's JSON. `attributes`: further resource attributes; they win."""
        endpoint = endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
        self._url = urllib.parse.urlsplit(endpoint)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise QuestionError(f"endpoint {endpoint!r}; help: http://HOST:4318, or set OTEL_EXPORTER_OTLP_ENDPOINT")
        self._headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip", "User-Agent": "sealift-fleet-agent"}
        if token or os.environ.get("SEALIFT_FLEET_TOKEN"):
            self._headers["Authorization"] = f"Bearer {token or os.environ['SEALIFT_FLEET_TOKEN']}"
        self._spool_root = spool or default_spool()
        self._spool_bytes = spool_bytes
        self._timeout_s = timeout_s
        self._on_orders = on_orders
        self._record_trace = record_trace
        self._attributes = dict(attributes or {})
        self._context = context
        self._spools: dict[str, Spool] = {}
        self._sequences: dict[str, int] = {}
        self._condition = threading.Condition()
        self._fresh = self._stopping = False
        self._deadline = 0.0
        self._thread: threading.Thread | None = None
        self._tracing = self._said = ""
        self._takes = True
        self.delivered = self.refused = self.failures = 0  # requests

    # ---- the sink's half: called by the recorder's thread

    def write(self, delta: Snapshot) -> None:
        owner = delta.process.start_id
        spool = self._spools.get(owner)
        if spool is None:
            spool = self._spools[owner] = Spool(self._spool_root, _safe(owner), self._spool_bytes)
        resource = self._resource(delta)
        for signal, body in encoded(delta, resource, lambda: self._next(owner)):
            spool.put(signal, body)
        with self._condition:
            self._fresh = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sealift-sink-fleet", daemon=True)
                self._thread.start()
            self._condition.notify()

    def close(self, deadline_s: float = 2.0) -> None:
        """Tries for that long to deliver what waits; the rest stays in the spool for the next process."""
        with self._condition:
            self._stopping, self._deadline = True, time.monotonic() + deadline_s
            self._condition.notify()
        if self._thread is not None:
            self._thread.join(deadline_s + self._timeout_s)
        for spool in self._spools.values():
            spool.close()

    @property
    def dropped(self) -> int:
        return sum(s.dropped for s in self._spools.values())

    def _next(self, owner: str) -> int:
        number = self._sequences.get(owner, 0)
        self._sequences[owner] = number + 1
        return number

    def _resource(self, delta: Snapshot) -> dict[str, encode.Value]:
        from sealift.observe.sinks.resource import process_name, resource_attributes

        found: dict[str, encode.Value] = {"service.name": process_name(sys.argv), **resource_attributes(os.environ)}
        for pair in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
            key, equals, value = pair.partition("=")
            if equals and key.strip():
                found[key.strip()] = urllib.parse.unquote(value.strip())
        if os.environ.get("OTEL_SERVICE_NAME"):
            found["service.name"] = os.environ["OTEL_SERVICE_NAME"]
        found |= {"telemetry.sdk.name": "sealift", "telemetry.sdk.language": "python", **self._attributes}
        return found | {"service.instance.id": delta.process.start_id, "process.pid": delta.process.pid, "host.name": delta.process.host}

    # ---- the sender's half: a thread of its own

    def _run(self) -> None:
        pause, orphans_asked = 0.0, False
        while True:
            with self._condition:
                if not self._stopping:
                    self._condition.wait_for(lambda: self._fresh or self._stopping, timeout=pause or None)
                self._fresh = False
                stopping = self._stopping
            if stopping and time.monotonic() > self._deadline:
                return
            try:
                done = all(self._deliver(spool.waiting()) for spool in list(self._spools.values()))
                if done and not orphans_asked:
                    orphans_asked = True
                    for spool in list(self._spools.values()):
                        for left in spool.orphans():
                            done = self._deliver(left) and done
            except Exception:  # an agent must not end the program it observes, nor itself
                _LOG.debug("delivering failed", exc_info=True)
                done = False
            if stopping and done:
                return
            if done:
                pause = 0.0
            else:
                self.failures += 1
                pause = min(max(pause * 2, 1.0), _FAR_APART_S) * random.uniform(0.8, 1.2)
                if stopping:
                    time.sleep(min(0.2, max(self._deadline - time.monotonic(), 0)))
                else:
                    self._rest(pause)

    def _rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        with self._condition:
            while not self._stopping and (left := end - time.monotonic()) > 0:
                self._condition.wait(left)
            self._fresh = True

    def _deliver(self, waiting: list[Spooled]) -> bool:
        """Whether nothing waits any more. Requests of one signal are joined: that is one request with all their batches."""
        for signal in ("logs", "metrics"):
            mine = [w for w in waiting if w.signal == signal]
            while mine:
                taken, size = [mine[0]], mine[0].size_bytes
                for entry in mine[1:]:
                    if size + entry.size_bytes > _TOGETHER_BYTES:
                        break
                    taken.append(entry)
                    size += entry.size_bytes
                bodies = [_read(entry.path) for entry in taken]
                status = self._send(f"/v1/{signal}", b"".join(bodies))
                self._tell(status)
                if status not in (200, 400, 413, 415):
                    return False
                if status != 200:
                    self.refused += len(taken)  # sending it again would change nothing
                    _LOG.warning("the collector refuses a batch (%d); it is dropped", status)
                else:
                    self.delivered += len(taken)
                for entry in taken:
                    entry.path.unlink(missing_ok=True)
                mine = mine[len(taken) :]
        return True

    def _send(self, path: str, body: bytes, timeout_s: float = 0.0, more: Mapping[str, str] | None = None) -> int:
        host, port = self._url.hostname or "", self._url.port
        timeout_s = timeout_s or self._timeout_s
        if self._url.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        try:
            data = body if body[:2] == _GZIP else gzip.compress(body, 1)
            connection.request("POST", self._url.path.rstrip("/") + path, data, {**self._headers, **(more or {})})
            answer = connection.getresponse()
            self._said = answer.read(1 << 16)[:300].decode(errors="replace").strip()
            if answer.status == 200:
                self._take_orders(answer.headers.get("Sealift-Control", ""))
            return answer.status
        except (OSError, http.client.HTTPException) as error:
            self._said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return 0
        finally:
            connection.close()

    def _tell(self, status: int) -> None:
        """Once when the collector stops taking what is sent, and once when it takes it again: the program's log is not ours to fill."""
        takes = status in (200, 400, 413, 415, 429)  # 429: it is busy, and says when to come back
        if takes == self._takes:
            return
        self._takes = takes
        where = f"{self._url.scheme}://{self._url.netloc.rpartition('@')[2]}"
        if takes:
            _LOG.warning("the collector at %s takes reports again", where)
        else:
            said = f"{status} {self._said}" if status else self._said
            _LOG.warning(
                "the collector at %s takes no reports: %s; they wait in %s (at most %d MiB)", where, said, self._spool_root, self._spool_bytes >> 20
            )

    def _take_orders(self, header: str) -> None:
        if not header:
            return
        try:
            found: dict[str, Any] = json.loads(header)
            orders = Orders(
                min(max(float(found.get("duty", 1.0)), 0.0), 1.0),
                min(max(float(found.get("probability", 0.0)), 0.0), 1.0),
                min(max(float(found.get("budget", 0.0)), 0.0), 0.99),
                min(max(float(found.get("hosts", 1.0)), 1e-6), 1.0),
                bool(found.get("records", 1)),
                str(found.get("trace", "")),
                min(float(found.get("trace_seconds", 0.0)), 60.0),
            )
        except (ValueError, TypeError, AttributeError):
            return
        if self._on_orders is not None:
            try:
                self._on_orders(orders)
            except Exception:  # of the recorder: it stays as it is
                _LOG.warning("the collector's orders cannot be followed", exc_info=True)
        if orders.trace and self._record_trace is not None and orders.trace != self._tracing:
            self._tracing = orders.trace
            threading.Thread(target=self._trace, args=(orders, self._record_trace), name="sealift-sink-trace", daemon=True).start()

    def _trace(self, orders: Orders, record: Callable[[float], bytes]) -> None:
        path = f"/v1/sealift/trace/{urllib.parse.quote(orders.trace, safe='')}"
        try:
            status = self._send(path, record(orders.trace_seconds), _TRACE_TIMEOUT_S)
            error = "" if status == 204 else "it is larger than the collector takes" if status == 413 else f"sending it failed ({status})"
        except Exception as failure:
            error = str(failure)
        if error:
            self._send(path, b"-", 0, {"Sealift-Trace-Error": error.encode("ascii", "replace").decode().replace("\n", " ")[:500]})


def encoded(delta: Snapshot, resource: Mapping[str, encode.Value], number: Callable[[], int]) -> list[tuple[str, bytes]]:
    """(signal, request) of what a difference between two snapshots says; `number` gives each request its sequence number."""
    histograms = [_histogram(one) for one in delta.series if one.histogram.count]
    meters: dict[str, float] = {"dropped": delta.dropped, "overflow": delta.overflow, "overhead": float(delta.sampling.overhead)}
    found = [("metrics", encode.metrics_request(resource, number(), delta.start_unix_ns, delta.end_unix_ns, histograms, meters))]
    events: list[tuple[str, int, Mapping[str, encode.Value]]] = [
        ("sealift.api_usage", when, {"sealift.api.key": key}) for key, when in delta.api_usage.items()
    ]
    for event in delta.model_events:
        from sealift.observe.sinks.otlp import model_attributes

        events.append((f"sealift.model.{event.kind}", event.unix_ns, model_attributes(event)))
    if events:
        found.append(("logs", encode.logs_request(resource, number(), events)))
    return found


def _histogram(one: Series) -> encode.Histogram:
    from sealift.observe.sinks.otlp import attributes, dense_buckets

    first, counts = dense_buckets(one.histogram)
    return encode.Histogram(
        tuple(attributes(one).items()),
        one.histogram.count,
        one.samples,
        one.total_ns,
        one.self_ns,
        one.histogram.zero_count,
        first,
        counts,
    )


def default_spool() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or (
        Path.home() / ".cache" if os.environ.get("HOME") else Path(tempfile.gettempdir()) / f"sealift-{os.getuid()}"
    )
    return Path(cache) / "sealift" / "fleet-spool"


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:100] or "process"


def _read(path: Path) -> bytes:
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes()
    return b""


class Follower:
    """Hands the collector's orders to the recorder. What the process was started with is the most that it does."""

    def __init__(self) -> None:
        self._own: Rates | None = None
        self._followed: Orders | None = None

    def __call__(self, orders: Orders) -> None:
        from sealift.observe import adjust, is_running, rates

        orders = replace(orders, trace="", trace_seconds=0.0)
        if not is_running() or orders == self._followed:
            return
        if self._own is None:
            self._own = rates()
        own = self._own
        adjust(
            sampling_prob=min(own.sampling_prob, orders.probability or 1.0),
            duty_cycle=max(own.duty_cycle * orders.duty, 1e-6),
            budget=min(own.budget or 1.0, orders.budget) if orders.budget else own.budget,
            burst_duty_cycle=own.burst_duty_cycle * orders.duty,
            host_probability=own.host_probability * orders.hosts,
            records=own.records and orders.records,
        )
        self._followed = orders


def record_trace(seconds: float) -> bytes:
    """A Chrome trace of this process, compressed. Errors: as sealift.observe.trace's."""
    from sealift.observe.trace import write_trace

    compressed = io.BytesIO()
    with gzip.GzipFile(fileobj=compressed, mode="wb", compresslevel=1) as file:
        write_trace(file, seconds)
    return compressed.getvalue()


def sink_factory(endpoint: str = "", **options: Any) -> Callable[[], FleetSink]:
    """Makes agents that follow the collector's orders and record traces for it; those of a process and of its forked children alike."""
    hooks: dict[str, Any] = {"on_orders": Follower(), "record_trace": record_trace}
    return lambda: FleetSink(endpoint, **(hooks | options))


def report(endpoint: str = "", *, interval_s: float = 10.0, **options: Any) -> Exporter:
    """Starts the recorder, if it does not run yet, and reports to the collector until the process ends or the result is closed. The collector may
    lower what recording costs, and ask for traces. `options`: FleetSink's."""
    from sealift.observe import is_running, snapshot, start
    from sealift.observe.sinks.exporter import Exporter

    if not is_running():
        start()
    return Exporter(snapshot, {"fleet": sink_factory(endpoint, **options)}, interval_s).start()

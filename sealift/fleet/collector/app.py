"""The ASGI application: OTLP in, questions out, health and figures."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import importlib.util
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import anyio.to_thread
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from sealift.fleet.collector import api
from sealift.fleet.collector.answers import encoded
from sealift.fleet.collector.commit import BehindError, Committer
from sealift.fleet.collector.figures import Figures, prometheus
from sealift.fleet.collector.guard import Guard, Names
from sealift.fleet.collector.limits import Limits, RateLimiter, allowed
from sealift.fleet.collector.steady import Steady
from sealift.fleet.control import Budget, Controller
from sealift.fleet.errors import FleetError, QuestionError, RuleError, StoreFullError, WireError
from sealift.fleet.model import Decoded
from sealift.fleet.otlp.decode import Decoder, from_json, inflate
from sealift.fleet.patience import within
from sealift.fleet.rules import Rule, Watch, check
from sealift.fleet.store.interface import Store
from sealift.fleet.times import parse_time

_LOG = logging.getLogger(__name__)
# A body up to this size is decoded where it is; handing it to a thread takes longer. What gzip makes of it, at most a thousandfold, holds up others
# for no more than 40 ms.
_INLINE_BYTES = {"": 64 << 10, "identity": 64 << 10, "gzip": 16 << 10}


@dataclass
class Collector:
    """What the requests share."""

    store: Store
    limits: Limits = field(default_factory=Limits)
    budget: Budget = field(default_factory=Budget)
    names: Names = field(default_factory=Names)
    watch: Watch | None = None
    maintain_every_s: float = 10.0
    gather_s: float = 0.05
    clock_ns: Callable[[], int] = time.time_ns
    figures: Figures = field(default_factory=Figures)

    def __post_init__(self) -> None:
        self.committer = Committer(self.store, gather_s=self.gather_s, clock_ns=self.clock_ns)
        self.controller = Controller(self.budget)
        self.rate = RateLimiter(self.limits.bytes_per_s)
        self.inflight = 0
        self.decoder = Decoder()
        newest_s = self.store.time_range()[1]
        self.steady = Steady(self.clock_ns, newest_s * 10**9 if newest_s else self.clock_ns())
        self._stop = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="sealift-fleet-maintain", daemon=True)
        self._keeper.start()

    def _keep(self) -> None:
        while not self._stop.wait(self.maintain_every_s):
            self.maintain()

    def maintain(self) -> None:
        for work in (self._maintain_store, self._watch):
            try:
                work()
            except Exception:
                self.figures.add("maintain_failures")
                _LOG.exception("housekeeping failed; it is tried again in %.0f s", self.maintain_every_s)

    def _maintain_store(self) -> None:
        self.store.maintain(self.clock_ns(), self.steady.now_ns())

    def _watch(self) -> None:
        if self.watch:
            self.watch.look(self.store, self.clock_ns() // 10**9)

    def close(self) -> None:
        self._stop.set()
        self.committer.stop()
        self._keeper.join()
        self.store.close()


def application(collector: Collector) -> ASGIApp:
    """Closes the collector when the server shuts down."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await anyio.to_thread.run_sync(collector.close)

    def bound(handler: Callable[[Collector, Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        return functools.partial(_guarded, handler, collector)

    routes: list[BaseRoute] = [
        Route("/v1/metrics", bound(functools.partial(_take, "metrics")), methods=["POST"]),
        Route("/v1/logs", bound(functools.partial(_take, "logs")), methods=["POST"]),
        Route("/v1/sealift/trace/{id}", bound(_trace_arrives), methods=["POST"]),
        Route("/health", bound(_health)),
        Route("/metrics", bound(_metrics)),
        Route("/api/v1/sql", bound(_sql), methods=["POST"]),
        Route("/api/v1/check", bound(_check), methods=["POST"]),
        Route("/api/v1/alerts", bound(_alerts)),
        Route("/api/v1/info", bound(_info)),
        Route("/api/v1/trace", bound(_trace_asked), methods=["POST"]),
        Route("/api/v1/trace/{id}", bound(_trace_fetched)),
        Route("/api/v1/{question}", bound(_question)),
    ]
    if importlib.util.find_spec("sealift.fleet.dashboard") is not None:
        dashboard: Any = importlib.import_module("sealift.fleet.dashboard")
        routes.append(Mount("/", dashboard.application(collector)))
    else:
        routes.append(Route("/", bound(_front)))
    return Guard(Starlette(routes=routes, lifespan=lifespan), collector.names, collector.limits, collector.figures)


async def _guarded(handler: Callable[[Collector, Request], Awaitable[Response]], collector: Collector, request: Request) -> Response:
    """Errors to status codes. What an agent should try again: 429 and 503; what it should not: 400, 401, 413, 415."""
    path = request.url.path
    tokens = collector.limits.write_tokens if path.startswith("/v1/") else () if path == "/health" else collector.limits.read_tokens
    if not allowed(request.headers.get("authorization", ""), tokens):
        collector.figures.add("refused_token")
        given = "the token given is not one of this collector's" if "authorization" in request.headers else "this collector asks for a token"
        text = f"{given}; help: --token or SEALIFT_FLEET_TOKEN (Authorization: Bearer TOKEN)\n"
        return PlainTextResponse(text, 401, {"WWW-Authenticate": "Bearer"})
    try:
        return await handler(collector, request)
    except _TooLarge as error:
        return PlainTextResponse(f"{error}\n", 413)
    except BehindError as error:
        collector.figures.add("refused_behind")
        return PlainTextResponse(f"{error}\n", 429, {"Retry-After": "2"})
    except StoreFullError as error:
        collector.figures.add("refused_full")
        return PlainTextResponse(f"{error}\n", 503, {"Retry-After": "30"})
    except WireError as error:
        collector.figures.add("refused_bytes")
        return PlainTextResponse(f"{error}\n", 415 if "Content-" in str(error) else 400)
    except QuestionError as error:
        return Response(json.dumps({"error": {"code": error.code, "message": str(error)}}), 400, media_type="application/json")
    except ClientDisconnect:
        return PlainTextResponse("", 400)
    except FleetError as error:
        return PlainTextResponse(f"{error}\n", 503, {"Retry-After": "5"})
    except Exception:
        collector.figures.add("errors")
        _LOG.exception("%s %s", request.method, path)
        return PlainTextResponse("an error of the collector's; its log says more\n", 503, {"Retry-After": "30"})


class _TooLarge(Exception):
    pass


async def _body(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _TooLarge(f"more than {limit} bytes; help: smaller batches")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _TooLarge(f"more than {limit} bytes; help: smaller batches")
        parts.append(part)
    return b"".join(parts)


async def _take(signal: str, collector: Collector, request: Request) -> Response:
    limits, figures = collector.limits, collector.figures
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in ("application/x-protobuf", "application/json"):
        raise WireError(f"Content-Type {media!r}; help: application/x-protobuf or application/json")
    client = request.client.host if request.client else ""
    wait = collector.rate.wait_s(client, int(request.headers.get("content-length") or 0))
    if wait:
        figures.add("refused_rate")
        return PlainTextResponse("more than this collector takes from one client\n", 429, {"Retry-After": str(int(wait + 1))})
    if collector.inflight > limits.inflight_bytes:
        raise BehindError(f"{collector.inflight} bytes are being read")
    body = await _body(request, limits.body_bytes)
    collector.inflight += len(body)
    try:
        encoding = request.headers.get("content-encoding", "").strip().lower()
        decode = functools.partial(_decoded, collector, signal, media, encoding, body)
        is_small = len(body) < _INLINE_BYTES.get(encoding, 0) and media != "application/json"
        decoded = decode() if is_small else await anyio.to_thread.run_sync(decode)
        if decoded.batches:
            await collector.committer.put(decoded.batches)
    finally:
        collector.inflight -= len(body)
    figures.add(f"{signal}_requests")
    figures.add("received_bytes", len(body))
    figures.add("rejected", decoded.rejected)
    headers = {}
    if signal == "metrics" and decoded.batches:
        last = decoded.batches[-1]
        orders = collector.controller.orders(last.resource.instance, last.meters.overhead, sum(len(b.points) for b in decoded.batches))
        headers["Sealift-Control"] = orders.header()
    return Response(_receipt(signal, media, decoded), 200, headers, media)


def _decoded(collector: Collector, signal: str, media: str, encoding: str, body: bytes) -> Decoded:
    body = inflate(body, encoding, collector.limits.inflated_bytes)
    if media == "application/json":
        body = from_json(body, signal)
    decoder, now_ns = collector.decoder, collector.clock_ns()
    return decoder.metrics(body, now_ns) if signal == "metrics" else decoder.logs(body, now_ns)


def _receipt(signal: str, media: str, decoded: Decoded) -> bytes:
    field_name = "rejectedDataPoints" if signal == "metrics" else "rejectedLogRecords"
    if media == "application/json":
        partial = {"partialSuccess": {field_name: str(decoded.rejected), "errorMessage": decoded.reason}} if decoded.rejected else {}
        return json.dumps(partial).encode()
    message: Any = ExportMetricsServiceResponse() if signal == "metrics" else ExportLogsServiceResponse()
    if decoded.rejected:
        setattr(message.partial_success, "rejected_data_points" if signal == "metrics" else "rejected_log_records", decoded.rejected)
        message.partial_success.error_message = decoded.reason
    return bytes(message.SerializeToString())


async def _health(collector: Collector, _: Request) -> Response:
    return Response(json.dumps({"status": "ok", "store": collector.store.name}), media_type="application/json")


async def _front(_: Collector, __: Request) -> Response:
    return PlainTextResponse("sealift fleet collector\n\nOTLP: POST /v1/metrics, /v1/logs\nquestions: GET /api/v1/top ...\nfigures: GET /metrics\n")


async def _in_thread(collector: Collector, work: Callable[[], Any]) -> Any:
    try:
        return await within(collector.limits.query_seconds, anyio.to_thread.run_sync(work, abandon_on_cancel=True))
    except asyncio.TimeoutError:
        raise QuestionError(f"no answer within {collector.limits.query_seconds:g} s; help: a shorter time range or fewer keys") from None


async def _question(collector: Collector, request: Request) -> Response:
    parameters = parse_qs(request.url.query, keep_blank_values=True, max_num_fields=100)
    name, format = request.path_params["question"], api.one(parameters, "format", "json")

    def work() -> tuple[bytes, str]:
        started = time.perf_counter()
        table, about = api.answer(collector.store, name, parameters, collector.clock_ns() / 1e9)
        return encoded(table, format, about | {"seconds": round(time.perf_counter() - started, 4)})

    body, media = await _in_thread(collector, work)
    collector.figures.add("questions")
    extra = {} if format == "json" else {"Content-Disposition": f'attachment; filename="sealift-{name}.{format}"'}
    return Response(body, 200, extra, media)


async def _sql(collector: Collector, request: Request) -> Response:
    try:
        asked = json.loads(await _body(request, 1 << 20))
        text, format = str(asked["sql"]), str(asked.get("format", "json"))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise QuestionError('a body that is not {"sql": "SELECT ..."}') from None
    limits = collector.limits

    def work() -> tuple[bytes, str]:
        return encoded(collector.store.sql(text, limits.query_rows, limits.query_seconds), format, {})

    body, media = await anyio.to_thread.run_sync(work)
    return Response(body, 200, media_type=media)


async def _metrics(collector: Collector, _: Request) -> Response:
    return PlainTextResponse(await _in_thread(collector, lambda: prometheus(collector)), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _check(collector: Collector, request: Request) -> Response:
    try:
        asked = json.loads(await _body(request, 1 << 18))
        rules = tuple(Rule.parse(table, f"rule {i + 1}") for i, table in enumerate(asked["rules"]))
        at = str(asked.get("at", "now"))
    except RuleError as error:
        raise QuestionError(str(error).removeprefix(f"[{error.code}] ")) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise QuestionError('a body that is not {"rules": [{...}], "at": "now"}') from None
    now_s = parse_time(at, collector.clock_ns() / 1e9)
    alarms = await _in_thread(collector, lambda: check(collector.store, rules, now_s))
    return Response(json.dumps({"alarms": [a.as_dict() | {"text": str(a)} for a in alarms]}), media_type="application/json")


async def _alerts(collector: Collector, _: Request) -> Response:
    alarms = [a.as_dict() for a in collector.watch.alarms] if collector.watch else []
    return Response(json.dumps({"status": "success", "data": {"alerts": alarms}}), media_type="application/json")


async def _info(collector: Collector, _: Request) -> Response:
    first, last = collector.store.time_range()
    figures = dict(collector.store.info().figures)
    return Response(json.dumps({"store": collector.store.name, "from": first, "to": last, "figures": figures}), media_type="application/json")


async def _trace_asked(collector: Collector, request: Request) -> Response:
    try:
        asked = json.loads(await _body(request, 1 << 16))
        instance, seconds = str(asked["instance"]), float(asked.get("seconds", 5))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise QuestionError('a body that is not {"instance": "...", "seconds": 5}') from None
    known = await anyio.to_thread.run_sync(lambda: set(collector.store.processes().column("instance").to_pylist()))
    if instance not in known:
        raise QuestionError(f"no process {instance!r}; help: `sealift fleet processes` lists them")
    silent_s = collector.controller.silent_s(instance)
    if silent_s is not None and silent_s > collector.controller.gone_s:
        raise QuestionError(
            f"process {instance!r} last reported {silent_s:.0f} s ago; help: it is gone, `sealift fleet processes` says which are not"
        )
    return Response(json.dumps({"id": collector.controller.ask_trace(instance, seconds).id}), 202, media_type="application/json")


async def _trace_arrives(collector: Collector, request: Request) -> Response:
    data = await _body(request, collector.controller.trace_bytes)
    is_gzip = request.headers.get("content-encoding", "") == "gzip"
    error = request.headers.get("sealift-trace-error", "")
    return Response(status_code=204 if collector.controller.deliver_trace(request.path_params["id"], data, is_gzip, error) else 404)


async def _trace_fetched(collector: Collector, request: Request) -> Response:
    trace = collector.controller.trace(request.path_params["id"])
    if trace is None:
        return PlainTextResponse("no such trace\n", 404)
    if trace.error:
        return PlainTextResponse(f"the process has no trace: {trace.error}\n", 410)
    if not trace.data:
        silent_s = collector.controller.silent_s(trace.instance)
        state = {"state": "asked" if trace.ordered is None else "recording", "silent_s": silent_s}
        return Response(json.dumps(state), 202, {"Retry-After": "1"}, "application/json")
    headers, data = {"Content-Disposition": f'attachment; filename="{trace.id}.json"'}, trace.data
    if trace.is_gzip and "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
    elif trace.is_gzip:
        data = await anyio.to_thread.run_sync(lambda: inflate(data, "gzip", 1 << 30))
    return Response(data, 200, headers, "application/json")

"""The ASGI application: addresses to pages, downloads, static files, sign-in."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from importlib import resources
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlencode

import anyio.to_thread
import jinja2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from sealift.fleet.collector import api
from sealift.fleet.collector.answers import encoded
from sealift.fleet.collector.app import Collector
from sealift.fleet.collector.limits import allowed
from sealift.fleet.dashboard import access, numbers
from sealift.fleet.dashboard.choices import Choices
from sealift.fleet.dashboard.pages import alerts, census, compare, model, operator, overview, process
from sealift.fleet.dashboard.pages.common import Asked, PageMaker, span_text
from sealift.fleet.dashboard.panels import Page
from sealift.fleet.dashboard.view import RANGES, View
from sealift.fleet.errors import FleetError, QuestionError
from sealift.fleet.patience import within

_LOG = logging.getLogger(__name__)
Answer = TypeVar("Answer")

# path -> (page, its default start)
PAGES: dict[str, tuple[PageMaker, str]] = {
    "/": (overview.overview, "-1h"),
    "/operators": (overview.operators, "-1h"),
    "/operator": (operator.operator, "-1h"),
    "/models": (overview.models, "-1h"),
    "/model": (model.model, "-1h"),
    "/hosts": (overview.hosts, "-1h"),
    "/host": (process.host, "-1h"),
    "/apis": (census.apis, "-1h"),
    "/lineage": (census.lineage, "-1h"),
    "/processes": (census.processes, "-1h"),
    "/process": (process.process, "-15m"),
    "/compare": (compare.compare, "-1h"),
    "/alerts": (alerts.alerts, "-1h"),
}
NAVIGATION = (  # (section, text, path, key after "g")
    ("overview", "Overview", "/", "o"),
    ("operators", "Operators", "/operators", "p"),
    ("models", "Models", "/models", "m"),
    ("hosts", "Hosts", "/hosts", "h"),
    ("processes", "Processes", "/processes", "r"),
    ("compare", "Compare", "/compare", "c"),
    ("alerts", "Alerts", "/alerts", "a"),
    ("apis", "API census", "/apis", "i"),
    ("lineage", "Lineage", "/lineage", "l"),
)

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STATIC = {"style.css": "text/css; charset=utf-8", "dashboard.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"}


def application(collector: Collector) -> Starlette:
    dashboard = Dashboard(collector)

    def guarded(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        return functools.partial(dashboard.guarded, handler)

    routes = [Route(path, guarded(functools.partial(dashboard.page, path))) for path in PAGES]
    routes += [
        Route("/download/{question}.{format}", guarded(dashboard.download)),
        Route("/trace", guarded(dashboard.ask_trace), methods=["POST"]),
        Route("/trace/{id}", guarded(dashboard.trace)),
        Route("/sign-in", dashboard.sign_in, methods=["GET", "POST"]),
        Route("/sign-out", dashboard.sign_out, methods=["POST"]),
        Route("/static/{name}", dashboard.static),
        Route("/favicon.ico", dashboard.icon),
        Route("/{rest:path}", guarded(dashboard.missing)),
    ]
    return Starlette(routes=routes)


class Dashboard:
    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.choices = Choices(collector.store)
        files = resources.files("sealift.fleet.dashboard") / "static"
        self.files = {name: (files / name).read_bytes() for name in _STATIC}
        self.version = blake2b(b"".join(self.files.values()), digest_size=6).hexdigest()
        self.templates = jinja2.Environment(
            loader=jinja2.PackageLoader("sealift.fleet.dashboard"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.globals |= {
            "version": self.version, "navigation": NAVIGATION, "ranges": RANGES, "moment": numbers.moment, "span_text": span_text,
            "needs_token": bool(collector.limits.read_tokens),
        }  # fmt: skip

    @property
    def now_s(self) -> float:
        return self.collector.clock_ns() / 1e9

    async def guarded(self, handler: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        if not access.may_read(request, self.collector.limits):
            self.collector.figures.add("refused_token")
            wrong = access.showed_something(request)
            answer = self.form(
                "The token that came with this request is not one of this collector's." if wrong else "", access.inside(_address(request)), 401
            )
            answer.headers["WWW-Authenticate"] = "Bearer"
            return answer
        try:
            return await handler(request)
        except QuestionError as error:
            text = str(error).removeprefix(f"[{error.code}] ")
            what, _, way_out = text.partition("; help: ")
            return self.error(400, "That cannot be answered", what, way_out, error.code)
        except FleetError as error:
            return self.error(503, "The store does not answer", str(error), "try again in some seconds", error.code)
        except Exception:
            self.collector.figures.add("errors")
            _LOG.exception("%s %s", request.method, request.url.path)
            return self.error(500, "An error of the collector's", "The collector's log says more.", "")

    async def page(self, path: str, request: Request) -> Response:
        started = time.perf_counter()
        query = request.url.query
        parameters = parse_qs(query, keep_blank_values=True, max_num_fields=100)
        if path == "/compare" and not any(parameters.get("from", [])):
            kept = [(k, v) for k, values in parameters.items() for v in values if v and k not in ("to", "b_from", "b_to")]
            return RedirectResponse(compare.DEFAULT + ("&" + urlencode(kept) if kept else ""), 303, HEADERS)
        make, start = PAGES[path]

        def work() -> tuple[str, str]:
            now_s = self.now_s
            view = View.parse(path, query, self.collector.store, now_s, start)
            if any(not v for values in parameters.values() for v in values):  # a form's empty fields: the address without them
                return "", view.url
            page = make(Asked(self.collector, view, now_s))
            return self.html(page, view, started), ""

        body, elsewhere = await self.in_thread(work)
        if elsewhere:
            return RedirectResponse(elsewhere, 303, HEADERS)
        self.collector.figures.add("questions")
        milliseconds = (time.perf_counter() - started) * 1000
        return Response(body, 200, {**HEADERS, "Server-Timing": f"page;dur={milliseconds:.1f}"}, "text/html")

    def html(self, page: Page, view: View, started: float) -> str:
        live = page.live or view.choice("live") == "1"
        made: str = self.templates.get_template("page.html").render(
            page=page,
            view=view,
            live=live and view.end == "now",
            choices=self.choices.now(),
            hidden=[(k, v) for k, v in view.parameters if k in ("from", "to", "where") or k in view.choices],
            seconds=round(time.perf_counter() - started, 3),
        )
        return made

    async def in_thread(self, work: Callable[[], Answer]) -> Answer:
        limit = self.collector.limits.query_seconds
        try:
            return await within(limit, anyio.to_thread.run_sync(work, abandon_on_cancel=True))
        except asyncio.TimeoutError:
            raise QuestionError(f"no answer within {limit:g} s; help: a shorter time range or fewer keys") from None

    async def download(self, request: Request) -> Response:
        """Like /api/v1/QUESTION, for a browser that is signed in: the same parameters, the same answer."""
        question, format = request.path_params["question"], request.path_params["format"]
        parameters = parse_qs(request.url.query, keep_blank_values=True, max_num_fields=100)
        if format not in ("csv", "parquet"):
            raise QuestionError(f"a download as {format!r}; help: csv or parquet")

        def work() -> tuple[bytes, str]:
            if question == "alarms":
                table = alerts.table(alerts.found(self.collector, self.now_s, api.one(parameters, "check") == "1"))
            else:
                table, _ = api.answer(self.collector.store, question, parameters, self.now_s)
            return encoded(table, format, {})

        body, media = await self.in_thread(work)
        return Response(body, 200, {**HEADERS, "Content-Disposition": f'attachment; filename="sealift-{question}.{format}"'}, media)

    async def ask_trace(self, request: Request) -> Response:
        fields = await access.form(request)
        if not access.from_here(request):
            return self.error(403, "Not from here", "A trace is asked for from this dashboard's own pages.", "")
        instance = fields.get("instance", "")

        def known() -> bool:
            return instance in set(self.collector.store.processes().column("instance").to_pylist())

        if not await anyio.to_thread.run_sync(known):
            raise QuestionError(f"no process {instance!r}; help: /processes lists those that were heard of")
        trace = self.collector.controller.ask_trace(instance, 5.0)
        return RedirectResponse(f"/trace/{trace.id}", 303, HEADERS)

    async def trace(self, request: Request) -> Response:
        trace = self.collector.controller.trace(request.path_params["id"])
        if trace is None:
            return self.error(404, "No such trace", "The collector keeps the last eight, in memory.", "ask for it again from the process's page")
        if not trace.data:
            text = (
                f"{trace.instance} hears of it with its next report, records {trace.seconds:g} s and sends them. This page looks every two seconds."
            )
            return self.rendered("wait.html", 202, title="Waiting for the trace", text=text, refresh=2)
        return Response(trace.data, 200, {**HEADERS, "Content-Disposition": f'attachment; filename="{trace.id}.json"'}, "application/json")

    async def sign_in(self, request: Request) -> Response:
        if request.method == "GET":
            return self.form("", access.inside(request.query_params.get("next", "/")))
        fields = await access.form(request)
        where = access.inside(fields.get("next", "/"))
        if not access.from_here(request):
            return self.form("That form came from another site's page.", where, 403)
        token = fields.get("token", "").strip()
        limits = self.collector.limits
        if not allowed(f"Bearer {token}", limits.read_tokens):
            self.collector.figures.add("refused_token")
            return self.form("That token is not one of this collector's.", where, 403)
        answer = RedirectResponse(where, 303, HEADERS)
        access.sign_in(answer, token, request.url.scheme == "https")
        return answer

    async def sign_out(self, request: Request) -> Response:
        if not access.from_here(request):
            return self.error(403, "Not from here", "That form came from another site's page.", "")
        answer = RedirectResponse("/sign-in", 303, HEADERS)
        access.sign_out(answer, request.url.scheme == "https")
        return answer

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.files:
            return self.error(404, "Not found", "There is no such file.", "")
        tag = f'"{self.version}"'
        headers = HEADERS | {"Cache-Control": "public, max-age=31536000, immutable" if request.url.query == self.version else "no-cache", "ETag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(self.files[name], 200, headers, _STATIC[name])

    async def icon(self, _: Request) -> Response:
        """Browsers ask for it by this name where a page names none: at the API's answers."""
        return Response(self.files["icon.svg"], 200, HEADERS | {"Cache-Control": "public, max-age=86400"}, _STATIC["icon.svg"])

    async def missing(self, request: Request) -> Response:
        if request.url.path in ("/v1/metrics", "/v1/logs"):  # theirs that send, which only POST reaches
            return Response("POST, please\n", 405, HEADERS | {"Allow": "POST"}, "text/plain")
        return self.error(404, "Not found", f"There is no page at {request.url.path}.", "the navigation lists those that there are")

    def form(self, problem: str, where: str, status: int = 200) -> Response:
        return self.rendered("sign_in.html", status, title="Sign in", problem=problem, where=where)

    def error(self, status: int, title: str, text: str, way_out: str, code: str = "") -> Response:
        return self.rendered("error.html", status, title=title, text=text, way_out=way_out, code=code)

    def rendered(self, template: str, status: int, **context: Any) -> Response:
        return Response(self.templates.get_template(template).render(**context), status, HEADERS, "text/html")


def _address(request: Request) -> str:
    path, query = str(request.url.path), str(request.url.query)
    return f"{path}?{query}" if query else path

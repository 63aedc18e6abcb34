"""Questions to a collector from Python: `sealift.fleet.connect(url).top(by="operator").to_pandas()`."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pyarrow as pa

from sealift.fleet.errors import QuestionError, UnreachableError

When = str | int | float | datetime


class Fleet:
    """Each question returns a pyarrow Table. Times: unix seconds, datetime, ISO 8601, "now", "-90m"; `where`: "model=resnet50", "host~web-*"."""

    def __init__(
        self, url: str = "http://127.0.0.1:4318", token: str | None = None, timeout_s: float = 60.0, context: ssl.SSLContext | None = None
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise QuestionError(f"address {url!r}; help: http://HOST:PORT or https://HOST:PORT")
        try:
            parts = urllib.parse.urlsplit(url)
            known = bool(parts.hostname) and (parts.port or 1) > 0  # .port raises for what is no number
        except ValueError:
            known = False
        if not known:
            raise QuestionError(f"address {url!r}; help: http://HOST:PORT or https://HOST:PORT")
        self.url = url.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s
        self._context = context

    def top(self, by: str | Iterable[str] = ("operator", "model"), **options: Any) -> pa.Table:
        """Time by the keys. Options of every question: start, end, where, limit; of this one also order."""
        return self.ask("top", by=by, **options)

    def trend(self, by: str | Iterable[str] = "operator", **options: Any) -> pa.Table:
        return self.ask("trend", by=by, **options)

    def quantiles(self, by: str | Iterable[str] = "operator", **options: Any) -> pa.Table:
        return self.ask("quantiles", by=by, **options)

    def heatmap(self, **options: Any) -> pa.Table:
        return self.ask("heatmap", **options)

    def models(self, **options: Any) -> pa.Table:
        return self.ask("models", **options)

    def hosts(self, **options: Any) -> pa.Table:
        return self.ask("hosts", **options)

    def processes(self, **options: Any) -> pa.Table:
        return self.ask("processes", **options)

    def apis(self, **options: Any) -> pa.Table:
        return self.ask("apis", **options)

    def lineage(self, **options: Any) -> pa.Table:
        return self.ask("lineage", **options)

    def diff(
        self,
        start: When = "-1h",
        end: When = "now",
        b_start: When | None = None,
        b_end: When | None = None,
        a_where: str | Iterable[str] = (),
        b_where: str | Iterable[str] = (),
        **options: Any,
    ) -> pa.Table:
        """`start`..`end` with `a_where` against `b_start`..`b_end` (the same time if left out) with `b_where`."""
        more: dict[str, Any] = {"a_where": _texts(a_where), "b_where": _texts(b_where)}
        if b_start is not None:
            more |= {"b_from": _time(b_start), "b_to": _time("now" if b_end is None else b_end)}
        return self.ask("diff", start=start, end=end, **more, **options)

    def sql(self, text: str) -> pa.Table:
        """One SELECT over points, minutes, hours, series, resource, processes, api_uses and model_events."""
        return self._table(self._send("POST", "/api/v1/sql", json.dumps({"sql": text, "format": "arrow"}).encode()))

    def alerts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._send("GET", "/api/v1/alerts"))["data"]["alerts"]
        return found

    def check(self, rules: list[dict[str, Any]] | None = None, at: When = "now") -> list[dict[str, Any]]:
        """The alarms of these rules (default: anything 10 % slower that takes 1 % of the time) for the window that ends at `at`."""
        body = json.dumps({"rules": rules or [{}], "at": _time(at)}).encode()
        found: list[dict[str, Any]] = json.loads(self._send("POST", "/api/v1/check", body))["alarms"]
        return found

    def health(self) -> dict[str, Any]:
        """Whether a collector answers there; it asks for no token."""
        try:
            found: dict[str, Any] = json.loads(self._send("GET", "/health"))
            found["store"]
        except (ValueError, KeyError, TypeError):
            raise UnreachableError(f"{self.url}: an answer that is not a collector's; help: is that its address?") from None
        return found

    def info(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._send("GET", "/api/v1/info"))
        return found

    def trace(self, instance: str, seconds: float = 5.0, patience_s: float = 60.0) -> bytes:
        """A Chrome trace (JSON) of the running process, recorded from when it asks for orders, which it does with each report.

        `patience_s`: how long to wait for that, and again for the trace itself. Errors: QuestionError where the process is gone for long,
        UnreachableError where it does not answer."""
        asked = json.loads(self._send("POST", "/api/v1/trace", json.dumps({"instance": instance, "seconds": seconds}).encode()))["id"]
        end, was_told = time.monotonic() + patience_s, False
        while True:
            status, body = self._open("GET", f"/api/v1/trace/{asked}")
            if status == 200:
                return body
            state = json.loads(body)
            if state["state"] == "recording" and not was_told:
                was_told, end = True, time.monotonic() + seconds + patience_s
            if time.monotonic() > end:
                break
            time.sleep(0.25)
        silent = (
            "it has not reported since the collector started" if state["silent_s"] is None else f"its last report was {state['silent_s']:.0f} s ago"
        )
        did = "was told to record, and has sent no trace" if was_told else "has not asked for its orders"
        raise UnreachableError(
            f"process {instance} {did} within {patience_s + (seconds if was_told else 0):g} s; {silent}; help: does it still run, and does it report "
            "by sealift's own agent (`sealift.fleet.agent.report`)?"
        )

    def ask(
        self,
        question: str,
        *,
        by: str | Iterable[str] | None = None,
        start: When = "-1h",
        end: When = "now",
        where: str | Iterable[str] = (),
        **options: Any,
    ) -> pa.Table:
        parameters: dict[str, Any] = {k: v for k, v in options.items() if v is not None and v != []}
        if question not in ("apis", "lineage", "processes"):
            parameters |= {"from": _time(start), "to": _time(end)}
        if by is not None:
            parameters["by"] = by if isinstance(by, str) else ",".join(by)
        parameters |= {"where": _texts(where), "format": "arrow"}
        return self._table(self._send("GET", f"/api/v1/{question}?" + urllib.parse.urlencode(parameters, doseq=True)))

    def _table(self, body: bytes) -> pa.Table:
        try:
            return pa.ipc.open_stream(body).read_all()
        except pa.ArrowInvalid:
            raise UnreachableError(f"{self.url}: an answer that is not a collector's; help: is that its address?") from None

    def _send(self, method: str, path: str, body: bytes | None = None) -> bytes:
        return self._open(method, path, body)[1]

    def _open(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        headers = {"Accept-Encoding": "gzip"} | ({"Content-Type": "application/json"} if body else {})
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s, context=self._context) as answer:
                found: bytes = answer.read()
                return answer.status, gzip.decompress(found) if answer.headers.get("Content-Encoding") == "gzip" else found
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace").strip()
            if error.code == 400:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    text = json.loads(text)["error"]["message"]
                raise QuestionError(text) from None
            if error.headers.get_content_type() not in ("text/plain", "application/json"):
                raise UnreachableError(f"{self.url}: {error.code}, not from a collector; help: is that its address?") from None
            raise UnreachableError(f"{self.url}: {error.code} {text[:500]}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise UnreachableError(f"{self.url}: {getattr(error, 'reason', error)}; help: `sealift fleet serve`, or --url") from None


def _time(when: When) -> str:
    return str(when.timestamp()) if isinstance(when, datetime) else str(when)


def _texts(values: str | Iterable[str]) -> list[str]:
    return [values] if isinstance(values, str) else list(values)

"""What stands before every request: which names this server answers to, and that no other site's page gives it orders.

A collector without tokens trusts whoever reaches its port. A web page reaches it too: by DNS rebinding, a name of its own that suddenly means
127.0.0.1, it would even read the answers. Its requests still carry that name in Host, so without a token only these are answered to: addresses
in numbers, localhost, and the names of `--host` and `--allow-host`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sealift.fleet.collector.figures import Figures
from sealift.fleet.collector.limits import Limits
from sealift.fleet.errors import ForeignError

# For answers that are no pages; the dashboard's pages have a policy of their own.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:/@\s]+)(?::[0-9]{1,5})?\Z")


def host_name(header: str) -> str:
    """A Host header's name in lower case, without port, brackets and a final dot; "" for what is no host."""
    found = _HOST.match(header.strip())
    return found[1].strip("[]").rstrip(".").lower() if found else ""


@dataclass(frozen=True)
class Names:
    """The host names that a server answers to where no token is asked for."""

    allowed: frozenset[str] = frozenset()  # "*": any

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        return cls(frozenset(name.lower().rstrip(".") for name in names))

    def answers(self, header: str) -> bool:
        name = host_name(header)
        if not name:
            return False
        if "*" in self.allowed or name in self.allowed or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)  # a rebound name is a name: a page cannot have a number as its origin but from there
        except ValueError:
            return False
        return True


class Guard:
    """ASGI, around the application."""

    def __init__(self, application: ASGIApp, names: Names, limits: Limits, figures: Figures) -> None:
        self._application = application
        self._names = names
        self._limits = limits
        self._figures = figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            self._figures.add("refused_host")
        await (refusal or self._application)(scope, receive, sending)

    def _refusal(self, scope: Scope) -> Response | None:
        path, headers = str(scope["path"]), Headers(scope=scope)
        tokens = self._limits.write_tokens if path.startswith("/v1/") else self._limits.read_tokens
        host = headers.get("host", "")
        if not tokens and path != "/health" and not self._names.answers(host):
            name = host_name(host)
            way_out = f"`sealift fleet serve --allow-host {name}`, or tokens, or its address in numbers" if name else "an HTTP/1.1 client"
            return _refused(421, f"this collector does not answer to the name {host[:200]!r}; help: {way_out}")
        if scope["method"] not in ("GET", "HEAD") and headers.get("sec-fetch-site") == "cross-site":
            return _refused(403, "a page of another site sent this; help: programs and this collector's own pages may")
        return None


def _refused(status: int, text: str) -> Response:
    return PlainTextResponse(f"{ForeignError(text)}\n", status)

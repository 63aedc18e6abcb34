"""Who may look. With read tokens, a request shows one in `Authorization: Bearer` or in the cookie that the sign-in form sets.

The cookie holds the token itself, so that any of several collectors accepts it; scripts cannot read it (HttpOnly), and no other site's page
can make the browser send it (SameSite=Strict)."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from sealift.fleet.collector.limits import Limits, allowed

COOKIE = "sealift-token"
_SECONDS = 30 * 86_400
_FORM_BYTES = 8192


def may_read(request: Request, limits: Limits) -> bool:
    return allowed(request.headers.get("authorization", ""), limits.read_tokens) or allowed(f"Bearer {_from_cookie(request)}", limits.read_tokens)


def showed_something(request: Request) -> bool:
    """Whether it came with a token at all, if a wrong one."""
    return bool(request.headers.get("authorization") or request.cookies.get(COOKIE))


def _from_cookie(request: Request) -> str:
    try:
        return base64.urlsafe_b64decode(request.cookies.get(COOKIE, "").encode()).decode()
    except (binascii.Error, ValueError):
        return ""


def sign_in(response: Response, token: str, secure: bool) -> None:
    value = base64.urlsafe_b64encode(token.encode()).decode()  # a token may hold what a cookie may not
    response.set_cookie(COOKIE, value, max_age=_SECONDS, path="/", secure=secure, httponly=True, samesite="strict")


def sign_out(response: Response, secure: bool) -> None:
    response.delete_cookie(COOKIE, path="/", secure=secure, httponly=True, samesite="strict")


def from_here(request: Request) -> bool:
    """Whether a form was sent from a page of this server: browsers say so in one of two headers; programs that send neither are no browser."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return False
    return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")


async def form(request: Request) -> dict[str, str]:
    """The fields of a small form; {} for what is too large or none."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _FORM_BYTES:
            return {}
    try:
        return {k: v[-1] for k, v in parse_qs(body.decode(), keep_blank_values=True, max_num_fields=20).items()}
    except ValueError:
        return {}


def inside(address: str) -> str:
    """`address` if it is a path of this server, else the front page: a sign-in must not lead anywhere else."""
    ok = address.startswith("/") and not address.startswith(("//", "/\\")) and not any(ord(c) < 32 or c == "\\" for c in address)
    return address if ok else "/"

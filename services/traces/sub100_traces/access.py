"""Who may come in. On loopback anybody (whoever is on the machine can read the file, too); elsewhere the
operator.

Programs send ``Authorization: Bearer <operator key>``; people fill in a form once and get a cookie that no
script can read, that no other site can make a browser send (``SameSite=Strict``), and that is worth nothing
after a restart. Exporters have a key of their own, so that a service that may write spans may not read them.
Health is open to all; everything else is closed, routes that do not exist included.
"""

import asyncio
import hmac
import ipaddress
import secrets
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from .exports import refusal
from .pages import Pages

COOKIE: Final = "sub100_traces"
SESSION_S: Final = 12 * 3600
FAILURE_DELAY_S: Final = 0.5
MAX_FORM_BYTES: Final = 4096
_OPEN: Final = frozenset({"/healthz", "/readyz"})
_FORM: Final = frozenset({"/login", "/static/style.css", "/static/page.js"})
_INTAKE: Final = "/v1/traces"


def is_loopback(host: str) -> bool:
    """A name is loopback only if it is ``localhost``: others may resolve to anything."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Access:
    """``operator_key`` empty: reading needs no key; ``intake_key`` empty: writing needs none."""

    def __init__(self, operator_key: bytes, intake_key: bytes, clock: Callable[[], float]) -> None:
        self._operator_key = operator_key
        self._intake_key = intake_key
        self._clock = clock
        self._signing_key = secrets.token_bytes(32)
        self._pages = Pages()

    def admits(self, request: Request) -> bool:
        """Whether ``request`` may have what it asks for."""
        path = request.url.path
        if path in _OPEN or (path == _INTAKE and request.method == "POST" and not self._intake_key):
            return True
        if path == _INTAKE:
            return self._has_key(request, self._intake_key)
        if not self._operator_key:
            return is_loopback(_host_name(request))
        if path in _FORM:
            return True
        return self._has_key(request, self._operator_key) or self._has_session(request)

    def refuse(self, request: Request) -> Response:
        """401; for a person's browser the way to the form."""
        if request.url.path == _INTAKE:
            return refusal(401, "send Authorization: Bearer <intake key>", {"www-authenticate": "Bearer"})
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/login", status_code=303)
        return Response("operator key needed\n", 401, {"www-authenticate": "Bearer"}, "text/plain")

    async def login_page(self, _: Request) -> Response:
        return HTMLResponse(self._pages.login(is_wrong=False))

    async def login(self, request: Request) -> Response:
        """A right key gets a session; a wrong one waits."""
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_FORM_BYTES:
                return Response(status_code=413, headers={"connection": "close"})
        key = parse_qs(body.decode("latin-1"), encoding="utf-8").get("key", [""])[0]
        if not self._operator_key or not hmac.compare_digest(key.strip().encode(), self._operator_key):
            await asyncio.sleep(FAILURE_DELAY_S)
            return HTMLResponse(self._pages.login(is_wrong=True), status_code=403)
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(
            COOKIE,
            self._session(int(self._clock()) + SESSION_S),
            max_age=SESSION_S,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https",
        )
        return response

    async def logout(self, _: Request) -> Response:
        response = RedirectResponse("/login", status_code=303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    def _has_key(self, request: Request, key: bytes) -> bool:
        """Exactly one header, scheme ``Bearer`` in any case (RFC 9110)."""
        sent = request.headers.getlist("authorization")
        if len(sent) != 1:
            return False
        scheme, _, value = sent[0].partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(value.strip().encode(), key)

    def _session(self, until_s: int) -> str:
        return f"{until_s}.{hmac.digest(self._signing_key, str(until_s).encode(), 'sha256').hex()}"

    def _has_session(self, request: Request) -> bool:
        until_s, _, _ = request.cookies.get(COOKIE, "").partition(".")
        if not (until_s.isascii() and until_s.isdecimal() and len(until_s) < 12):
            return False
        is_ours = hmac.compare_digest(request.cookies[COOKIE].encode(), self._session(int(until_s)).encode())
        return is_ours and int(until_s) > self._clock()


def _host_name(request: Request) -> str:
    """The host that the client believes to be talking to, without port and brackets.

    A foreign name that resolves to loopback is how a web page reads what is open to the machine only (DNS
    rebinding).
    """
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    return name.strip("[]")


class Gate:
    """ASGI middleware in front of every route."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request = Request(scope)
            if not self._access.admits(request):
                await self._access.refuse(request)(scope, receive, send)
                return
        await self._app(scope, receive, send)

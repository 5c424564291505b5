"""In front of every route: the arrival stamp and the key. Nothing but health is open.

Pure ASGI: a request without a valid key never reaches the router, whatever its path looks like.
"""

import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from sub100_shared.clock import Clock
from sub100_shared.errors import ClientError, Refused, Sub100Error

from .delivery import Send, send_error
from .keys import KeyRing

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Send], Awaitable[None]]

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
ARRIVED: Final = "sub100.arrived_ms"
TENANT: Final = "sub100.tenant"
REQUEST_ID: Final = "sub100.request_id"

_SAFE_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class Door:
    """Wraps the application. ``refusal()`` says why nothing is served now, or None; ``on_refused(code)``
    hears of each request that gets no further than here."""

    def __init__(
        self,
        app: App,
        keys: KeyRing,
        clock: Clock,
        refusal: Callable[[], Refused | None],
        on_refused: Callable[[str], None],
    ) -> None:
        self._app = app
        self._keys = keys
        self._clock = clock
        self._refusal = refusal
        self._on_refused = on_refused

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[ARRIVED] = self._clock()
        request_id = scope[REQUEST_ID] = _request_id(scope)
        if scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        error: Sub100Error | None = self._refusal()
        if error is None:
            authorizations = [value for name, value in scope["headers"] if name == b"authorization"]
            try:
                scope[TENANT] = self._keys.authenticate(authorizations)
            except ClientError as refused:
                error = refused
        if error is not None:
            self._on_refused(error.code)
            await send_error(send, error, request_id)
            return
        await self._app(scope, receive, send)


def _request_id(scope: Scope) -> str:
    """The client's ``x-request-id`` if it is short and plain, else a random one. A label only: nothing
    is found or aborted by it, so two requests with one id cannot mix."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SAFE_ID.fullmatch(value):
            return str(value, "ascii")
    return f"req-{secrets.token_hex(8)}"

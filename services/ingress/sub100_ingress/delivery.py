"""Text to the client: as server-sent events, or collected into one body.

The response starts with the first thing there is to say, so that whatever fails before it still has
its own HTTP status. Role chunk and first text leave in one write.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol

from sub100_shared.errors import Refused, Sub100Error
from sub100_shared.ledger import server_timing

from . import account
from . import chunks as wire
from .chunks import ChunkWriter
from .errors_http import error_body
from .exchange import Exchange

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_SSE_HEADERS: Final[Headers] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_JSON_HEADERS: Final[Headers] = [(b"content-type", b"application/json")]


class Responder(Protocol):
    """A Delivery that also ends: exactly one of ``finish`` and ``fail`` is called, once."""

    status: int

    async def text(self, text: str) -> None: ...

    async def keep_alive(self) -> None: ...

    async def finish(self) -> None: ...

    async def fail(self, error: Sub100Error) -> None: ...


class SseResponder:
    """``status`` is what was sent: 200 once the stream began, though an error may end it."""

    def __init__(self, ex: Exchange, writer: ChunkWriter, send: Send) -> None:
        self._ex = ex
        self._writer = writer
        self._send = send
        self._has_role = False
        self.status = 0

    async def text(self, text: str) -> None:
        data = self._writer.delta(text)
        if not self._has_role:
            self._has_role = True
            data = self._writer.role() + data
            self._ex.ledger.first_content_byte()
        await self._write(data)

    async def keep_alive(self) -> None:
        await self._write(wire.KEEP_ALIVE)

    async def finish(self) -> None:
        data = b"" if self._has_role else self._writer.role()
        data += self._writer.final(self._ex.finish_reason)
        if self._ex.request.include_usage:
            data += self._writer.usage(usage_of(self._ex), account.sub100_object(self._ex))
        await self._write(data + wire.DONE, more=False)

    async def fail(self, error: Sub100Error) -> None:
        if self.status:
            await self._write(wire.error_event(error, self._ex.request_id), more=False)
        else:
            self.status = await send_error(self._send, error, self._ex.request_id)

    async def _write(self, data: bytes, *, more: bool = True) -> None:
        if not self.status:
            self.status = 200
            headers = _SSE_HEADERS + answer_headers(self._ex)
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        self._ex.num_writes += 1
        self._ex.is_writing = True
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
        self._ex.is_writing = False


class BodyResponder:
    """One JSON body at the end."""

    def __init__(self, ex: Exchange, writer: ChunkWriter, send: Send) -> None:
        self._ex = ex
        self._writer = writer
        self._send = send
        self.status = 0

    async def text(self, text: str) -> None:
        self._ex.ledger.first_content_byte()

    async def keep_alive(self) -> None:
        """Nothing: a body has no place for comments."""

    async def finish(self) -> None:
        body = self._writer.body(
            "".join(self._ex.pieces),
            self._ex.finish_reason,
            usage_of(self._ex),
            account.sub100_object(self._ex),
        )
        self.status = 200
        await send_json(self._send, 200, body, answer_headers(self._ex))

    async def fail(self, error: Sub100Error) -> None:
        self.status = await send_error(self._send, error, self._ex.request_id)


def usage_of(ex: Exchange) -> wire.Usage:
    return wire.Usage(
        prompt_tokens=ex.num_prompt_tokens,
        completion_tokens=ex.num_completion_tokens,
        cached_tokens=ex.num_cached_tokens,
    )


def answer_headers(ex: Exchange) -> Headers:
    """Request id, tier, and the budget's account up to now."""
    return [
        (b"x-request-id", ex.request_id.encode()),
        (b"x-sub100-tier", ex.tier.encode()),
        (b"server-timing", server_timing(ex.ledger).encode()),
        *account.cache_headers(ex),
    ]


async def send_error(send: Send, error: Sub100Error, request_id: str) -> int:
    """An error in OpenAI's shape; returns its status."""
    headers: Headers = [(b"x-request-id", request_id.encode())]
    if isinstance(error, Refused):
        headers.append((b"retry-after", str(max(1, round(error.retry_after_s))).encode()))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send_json(send, error.status, error_body(error, request_id), headers)
    return error.status


async def send_json(send: Send, status: int, body: bytes, headers: Headers) -> None:
    head = [*_JSON_HEADERS, (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body, "more_body": False})

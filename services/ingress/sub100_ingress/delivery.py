"""Text to the client: as server-sent events, or collected into one body.

The response starts with the first thing there is to say, so that whatever fails before it still has
its own HTTP status. Role chunk and first text leave in one write.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final, Protocol

from sub100_shared.errors import REFUSED_CODES, Refused, Sub100Error
from sub100_shared.ledger import server_timing

from . import account
from . import chunks as wire
from .chunks import ChunkWriter
from .errors_http import error_body
from .events import Events, events_of, new_call_id
from .exchange import Exchange
from .text import ScoredToken
from .tool_message import read_message

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_SSE_HEADERS: Final[Headers] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_LONG_BYTES: Final = 65_536
_ROW_BYTES: Final = 64
"""At least what a token's log probability is as JSON; a piece that is read for calls costs no less."""
_JSON_HEADERS: Final[Headers] = [(b"content-type", b"application/json")]


class Responder(Protocol):
    """A Delivery that also ends: exactly one of ``finish`` and ``fail`` is called, once."""

    status: int

    async def text(self, text: str, scored: Sequence[ScoredToken] = ()) -> None: ...

    async def keep_alive(self) -> None: ...

    def choice(self, index: int, ex: Exchange) -> "ChoiceDelivery":
        """Where one of several answers goes; ``finish`` of each comes before the response's own."""
        ...

    async def finish(self) -> None: ...

    async def fail(self, error: Sub100Error) -> None: ...


class ChoiceDelivery(Protocol):
    """A Delivery of one of several answers."""

    async def text(self, text: str, scored: Sequence[ScoredToken] = ()) -> None: ...

    async def keep_alive(self) -> None: ...

    async def finish(self) -> None: ...


class SseResponder:
    """``status`` is what was sent: 200 once the stream began, though an error may end it."""

    def __init__(self, ex: Exchange, writer: ChunkWriter, send: Send) -> None:
        self._ex = ex
        self._writer = writer
        self._send = send
        self._events = events_of(ex, writer)
        self._turn = asyncio.Lock()
        self.status = 0

    async def text(self, text: str, scored: Sequence[ScoredToken] = ()) -> None:
        data = self._events.text(text, scored)
        if data:
            await self._write(data)

    async def keep_alive(self) -> None:
        await self._write(wire.KEEP_ALIVE)

    def choice(self, index: int, ex: Exchange) -> ChoiceDelivery:
        return _SseChoice(self, ex, events_of(ex, self._writer.at(index)))

    async def write_choice(self, ex: Exchange, data: bytes) -> None:
        """Answers take turns: what one writes has left before another's begins."""
        async with self._turn:
            self._ex.tier = ex.tier
            await self._write(data)

    async def finish(self) -> None:
        data = b"" if self._ex.choices else self._events.final()
        if self._ex.request.include_usage:
            data += self._writer.usage(usage_of(self._ex), account.sub100_object(self._ex))
        await self._write(data + wire.DONE, more=False)
        self._ex.answered_ms = self._ex.ledger.elapsed_ms()

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
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


class _SseChoice:
    def __init__(self, responder: SseResponder, ex: Exchange, events: Events) -> None:
        self._responder = responder
        self._ex = ex
        self._events = events

    async def text(self, text: str, scored: Sequence[ScoredToken] = ()) -> None:
        data = self._events.text(text, scored)
        if data:
            await self._responder.write_choice(self._ex, data)

    async def keep_alive(self) -> None:
        await self._responder.write_choice(self._ex, wire.KEEP_ALIVE)

    async def finish(self) -> None:
        await self._responder.write_choice(self._ex, self._events.final())


class BodyResponder:
    """One JSON body at the end."""

    def __init__(self, ex: Exchange, writer: ChunkWriter, send: Send) -> None:
        self._ex = ex
        self._writer = writer
        self._send = send
        self.status = 0

    async def text(self, text: str, scored: Sequence[ScoredToken] = ()) -> None:
        self._ex.scored.extend(scored)
        self._ex.ledger.first_content_byte()

    async def keep_alive(self) -> None:
        """Nothing: a body has no place for comments."""

    def choice(self, index: int, ex: Exchange) -> ChoiceDelivery:
        return _BodyChoice(ex, self._writer, self._send)

    async def finish(self) -> None:
        ex = self._ex
        answers = ex.choices or [ex]
        num_rows = sum(len(answer.scored) for answer in answers)
        if ex.request.calling is not None:
            num_rows += sum(len(answer.pieces) for answer in answers)
        is_long = len(ex.prompt_logprobs) + _ROW_BYTES * num_rows > _LONG_BYTES
        body = await asyncio.to_thread(self._body) if is_long else self._body()
        self.status = 200
        await send_json(self._send, 200, body, answer_headers(self._ex))
        ex.answered_ms = ex.ledger.elapsed_ms()

    async def fail(self, error: Sub100Error) -> None:
        self.status = await send_error(self._send, error, self._ex.request_id)

    def _body(self) -> bytes:
        ex = self._ex
        answers = [self._whole(index, answer) for index, answer in enumerate(ex.choices or [ex])]
        return self._writer.body(
            answers,
            usage_of(ex),
            sub100=account.sub100_object(ex),
            prompt_logprobs=ex.prompt_logprobs,
        )

    def _whole(self, index: int, answer: Exchange) -> bytes:
        request, writer = answer.request, self._writer.at(index)
        if request.calling is None:
            text = "".join(answer.pieces)
            is_scored = request.sampling.logprobs is not None
            return writer.whole(text, answer.finish_reason, answer.scored if is_scored else None)
        message = read_message(request.calling, answer.pieces, answer.finish_reason)
        self._ex.told_reason = message.finish_reason
        calls = [(new_call_id(), call.name, call.arguments) for call in message.calls]
        return writer.whole(message.content, message.finish_reason, calls=calls)


class _BodyChoice(BodyResponder):
    """Collects one of several answers; the response's own ``finish`` writes them all."""

    async def finish(self) -> None:
        return


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
    """An error in OpenAI's shape; returns its status. Every 429 and 503 says when to try again, also where a
    worker was the last to refuse."""
    headers: Headers = [(b"x-request-id", request_id.encode())]
    if error.code in REFUSED_CODES:
        retry_after_s = error.retry_after_s if isinstance(error, Refused) else 1.0
        headers.append((b"retry-after", str(max(1, round(retry_after_s))).encode()))
    if error.code == "draining":
        headers.append((b"connection", b"close"))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send_json(send, error.status, error_body(error, request_id), headers)
    return error.status


async def send_json(send: Send, status: int, body: bytes, headers: Headers) -> None:
    """Returns when the body has left, or its client: what holds the request's place must wait for that."""
    head = [*_JSON_HEADERS, (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})  # behind the body

"""Reading a request's body: bounded in size and time; and noticing that the client left."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from sub100_shared.errors import ClientError

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class ClientDisconnected(Exception):
    """The client went away before its request was complete."""


async def read_body(
    receive: Receive, declared: str | None, *, limit: int, timeout_s: float, take: Callable[[int], None]
) -> bytes:
    """The whole body; raises ClientError (``request_too_large``, ``body_timeout``) or ClientDisconnected.

    A declared length over the limit is refused before a byte is read. ``take`` is called with the size of
    each part that came; what it raises ends the reading.
    """
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(timeout_s):
            return await _read(receive, limit, take)
    except TimeoutError as error:
        raise ClientError("body_timeout", f"the body did not arrive within {timeout_s:.0f} s") from error


async def _read(receive: Receive, limit: int, take: Callable[[int], None]) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        part: bytes = message.get("body", b"")
        if len(body) + len(part) > limit:
            raise _too_large(limit)
        take(len(part))
        if not message.get("more_body"):
            return bytes(body) + part if body else part
        body += part


async def disconnected(receive: Receive) -> None:
    """Wait for the client to leave, or for the end of its response, after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _too_large(limit: int) -> ClientError:
    return ClientError("request_too_large", f"the request body is larger than {limit} bytes")

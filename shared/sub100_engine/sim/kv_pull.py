"""The consumer's side of a hand-over: fetch the KV of a prompt, check it, confirm it.

Connections are kept for the next pull from the same producer: opening one costs more than the pull. One that
was idle for MAX_IDLE_S is not used again: what lies between may have forgotten it without a word.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec

from sub100_proto.kv import KvHandle

from .kv_wire import ACK, MAX_REPLY, KvUnavailable, PullReply, PullRequest, prove, receive, send

MAX_IDLE_LINKS: Final = 32
MAX_IDLE_S: Final = 20.0

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_reply: Final = msgspec.msgpack.Decoder(PullReply).decode


class _Link:
    """One connection to a producer."""

    __slots__ = ("endpoint", "idle_since_s", "is_used", "reader", "writer")

    def __init__(self, endpoint: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.endpoint = endpoint
        self.reader = reader
        self.writer = writer
        self.is_used = False
        self.idle_since_s = 0.0

    @property
    def is_open(self) -> bool:
        return not (self.reader.at_eof() or self.writer.is_closing())

    def cut(self) -> None:
        self.writer.transport.abort()


class KvPuller:
    """Pulls for one engine; owns its connections until ``close``. ``now`` gives monotonic seconds."""

    def __init__(self, layout: str, secret: bytes, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._layout = layout
        self._secret = secret
        self._idle: list[_Link] = []

    async def pull(self, handle: KvHandle, expected: bytes, num_tokens: int, timeout_s: float) -> None:
        """Fetch and confirm; raises KvUnavailable, never returns another prompt's KV.

        ``timeout_s`` bounds all of it, the connection included.
        """
        if handle.connector != "sim" or handle.layout != self._layout:
            raise KvUnavailable("kv_load_failed", f"{handle.connector} KV of layout {handle.layout}")
        if handle.num_tokens != num_tokens:
            raise KvUnavailable("kv_load_failed", f"KV of {handle.num_tokens} tokens for {num_tokens}")
        request = PullRequest(handle.key, self._layout, prove(self._secret, handle.key))
        try:
            async with asyncio.timeout(timeout_s):
                await self._fetch(handle.endpoint, request, expected, num_tokens)
        except (OSError, EOFError, ValueError, msgspec.MsgspecError) as error:  # TimeoutError is an OSError
            raise KvUnavailable("kv_load_failed", str(error) or type(error).__name__) from error

    def close(self) -> None:
        """Idempotent."""
        idle, self._idle = self._idle, []
        for link in idle:
            link.cut()

    async def _fetch(self, endpoint: str, request: PullRequest, expected: bytes, num_tokens: int) -> None:
        link, reply = await self._ask(endpoint, request)
        try:
            if reply.code:
                self._keep(link)
                raise KvUnavailable(reply.code, reply.reason)
            if reply.num_tokens != num_tokens or reply.payload != expected:
                raise KvUnavailable("kv_load_failed", "checksum mismatch: the KV of another prompt")
            link.writer.write(ACK)
            await link.writer.drain()
            self._keep(link)
        finally:
            if link not in self._idle:
                link.cut()

    async def _ask(self, endpoint: str, request: PullRequest) -> tuple[_Link, PullReply]:
        """Send the request and get its reply; a kept connection that the producer has closed in between
        is replaced by a new one, once."""
        while True:
            link = self._kept(endpoint) or await self._open(endpoint)
            try:
                send(link.writer, _encode(request))
                return link, _decode_reply(await receive(link.reader, MAX_REPLY))
            except (ConnectionError, EOFError):
                link.cut()
                if not link.is_used:
                    raise
                self._forget(endpoint)
            except BaseException:
                link.cut()
                raise

    async def _open(self, endpoint: str) -> _Link:
        host, _, port = endpoint.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        return _Link(endpoint, reader, writer)

    def _kept(self, endpoint: str) -> _Link | None:
        for index in range(len(self._idle) - 1, -1, -1):
            if self._idle[index].endpoint == endpoint:
                link = self._idle.pop(index)
                if link.is_open and self._now() - link.idle_since_s < MAX_IDLE_S:
                    return link
                link.cut()
        return None

    def _keep(self, link: _Link) -> None:
        link.is_used = True
        link.idle_since_s = self._now()
        self._idle.append(link)
        if len(self._idle) > MAX_IDLE_LINKS:
            self._idle.pop(0).cut()

    def _forget(self, endpoint: str) -> None:
        """The producer has gone away or come back: its other kept connections are dead as well."""
        for link in [link for link in self._idle if link.endpoint == endpoint]:
            self._idle.remove(link)
            link.cut()

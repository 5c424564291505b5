"""Handed-over KV on its way over TCP: the messages, and the listener at the producer.

::

    consumer  PullRequest(key, layout, proof)  ->  producer
    consumer  <-  PullReply(payload) or PullReply(code)
    consumer  one byte: checked and stored  ->  producer frees the blocks

``proof`` is the HMAC of the key under the deployment's secret: a handle alone, read off the bus, opens
nothing. A consumer that leaves or stalls before the last byte costs the producer nothing but the lease;
one that asks for nothing is hung up on after REQUEST_TIMEOUT_S. A connection carries one pull after the
other and is closed after IDLE_TIMEOUT_S without one.

The payload is small (32 bytes a block) but it is a function of all tokens and the salt, so a consumer
knows whether it holds the KV of exactly its prompt.
"""

import asyncio
import hmac
import struct
from collections.abc import Callable
from hashlib import blake2b, sha256
from typing import Final

import msgspec

from sub100_proto import blocks, tokens

from .faults import Faults
from .leases import LeaseBook

MAX_REQUEST: Final = 1024
MAX_REPLY: Final = 64 * 2**20
MAX_CONNECTIONS: Final = 1024
REQUEST_TIMEOUT_S: Final = 5.0
IDLE_TIMEOUT_S: Final = 60.0
ACK: Final = b"\x01"
_LENGTH: Final = struct.Struct("<I")


class KvUnavailable(Exception):
    """``code`` is ``kv_expired`` (the producer says that it is gone) or ``kv_load_failed``."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class PullRequest(msgspec.Struct, frozen=True):
    key: str
    layout: str
    proof: bytes


class PullReply(msgspec.Struct, frozen=True):
    """``code`` empty: the payload is there."""

    code: str = ""
    reason: str = ""
    num_tokens: int = 0
    payload: bytes = b""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_request: Final = msgspec.msgpack.Decoder(PullRequest).decode


def kv_payload(prompt: list[int], block_size: int, salt: str) -> bytes:
    """What stands for the KV of a prompt: a digest a block, each over all tokens up to its end."""
    parts: list[bytes] = []
    parent = blocks.root(salt)
    for start in range(0, len(prompt), block_size):
        packed = tokens.pack(prompt[start : start + block_size])
        parent = blake2b(parent + packed, digest_size=32, person=b"sub100.sim.kv").digest()
        parts.append(parent)
    return b"".join(parts)


def prove(secret: bytes, key: str) -> bytes:
    """Shows that who asks for ``key`` belongs to the deployment."""
    return hmac.new(secret, key.encode(), sha256).digest()


class KvListener:
    """Serves the leases of one engine; ``on_pulled(key)`` is called when a consumer has confirmed."""

    def __init__(
        self,
        book: LeaseBook,
        layout: str,
        secret: bytes,
        on_pulled: Callable[[str], None],
        faults: Faults,
    ) -> None:
        self._book = book
        self._layout = layout
        self._secret = secret
        self._on_pulled = on_pulled
        self._faults = faults
        self._server: asyncio.Server | None = None
        self._pulls: dict[asyncio.Task[None], str] = {}
        self.endpoint = ""

    @property
    def num_connections(self) -> int:
        return len(self._pulls)

    async def start(self, host: str, port: int = 0) -> None:
        """Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port)
        port = self._server.sockets[0].getsockname()[1]
        self.endpoint = f"{host}:{port}"

    async def stop(self) -> None:
        """Idempotent."""
        if self._server is not None:
            self._server.close()
        for pull in self._pulls:
            pull.cancel()
        await asyncio.gather(*self._pulls, return_exceptions=True)

    def cut(self, key: str) -> None:
        """End running pulls of a lease that is over."""
        for pull, pulled in self._pulls.items():
            if pulled == key:
                pull.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._pulls) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._pulls[task] = ""
        try:
            timeout_s = REQUEST_TIMEOUT_S
            while True:
                async with asyncio.timeout(timeout_s):
                    request = _decode_request(await receive(reader, MAX_REQUEST))
                self._pulls[task] = request.key
                await self._serve_one(request, reader, writer)
                self._pulls[task] = ""
                timeout_s = IDLE_TIMEOUT_S
        except asyncio.CancelledError:
            writer.transport.abort()  # the lease is over; a stalled peer must not hold the socket
        except (OSError, EOFError, ValueError, msgspec.MsgspecError):
            pass  # the lease stands
        finally:
            del self._pulls[task]
            writer.close()

    async def _serve_one(
        self, request: PullRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Raises EOFError when the consumer leaves without a confirmation."""
        reply = self._answer(request)
        if self._faults.stall_kv:
            await reader.readexactly(1)
        send(writer, _encode(reply))
        await writer.drain()
        if not reply.code and await reader.readexactly(1) == ACK:
            self._on_pulled(request.key)

    def _answer(self, request: PullRequest) -> PullReply:
        if not hmac.compare_digest(request.proof, prove(self._secret, request.key)):
            return PullReply("kv_load_failed", "the proof is wrong: another deployment's secret")
        lease = self._book.find(request.key)
        if lease is None:
            return PullReply("kv_expired", f"the KV is gone: {self._book.why_gone(request.key)}")
        if request.layout != self._layout:
            return PullReply("kv_load_failed", f"layout is {self._layout}, not {request.layout}")
        payload = lease.payload[::-1] if self._faults.corrupt_kv else lease.payload
        return PullReply(num_tokens=lease.num_tokens, payload=payload)


def send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(_LENGTH.pack(len(frame)) + frame)


async def receive(reader: asyncio.StreamReader, limit: int) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > limit:
        raise ValueError(f"frame of {length} bytes")
    return await reader.readexactly(length)

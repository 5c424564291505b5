"""What two hand-over peers say to each other: a proof of the secret each, then requests and answers.

::

    exporter                           puller
    nonce (16)                  ->
                                <-     nonce (16), proof (32)
    proof (32)                  ->
                                <-     Pull | Release
    Granted | Refused | Released ->
    [shared memory, if Granted.arena_bytes: its descriptor]
    one frame a layer: checksum (8) [, the layer's bytes, unless they lie where the puller reads them]  ->
                                <-     ACK: the blocks may go

A connection is used for one request after the other. Everything is bounded: messages in size, waits in time.
"""

import contextlib
import hmac
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, TypeVar

import msgspec

NONCE_BYTES: Final = 16
PROOF_BYTES: Final = 32
MAX_MESSAGE_BYTES: Final = 64 * 1024
"""Of a request. A proven exporter may answer with more: agents' metadata, and the blocks of long prompts."""
MAX_REPLY_BYTES: Final = 4 << 20
ACK: Final = b"K"

_LENGTH: Final = struct.Struct("<I")
_TIMEVAL: Final = struct.Struct("@ll")
_encode: Final = msgspec.msgpack.Encoder().encode
T = TypeVar("T")


class Pull(msgspec.Struct, frozen=True, tag="pull"):
    """Send ``num_blocks`` blocks of ``key`` from ``first_block`` on. ``prompt`` fingerprints the tokens
    that the puller wants KV of. ``reads``: it reads the blocks itself, with NIXL."""

    key: str
    layout: str
    prompt: bytes
    first_block: int
    num_blocks: int
    reads: bool = False


class Release(msgspec.Struct, frozen=True, tag="release"):
    """The key will not be pulled. ``is_unneeded``: the decode worker has all of it already."""

    key: str
    is_unneeded: bool = False


class Readable(msgspec.Struct, frozen=True):
    """Where a puller with NIXL finds the blocks: the exporter's agent, what NIXL calls its memory, the
    address of each layer's first block in it, and the blocks' numbers."""

    agent: str
    metadata: bytes
    bases: tuple[int, ...]
    block_ids: tuple[int, ...]
    kind: str = "DRAM"
    device: int = 0


class Granted(msgspec.Struct, frozen=True, tag="granted"):
    """Frames follow. ``shared``: their bytes lie in the connection's shared memory, whose descriptor
    comes first if ``arena_bytes`` says that it is new. ``readable``: they are to be read with NIXL."""

    num_bytes: int
    shared: bool = False
    arena_bytes: int = 0
    readable: Readable | None = None


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """``code`` is one of shared.errors."""

    code: str
    reason: str


class Released(msgspec.Struct, frozen=True, tag="released"):
    pass


request_decoder: Final = msgspec.msgpack.Decoder(Pull | Release)
reply_decoder: Final = msgspec.msgpack.Decoder(Granted | Refused | Released)


class PeerError(ConnectionError):
    """The peer broke the protocol or could not prove that it knows the secret."""


class Channel:
    """Exact reads and writes on one socket. Raises OSError (timeouts and PeerError are OSErrors too)."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._ends_at_s = 0.0
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def is_local(self) -> bool:
        """Whether descriptors can be passed."""
        return self.socket.family == socket.AF_UNIX

    def settimeout(self, timeout_s: float) -> None:
        """Of each read and write. The kernel keeps the time, so that a layer is one call and not hundreds,
        each of which would have to get the interpreter back from the engine's steps."""
        seconds, fraction = divmod(max(0.001, timeout_s), 1)
        limit = _TIMEVAL.pack(int(seconds), int(fraction * 1e6))
        self.socket.settimeout(None)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self.socket.setsockopt(socket.SOL_SOCKET, option, limit)

    @contextlib.contextmanager
    def within(self, timeout_s: float) -> Iterator[None]:
        """So long for all reads and writes inside together, however many bytes a peer has sent by then."""
        self._ends_at_s = time.monotonic() + timeout_s
        try:
            yield
        finally:
            self._ends_at_s = 0.0

    def send(self, message: msgspec.Struct) -> None:
        payload = _encode(message)
        self.write(_LENGTH.pack(len(payload)) + payload)

    def receive(self, decoder: "msgspec.msgpack.Decoder[T]", max_bytes: int = MAX_MESSAGE_BYTES) -> T:
        (length,) = _LENGTH.unpack(self.read(_LENGTH.size))
        if length > max_bytes:
            raise PeerError(f"message of {length} bytes")
        try:
            return decoder.decode(self.read(length))
        except msgspec.MsgspecError as error:
            raise PeerError("malformed message") from error

    def read(self, num_bytes: int) -> bytes:
        data = bytearray(num_bytes)
        self.read_into(memoryview(data))
        return bytes(data)

    def read_into(self, view: memoryview) -> None:
        while view.nbytes:
            self._keep_deadline()
            with _timed():
                count = self.socket.recv_into(view, 0, socket.MSG_WAITALL)
            if not count:
                raise PeerError("peer closed the connection")
            view = view[count:]

    def write(self, data: bytes | memoryview) -> None:
        self._keep_deadline()
        with _timed():
            self.socket.sendall(data)

    def close(self) -> None:
        self.socket.close()

    def _keep_deadline(self) -> None:
        if not self._ends_at_s:
            return
        left_s = self._ends_at_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self.settimeout(left_s)


class HangUp:
    """Tells that a peer closed its side, though what it sent before is still to be read."""

    def __init__(self, sock: socket.socket) -> None:
        self._poll = select.poll()
        self._poll.register(sock, select.POLLRDHUP)

    def check(self) -> None:
        """Raises PeerError once it has."""
        if self._poll.poll(0):
            raise PeerError("peer closed the connection")


@contextlib.contextmanager
def _timed() -> Iterator[None]:
    try:
        yield
    except BlockingIOError as error:
        raise TimeoutError("timed out") from error


def prove_as_exporter(channel: Channel, key: bytes) -> None:
    """Check the puller's proof, give ours; raises PeerError."""
    ours = os.urandom(NONCE_BYTES)
    channel.write(ours)
    answer = channel.read(NONCE_BYTES + PROOF_BYTES)
    theirs, proof = answer[:NONCE_BYTES], answer[NONCE_BYTES:]
    if not hmac.compare_digest(proof, _proof(key, b"puller", ours, theirs)):
        raise PeerError("peer does not know the deployment secret")
    channel.write(_proof(key, b"exporter", theirs, ours))


def prove_as_puller(channel: Channel, key: bytes) -> None:
    """Give our proof, check the exporter's; raises PeerError."""
    theirs = channel.read(NONCE_BYTES)
    ours = os.urandom(NONCE_BYTES)
    channel.write(ours + _proof(key, b"puller", theirs, ours))
    if not hmac.compare_digest(channel.read(PROOF_BYTES), _proof(key, b"exporter", ours, theirs)):
        raise PeerError("peer does not know the deployment secret")


def _proof(key: bytes, role: bytes, challenge: bytes, nonce: bytes) -> bytes:
    return hmac.new(key, role + challenge + nonce, sha256).digest()

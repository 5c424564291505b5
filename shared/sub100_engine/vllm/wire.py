"""What two hand-over peers say to each other: a proof of the secret each, then requests and answers.

::

    exporter                           puller
    nonce (16)                  ->
                                <-     nonce (16), proof (32)
    proof (32)                  ->
                                <-     Pull | Release
    Granted | Refused | Released ->
    [shared memory, if Granted.arena_bytes: its descriptor]
    one frame a layer: checksum (8) [, the layer's bytes, unless they lie in shared memory]  ->
                                <-     ACK: the blocks may go

A connection is used for one request after the other. Everything is bounded: messages in size, waits in time.
"""

import hmac
import os
import socket
import struct
from hashlib import sha256
from typing import Final, TypeVar

import msgspec

NONCE_BYTES: Final = 16
PROOF_BYTES: Final = 32
MAX_MESSAGE_BYTES: Final = 64 * 1024
ACK: Final = b"K"

_LENGTH: Final = struct.Struct("<I")
_encode: Final = msgspec.msgpack.Encoder().encode
T = TypeVar("T")


class Pull(msgspec.Struct, frozen=True, tag="pull"):
    """Send ``num_blocks`` blocks of ``key`` from ``first_block`` on. ``prompt`` fingerprints the tokens
    that the puller wants KV of."""

    key: str
    layout: str
    prompt: bytes
    first_block: int
    num_blocks: int


class Release(msgspec.Struct, frozen=True, tag="release"):
    """The key will not be pulled."""

    key: str


class Granted(msgspec.Struct, frozen=True, tag="granted"):
    """Frames follow. ``shared``: their bytes lie in the connection's shared memory, whose descriptor
    comes first if ``arena_bytes`` says that it is new."""

    num_bytes: int
    shared: bool = False
    arena_bytes: int = 0


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
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def is_local(self) -> bool:
        """Whether descriptors can be passed."""
        return self.socket.family == socket.AF_UNIX

    def settimeout(self, timeout_s: float) -> None:
        self.socket.settimeout(max(0.001, timeout_s))

    def send(self, message: msgspec.Struct) -> None:
        payload = _encode(message)
        self.socket.sendall(_LENGTH.pack(len(payload)) + payload)

    def receive(self, decoder: "msgspec.msgpack.Decoder[T]") -> T:
        (length,) = _LENGTH.unpack(self.read(_LENGTH.size))
        if length > MAX_MESSAGE_BYTES:
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
            count = self.socket.recv_into(view)
            if not count:
                raise PeerError("peer closed the connection")
            view = view[count:]

    def write(self, data: bytes | memoryview) -> None:
        self.socket.sendall(data)

    def close(self) -> None:
        self.socket.close()


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

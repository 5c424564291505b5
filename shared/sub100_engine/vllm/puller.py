"""Fetches KV from a prefill worker into our own blocks, over pooled connections.

Every failure is an error with a code of shared.errors; nothing is recomputed or guessed. Bytes may land
in our blocks before a later frame fails: the load as a whole then fails and the blocks are never used.
"""

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Generator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final

from sub100_proto.kv import KvHandle

from .arena import Arena, as_bytes, words
from .kv_memory import CHECKSUM_BYTES, Frame, KvMemory, Words
from .nixl_reading import NixlReading
from .wire import (
    ACK,
    MAX_REPLY_BYTES,
    Channel,
    Granted,
    HangUp,
    PeerError,
    Pull,
    Refused,
    Release,
    prove_as_puller,
    reply_decoder,
)

_log = logging.getLogger(__name__)

CONNECTOR: Final = "sub100-pull-1"
NIXL_CONNECTOR: Final = "sub100-nixl-1"
SOCKET_NAME: Final = "kv.sock"
_MAX_IDLE: Final = 16
_CONNECT_TIMEOUT_S: Final = 2.0
MAX_IDLE_S: Final = 20.0
"""What lies between may forget a quiet connection without a word (address translators do, some after 30 s),
and who then writes to it waits for an answer until the pull's time is up. A new one costs a millisecond."""


def connector_of(transport: str) -> str:
    """What handles name: engines that name the same can hand over to each other."""
    return NIXL_CONNECTOR if transport == "nixl" else CONNECTOR


class KvPullError(Exception):
    """The KV cannot be had; ``code`` is ``kv_expired`` or ``kv_load_failed``."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def host_id() -> str:
    """Names this machine's kernel since its boot: only under one kernel can memory be shared."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = socket.gethostname()
    return blake2b(boot.encode(), digest_size=8).hexdigest()


class Cancellation:
    """A pull's end from outside: whatever waits on its connection is woken by an error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_set = False

    def set(self) -> None:
        with self._lock:
            self._is_set = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def check(self) -> None:
        """Raises PeerError if it is set."""
        if self._is_set:
            raise PeerError("nobody wants it any more")

    def watch(self, sock: socket.socket | None) -> None:
        """The connection to cut, None once it serves another purpose. Raises PeerError if it is too late."""
        with self._lock:
            if sock is not None:
                self.check()
            self._socket = sock


class _Connection:
    """A proven connection, and its side of the buffers that are used again."""

    def __init__(self, address: str, channel: Channel) -> None:
        self.address = address
        self.channel = channel
        self.arena: Arena | None = None
        self.frame: Words = words(0)
        self.idle_since_s = 0.0

    def close(self) -> None:
        self.channel.close()
        if self.arena is not None:
            self.arena.close()


class Peers:
    """Connections to exporters by address; idle ones are kept for MAX_IDLE_S. Thread-safe. ``clock`` gives
    monotonic seconds."""

    def __init__(
        self, key: bytes, use_shared_memory: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._key = key
        self._clock = clock
        self._host_id = host_id() if use_shared_memory else ""
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def ask(
        self, handle: KvHandle, request: Pull | Release, timeout_s: float, cancellation: Cancellation
    ) -> tuple[_Connection, Granted | Refused | None]:
        """Send a request to the handle's exporter; returns the answer (None: released) and the connection.

        Raises OSError. ``timeout_s`` is for all of it. An idle connection may have died meanwhile, so that
        each address has two tries; each try may take its share of the time that is left.
        """
        errors: list[OSError] = []
        ends_at_s = self._clock() + timeout_s
        addresses = self._addresses(handle)
        tries = [(address, is_new) for address in addresses for is_new in (False, True)]
        for position, (address, is_new) in enumerate(tries):
            cancellation.check()
            connection = None
            now_s = self._clock()
            until_s = now_s + (ends_at_s - now_s) / (len(tries) - position)
            try:
                connection = self._connect(address, until_s) if is_new else self._take_idle(address)
                if connection is None:
                    continue
                cancellation.watch(connection.channel.socket)
                with connection.channel.within(until_s - self._clock()):
                    connection.channel.send(request)
                    reply = connection.channel.receive(reply_decoder, MAX_REPLY_BYTES)
            except OSError as error:
                errors.append(error)
                if connection is not None:
                    connection.close()
            else:
                return connection, reply if isinstance(reply, Granted | Refused) else None
        raise errors[-1] if errors else PeerError("the handle names no address that can be reached")

    def give_back(self, connection: _Connection) -> None:
        """Keep a connection on which nothing is outstanding."""
        connection.idle_since_s = self._clock()
        with self._lock:
            keep = not self._is_closed and len(self._idle) < _MAX_IDLE
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()

    def release(
        self, handle: KvHandle, *, is_unneeded: bool = False, timeout_s: float = _CONNECT_TIMEOUT_S
    ) -> bool:
        """Tell the exporter that the KV will not be pulled; its lease ends it anyway if that fails.
        ``is_unneeded``: by a decode worker that found all of it in its own cache."""
        try:
            connection, _ = self.ask(handle, Release(handle.key, is_unneeded), timeout_s, Cancellation())
        except OSError as error:
            _log.info("kv_release_failed: %s", error)
            return False
        self.give_back(connection)
        return True

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _addresses(self, handle: KvHandle) -> list[str]:
        local = str(Path(handle.shm) / SOCKET_NAME) if handle.shm else ""
        is_near = bool(local) and handle.host_id == self._host_id and os.path.exists(local)
        return [a for a in (f"unix:{local}" if is_near else "", handle.endpoint) if a]

    def _take_idle(self, address: str) -> _Connection | None:
        """The one that was in use last; what has been idle for too long is closed."""
        oldest_s = self._clock() - MAX_IDLE_S
        with self._lock:
            old = [connection for connection in self._idle if connection.idle_since_s < oldest_s]
            self._idle = [connection for connection in self._idle if connection.idle_since_s >= oldest_s]
            found = next((each for each in reversed(self._idle) if each.address == address), None)
            if found is not None:
                self._idle.remove(found)
        for connection in old:
            connection.close()
        return found

    def _connect(self, address: str, until_s: float) -> _Connection:
        until_s = min(until_s, self._clock() + _CONNECT_TIMEOUT_S)
        timeout_s = max(0.001, until_s - self._clock())
        if address.startswith("unix:"):
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.settimeout(timeout_s)
                sock.connect(address[5:])
            except OSError:
                sock.close()
                raise
        else:
            host, _, port = address.rpartition(":")
            if not port.isdecimal():
                raise PeerError(f"not host:port: {address!r}")
            sock = socket.create_connection((host.strip("[]"), int(port)), timeout_s)
        channel = Channel(sock)
        try:
            with channel.within(until_s - self._clock()):
                prove_as_puller(channel, self._key)
        except OSError:
            channel.close()
            raise
        return _Connection(address, channel)


class Puller:
    """Pulls into ``memory``. ``timeout_s`` bounds one pull, from its order to its last byte; ``clock`` gives
    monotonic seconds.

    With ``nixl`` it reads the peers' memory, else it takes what the connection brings.
    """

    def __init__(
        self,
        memory: KvMemory,
        peers: Peers,
        timeout_s: float,
        nixl: NixlReading | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._memory = memory
        self._peers = peers
        self._timeout_s = timeout_s
        self._nixl = nixl
        self._connector = NIXL_CONNECTOR if nixl is not None else CONNECTOR
        self._clock = clock

    def pull(
        self,
        handle: KvHandle,
        prompt: bytes,
        first_block: int,
        block_ids: Sequence[int],
        cancellation: Cancellation | None = None,
        ordered_s: float | None = None,
    ) -> int:
        """Fill ``block_ids`` with the handle's blocks from ``first_block`` on; returns the bytes moved.
        ``ordered_s`` is when it was ordered (now, if not said); it may have waited for others since then.

        Raises KvPullError; the blocks' contents are then undefined, and nobody writes to them any more.
        """
        if handle.connector != self._connector or handle.layout != self._memory.layout:
            raise KvPullError("kv_load_failed", f"KV of {handle.connector} in layout {handle.layout}")
        cancellation = cancellation or Cancellation()
        ends_at_s = (self._clock() if ordered_s is None else ordered_s) + self._timeout_s
        num_blocks = len(block_ids)
        request = Pull(handle.key, handle.layout, prompt, first_block, num_blocks, self._nixl is not None)
        connection = None
        try:
            left_s = self._remaining(ends_at_s, cancellation)
            if left_s <= 0:
                raise TimeoutError("the pulls before it took all of its time")
            connection, reply = self._peers.ask(handle, request, left_s, cancellation)
            if isinstance(reply, Refused):
                cancellation.watch(None)
                self._peers.give_back(connection)
                raise KvPullError(reply.code, reply.reason)
            if reply is None:
                raise PeerError("released what was to be pulled")
            with connection.channel.within(self._remaining(ends_at_s, cancellation)):
                self._receive(
                    connection, reply, request, block_ids, lambda: self._remaining(ends_at_s, cancellation)
                )
        except OSError as error:
            if connection is not None:
                connection.close()
            raise KvPullError("kv_load_failed", f"{type(error).__name__}: {error}") from error
        cancellation.watch(None)
        self._peers.give_back(connection)
        return reply.num_bytes

    def _remaining(self, ends_at_s: float, cancellation: Cancellation) -> float:
        cancellation.check()
        return ends_at_s - self._clock()

    def _receive(
        self,
        connection: _Connection,
        grant: Granted,
        request: Pull,
        block_ids: Sequence[int],
        remaining_s: Callable[[], float],
    ) -> None:
        """Check and copy layer by layer, then acknowledge; raises OSError."""
        expected = self._memory.block_bytes * len(block_ids)
        if grant.num_bytes != expected:
            raise PeerError(f"payload of {grant.num_bytes} bytes instead of {expected}")
        channel = connection.channel
        with contextlib.closing(self._frames(connection, grant, len(block_ids), remaining_s)) as frames:
            for layer, (digest, frame) in enumerate(frames):
                if self._memory.checksum_of(request.key, layer, frame, len(block_ids)) != digest:
                    raise PeerError(f"checksum of layer {layer} does not match")
                self._memory.scatter(layer, block_ids, frame)
        channel.write(ACK)

    def _frames(
        self, connection: _Connection, grant: Granted, num_blocks: int, remaining_s: Callable[[], float]
    ) -> Generator[tuple[bytes, Frame]]:
        """Each layer's checksum and blocks, valid until the next is asked for; raises OSError."""
        channel = connection.channel
        if self._nixl is not None:
            if grant.readable is None:
                raise PeerError("nothing to read with NIXL")
            hang_up = HangUp(channel.socket)

            def remaining_and_there_s() -> float:
                left_s = remaining_s()  # first: a cancellation hangs up too
                hang_up.check()
                return left_s

            for frame in self._nixl.layers(grant.readable, num_blocks, remaining_and_there_s):
                yield channel.read(CHECKSUM_BYTES), frame
            return
        if grant.arena_bytes:
            _adopt_arena(connection, grant.arena_bytes)
        if grant.shared and (connection.arena is None or connection.arena.num_bytes < grant.num_bytes):
            raise PeerError("no shared memory for the payload")
        offset = 0
        for layer in range(self._memory.num_layers):
            num_words = self._memory.num_words(layer, num_blocks)
            if grant.shared and connection.arena is not None:
                yield channel.read(CHECKSUM_BYTES), connection.arena.words[offset : offset + num_words]
            else:
                if connection.frame.size < num_words + 1:
                    connection.frame = words(num_words)
                whole = connection.frame[: num_words + 1]
                channel.read_into(as_bytes(whole))
                yield whole[:1].tobytes(), whole[1:]
            offset += num_words


def _adopt_arena(connection: _Connection, num_bytes: int) -> None:
    """Map the memory whose descriptor comes next; raises PeerError."""
    _, descriptors, _, _ = socket.recv_fds(connection.channel.socket, 1, 1)
    if len(descriptors) != 1:
        for descriptor in descriptors:
            os.close(descriptor)
        raise PeerError("no descriptor of the shared memory")
    if connection.arena is not None:
        connection.arena.close()
        connection.arena = None
    if os.fstat(descriptors[0]).st_size < num_bytes:
        os.close(descriptors[0])
        raise PeerError("shared memory is shorter than said")
    with contextlib.suppress(OSError):
        os.set_inheritable(descriptors[0], False)
    connection.arena = Arena(descriptors[0], num_bytes)

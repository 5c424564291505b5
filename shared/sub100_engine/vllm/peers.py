"""Connections to exporters, kept for the next pull: who asks a peer gets its answer on one, or an error."""

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Final

from sub100_proto.kv import KvHandle

from .arena import Arena, words
from .kv_memory import Words
from .wire import (
    MAX_REPLY_BYTES,
    Channel,
    Granted,
    PeerError,
    Pull,
    Refused,
    Release,
    prove_as_puller,
    reply_decoder,
)

_log = logging.getLogger(__name__)

SOCKET_NAME: Final = "kv.sock"
_MAX_IDLE: Final = 16
_CONNECT_TIMEOUT_S: Final = 2.0
MAX_IDLE_S: Final = 20.0
"""What lies between may forget a quiet connection without a word (address translators do, some after 30 s),
and who then writes to it waits for an answer until the pull's time is up. A new one costs a millisecond."""


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


class Connection:
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
    """Connections to exporters by address; idle ones are kept for ``max_idle_s``. Thread-safe. ``clock``
    gives monotonic seconds."""

    def __init__(
        self,
        key: bytes,
        use_shared_memory: bool = True,
        clock: Callable[[], float] = time.monotonic,
        max_idle_s: float = MAX_IDLE_S,
    ) -> None:
        self._key = key
        self._clock = clock
        self._max_idle_s = max_idle_s
        self._closing: threading.Timer | None = None
        self._host_id = host_id() if use_shared_memory else ""
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def ask(
        self, handle: KvHandle, request: Pull | Release, timeout_s: float, cancellation: Cancellation
    ) -> tuple[Connection, Granted | Refused | None]:
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

    def give_back(self, connection: Connection) -> None:
        """Keep a connection on which nothing is outstanding."""
        connection.idle_since_s = self._clock()
        with self._lock:
            keep = not self._is_closed and len(self._idle) < _MAX_IDLE
            if keep:
                self._idle.append(connection)
                self._close_later()
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
            if self._closing is not None:
                self._closing.cancel()
        for connection in idle:
            connection.close()

    def _close_later(self) -> None:
        """Under the lock. What idles is closed in time even if nobody asks for it any more."""
        if self._closing is None:
            self._closing = threading.Timer(self._max_idle_s, self._close_idle)
            self._closing.daemon = True
            self._closing.start()

    def _close_idle(self) -> None:
        with self._lock:
            old = self._take_old()
            self._closing = None
            if self._idle:
                self._close_later()
        for connection in old:
            connection.close()

    def _take_old(self) -> list[Connection]:
        """Under the lock: those that have idled for too long, which are ours to close."""
        oldest_s = self._clock() - self._max_idle_s
        old = [connection for connection in self._idle if connection.idle_since_s < oldest_s]
        self._idle = [connection for connection in self._idle if connection.idle_since_s >= oldest_s]
        return old

    def _addresses(self, handle: KvHandle) -> list[str]:
        local = str(Path(handle.shm) / SOCKET_NAME) if handle.shm else ""
        is_near = bool(local) and handle.host_id == self._host_id and os.path.exists(local)
        return [a for a in (f"unix:{local}" if is_near else "", handle.endpoint) if a]

    def _take_idle(self, address: str) -> Connection | None:
        """The one that was in use last; what has been idle for too long is closed."""
        with self._lock:
            old = self._take_old()
            found = next((each for each in reversed(self._idle) if each.address == address), None)
            if found is not None:
                self._idle.remove(found)
        for connection in old:
            connection.close()
        return found

    def _connect(self, address: str, until_s: float) -> Connection:
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
        return Connection(address, channel)

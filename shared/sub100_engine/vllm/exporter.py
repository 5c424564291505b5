"""Serves pinned KV to decode workers: over TCP, by shared memory to those on this host, or read with NIXL.

Threads, since it lives in the engine's process beside a loop that is not ours: one per listener and one
per connection, all bounded; their time goes to copies and socket calls, which release the interpreter.
"""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from .arena import Arena, as_bytes, words
from .connections import Connections
from .kv_memory import KvMemory, Words, runs
from .leases import Lease, LeaseOver, Leases
from .nixl_serving import NixlServing
from .peers import MAX_IDLE_S
from .wire import (
    ACK,
    Channel,
    Granted,
    PeerError,
    Pull,
    Refused,
    Release,
    Released,
    prove_as_exporter,
    request_decoder,
)

_log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 64
_PROOF_TIMEOUT_S: Final = 5.0
_ACCEPT_PAUSE_S: Final = 0.2
_IDLE_TIMEOUT_S: Final = 3 * MAX_IDLE_S
_MAX_SEND_S: Final = 30.0


class Exporter:
    """``start`` binds and returns the TCP port; ``stop`` ends all threads and is idempotent.

    With ``nixl``, pullers read the blocks themselves, and in no other way. ``proof_timeout_s`` is for all of
    the proof: until it is there, anybody may hold a connection.
    """

    def __init__(
        self,
        memory: KvMemory,
        leases: Leases,
        key: bytes,
        nixl: NixlServing | None = None,
        proof_timeout_s: float = _PROOF_TIMEOUT_S,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._proof_timeout_s = proof_timeout_s
        self._memory = memory
        self._nixl = nixl
        self._leases = leases
        self._key = key
        self._listeners: list[socket.socket] = []
        self._socket_path: Path | None = None
        self.connections = Connections(max_connections)
        self._stopping = threading.Event()

    def start(self, host: str, port: int, socket_path: Path | None) -> int:
        """Listen on ``host`` and on a Unix socket (made private by its directory), whichever is given.
        Returns the TCP port, 0 if there is none."""
        bound = 0
        if host:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            tcp = socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS)
            self._listeners.append(tcp)
            bound = tcp.getsockname()[1]
        if socket_path is not None:
            local = socket.socket(socket.AF_UNIX)
            self._listeners.append(local)
            local.bind(str(socket_path))
            socket_path.chmod(0o600)
            local.listen(MAX_CONNECTIONS)
            self._socket_path = socket_path
        for listener in self._listeners:
            self._spawn("kv-accept", self._accept, listener)
        return bound

    def stop(self) -> None:
        self._stopping.set()
        self.connections.close()
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self._listeners.clear()
        if self._socket_path is not None:
            self._socket_path.unlink(missing_ok=True)
        if self._nixl is not None:
            self._nixl.close()

    def _spawn(self, name: str, target: Callable[[socket.socket], None], sock: socket.socket) -> None:
        threading.Thread(target=target, args=(sock,), name=name, daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if self._stopping.is_set():
                    return
                _log.warning("kv_accept_failed: %s", error)
                self._stopping.wait(_ACCEPT_PAUSE_S)  # out of descriptors, say: the next call fails as well
                continue
            if not self.connections.add(connection):
                connection.close()
                continue
            try:
                self._spawn("kv-export", self._converse, connection)
            except RuntimeError as error:  # no thread to be had
                _log.warning("kv_accept_failed: %s", error)
                self.connections.remove(connection)
                connection.close()
                self._stopping.wait(_ACCEPT_PAUSE_S)

    def _converse(self, connection: socket.socket) -> None:
        session = _Session(Channel(connection), self._memory, self._leases, self._nixl)
        try:
            with session.channel.within(self._proof_timeout_s):
                prove_as_exporter(session.channel, self._key)
            while not self._stopping.is_set():
                self.connections.idles(connection)
                session.channel.settimeout(_IDLE_TIMEOUT_S)
                request = session.channel.receive(request_decoder)
                self.connections.is_served(connection)
                session.answer(request)
        except PeerError as error:
            _log.debug("kv_peer_left: %s", error)
        except OSError as error:
            _log.info("kv_connection_lost: %s", error)
        except Exception:
            _log.exception("kv_export_failed")
        finally:
            self.connections.remove(connection)
            session.close()


class _Session:
    """One connection and the buffers that it uses again and again."""

    def __init__(self, channel: Channel, memory: KvMemory, leases: Leases, nixl: NixlServing | None) -> None:
        self.channel = channel
        self._memory = memory
        self._nixl = nixl
        self._leases = leases
        self._arena: Arena | None = None
        self._frame: Words = words(0)

    def close(self) -> None:
        self.channel.close()
        if self._arena is not None:
            self._arena.close()

    def answer(self, request: Pull | Release) -> None:
        if isinstance(request, Release):
            self._leases.end(request.key, "unneeded" if request.is_unneeded else "released")
            self.channel.send(Released())
            return
        try:
            lease = self._leases.open(request.key)
            fault = _fault(request, lease, self._memory.layout, self._nixl is not None)
            if fault:
                self.channel.send(Refused("kv_load_failed", fault))
                return
        except LeaseOver as over:
            self.channel.send(Refused("kv_expired", str(over)))
            return
        self.channel.settimeout(min(_MAX_SEND_S, self._leases.remaining_s(lease)))
        if self._nixl is not None:
            self._let_read(request, lease, self._nixl)
        else:
            self._send(request, lease)

    def _send(self, request: Pull, lease: Lease) -> None:
        """Grant, send frame by frame, wait for the acknowledgement; raises OSError.

        A lease that ends meanwhile cuts the connection: the puller's load fails, its blocks are thrown
        away, and ours are free as soon as the copy in progress is done.
        """
        num_bytes = self._memory.block_bytes * request.num_blocks
        arena = self._grant(num_bytes)
        offset = 0
        for layer in range(self._memory.num_layers):
            num_words = self._memory.num_words(layer, request.num_blocks)
            if arena is not None:
                out = arena.words[offset : offset + num_words]
            else:
                if self._frame.size < num_words + 1:
                    self._frame = words(num_words)
                out = self._frame[1 : num_words + 1]
            self._gather(layer, request, lease, out)
            digest = self._memory.checksum_of(request.key, layer, out, request.num_blocks)
            if arena is not None:
                self.channel.write(digest)
            else:
                self._frame[0] = np.frombuffer(digest, np.uint64)[0]
                self.channel.write(as_bytes(self._frame[: num_words + 1]))
            offset += num_words
        self._await_acknowledgement(request, lease)

    def _let_read(self, request: Pull, lease: Lease, nixl: NixlServing) -> None:
        """Grant, tell the checksums, serve until the acknowledgement; raises OSError.

        The blocks stay pinned for as long as the puller may read and the lease runs. One that reads on
        after that finds what the checksums do not fit.
        """
        with self._reading(request, lease) as block_ids, nixl.serving():
            num_bytes = self._memory.block_bytes * request.num_blocks
            self.channel.send(Granted(num_bytes, readable=nixl.readable(block_ids)))
            blocks = runs(block_ids)
            for layer in range(self._memory.num_layers):
                self.channel.write(self._memory.checksum(request.key, layer, blocks))
            self._await_acknowledgement(request, lease)

    def _await_acknowledgement(self, request: Pull, lease: Lease) -> None:
        self.channel.settimeout(min(_MAX_SEND_S, self._leases.remaining_s(lease)))
        if self.channel.read(1) != ACK:
            raise PeerError("no acknowledgement")
        self._leases.end(request.key, "pulled")

    def _grant(self, num_bytes: int) -> Arena | None:
        if not self.channel.is_local:
            self.channel.send(Granted(num_bytes))
            return None
        is_new = self._arena is None or self._arena.num_bytes < num_bytes
        if is_new:
            if self._arena is not None:
                self._arena.close()
            self._arena = Arena.create(num_bytes)
        arena = self._arena
        assert arena is not None
        self.channel.send(Granted(num_bytes, shared=True, arena_bytes=arena.num_bytes if is_new else 0))
        if is_new:
            socket.send_fds(self.channel.socket, [b"F"], [arena.descriptor])
        return arena

    def _gather(self, layer: int, request: Pull, lease: Lease, out: Words) -> None:
        with self._reading(request, lease) as block_ids:
            self._memory.gather(layer, block_ids, out)

    @contextlib.contextmanager
    def _reading(self, request: Pull, lease: Lease) -> Iterator[tuple[int, ...]]:
        """The blocks that were asked for, which stay as they are inside."""
        try:
            with self._leases.reading(lease) as block_ids:
                yield block_ids[request.first_block : request.first_block + request.num_blocks]
        except LeaseOver as over:
            raise PeerError(str(over)) from over


def _fault(request: Pull, lease: Lease, layout: str, has_nixl: bool) -> str:
    """Why this puller must not have this lease's KV; empty if it may."""
    if request.reads != has_nixl:
        return "one side has NIXL and the other has not"
    if request.layout != layout:
        return f"layout {request.layout} is not {layout}"
    if request.prompt != lease.prompt:
        return "KV of another prompt"
    last = request.first_block + request.num_blocks
    if request.first_block < 0 or request.num_blocks < 1 or last != len(lease.block_ids):
        return f"blocks {request.first_block}..{last} of {len(lease.block_ids)}"
    return ""

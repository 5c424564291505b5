"""Fetches KV from a prefill worker into our own blocks, over pooled connections.

Every failure is an error with a code of shared.errors; nothing is recomputed or guessed. Bytes may land
in our blocks before a later frame fails: the load as a whole then fails and the blocks are never used.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Generator, Sequence
from typing import Final

from sub100_proto.kv import KvHandle

from .arena import Arena, as_bytes, words
from .kv_memory import CHECKSUM_BYTES, Frame, KvMemory
from .nixl_reading import NixlReading
from .peers import Cancellation, Connection, Peers
from .wire import ACK, Granted, HangUp, PeerError, Pull, Refused

CONNECTOR: Final = "sub100-pull-1"
NIXL_CONNECTOR: Final = "sub100-nixl-1"


def connector_of(transport: str) -> str:
    """What handles name: engines that name the same can hand over to each other."""
    return NIXL_CONNECTOR if transport == "nixl" else CONNECTOR


class KvPullError(Exception):
    """The KV cannot be had; ``code`` is ``kv_expired`` or ``kv_load_failed``."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


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
        connection: Connection,
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
        self, connection: Connection, grant: Granted, num_blocks: int, remaining_s: Callable[[], float]
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


def _adopt_arena(connection: Connection, num_bytes: int) -> None:
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

"""Who is connected to an exporter: bounded, and never so full that a puller finds no place.

Anybody may connect, and a proven puller keeps its connection for the next time, so a bound alone would shut
out whoever comes late: by peers that say nothing, or by a large fleet's idle connections. A newcomer takes
the place of a connection that has proved nothing yet, the oldest first, or of the one that idled longest:
both can be had again in a millisecond. Whoever is being served stays.
"""

import contextlib
import socket
import threading
import time
from enum import IntEnum


class _Stage(IntEnum):
    """In the order in which they are given up."""

    UNPROVEN = 0
    IDLE = 1
    SERVED = 2


class Connections:
    """At most ``limit``. Thread-safe. One that is given up is shut down; its thread finds out and closes
    it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._stages: dict[socket.socket, tuple[_Stage, float]] = {}
        self._is_closed = False

    def __len__(self) -> int:
        with self._lock:
            return len(self._stages)

    def add(self, connection: socket.socket) -> bool:
        """False if there is no place for it, or no more time."""
        with self._lock:
            if self._is_closed:
                return False
            if len(self._stages) >= self._limit:
                least_missed = min(self._stages, key=self._stages.__getitem__)
                if self._stages[least_missed][0] is _Stage.SERVED:
                    return False
                del self._stages[least_missed]
                _shut_down(least_missed)
            self._stages[connection] = _Stage.UNPROVEN, time.monotonic()
            return True

    def idles(self, connection: socket.socket) -> None:
        """It has proved itself, or has been served."""
        self._enter(connection, _Stage.IDLE)

    def is_served(self, connection: socket.socket) -> None:
        self._enter(connection, _Stage.SERVED)

    def remove(self, connection: socket.socket) -> None:
        with self._lock:
            self._stages.pop(connection, None)

    def close(self) -> None:
        """Shut all down, and take no more."""
        with self._lock:
            self._is_closed = True
            for connection in self._stages:
                _shut_down(connection)

    def _enter(self, connection: socket.socket, stage: _Stage) -> None:
        with self._lock:
            if connection in self._stages:
                self._stages[connection] = stage, time.monotonic()


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)

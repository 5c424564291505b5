"""A connection whose client reads, or is cut: nothing that was written waits for ever.

uvicorn waits before a write until the one before has left, without end, and never after the last; a transport
that is closed keeps its socket until everything has left.
"""

import asyncio
import socket
import struct
from typing import Any, Final

from .http_head import BoundedHeads

CONNECTION: Final = "sub100.connection"
"""Where an ASGI scope holds its Connection."""

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: what the kernel still holds goes, too, and the client is told."""


class Connection(BoundedHeads):
    """One connection. A write that the kernel does not take whole is waited for by the next one of the
    response; while ``write_timeout_s`` pass without a byte of it leaving, the connection is aborted."""

    def __init__(self, *args: Any, write_timeout_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.was_cut = False
        self._write_timeout_s = write_timeout_s
        self._num_waiting = 0
        self._look_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_looking()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_later()

    def resume_writing(self) -> None:
        self._stop_looking()
        super().resume_writing()

    def _look_later(self) -> None:
        self._num_waiting = self.transport.get_write_buffer_size()
        self._look_timer = self.loop.call_later(self._write_timeout_s, self.look)

    def look(self) -> None:
        """Whether something has left since the last look; called while something waits."""
        if self.transport.get_write_buffer_size() < self._num_waiting:
            self._look_later()
            return
        self.was_cut = True
        client: socket.socket = self.transport.get_extra_info("socket")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def _stop_looking(self) -> None:
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None

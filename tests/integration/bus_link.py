"""A link between one service and its NATS server that can be cut and mended."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator

from tests.servers import Server, free_port

CLOSE_S = 5.0


class Link:
    """A TCP proxy. While it is cut no connection lives, and none is made."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._port = free_port()
        self._listener: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._handlers: set[asyncio.Task[None]] = set()
        self.url = f"nats://127.0.0.1:{self._port}"

    async def mend(self) -> None:
        self._listener = await asyncio.start_server(self._on_client, "127.0.0.1", self._port)

    async def cut(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for writer in self._writers:
            _reset(writer)
        if self._handlers:
            await asyncio.wait(self._handlers, timeout=CLOSE_S)

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler is not None
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)
        own = {writer}
        try:
            far_reader, far_writer = await asyncio.open_connection(self._server.host, self._server.port)
            own.add(far_writer)
            self._writers |= own
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            self._writers -= own
            for each in own:
                _reset(each)
                with contextlib.suppress(OSError):
                    await each.wait_closed()


@contextlib.asynccontextmanager
async def linked(server: Server) -> AsyncIterator[Link]:
    link = Link(server)
    await link.mend()
    try:
        yield link
    finally:
        await link.cut()


def _reset(writer: asyncio.StreamWriter) -> None:
    """With a RST: NATS's client never closes a connection that ends politely before it has begun."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
    writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()

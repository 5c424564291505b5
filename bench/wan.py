"""A delay between client and server: a TCP proxy that holds every byte for half the round trip."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def delayed(port: int, round_trip_ms: float) -> AsyncIterator[int]:
    """A port of 127.0.0.1 behind which ``port`` is ``round_trip_ms`` away."""
    one_way_s = round_trip_ms / 2e3
    tasks: set[asyncio.Task[None]] = set()

    async def on_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(_pump(source, sink, one_way_s))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(on_client, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Bytes keep their distance in time: each is written ``delay_s`` after it was read."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            loop.call_later(delay_s, writer.write, data)
    loop.call_later(delay_s, writer.close)

"""A subscription is known to the server when ``listen`` returns."""

import asyncio

from sub100_shared.bus import Bus

INFO = b'INFO {"server_id":"x","version":"2.10.0","proto":1,"headers":true,"max_payload":1048576}\r\n'


async def test_listen_returns_only_after_a_ping_behind_the_subscription() -> None:
    """On the wire itself: on a real server the wrong order loses a message once in many runs."""
    received: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        while line := await reader.readline():
            received.append(line.split()[0].decode())
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    bus = await Bus.connect(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", name="t")
    received.clear()
    await bus.listen("a.b", lambda _: None)
    answered = list(received)
    await bus.close(1)
    server.close()
    await server.wait_closed()

    assert "SUB" in answered
    assert answered[-1] == "PING"

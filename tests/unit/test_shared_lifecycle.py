"""A service between its start and its end."""

import asyncio
import socket
from typing import Any, cast

import uvicorn

from sub100_shared.bus import Bus
from sub100_shared.config import Common
from sub100_shared.lifecycle import Runtime, _until_stopped
from sub100_shared.ops import EmbeddedServer
from sub100_shared.telemetry import Telemetry


class Listening:
    """As ingress does: the last thing of its start is to listen at a port."""

    def __init__(self, runtime: Runtime, port: int) -> None:
        self._runtime = runtime
        self._server = EmbeddedServer(uvicorn.Config(no_app, host="127.0.0.1", port=port, log_config=None))

    async def start(self) -> None:
        http = self._runtime.spawn(self._server.serve(), "http")
        await self._server.listening(http)

    async def drain(self, timeout_s: float) -> None: ...

    async def stop(self) -> None: ...


async def no_app(scope: Any, receive: Any, send: Any) -> None: ...


async def test_service_whose_port_is_taken_meanwhile_is_never_ready() -> None:
    common = Common(instance="ingress-1", nats_url="nats://127.0.0.1:1")
    runtime = Runtime("ingress", common, cast(Bus, None), cast(Telemetry, None))
    with socket.create_server(("127.0.0.1", 0)) as other:
        service = Listening(runtime, other.getsockname()[1])
        why = await asyncio.wait_for(_until_stopped(runtime, service, asyncio.Event()), 10)
    await runtime.cancel_tasks()
    assert "cannot listen on 127.0.0.1" in why
    assert runtime.state == "starting"

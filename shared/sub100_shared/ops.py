"""The operator's HTTP endpoint of every service: liveness and readiness. Never on a public port."""

import asyncio
import contextlib
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

Probe = Callable[[], tuple[bool, str]]
"""Returns (ready, state)."""


class OpsServer:
    """``GET /healthz`` (the process answers) and ``GET /readyz`` (503 until ready); port 0 means off."""

    def __init__(self, host: str, port: int, probe: Probe) -> None:
        self._host = host
        self._port = port
        self._probe = probe
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if not self._port:
            return
        app = Starlette(routes=[Route("/healthz", self._healthz), Route("/readyz", self._readyz)])
        self._server = EmbeddedServer(
            uvicorn.Config(
                app, host=self._host, port=self._port, log_config=None, access_log=False, lifespan="off"
            )
        )
        self._task = asyncio.create_task(self._server.serve(), name="ops")

    async def stop(self) -> None:
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task

    async def _healthz(self, _: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def _readyz(self, _: Request) -> JSONResponse:
        ready, state = self._probe()
        return JSONResponse({"ready": ready, "state": state}, status_code=200 if ready else 503)


class EmbeddedServer(uvicorn.Server):
    """uvicorn inside our own lifecycle: signals stay ours, a failed bind raises instead of exiting."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield

    async def startup(self, sockets=None) -> None:  # type: ignore[no-untyped-def]
        try:
            await super().startup(sockets)
        except SystemExit as error:
            raise OSError(f"cannot listen on {self.config.host}:{self.config.port}") from error

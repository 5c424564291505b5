"""The service in the lifecycle: socket, HTTP server, intake and store, opened and closed in order."""

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import uvicorn

from sub100_shared.ops import EmbeddedServer

from .access import Access
from .app import TracesApp
from .changes import Changes
from .config import TracesConfig
from .intake import Intake, IntakeStats
from .store import Store

MAX_CONNECTIONS: Final = 1024
CLOSE_TIMEOUT_S: Final = 10.0
NO_SPANS: Final = IntakeStats(received=0, stored=0, dropped=0, queued=0)

Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
"""Starts a task that somebody owns: see Runtime.spawn."""


class TracesService:
    """``url`` is set, and answers, once ``start`` has returned."""

    def __init__(self, config: TracesConfig, spawn: Spawn) -> None:
        self._config = config
        self._spawn = spawn
        self._store: Store | None = None
        self._intake: Intake | None = None
        self._changes: Changes | None = None
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self.url = ""

    @property
    def intake_stats(self) -> IntakeStats:
        """All zero before ``start``."""
        return NO_SPANS if self._intake is None else self._intake.stats

    async def start(self) -> None:
        """Raises OSError for a port that is taken, StoreError for a file that cannot be used, ConfigError for
        a key that is missing."""
        config = self._config
        access = Access(config.operator_key(), config.intake_key(), time.time)
        listener = _listen(config.host, config.port)
        try:
            self._store = await asyncio.to_thread(Store, config.path, config.limits)
        except BaseException:
            listener.close()
            raise
        self._changes = Changes()
        self._intake = Intake(self._store, config.max_queue_spans, self._changes.notify)
        self._intake.start()
        app = TracesApp(self._store, self._intake, self._changes, access, config.max_body_bytes, time.time)
        self._server = EmbeddedServer(
            uvicorn.Config(
                app.asgi,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                limit_concurrency=MAX_CONNECTIONS,
                timeout_graceful_shutdown=int(CLOSE_TIMEOUT_S),
            )
        )
        self._serving = self._spawn(self._server.serve(sockets=[listener]), "http")
        host = f"[{config.host}]" if ":" in config.host else config.host
        self.url = f"http://{host}:{listener.getsockname()[1]}"

    async def drain(self, timeout_s: float) -> None:
        """Answer what has been asked, take nothing new."""
        if self._changes is not None:
            self._changes.close()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.wait({self._serving}, timeout=timeout_s)

    async def stop(self) -> None:
        """Write what is queued, then close the file. If the disk hangs it stays open for the writer."""
        await self.drain(CLOSE_TIMEOUT_S)
        if self._intake is not None and not await asyncio.to_thread(self._intake.close, CLOSE_TIMEOUT_S):
            return
        if self._store is not None:
            await asyncio.to_thread(self._store.close)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from error

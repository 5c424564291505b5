"""The operator's HTTP endpoint of every service. Never on a public port.

===================  =================================================================================
``GET /livez``       200 while the event loop turns (``/healthz`` is its older name)
``GET /readyz``      503 until ready, while draining, while the bus is away, and while ``reason`` says why not
``GET /metrics``     Prometheus' text format
``POST /drain``      the service ends what runs and exits, as after SIGTERM; 202 at once, any number of
                     times. From this host only, and not from a web page that is open on it
===================  =================================================================================
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable
from typing import NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .metrics import CONTENT_TYPE, Metrics


class Readiness(NamedTuple):
    """``reason``: why a service that is up is not ready, where the state does not say it."""

    is_ready: bool
    state: str
    reason: str = ""


Probe = Callable[[], Readiness]

_PAGE_HEADERS = ("origin", "sec-fetch-site", "referer")
"""A browser adds at least one of them to a page's POST; no operator's tool does."""


class OpsServer:
    """Port 0 means off."""

    def __init__(
        self, host: str, port: int, probe: Probe, metrics: Metrics, drain: Callable[[], None]
    ) -> None:
        self._host = host
        self._port = port
        self._probe = probe
        self._metrics = metrics
        self._drain_service = drain
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises OSError for an address that cannot be had."""
        if not self._port:
            return
        listener = listen(self._host, self._port)
        app = Starlette(
            routes=[
                Route("/livez", self._livez),
                Route("/healthz", self._livez),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics_page),
                Route("/drain", self._drain, methods=["POST"]),
            ]
        )
        self._server = EmbeddedServer(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                proxy_headers=False,
                limit_concurrency=64,
                timeout_graceful_shutdown=1,
            )
        )
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="ops")

    async def stop(self) -> None:
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task

    async def _livez(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _readyz(self, _: Request) -> Response:
        found = self._probe()
        body = {"ready": found.is_ready, "state": found.state}
        if found.reason:
            body["reason"] = found.reason
        return JSONResponse(body, status_code=200 if found.is_ready else 503)

    async def _metrics_page(self, _: Request) -> Response:
        """States are read here, on the loop; the text is made in a thread, so that requests go on."""
        self._metrics.read_states()
        text = await asyncio.to_thread(self._metrics.render)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    async def _drain(self, request: Request) -> Response:
        if not is_this_host(request) or any(name in request.headers for name in _PAGE_HEADERS):
            return JSONResponse({"error": "only from this host"}, status_code=403)
        self._drain_service()
        return JSONResponse({"state": self._probe().state}, status_code=202)


def is_this_host(request: Request) -> bool:
    """Whether the connection comes from loopback; headers are not asked."""
    if request.client is None:
        return False
    try:
        address = ipaddress.ip_address(request.client.host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises OSError that names the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from error


class EmbeddedServer(uvicorn.Server):
    """uvicorn inside our own lifecycle: signals stay ours, a failed bind raises instead of exiting."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._is_up = asyncio.Event()

    async def listening(self, serving: "asyncio.Task[None]") -> None:
        """Wait until connections are accepted, or until ``serving``, the task of ``serve``, has ended."""
        serving.add_done_callback(lambda _: self._is_up.set())
        await self._is_up.wait()

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield

    async def startup(self, sockets=None) -> None:  # type: ignore[no-untyped-def]
        try:
            await super().startup(sockets)
            self._is_up.set()
        except SystemExit as error:
            raise OSError(f"cannot listen on {self.config.host}:{self.config.port}") from error

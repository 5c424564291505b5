"""From start to exit, the same for every service.

::

    starting -> ready -> draining -> stopped

``run`` is the one entry point: it opens the ops port, builds a Runtime (bus, telemetry, metrics, status),
calls the service's ``start``, waits for SIGTERM/SIGINT, for ``POST /drain`` or for the service to fail, then
drains in this order, all under one deadline: service.drain (no new work, running work ends), bus stops
receiving, service.stop, bus closes, telemetry flushes. Exit code 0 after a clean drain, 1 after a failure,
2 for bad configuration.
"""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

import msgspec
import uvloop

from sub100_proto import codec, subjects
from sub100_proto.fleet import ServiceStatus, State

from . import log
from .bus import Bus, BusUnavailable, Handler, Incoming
from .config import Common, ConfigError, load, load_common, read_secret
from .health import Health
from .metrics import Metrics
from .metrics_otlp import MetricsExport, exporter_of, interval_s
from .ops import OpsServer, Readiness
from .telemetry import Telemetry

_log = logging.getLogger(__name__)

STATUS_INTERVAL_S = 1.0
_PR_SET_PDEATHSIG = 1


class Service(Protocol):
    """What a program adds to the lifecycle."""

    async def start(self) -> None:
        """Subscribe and become able to serve. Raises: the process exits 1."""
        ...

    async def drain(self, timeout_s: float) -> None:
        """Take no new work and end what runs, within ``timeout_s``."""
        ...

    async def stop(self) -> None:
        """Free everything; idempotent, safe after a half-failed start."""
        ...


class Runtime:
    """What the lifecycle gives to a service. Tasks started with ``spawn`` are owned here: one that
    fails ends the process, all are cancelled at the end."""

    def __init__(
        self, name: str, common: Common, bus: Bus, telemetry: Telemetry, metrics: Metrics | None = None
    ) -> None:
        self.name = name
        self.common = common
        self.region = common.region
        self.instance = common.instance
        self.bus = bus
        self.telemetry = telemetry
        self.metrics = metrics or Metrics()
        self.state: State = "starting"
        self.detail = ""
        self.impairment = ""
        self._is_addressable = False
        self._status_changed = asyncio.Event()
        self._failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_ready(self) -> bool:
        return self.state == "ready" and not self.impairment and self.bus.is_connected

    def impair(self, reason: str) -> None:
        """Up, and not ready: ``reason`` says why; an empty one ends it."""
        if reason != self.impairment:
            self.impairment = reason
            self._status_changed.set()

    def set_state(self, state: State, detail: str = "") -> None:
        if (state, detail) != (self.state, self.detail):
            self.state, self.detail = state, detail
            self._status_changed.set()
            _log.info("state", extra={"state": state, "detail": detail})

    def fail(self, reason: str) -> None:
        """End the process: something that it cannot serve without is gone."""
        if not self._failed.done():
            self._failed.set_result(reason)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("task failed", exc_info=error, extra={"task": task.get_name()})
            self.fail(f"task {task.get_name()} failed: {error!r}")

    async def wait_failed(self) -> str:
        return await asyncio.shield(self._failed)

    async def cancel_tasks(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def serve_shared(
        self,
        subject: str,
        handler: Handler,
        *,
        queue: str,
        max_inflight: int,
        when_full: Callable[[Incoming], bytes | None] | None = None,
    ) -> None:
        """``Bus.serve`` as one of the replicas of a queue group, and under this replica's own name too:
        whoever asks can then pass by a replica that hangs, which a queue group goes on choosing."""
        for each in (subject, subjects.of_replica(subject, self.instance)):
            await self.bus.serve(each, handler, queue=queue, max_inflight=max_inflight, when_full=when_full)
        self._is_addressable = True

    async def publish_status(self) -> None:
        subject = subjects.status(self.region, self.name, self.instance)
        status = ServiceStatus(
            service=self.name,
            instance=self.instance,
            state=self.state,
            detail=self.impairment or self.detail,
            pid=os.getpid(),
            is_addressable=self._is_addressable,
        )
        with contextlib.suppress(BusUnavailable):
            await self.bus.publish(subject, codec.encode(status))

    async def report_status(self) -> None:
        """Publish the status once a second and at each change."""
        while True:
            await self.publish_status()
            self._status_changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STATUS_INTERVAL_S):
                    await self._status_changed.wait()


Settings = TypeVar("Settings", bound=msgspec.Struct)


def run(
    name: str, settings: type[Settings], build: Callable[[Runtime, Settings], Awaitable[Service]]
) -> None:
    """Run a service until a signal; never returns.

    ``settings`` is filled from ``SUB100_<NAME>_*`` before anything else, so that a bad variable is named
    even while NATS is away. ``build`` is the composition root; it may raise ConfigError.
    """
    die_with_parent()
    try:
        common = load_common(os.environ, name)
        log.configure(name, common.instance, common.log_level)
        own = load(settings, f"SUB100_{name.upper()}_", os.environ)
        code = uvloop.run(_main(name, common, lambda runtime: build(runtime, own)))
    except ConfigError as error:
        sys.stderr.write(f"{name}: {error}\n")
        code = 2
    sys.exit(code)


async def _main(name: str, common: Common, build: Callable[[Runtime], Awaitable[Service]]) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)

    metrics = Metrics(
        {
            "service.name": f"sub100-{name}",
            "service.instance.id": common.instance,
            "cloud.region": common.region,
        }
    )
    runtime: Runtime | None = None

    def probe() -> Readiness:
        if runtime is None:
            return Readiness(False, "starting")
        return Readiness(runtime.is_ready, runtime.state, runtime.impairment)

    ops = OpsServer(common.ops_host, common.ops_port, probe, metrics, stopping.set)
    try:
        await ops.start()
    except OSError as error:
        _log.error("exit", extra={"reason": str(error)})
        return 1
    bus = await _connect_or_stop(name, common, stopping)
    if bus is None:
        await _bounded(ops.stop(), 2, "ops")
        return 0
    telemetry = Telemetry.create(name, common.instance, common.region, os.environ)
    runtime = Runtime(name, common, bus, telemetry, metrics)
    health = Health(metrics, bus, probe)
    exporter = exporter_of(os.environ)
    export = None if exporter is None else MetricsExport(metrics, exporter, interval_s(os.environ))
    service: Service | None = None
    failure = ""
    try:
        runtime.spawn(runtime.report_status(), "status")
        runtime.spawn(health.watch(), "health")
        if export is not None:
            runtime.spawn(export.run(), "metrics export")
        service = await build(runtime)
        freeze_heap()  # while nobody waits for anything; after the start there is little left to look at
        failure = await _until_stopped(runtime, service, stopping)
    except ConfigError:
        raise
    except Exception as error:
        _log.exception("start failed")
        failure = str(error)
    finally:
        await _shut_down(runtime, service, ops, export)
    if failure:
        _log.error("exit", extra={"reason": failure})
        return 1
    return 0


async def _connect_or_stop(name: str, common: Common, stopping: asyncio.Event) -> Bus | None:
    password = (
        read_secret(common.nats_password_file, "SUB100_NATS_PASSWORD_FILE").decode()
        if common.nats_user
        else ""
    )
    seen: set[str] = set()

    def on_wait(reason: str) -> None:
        if reason not in seen:
            seen.add(reason)
            _log.warning("waiting", extra={"detail": reason})

    connecting = asyncio.ensure_future(
        Bus.connect(
            common.nats_url,
            name=f"{name}.{common.instance}",
            user=common.nats_user,
            password=password,
            on_wait=on_wait,
        )
    )
    waiting = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({connecting, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if connecting.done():
        return connecting.result()
    connecting.cancel()
    await asyncio.gather(connecting, return_exceptions=True)
    return None


async def _until_stopped(runtime: Runtime, service: Service, stopping: asyncio.Event) -> str:
    """Start, then wait; returns why the process fails, or an empty string for a signal."""
    failed = asyncio.ensure_future(runtime.wait_failed())
    stopped = asyncio.ensure_future(stopping.wait())
    starting = asyncio.ensure_future(service.start())
    try:
        await asyncio.wait({starting, failed, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            if runtime.state == "starting" and not failed.done():
                runtime.set_state("ready")
            freeze_heap()
            await asyncio.wait({failed, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return failed.result() if failed.done() else ""
    finally:
        for task in (starting, failed, stopped):
            task.cancel()
        await asyncio.gather(starting, failed, stopped, return_exceptions=True)


async def _shut_down(
    runtime: Runtime, service: Service | None, ops: OpsServer, export: MetricsExport | None
) -> None:
    """The drain order; every step is bounded and none keeps the next from running."""
    timeout_s = runtime.common.drain_timeout_s
    runtime.set_state("draining")
    if service is not None:
        await _bounded(service.drain(timeout_s), timeout_s + 1, "drain")
    await _bounded(runtime.bus.stop_receiving(), 5, "stop receiving")
    if service is not None:
        await _bounded(service.stop(), 15, "stop")
    runtime.set_state("stopped")
    await _bounded(runtime.publish_status(), 2, "last status")
    await _bounded(runtime.cancel_tasks(), 5, "cancel tasks")
    await _bounded(ops.stop(), 2, "ops")
    if export is not None:
        await _bounded(export.export(), 3, "last metrics")
        await _bounded(asyncio.to_thread(export.close), 3, "close metrics")
    await _bounded(runtime.bus.close(5), 12, "close bus")
    await _bounded(asyncio.to_thread(runtime.telemetry.shutdown), 5, "flush telemetry")


async def _bounded(step: Coroutine[Any, Any, None], timeout_s: float, what: str) -> None:
    try:
        await asyncio.wait_for(step, timeout_s)
    except TimeoutError:
        _log.error("shutdown step timed out", extra={"step": what, "timeout_s": timeout_s})
    except Exception:
        _log.exception("shutdown step failed", extra={"step": what})


def freeze_heap() -> None:
    """Move what start-up made out of the collector's sight: later collections stay short."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def die_with_parent() -> None:
    """Ask Linux for SIGTERM when the parent (a process runner) dies, so that nothing is left behind.

    Only under a runner that says so (``SUB100_DIE_WITH_PARENT=1``): a shell's background job must survive.
    """
    if os.environ.get("SUB100_DIE_WITH_PARENT") == "1" and sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

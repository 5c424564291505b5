"""The ingress program: HTTP server, subscriptions, watchdog, and the order in which they start and end."""

import asyncio
import contextlib
import functools
import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import uvicorn

from sub100_proto import subjects
from sub100_shared import catalog
from sub100_shared.bus import Incoming
from sub100_shared.clock import monotonic_ms
from sub100_shared.config import ConfigError
from sub100_shared.errors import Refused
from sub100_shared.ledger import split_of
from sub100_shared.lifecycle import Runtime
from sub100_shared.ops import EmbeddedServer

from .absence import Absence
from .afterwards import Afterwards
from .app import Surface, create_app
from .attempts import AttemptTable
from .body_room import BodyRoom
from .cached import CachedAnswers
from .choices import Choices
from .config import IngressConfig
from .dispatch import Dispatcher
from .fleet_view import FleetView, heartbeat_of
from .generation import Generator
from .http_connection import Connection
from .judge import JudgeQueue
from .keys import KeyRing
from .liveness import Liveness
from .lookup import CacheClient
from .model_judge import ModelJudge
from .model_revision import ModelRevision, text_revision
from .opening import Opener
from .placing import SchedulerClient
from .prepare import Preparer
from .replicas import Replicas
from .request_metrics import RequestMetrics
from .serving import Serving
from .strays import Strays
from .template import ChatTemplate
from .tokenizer import ModelTokenizer
from .tool_support import support_of
from .watchdog import Watchdog

_log = logging.getLogger(__name__)

_KEYS_INTERVAL_S = 2.0
_LISTEN_FIRST_S = 0.75
"""More than workers' heartbeats are apart."""
_SWITCH_INTERVAL_S = 0.0005
"""How long a thread that tokenises a long prompt may hold the interpreter against the event loop."""


class IngressService:
    """Built by ``build``; see sub100_shared.lifecycle for the contract."""

    def __init__(
        self,
        runtime: Runtime,
        config: IngressConfig,
        serving: Serving,
        cache: CacheClient,
        scheduler: SchedulerClient,
        replicas: Mapping[str, Replicas],
        table: AttemptTable,
        watchdog: Watchdog,
        liveness: Liveness,
        fleet: FleetView,
        judge: JudgeQueue,
        surface: Surface,
        keys: KeyRing,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._serving = serving
        self._keys = keys
        self._cache = cache
        self._scheduler = scheduler
        self._replicas = replicas
        self._table = table
        self._watchdog = watchdog
        self._liveness = liveness
        self._fleet = fleet
        self._judge = judge
        self._model_revision = surface.model_revision
        self._knows_model = asyncio.Event()
        app = create_app(surface, keys, self._refusal, lambda: runtime.is_ready)
        self._server = EmbeddedServer(
            uvicorn.Config(
                app,
                host=config.host,
                port=config.port,
                http=functools.partial(Connection, write_timeout_s=config.write_timeout_s),  # type: ignore[arg-type]
                loop="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=2,
                backlog=4096,
            )
        )
        self._http: asyncio.Task[None] | None = None

    async def start(self) -> None:
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        runtime = self._runtime
        await runtime.bus.listen(subjects.stream_all(runtime.region, runtime.instance), self._on_stream)
        for service, replicas in self._replicas.items():
            await runtime.bus.listen(subjects.status_of(runtime.region, service), replicas.on_status)
        await self._scheduler.start()
        await self._cache.start()
        runtime.bus.on_state(self._table.on_reconnect)
        runtime.bus.on_state(self._liveness.on_bus_state)
        await runtime.bus.listen(subjects.heartbeat_all(runtime.region), self._on_heartbeat)
        runtime.spawn(self._watchdog.run(), "watchdog")
        runtime.spawn(self._reload_keys(), "keys")
        runtime.spawn(self._judge.run(), "judge")
        await self._cache.warm_up()
        await self._listen_first()
        self._http = runtime.spawn(self._server.serve(), "http")
        await self._server.listening(self._http)

    async def drain(self, timeout_s: float) -> None:
        lame_duck_s = min(self._config.lame_duck_s, timeout_s / 2)
        await asyncio.sleep(lame_duck_s)
        await self._serving.drain(timeout_s - lame_duck_s)

    async def stop(self) -> None:
        self._server.should_exit = True
        if self._http is not None:
            await asyncio.wait({self._http}, timeout=5)

    def _on_stream(self, msg: Incoming) -> None:
        if subjects.ponging(msg.subject):
            self._liveness.on_pong(msg)
        else:
            self._table.on_message(msg)

    async def _listen_first(self) -> None:
        """Without knowing what the workers run nothing can be cached; a fleet that is not there yet is not
        waited for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LISTEN_FIRST_S):
                await self._knows_model.wait()

    def _on_heartbeat(self, msg: Incoming) -> None:
        beat = heartbeat_of(msg)
        if beat is None:
            return
        self._liveness.on_heartbeat(beat)
        self._fleet.on_heartbeat(beat)
        if not self._knows_model.is_set() and self._model_revision.now():
            self._knows_model.set()

    async def _reload_keys(self) -> None:
        """Keys are added and withdrawn without a restart; a bad file leaves the old ones in force."""
        while True:
            await asyncio.sleep(_KEYS_INTERVAL_S)
            try:
                if await asyncio.to_thread(self._keys.reload):
                    _log.info("keys reloaded")
            except (OSError, ValueError) as error:
                _log.error("keys not reloaded", extra={"error": str(error)})

    def _refusal(self) -> Refused | None:
        """Why no request can be served at this moment."""
        if self._serving.is_draining:
            return Refused("draining", "this replica is shutting down")
        if not self._runtime.bus.is_connected:
            return Refused("bus_unavailable", "the message bus is away", retry_after_s=2)
        return None


async def build(runtime: Runtime, config: IngressConfig) -> IngressService:
    """The composition root; raises ConfigError naming what is wrong."""
    directory = Path(config.model)
    try:
        tokenizer = ModelTokenizer(directory, max_model_len=config.max_model_len or None)
        template = ChatTemplate(directory)
        keys = KeyRing.load(Path(config.keys_file))
    except (OSError, ValueError) as error:
        raise ConfigError(str(error)) from error
    strays = Strays(monotonic_ms)
    table = AttemptTable(strays)
    dispatcher = Dispatcher(
        runtime.bus,
        table,
        region=runtime.region,
        ingress_id=runtime.instance,
        claim_timeout_ms=config.claim_timeout_ms,
        max_buffered=config.max_buffered_events,
    )
    replicas = {"scheduler": Replicas(monotonic_ms), "cache": Replicas(monotonic_ms)}
    scheduler = SchedulerClient(
        runtime.bus,
        runtime.telemetry,
        replicas["scheduler"],
        monotonic_ms,
        region=runtime.region,
        timeout_ms=config.place_timeout_ms,
        patience_ms=config.patience_ms,
    )
    cache = CacheClient(
        runtime.bus,
        runtime.telemetry,
        Absence(monotonic_ms),
        replicas["cache"],
        monotonic_ms,
        region=runtime.region,
        ttl_s=config.cache_ttl_s,
    )
    model = config.served_name or directory.name
    metrics = RequestMetrics(
        runtime.metrics,
        model=model,
        with_tenants=runtime.common.metrics_tenants,
    )
    preparer = Preparer(
        tokenizer,
        template,
        block_size=config.block_size,
        secret=runtime.common.secret(),
        long_prompt_bytes=config.long_prompt_bytes,
    )
    generator = Generator(
        scheduler,
        dispatcher,
        tokenizer,
        runtime.telemetry,
        max_attempts=config.max_attempts,
        clock=monotonic_ms,
        patience_ms=config.patience_ms,
    )
    fleet = FleetView(monotonic_ms)
    judge = JudgeQueue(
        ModelJudge(preparer, generator, runtime.telemetry, monotonic_ms, model=model),
        fleet.is_quiet,
        cache.alias,
    )
    runtime.metrics.observe(
        catalog.CACHE_JUDGED, lambda: {(verdict,): num for verdict, num in judge.num_cases.items()}
    )
    runtime.metrics.observe(
        catalog.REPLICAS_PASSED_BY,
        lambda: {
            (service, reason): num
            for service, known in replicas.items()
            for reason, num in known.num_lost.items()
        },
    )
    cached = CachedAnswers(cache, Afterwards(cache, judge), preparer, generator, scheduler, fleet)
    serving = Serving(cached, preparer, Choices(generator), metrics, max_inflight=config.max_inflight)
    runtime.metrics.observe(catalog.REQUESTS_IN_FLIGHT, lambda: serving.num_inflight)
    runtime.metrics.observe(catalog.STREAM_EVENTS_UNKNOWN, lambda: table.num_unknown_events)
    liveness = Liveness(monotonic_ms)
    watchdog = Watchdog(
        table,
        liveness,
        strays,
        dispatcher.ping,
        dispatcher.stop,
        monotonic_ms,
        keep_alive_s=config.keep_alive_s,
        first_token_timeout_s=config.first_token_timeout_s,
        stall_timeout_s=config.stall_timeout_s,
        step_timeout_s=config.step_timeout_s,
    )
    surface = Surface(
        serving=serving,
        cache=cache,
        opener=Opener(
            telemetry=runtime.telemetry,
            clock=monotonic_ms,
            region=runtime.region,
            budget_ms=config.budget_ms,
            split=_split(config.allotments),
            trust_edge=config.trust_edge,
        ),
        metrics=metrics,
        clock=monotonic_ms,
        model=model,
        model_revision=ModelRevision(text_revision(directory), fleet, model),
        shown_time=template.shown_time,
        tools=support_of(template.source_with_tools, config.tool_form),
        created=int(time.time()),
        use_cache=config.cache,
        max_body_bytes=config.max_body_bytes,
        body_room=BodyRoom(config.max_bodies_bytes, config.max_body_bytes),
        body_timeout_s=config.body_timeout_s,
        long_prompt_bytes=config.long_prompt_bytes,
    )
    return IngressService(
        runtime,
        config,
        serving,
        cache,
        scheduler,
        replicas,
        table,
        watchdog,
        liveness,
        fleet,
        judge,
        surface,
        keys,
    )


def _split(allotments: str) -> Mapping[str, float]:
    try:
        return split_of(allotments)
    except ValueError as error:
        raise ConfigError(f"SUB100_INGRESS_ALLOTMENTS: {error}") from error

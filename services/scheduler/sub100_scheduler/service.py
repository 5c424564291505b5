"""The scheduler program: messages in, messages out. Decisions are the policy's, state is the view's."""

import asyncio
import contextlib
import itertools
import logging
import secrets
from typing import Final

import msgspec

from sub100_proto import codec, subjects
from sub100_proto.jobs import Judged
from sub100_proto.placement import Placed, Placement, PlaceRequest, Rejected
from sub100_shared import semconv
from sub100_shared.bus import Bus, BusUnavailable, Incoming
from sub100_shared.clock import Clock
from sub100_shared.lifecycle import Runtime
from sub100_shared.telemetry import Span, SpanKind, Telemetry, extract, fail

from .config import SchedulerConfig
from .dumps import DumpRequester
from .policy import num_queued_tokens, num_uncached_tokens
from .scheduler_metrics import FleetMetrics, PlacementMetrics
from .view import RegionView

_log = logging.getLogger(__name__)

QUEUE: Final = "scheduler"


class Placer:
    """Answers place requests and tells the replicas."""

    def __init__(
        self,
        bus: Bus,
        telemetry: Telemetry,
        view: RegionView,
        clock: Clock,
        *,
        region: str,
        scheduler_id: str,
        metrics: PlacementMetrics,
    ) -> None:
        self._bus = bus
        self._metrics = metrics
        self._telemetry = telemetry
        self._view = view
        self._clock = clock
        self._scheduler_id = scheduler_id
        self._placed_subject = subjects.scheduler_placed(region)
        # For old askers, that choose no id. A restarted process has the same name and counts anew.
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count()

    async def handle(self, msg: Incoming) -> bytes | None:
        """PlaceRequest -> Placement or Rejected; an unreadable request gets no answer."""
        start_ms = self._clock()
        span = self._telemetry.start(semconv.SCHEDULE_SERVE, extract(msg.headers), kind=SpanKind.SERVER)
        try:
            request = codec.decode_place_request(msg.data)
            placement_id = request.placement_id or f"{self._prefix}-{next(self._numbers):x}"
            answer = self._view.place(request, placement_id, start_ms)
            if isinstance(answer, Placement):
                await self._tell(request, answer)
            answer = msgspec.structs.replace(answer, spent_ms=self._clock() - start_ms)
            self._metrics.record(answer, answer.spent_ms)
            self._describe(span, request, answer)
            return codec.encode(answer)
        except msgspec.MsgspecError as error:
            fail(span, "invalid_type")
            _log.error("unreadable place request", extra={"error": str(error)})
            return None
        finally:
            span.end()

    def when_full(self, _: Incoming) -> bytes:
        return codec.encode(Rejected(code="queue_full", reason="the scheduler is overloaded"))

    async def _tell(self, request: PlaceRequest, placement: Placement) -> None:
        placed = Placed(
            scheduler_id=self._scheduler_id,
            placement_id=placement.placement_id,
            decode=placement.decode.worker_id,
            prefill=None if placement.prefill is None else placement.prefill.worker_id,
            num_uncached_tokens=num_uncached_tokens(request, placement),
            max_tokens=request.max_tokens,
            num_queued_tokens=num_queued_tokens(request, placement),
        )
        await self._bus.publish(self._placed_subject, codec.encode(placed))

    @staticmethod
    def _describe(span: Span, request: PlaceRequest, answer: Placement | Rejected) -> None:
        is_logged = _log.isEnabledFor(logging.DEBUG)
        if isinstance(answer, Rejected):
            fail(span, answer.code)
            if is_logged:
                _log.debug("rejected", extra={"request_id": request.request_id, "code": answer.code})
            return
        if answer.prefill is None:
            worker, num_cached = answer.decode, answer.cached_tokens_decode
        else:
            worker, num_cached = answer.prefill, answer.cached_tokens_prefill
        if span.is_recording():
            span.set_attributes(
                {
                    semconv.REQUEST_ID: request.request_id,
                    semconv.HOP: semconv.HOP_SCHEDULE,
                    semconv.WORKER: worker.worker_id,
                    semconv.DECODE_WORKER: answer.decode.worker_id,
                    semconv.PLACED_BECAUSE: answer.why,
                    semconv.CACHED_TOKENS: num_cached,
                    semconv.PREDICTED_TTFT_MS: round(answer.predicted_ttft_ms, 3),
                    semconv.SPENT_MS: round(answer.spent_ms, 3),
                }
            )
        if is_logged:
            _log.debug(
                "placed",
                extra={
                    "request_id": request.request_id,
                    "prefill": None if answer.prefill is None else answer.prefill.worker_id,
                    "decode": answer.decode.worker_id,
                    "num_uncached_tokens": num_uncached_tokens(request, answer),
                    "predicted_ttft_ms": round(answer.predicted_ttft_ms, 3),
                },
            )


class SchedulerService:
    """See sub100_shared.lifecycle for the contract. It serves until the bus stops receiving: a draining
    replica's view is as good as any."""

    def __init__(
        self, runtime: Runtime, config: SchedulerConfig, view: RegionView, placer: Placer, clock: Clock
    ) -> None:
        self._runtime = runtime
        self._metrics = FleetMetrics(runtime.metrics, view, config.targets())
        self._config = config
        self._view = view
        self._placer = placer
        self._clock = clock
        self._dumps = DumpRequester(
            runtime.bus, view, clock, region=runtime.region, timeout_s=config.dump_timeout_s
        )
        runtime.bus.on_state(self._on_bus)

    async def start(self) -> None:
        """Listen first, so that the first answer already knows the fleet; then join the queue group."""
        bus, region = self._runtime.bus, self._runtime.region
        await bus.listen(subjects.heartbeat_all(region), self._on_heartbeat)
        await bus.listen(subjects.kv_events_all(region), self._on_kv_events)
        await bus.listen(subjects.scheduler_placed(region), self._on_placed)
        await bus.listen(subjects.scheduler_settled(region), self._on_settled)
        self._runtime.spawn(self._tick(), "tick")
        await asyncio.sleep(self._config.listen_first_s)
        await self._runtime.serve_shared(
            subjects.scheduler_place(region),
            self._placer.handle,
            queue=QUEUE,
            max_inflight=self._config.max_requests,
            when_full=self._placer.when_full,
        )
        self._runtime.set_state("ready", self._view.summary())

    async def drain(self, timeout_s: float) -> None:
        """Nothing runs longer than a message."""

    async def stop(self) -> None:
        await self._dumps.stop()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._config.tick_s)
            if not self._runtime.bus.is_connected:
                continue
            now_ms = self._clock()
            gone = self._view.tick(now_ms)
            self._metrics.lapsed(len(gone))
            self._metrics.refresh(now_ms)
            for worker_id in gone:
                _log.warning("worker lapsed", extra={"worker_id": worker_id})
            if gone:
                self._tell_state()
            self._dumps.ask()
            await self._tell_verdicts()

    async def _tell_verdicts(self) -> None:
        """Lost ones are repeated: the worker's next heartbeat shows that it does not know."""
        for verdict in self._view.fleet.take_verdicts():
            subject = subjects.control(self._runtime.region, verdict.role, verdict.worker_id)
            with contextlib.suppress(BusUnavailable):
                await self._runtime.bus.publish(
                    subject, codec.encode(Judged(epoch=verdict.epoch, refusal=verdict.refusal))
                )

    def _on_heartbeat(self, msg: Incoming) -> None:
        heartbeat = codec.decode_heartbeat(msg.data)
        if self._view.on_heartbeat(heartbeat, self._clock()):
            _log.info(
                "worker",
                extra={
                    "worker_id": heartbeat.worker_id,
                    "role": heartbeat.role,
                    "state": heartbeat.state,
                    "epoch": heartbeat.epoch,
                    "kv_fault": heartbeat.kv_fault,
                },
            )
            self._tell_state()

    def _on_kv_events(self, msg: Incoming) -> None:
        self._view.feed.on_events(codec.decode_kv_events(msg.data))

    def _on_placed(self, msg: Incoming) -> None:
        placed = codec.decode_placed(msg.data)
        if placed.scheduler_id != self._runtime.instance:
            self._view.on_placed(placed, self._clock())

    def _on_settled(self, msg: Incoming) -> None:
        self._view.on_settled(codec.decode_settled(msg.data))

    def _on_bus(self, connected: bool) -> None:
        if connected:
            self._view.fleet.excuse(self._clock())

    def _tell_state(self) -> None:
        if self._runtime.state == "ready":
            self._runtime.set_state("ready", self._view.summary())


def build(runtime: Runtime, config: SchedulerConfig, clock: Clock) -> SchedulerService:
    """The composition root of one process."""
    view = RegionView(
        config.rules(),
        tick_ms=config.tick_s * 1e3,
        inflight_ttl_ms=config.inflight_ttl_s * 1e3,
        max_placements=config.max_placements,
        max_index_blocks=config.max_index_blocks,
        chance=secrets.SystemRandom().random,
    )
    placer = Placer(
        runtime.bus,
        runtime.telemetry,
        view,
        clock,
        region=runtime.region,
        scheduler_id=runtime.instance,
        metrics=PlacementMetrics(runtime.metrics),
    )
    return SchedulerService(runtime, config, view, placer, clock)

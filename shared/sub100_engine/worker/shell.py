"""A worker: an engine on the bus. Prefill and decode differ only in how they turn outputs into events.

Lifecycle: the engine starts (and warms up) before the first ``ready`` heartbeat; on drain new jobs are
answered Busy, running ones end, what is left at the deadline is failed with ``draining`` so that ingress
re-places it. A worker whose connection was away for longer than a lapse drops the jobs that it has: their
ingress has re-placed them, and it comes back under a new epoch. After a shorter absence ingress aborts what
it has re-placed; the jobs of an ingress that is gone end when its lease does (``owners``).
"""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from sub100_proto import blocks, codec, subjects
from sub100_proto.fleet import Heartbeat, Limits, State
from sub100_proto.jobs import (
    Abort,
    Accepted,
    Busy,
    DumpKv,
    Job,
    Judged,
    Ping,
    Pong,
    PrefillJob,
    ReleaseKv,
    Resend,
)
from sub100_proto.kv import KvHandle
from sub100_proto.stream import Failed
from sub100_shared.bus import BusUnavailable, Incoming
from sub100_shared.clock import Clock, monotonic_ms
from sub100_shared.lifecycle import Runtime
from sub100_shared.telemetry import extract

from ..api import Engine, EngineInfo, Output, Work
from .claims import Claims
from .engine_watch import EngineWatch
from .job_metrics import CANCELLED, JobMetrics
from .kv_feed import KvFeed
from .owners import Owners
from .spans import JobSpans
from .streams import Stream, Streams
from .transfer_health import TransferHealth
from .transfers import Transfers
from .work import work_of

_log = logging.getLogger(__name__)

HEARTBEAT_S: Final = 0.5
LAPSE_S: Final = 3 * HEARTBEAT_S
REGISTER_S: Final = 0.35
"""What a scheduler needs to say no: it answers heartbeats at its next tick."""
_MAX_HANDED_OVER: Final = 4096
RECONNECT_GRACE_S: Final = 0.5
"""After the bus came back: what waited is sent when the others, too, have had time to come back."""


class WorkerRole(Protocol):
    """What prefill and decode differ in."""

    role: subjects.Role

    def submit(self, engine: Engine, work: Work, sink: Callable[[Output], None]) -> None: ...

    def on_output(self, streams: Streams, stream: Stream, output: Output) -> None:
        """Turn an output that is no error into an event."""
        ...


class WorkerShell:
    """A lifecycle Service; ``limits`` bound what is in the worker."""

    def __init__(
        self,
        runtime: Runtime,
        engine: Engine,
        role: WorkerRole,
        limits: Limits,
        health: TransferHealth,
        *,
        pool: str = "default",
        clock: Clock = monotonic_ms,
    ) -> None:
        self._runtime = runtime
        self._engine = engine
        self._role = role
        self._pool = pool
        self._clock = clock
        self._worker_id = runtime.instance
        self._info: EngineInfo | None = None
        self._limits = limits
        self._epoch = 0
        self._is_stopped = False
        self._refusal = ""
        self._judged = asyncio.Event()
        self._begin_life()
        self._spans = JobSpans(runtime.telemetry, role.role, clock)
        self._metrics = JobMetrics(runtime.metrics, role.role, engine.load, lambda: len(self._claims))
        self._transfers = Transfers(health, clock, runtime.metrics, self._on_kv_fault)
        self._watch = EngineWatch(engine, clock, HEARTBEAT_S, self._on_engine_fault)
        self._handed_over: OrderedDict[str, tuple[str, KvHandle]] = OrderedDict()
        self._owners = Owners(clock, HEARTBEAT_S)
        self._disconnected_at: float | None = None
        self._changed = asyncio.Event()

    def _begin_life(self) -> None:
        """A new epoch: nothing of an older life is answered."""
        self._epoch = max(self._epoch + 1, int(time.time() * 1e3))
        self._claims = Claims(self._limits, self._epoch)
        self._streams = Streams(self._worker_id, self._epoch, self._runtime.bus.publish)
        self._kv_feed = KvFeed(self._worker_id, self._epoch, self._publish_kv)

    async def start(self) -> None:
        runtime = self._runtime
        runtime.bus.on_state(self._on_bus_state)
        self._engine.set_failure_listener(self._on_engine_failure)
        self._info = await self._engine.start(lambda change: self._kv_feed.on_change(change))
        _log.info("engine", extra=msgspec.structs.asdict(self._info) | {"pool": self._pool})
        region, role = runtime.region, self._role.role
        await runtime.bus.serve(subjects.job(region, role, self._worker_id), self._on_job)
        await runtime.bus.serve(subjects.control(region, role, self._worker_id), self._on_control)
        await runtime.bus.listen(subjects.status_of(region, "ingress"), self._on_ingress)
        self._sender = runtime.spawn(self._streams.run(), "streams")
        runtime.spawn(self._beat(), "heartbeat")
        await self._register()
        runtime.set_state("ready")

    async def _register(self) -> None:
        """Silence is consent: a worker that no scheduler refuses within REGISTER_S is ready. One that is
        refused stays up and waits, for as long as it lives, until it fits."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REGISTER_S):
                await self._judged.wait()
        while self._refusal:
            self._judged.clear()
            await self._judged.wait()

    def _on_judged(self, judged: Judged) -> None:
        if judged.epoch != self._epoch or judged.refusal == self._refusal:
            return
        self._refusal = judged.refusal
        if judged.refusal:
            _log.error("refused by the scheduler", extra={"reason": judged.refusal, "pool": self._pool})
            self._runtime.set_state("starting", f"refused: {judged.refusal}")
        else:
            _log.info("accepted by the scheduler", extra={"pool": self._pool})
            self._runtime.set_state("ready")
        self._judged.set()
        self._changed.set()

    async def drain(self, timeout_s: float) -> None:
        self._claims.is_draining = True
        self._changed.set()
        if self._watch.fault:
            _log.warning("nothing to wait for", extra={"reason": self._watch.fault})
        elif not await self._engine.drain(timeout_s):
            _log.warning("drain timed out", extra={"num_jobs": len(self._claims)})
        for attempt in self._claims.attempts():
            self._fail(attempt, "draining", "the worker is shutting down")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._streams.flush(), 2)

    async def stop(self) -> None:
        self._is_stopped = True
        await self._engine.stop()
        with contextlib.suppress(BusUnavailable):
            await self._publish_heartbeat()

    async def _on_job(self, msg: Incoming) -> bytes | None:
        """Claim, then hand to the engine; the claim leaves first."""
        try:
            job = codec.decode_job(msg.data)
        except msgspec.MsgspecError as error:
            _log.error("unreadable job", extra={"error": str(error)})
            return None
        try:
            work = work_of(job)
        except ValueError as error:
            _log.error("unreadable job", extra={"error": str(error)})
            return None
        num_tokens = 0 if work.kv is not None else len(work.prompt) + len(work.output)
        code = self._claims.refusal(job.attempt, job.epoch, num_tokens) or self._misfit(job, work)
        if code:
            self._metrics.refused(code)
            return codec.encode(Busy(worker_id=self._worker_id, epoch=self._epoch, code=code))
        if not self._claims.take(job.attempt, num_tokens):
            return None
        if msg.reply:
            accepted = codec.encode(Accepted(worker_id=self._worker_id, epoch=self._epoch))
            try:
                await self._runtime.bus.publish(msg.reply, accepted)
            except BaseException:
                self._claims.end(job.attempt)
                raise
        if job.attempt in self._claims:  # not aborted meanwhile
            self._run(job, work, msg)
        return None

    def _misfit(self, job: Job, work: Work) -> str:
        """A job that this engine cannot run; placed by mistake."""
        info = self._info
        wrong_kind = isinstance(job, PrefillJob) != (self._role.role == "prefill")
        if (
            info is None
            or self._refusal
            or self._watch.fault
            or wrong_kind
            or job.model != info.model
            or len(work.prompt) >= info.max_model_len
        ):
            return "misplaced"
        return ""

    def _run(self, job: Job, work: Work, msg: Incoming) -> None:
        self._spans.open(job, extract(msg.headers))
        self._metrics.began(job)
        self._transfers.began(job)
        self._streams.open(job.attempt, job.events, len(work.output))
        self._role.submit(self._engine, work, self._on_output)

    def _on_output(self, output: Output) -> None:
        """The engine's sink."""
        stream = self._streams.get(output.attempt)
        if stream is None:
            return
        self._transfers.on_output(output)
        if output.error:
            self._fail(output.attempt, output.error, output.reason)
            return
        self._spans.on_output(output)
        if not stream.tokens:
            self._metrics.first_output(output)
            self._claims.answered(output.attempt)
        if output.kv is not None:
            self._remember_handed_over(stream, output.kv)
        self._role.on_output(self._streams, stream, output)
        if output.finish_reason or self._role.role == "prefill":
            self._end(output.attempt, stream)

    def _end(self, attempt: str, stream: Stream) -> None:
        self._streams.close(stream)
        self._claims.end(attempt)
        self._spans.close(attempt)
        self._metrics.ended(attempt)

    def _fail(self, attempt: str, code: str, reason: str) -> None:
        self._transfers.forget(attempt)
        stream = self._streams.get(attempt)
        if stream is not None:
            self._streams.send(stream, Failed(attempt, code, reason))
            self._streams.close(stream)
        if self._claims.end(attempt):
            self._metrics.ended(attempt, code)
        self._spans.close(attempt, code)

    async def _on_control(self, msg: Incoming) -> bytes | None:
        try:
            control = codec.decode_control(msg.data)
        except msgspec.MsgspecError as error:
            _log.error("unreadable control", extra={"error": str(error)})
            return None
        match control:
            case Abort(attempt=attempt):
                self._abort(attempt)
            case Resend(attempt=attempt, position=position, events=events):
                if not self._streams.resend(attempt, position) and events:
                    self._streams.tell(events, Failed(attempt, "attempt_unknown"))
            case ReleaseKv(kv=kv):
                self._engine.release(kv)
                self._transfers.on_release(control)
            case DumpKv():
                return codec.encode(self._kv_feed.dump())
            case Judged():
                self._on_judged(control)
            case Ping():
                return codec.encode(Pong(epoch=self._epoch))
        return None

    def _abort(self, attempt: str) -> None:
        if attempt in self._claims:
            self._engine.abort(attempt)
            self._transfers.forget(attempt)
            self._streams.drop(attempt)
            self._claims.end(attempt)
            self._spans.close(attempt, CANCELLED)
            self._metrics.ended(attempt, CANCELLED)
        elif (handed_over := self._handed_over.pop(attempt, None)) is not None:
            self._engine.release(handed_over[1])  # done before the abort came: nobody will pull what it left
        else:
            self._claims.remember_abort(attempt)

    def _remember_handed_over(self, stream: Stream, kv: KvHandle) -> None:
        """For an abort that crosses the first token on its way, and for the end of whoever is to have it
        pulled; the last few thousand are remembered."""
        self._handed_over[stream.attempt] = stream.events, kv
        while len(self._handed_over) > _MAX_HANDED_OVER:
            self._handed_over.popitem(last=False)

    def _on_ingress(self, msg: Incoming) -> None:
        status = codec.decode_status(msg.data)
        self._owners.on_status(subjects.stream_events(self._runtime.region, status.instance), status.state)

    def _leave_orphans(self) -> None:
        """End what was begun for an ingress that is gone. It is told so, for the case that it is not."""
        for events in self._owners.take_gone():
            orphans = [stream.attempt for stream in self._streams.live() if stream.events == events]
            kept = [attempt for attempt, (owner, _) in self._handed_over.items() if owner == events]
            for attempt in orphans:
                self._streams.tell(events, Failed(attempt, "worker_lost", "nothing was heard of its ingress"))
            for attempt in (*orphans, *kept):
                self._abort(attempt)
            _log.warning("ingress gone", extra={"events": events, "num_jobs": len(orphans)})

    def _on_kv_fault(self, fault: str) -> None:
        log = _log.error if fault else _log.info
        log("kv fault" if fault else "kv fault is over", extra={"reason": fault})
        self._show_faults()

    def _on_engine_fault(self, fault: str) -> None:
        """It hangs, or steps again. Its streams are told; what it still has of them is for nobody."""
        if fault:
            for attempt in self._claims.attempts():
                self._fail(attempt, "worker_lost", fault)
                self._engine.abort(attempt)
        self._show_faults()

    def _show_faults(self) -> None:
        self._runtime.impair(self._watch.fault or self._transfers.reason)
        self._changed.set()

    def _on_engine_failure(self, reason: str) -> None:
        """The engine core died: tell every stream, then end the process."""
        for attempt in self._claims.attempts():
            self._fail(attempt, "worker_lost", reason)
        self._runtime.fail(f"engine: {reason}")

    def _on_bus_state(self, connected: bool) -> None:
        now = self._clock()
        if not connected:
            self._disconnected_at = now
        elif self._disconnected_at is not None:
            away_s = (now - self._disconnected_at) / 1e3
            self._disconnected_at = None
            self._owners.excuse()
            if away_s > LAPSE_S:
                _log.warning("back after a lapse: new epoch", extra={"away_s": round(away_s, 2)})
                self._restart_life()
            asyncio.get_running_loop().call_later(RECONNECT_GRACE_S, self._streams.send_unsent)
            self._changed.set()

    def _restart_life(self) -> None:
        """The fleet has given this life up: so do we, and come back empty-handed."""
        orphans = self._streams.live()
        for attempt in self._claims.attempts():
            self._engine.abort(attempt)
            self._transfers.forget(attempt)
            self._spans.close(attempt, "worker_lost")
            self._metrics.ended(attempt, "worker_lost")
        held = self._kv_feed.dump().hashes
        is_draining = self._claims.is_draining
        self._sender.cancel()
        self._begin_life()
        self._claims.is_draining = is_draining
        self._kv_feed.adopt(held)
        for orphan in orphans:
            self._streams.keep_unsent(
                orphan.events, [Failed(orphan.attempt, "worker_lost", "the worker was cut off")]
            )
        self._sender = self._runtime.spawn(self._streams.run(), "streams")

    async def _beat(self) -> None:
        while True:
            with contextlib.suppress(BusUnavailable):
                await self._publish_heartbeat()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._changed.wait()
            self._changed.clear()
            if self._disconnected_at is None:
                self._leave_orphans()

    @property
    def _state(self) -> State:
        if self._is_stopped:
            return "stopped"
        if self._claims.is_draining:
            return "draining"
        return "starting" if self._refusal or self._watch.fault else "ready"

    async def _publish_heartbeat(self) -> None:
        info = self._info
        if info is None:
            return
        load = self._engine.load()
        self._transfers.on_load(load)
        self._watch.look(load, only_decodes=not self._claims.num_queued_tokens)
        beat = Heartbeat(
            worker_id=self._worker_id,
            role=self._role.role,
            epoch=self._epoch,
            state=self._state,
            model=info.model,
            layout=info.layout,
            block_size=info.block_size,
            num_blocks=info.num_blocks,
            max_model_len=info.max_model_len,
            max_num_seqs=info.max_num_seqs,
            max_chunk_tokens=info.max_chunk_tokens,
            load=load,
            kv_seq=self._kv_feed.seq,
            interval_s=HEARTBEAT_S,
            pool=self._pool,
            dtype=info.dtype,
            connector=info.connector,
            hashes=blocks.FINGERPRINT,
            refusal=self._refusal,
            speculation=info.speculation,
            revision=info.revision,
            tensor_parallel=info.tensor_parallel,
            answers_pings=True,
            kv_fault=self._transfers.fault(),
            limits=self._limits,
            num_jobs=len(self._claims),
            num_queued_tokens=self._claims.num_queued_tokens,
        )
        subject = subjects.heartbeat(self._runtime.region, self._role.role, self._worker_id)
        await self._runtime.bus.publish(subject, codec.encode(beat))

    async def _publish_kv(self, payload: bytes) -> None:
        await self._runtime.bus.publish(subjects.kv_events(self._runtime.region, self._worker_id), payload)

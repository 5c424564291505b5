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
from typing import Final

import msgspec

from sub100_proto import blocks, codec, subjects
from sub100_proto.fleet import Heartbeat, Limits, State
from sub100_proto.jobs import (
    Abort,
    DumpKv,
    Job,
    Judged,
    Ping,
    Pong,
    PrefillJob,
    ReleaseKv,
    Resend,
)
from sub100_shared.bus import BusUnavailable, Incoming
from sub100_shared.clock import Clock, monotonic_ms
from sub100_shared.lifecycle import Runtime

from ..api import Engine, EngineInfo, Work
from .engine_watch import EngineWatch
from .jobs import Jobs
from .kv_feed import KvFeed
from .owners import Owners
from .role import WorkerRole
from .transfer_health import TransferHealth
from .transfers import Transfers
from .work import work_of

_log = logging.getLogger(__name__)

HEARTBEAT_S: Final = 0.5
LAPSE_S: Final = 3 * HEARTBEAT_S
REGISTER_S: Final = 0.35
"""What a scheduler needs to say no: it answers heartbeats at its next tick."""
RECONNECT_GRACE_S: Final = 0.5
"""After the bus came back: what waited is sent when the others, too, have had time to come back."""


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
        self._epoch = _epoch_after(0)
        self._is_stopped = False
        self._refusal = ""
        self._judged = asyncio.Event()
        self._kv_feed = self._new_kv_feed()
        self._transfers = Transfers(health, clock, runtime.metrics, self._on_kv_fault)
        self._watch = EngineWatch(engine, clock, HEARTBEAT_S, self._on_engine_fault)
        self._jobs = Jobs(runtime, engine, role, limits, self._transfers, clock, self._epoch)
        self._owners = Owners(clock, HEARTBEAT_S)
        self._disconnected_at: float | None = None
        self._changed = asyncio.Event()

    def _new_kv_feed(self) -> KvFeed:
        return KvFeed(self._worker_id, self._epoch, self._publish_kv)

    async def start(self) -> None:
        runtime = self._runtime
        self._jobs.start()
        runtime.bus.on_state(self._on_bus_state)
        self._engine.set_failure_listener(self._on_engine_failure)
        self._info = await self._engine.start(lambda change: self._kv_feed.on_change(change))
        self._jobs.pace.max_chunk_tokens = self._info.max_chunk_tokens
        _log.info("engine", extra=msgspec.structs.asdict(self._info) | {"pool": self._pool})
        region, role = runtime.region, self._role.role
        await runtime.bus.serve(subjects.job(region, role, self._worker_id), self._on_job)
        await runtime.bus.serve(subjects.control(region, role, self._worker_id), self._on_control)
        await runtime.bus.listen(subjects.status_of(region, "ingress"), self._on_ingress)
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
        self._jobs.claims.is_draining = True
        self._changed.set()
        if self._watch.fault:
            _log.warning("nothing to wait for", extra={"reason": self._watch.fault})
        elif not await self._engine.drain(timeout_s):
            _log.warning("drain timed out", extra={"num_jobs": len(self._jobs.claims)})
        self._jobs.fail_all("draining", "the worker is shutting down")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._jobs.streams.flush(), 2)

    async def stop(self) -> None:
        self._is_stopped = True
        await self._engine.stop()
        with contextlib.suppress(BusUnavailable):
            await self._publish_heartbeat()

    async def _on_job(self, msg: Incoming) -> bytes | None:
        try:
            job = codec.decode_job(msg.data)
            work = work_of(job)
        except (msgspec.MsgspecError, ValueError) as error:
            _log.error("unreadable job", extra={"error": str(error)})
            return None
        busy = await self._jobs.offer(job, work, msg, self._misfit(job, work))
        return None if busy is None else codec.encode(busy)

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

    async def _on_control(self, msg: Incoming) -> bytes | None:
        try:
            control = codec.decode_control(msg.data)
        except msgspec.MsgspecError as error:
            _log.error("unreadable control", extra={"error": str(error)})
            return None
        match control:
            case Abort(attempt=attempt):
                self._jobs.abort(attempt)
            case Resend(attempt=attempt, position=position, events=events):
                self._jobs.resend(attempt, position, events)
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

    def _on_ingress(self, msg: Incoming) -> None:
        status = codec.decode_status(msg.data)
        self._owners.on_status(subjects.stream_events(self._runtime.region, status.instance), status.state)

    def _leave_orphans(self) -> None:
        for events in self._owners.take_gone():
            num_jobs = self._jobs.leave(events)
            _log.warning("ingress gone", extra={"events": events, "num_jobs": num_jobs})

    def _on_kv_fault(self, fault: str) -> None:
        log = _log.error if fault else _log.info
        log("kv fault" if fault else "kv fault is over", extra={"reason": fault})
        self._show_faults()

    def _on_engine_fault(self, fault: str) -> None:
        """It hangs, or steps again. Its streams are told; what it still has of them is for nobody."""
        if fault:
            for attempt in self._jobs.fail_all("worker_lost", fault):
                self._engine.abort(attempt)
        self._show_faults()

    def _show_faults(self) -> None:
        self._runtime.impair(self._watch.fault or self._transfers.reason)
        self._changed.set()

    def _on_engine_failure(self, reason: str) -> None:
        """The engine core died: tell every stream, then end the process."""
        self._jobs.fail_all("worker_lost", reason)
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
                self._begin_another_life()
            asyncio.get_running_loop().call_later(RECONNECT_GRACE_S, self._jobs.streams.send_unsent)
            self._changed.set()

    def _begin_another_life(self) -> None:
        """The engine keeps its blocks, and nothing else of the old one is answered."""
        held = self._kv_feed.dump().hashes
        self._epoch = _epoch_after(self._epoch)
        self._jobs.start_anew(self._epoch)
        self._kv_feed = self._new_kv_feed()
        self._kv_feed.adopt(held)

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
        if self._jobs.claims.is_draining:
            return "draining"
        return "starting" if self._refusal or self._watch.fault else "ready"

    async def _publish_heartbeat(self) -> None:
        info = self._info
        if info is None:
            return
        load = self._engine.load()
        self._transfers.on_load(load)
        self._watch.look(load, prompt_step_s=self._jobs.prompt_step_s())
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
            num_jobs=len(self._jobs.claims),
            num_queued_tokens=self._jobs.claims.num_queued_tokens,
        )
        subject = subjects.heartbeat(self._runtime.region, self._role.role, self._worker_id)
        await self._runtime.bus.publish(subject, codec.encode(beat))

    async def _publish_kv(self, payload: bytes) -> None:
        await self._runtime.bus.publish(subjects.kv_events(self._runtime.region, self._worker_id), payload)


def _epoch_after(epoch: int) -> int:
    """Later than it, and than that of any earlier process of this worker."""
    return max(epoch + 1, int(time.time() * 1e3))

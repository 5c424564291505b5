"""The jobs of a worker, from the claim to the last event: all that is opened with one is ended with it."""

from sub100_proto import codec
from sub100_proto.fleet import Limits
from sub100_proto.jobs import Accepted, Busy, Job
from sub100_proto.stream import Failed
from sub100_shared.bus import Incoming
from sub100_shared.clock import Clock
from sub100_shared.lifecycle import Runtime
from sub100_shared.telemetry import extract

from ..api import Engine, Output, Work
from .claims import Claims
from .handed_over import HandedOver
from .job_metrics import CANCELLED, JobMetrics
from .prompt_pace import PromptPace
from .role import WorkerRole
from .spans import JobSpans
from .streams import Stream, Streams
from .transfers import Transfers


class Jobs:
    """Of one life of the worker at a time (``epoch``); nothing of an older one is answered. ``start`` comes
    before the first job; ``claims`` are read by others, and told that the worker drains."""

    def __init__(
        self,
        runtime: Runtime,
        engine: Engine,
        role: WorkerRole,
        limits: Limits,
        transfers: Transfers,
        clock: Clock,
        epoch: int,
    ) -> None:
        self._runtime = runtime
        self._engine = engine
        self._role = role
        self._limits = limits
        self._transfers = transfers
        self._spans = JobSpans(runtime.telemetry, role.role, clock)
        self._metrics = JobMetrics(runtime.metrics, role.role, engine.load, lambda: len(self.claims))
        self._handed_over = HandedOver()
        self.pace = PromptPace()
        self._begin(epoch)

    def _begin(self, epoch: int) -> None:
        self.claims = Claims(self._limits, epoch)
        self.streams = Streams(self._runtime.instance, epoch, self._runtime.bus.publish)

    def start(self) -> None:
        self._sender = self._runtime.spawn(self.streams.run(), "streams")

    def start_anew(self, epoch: int) -> None:
        """The fleet has given this life up: so do we, and come back empty-handed. Its streams are told when
        the bus is back."""
        orphans, is_draining = self.streams.live(), self.claims.is_draining
        for attempt in self.claims.attempts():
            self._engine.abort(attempt)
            self._transfers.forget(attempt)
            self._spans.close(attempt, "worker_lost")
            self._metrics.ended(attempt, "worker_lost")
        self._sender.cancel()
        self._begin(epoch)
        self.claims.is_draining = is_draining
        for orphan in orphans:
            self.streams.keep_unsent(
                orphan.events, [Failed(orphan.attempt, "worker_lost", "the worker was cut off")]
            )
        self.start()

    async def offer(self, job: Job, work: Work, msg: Incoming, misfit: str) -> Busy | None:
        """Claim, then hand to the engine; the claim leaves first. ``misfit`` is why this worker could not run
        it, if it cannot."""
        num_tokens = 0 if work.kv is not None else len(work.prompt) + len(work.output)
        epoch = self.claims.epoch
        if code := self.claims.refusal(job.attempt, job.epoch, num_tokens) or misfit:
            self._metrics.refused(code)
            return Busy(worker_id=self._runtime.instance, epoch=epoch, code=code)
        if not self.claims.take(job.attempt, num_tokens):
            return None
        if msg.reply:
            accepted = Accepted(worker_id=self._runtime.instance, epoch=epoch)
            try:
                await self._runtime.bus.publish(msg.reply, codec.encode(accepted))
            except BaseException:
                self.claims.end(job.attempt)
                raise
        if job.attempt in self.claims:  # not aborted meanwhile
            self._spans.open(job, extract(msg.headers))
            self._metrics.began(job)
            self._transfers.began(job)
            self.pace.began(work)
            self.streams.open(job.attempt, job.events, len(work.output))
            self._role.submit(self._engine, work, self._on_output)
        return None

    def prompt_step_s(self) -> float:
        """How long a step may take with the prompts that are queued: see PromptPace."""
        return self.pace.step_s(self.claims.queued_tokens_by_attempt)

    def _on_output(self, output: Output) -> None:
        """The engine's sink."""
        stream = self.streams.get(output.attempt)
        if stream is None:
            return
        self._transfers.on_output(output)
        if output.error:
            self._fail(output.attempt, output.error, output.reason)
            return
        self._spans.on_output(output)
        if not stream.tokens:
            self._metrics.first_output(output)
            self.pace.answered(self.claims.queued_tokens_by_attempt.get(output.attempt, 0), output)
            self.claims.answered(output.attempt)
        if output.kv is not None:
            self._handed_over.remember(stream.attempt, stream.events, output.kv)
        self._role.on_output(self.streams, stream, output)
        if output.finish_reason or self._role.role == "prefill":
            self._end(output.attempt, stream)

    def _end(self, attempt: str, stream: Stream) -> None:
        self.streams.close(stream)
        self.claims.end(attempt)
        self._spans.close(attempt)
        self._metrics.ended(attempt)

    def _fail(self, attempt: str, code: str, reason: str) -> None:
        self._transfers.forget(attempt)
        stream = self.streams.get(attempt)
        if stream is not None:
            self.streams.send(stream, Failed(attempt, code, reason))
            self.streams.close(stream)
        if self.claims.end(attempt):
            self._metrics.ended(attempt, code)
        self._spans.close(attempt, code)

    def fail_all(self, code: str, reason: str) -> list[str]:
        """Tell every stream; returns the attempts that were under way. The engine is told nothing."""
        attempts = self.claims.attempts()
        for attempt in attempts:
            self._fail(attempt, code, reason)
        return attempts

    def abort(self, attempt: str) -> None:
        if attempt in self.claims:
            self._engine.abort(attempt)
            self._transfers.forget(attempt)
            self.streams.drop(attempt)
            self.claims.end(attempt)
            self._spans.close(attempt, CANCELLED)
            self._metrics.ended(attempt, CANCELLED)
        elif (kv := self._handed_over.take(attempt)) is not None:
            self._engine.release(kv)  # done before the abort came: nobody will pull what it left
        else:
            self.claims.remember_abort(attempt)

    def resend(self, attempt: str, position: int, events: str) -> None:
        if not self.streams.resend(attempt, position) and events:
            self.streams.tell(events, Failed(attempt, "attempt_unknown"))

    def leave(self, events: str) -> int:
        """End what was begun for an ingress that is gone; returns how many ran. It is told so, for the case
        that it is not."""
        orphans = [stream.attempt for stream in self.streams.live() if stream.events == events]
        kept = self._handed_over.attempts_of(events)
        for attempt in orphans:
            self.streams.tell(events, Failed(attempt, "worker_lost", "nothing was heard of its ingress"))
        for attempt in (*orphans, *kept):
            self.abort(attempt)
        return len(orphans)

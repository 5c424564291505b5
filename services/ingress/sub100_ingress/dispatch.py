"""Jobs out: ingress publishes every job itself, so that NATS tells it when nobody listens."""

import asyncio
import contextlib
import logging

import msgspec

from sub100_proto import codec, subjects, tokens
from sub100_proto.jobs import Abort, DecodeJob, Ping, PrefillJob, ReleaseKv, Resend
from sub100_proto.kv import KvHandle
from sub100_proto.placement import WorkerRef
from sub100_shared.bus import Bus, BusUnavailable, PayloadTooLarge
from sub100_shared.errors import ClientError
from sub100_shared.ledger import Hop
from sub100_shared.telemetry import Span, inject

from .attempts import Attempt, AttemptTable
from .exchange import Exchange, Prompt
from .strays import Stray

_log = logging.getLogger(__name__)


class Dispatcher:
    """Publishes jobs and controls; owns the claim timers."""

    def __init__(
        self,
        bus: Bus,
        table: AttemptTable,
        *,
        region: str,
        ingress_id: str,
        claim_timeout_ms: float,
        max_buffered: int,
    ) -> None:
        self._bus = bus
        self._table = table
        self._region = region
        self._ingress_id = ingress_id
        self._events = subjects.stream_events(region, ingress_id)
        self._claim_timeout_s = claim_timeout_ms / 1e3
        self._max_buffered = max_buffered

    async def prefill(self, ex: Exchange, prompt: Prompt, worker: WorkerRef, hop: Hop, span: Span) -> Attempt:
        """Publish a prefill job; its events come to the returned attempt."""
        attempt = Attempt(worker, "prefill", 0, self._max_buffered)
        job = PrefillJob(
            attempt=attempt.nonce,
            request_id=ex.request_id,
            events=self._events,
            model=ex.request.model,
            prompt=prompt.packed,
            sampling=prompt.sampling,
            budget=ex.ledger.budget_for(hop),
            epoch=worker.epoch,
            salt=prompt.salt,
        )
        await self._send(attempt, codec.encode(job), span)
        return attempt

    async def decode(
        self, ex: Exchange, prompt: Prompt, worker: WorkerRef, kv: KvHandle | None, hop: Hop, span: Span
    ) -> Attempt:
        """Publish a decode job that goes on after the output so far."""
        attempt = Attempt(worker, "decode", len(ex.output_ids), self._max_buffered)
        sampling = prompt.sampling
        if ex.output_ids and sampling.prompt_logprobs is not None:  # they came with the first token
            sampling = msgspec.structs.replace(sampling, prompt_logprobs=None)
        job = DecodeJob(
            attempt=attempt.nonce,
            request_id=ex.request_id,
            events=self._events,
            model=ex.request.model,
            prompt=prompt.packed,
            sampling=sampling,
            budget=ex.ledger.budget_for(hop),
            epoch=worker.epoch,
            output=tokens.pack(ex.output_ids),
            kv=kv,
            salt=prompt.salt,
        )
        await self._send(attempt, codec.encode(job), span)
        return attempt

    async def end(self, attempt: Attempt) -> None:
        """Fence the attempt and have the worker free what it may still hold for it. Never raises."""
        self._table.remove(attempt)
        if attempt.needs_abort:
            await self._abort(attempt.worker.worker_id, attempt.role, attempt.nonce)

    async def stop(self, stray: Stray) -> None:
        """Have a worker end an attempt that nobody here waits for. Never raises."""
        with contextlib.suppress(subjects.InvalidKey):  # what named itself so is no worker
            await self._abort(stray.worker_id, stray.role, stray.attempt)

    async def release(self, worker: WorkerRef, kv: KvHandle, failed_at: str = "") -> None:
        """Free KV that nobody will pull. Never raises: the lease frees it otherwise. ``failed_at``: see
        ReleaseKv."""
        await self._control(worker.worker_id, "prefill", codec.encode(ReleaseKv(kv=kv, failed_at=failed_at)))

    async def resend(self, attempt: Attempt, position: int) -> None:
        """Ask for tokens that were lost on the way."""
        await self._control(
            attempt.worker.worker_id,
            attempt.role,
            codec.encode(Resend(attempt=attempt.nonce, position=position, events=self._events)),
        )

    async def ping(self, worker_id: str, role: subjects.Role) -> None:
        """Ask a silent worker for a sign of life; it, or NATS in its place, answers on ``stream_pong``."""
        try:
            await self._bus.publish(
                subjects.control(self._region, role, worker_id),
                codec.encode(Ping()),
                reply=subjects.stream_pong(self._region, self._ingress_id, worker_id),
            )
        except BusUnavailable:
            _log.debug("ping not sent: no connection")

    async def _send(self, attempt: Attempt, payload: bytes, span: Span) -> None:
        self._table.add(attempt)
        try:
            await self._bus.publish(
                subjects.job(self._region, attempt.role, attempt.worker.worker_id),
                payload,
                reply=subjects.stream_claim(self._region, self._ingress_id, attempt.nonce),
                headers=inject(span),
            )
        except PayloadTooLarge as error:
            self._table.remove(attempt)
            raise ClientError("request_too_large", str(error), param="messages") from error
        except asyncio.CancelledError:  # the job may leave all the same
            await self.end(attempt)
            raise
        except BaseException:
            self._table.remove(attempt)
            raise
        asyncio.get_running_loop().call_later(self._claim_timeout_s, attempt.lose_unclaimed)

    async def _abort(self, worker_id: str, role: subjects.Role, attempt: str) -> None:
        await self._control(worker_id, role, codec.encode(Abort(attempt=attempt)))

    async def _control(self, worker_id: str, role: subjects.Role, payload: bytes) -> None:
        try:
            await self._bus.publish(subjects.control(self._region, role, worker_id), payload)
        except BusUnavailable:
            _log.debug("control not sent: no connection")

"""The schedule hop: ask for workers, and say what became of them."""

import logging
from typing import Final

import msgspec

from sub100_proto import codec, subjects
from sub100_proto.placement import Placement, PlaceReply, PlaceRequest, Settled, WorkerRef
from sub100_shared import semconv
from sub100_shared.bus import Bus, BusUnavailable, NoResponders, ReplyTimeout
from sub100_shared.clock import Clock
from sub100_shared.errors import Refused
from sub100_shared.telemetry import SpanKind, Telemetry, fail, inject

from .asking import Answer, Asker, Encode
from .exchange import Exchange, Prompt
from .lateness import Lateness
from .patience import Patience
from .replicas import Replicas

_log = logging.getLogger(__name__)

_WEIGHT: Final = 0.2
_UNAVAILABLE: Final = "scheduler_unavailable"


class SchedulerClient:
    """Placements of one region. ``timeout_ms`` bounds one question; a request whose question nobody answers
    asks again, for twice as long each time, for ``patience_ms`` in all: a scheduler that restarts is back by
    then. A stream that has begun has a patience of its own."""

    def __init__(
        self,
        bus: Bus,
        telemetry: Telemetry,
        replicas: Replicas,
        clock: Clock,
        *,
        region: str,
        timeout_ms: float,
        patience_ms: float,
    ) -> None:
        self._bus = bus
        self._telemetry = telemetry
        self._clock = clock
        self._settled_subject = subjects.scheduler_settled(region)
        self._asker = Asker(bus, replicas, subjects.scheduler_place(region), clock, Lateness(), self._abandon)
        self._timeout_ms = timeout_ms
        self._patience_ms = patience_ms
        self.predicted_ttft_ms = 0.0
        """Of the last placements, smoothed."""

    async def start(self) -> None:
        await self._asker.start()

    async def place(
        self, ex: Exchange, prompt: Prompt, avoid: tuple[WorkerRef, ...], kv_at: str = ""
    ) -> Placement:
        """Workers for the request; raises Refused when there are none or nobody can tell.

        A placement that comes back is the caller's to settle. One that may have been made and does not come
        back (late, second, unreadable, the caller cancelled) is settled here: nobody else knows of it.
        """
        hop = ex.ledger.open(semconv.HOP_SCHEDULE)
        span = self._telemetry.start(semconv.SCHEDULE, ex.span, kind=SpanKind.CLIENT)
        headers = inject(span)

        def encode(placement_id: str) -> bytes:
            query = PlaceRequest(
                request_id=ex.request_id,
                tenant=ex.tenant.name,
                model=ex.request.model,
                num_prompt_tokens=prompt.num_tokens,
                block_hashes=prompt.block_hashes,
                max_tokens=prompt.max_tokens,
                budget=ex.ledger.budget_for(hop),
                num_output_tokens=len(ex.output_ids),
                avoid=tuple(worker.worker_id for worker in avoid),
                avoid_epochs=tuple(worker.epoch for worker in avoid),
                decode_alone=ex.request.is_decode_alone or ex.no_hand_over,
                placement_id=placement_id,
                kv_at=kv_at,
            )
            return codec.encode(query)

        own_ms: float | None = None
        try:
            reply = await self._answer(ex, encode, headers)
            own_ms = reply.spent_ms
            if isinstance(reply, Placement):
                if ex.placed_at_ms is None:
                    ex.placed_at_ms = ex.ledger.elapsed_ms()
                    ex.predicted_ttft_ms = reply.predicted_ttft_ms
                span.set_attribute(semconv.PREDICTED_TTFT_MS, round(reply.predicted_ttft_ms, 3))
                self.predicted_ttft_ms += _WEIGHT * (reply.predicted_ttft_ms - self.predicted_ttft_ms)
                return reply
            raise Refused(reply.code, reply.reason, retry_after_s=reply.retry_after_s)
        except Refused as refused:
            fail(span, refused.code)
            raise
        finally:
            ex.close_hop(hop, span, own_ms)

    async def _answer(self, ex: Exchange, encode: Encode, headers: dict[str, str]) -> PlaceReply:
        """A scheduler's; raises Refused when none answers in time."""
        patience = Patience(self._clock, 0 if ex.has_begun else self._patience_ms)
        timeout_ms = self._timeout_ms
        while True:
            try:
                answer = await self._asker.ask(encode, timeout_s=timeout_ms / 1e3, headers=headers)
                return await self._read(answer)
            except NoResponders:
                pass
            except ReplyTimeout:
                timeout_ms *= 2
            await patience.wait(Refused(_UNAVAILABLE, "no scheduler answered"))
            timeout_ms = max(self._timeout_ms, min(timeout_ms, patience.left_ms))

    async def _read(self, answer: Answer) -> PlaceReply:
        try:
            return codec.decode_place_reply(answer.data)
        except msgspec.MsgspecError as error:
            await self._abandon(answer.ask)
            raise Refused(_UNAVAILABLE, "unreadable answer of the scheduler") from error

    async def settle(self, settled: Settled) -> None:
        """Tell the schedulers what became of a placement. Never raises: it also ends by itself."""
        try:
            await self._bus.publish(self._settled_subject, codec.encode(settled))
        except BusUnavailable:
            _log.debug("settled not sent: no connection")

    async def _abandon(self, placement_id: str) -> None:
        await self.settle(Settled(placement_id=placement_id, phase="all", ok=False))

"""The schedule hop: ask for workers, and say what became of them."""

import asyncio
import itertools
import logging
import secrets
from typing import Final

import msgspec

from sub100_proto import codec, subjects
from sub100_proto.placement import Placement, PlaceRequest, Settled, WorkerRef
from sub100_shared import semconv
from sub100_shared.bus import Bus, BusUnavailable, NoResponders, ReplyTimeout
from sub100_shared.errors import Refused
from sub100_shared.telemetry import SpanKind, Telemetry, fail, inject

from .exchange import Exchange, Prompt

_log = logging.getLogger(__name__)

_WEIGHT: Final = 0.2


class SchedulerClient:
    """Placements of one region."""

    def __init__(self, bus: Bus, telemetry: Telemetry, *, region: str, timeout_ms: float) -> None:
        self._bus = bus
        self._telemetry = telemetry
        self._subject = subjects.scheduler_place(region)
        self._settled_subject = subjects.scheduler_settled(region)
        # A restarted process has the same name and starts to count anew.
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count()
        self._timeout_s = timeout_ms / 1e3
        self.predicted_ttft_ms = 0.0
        """Of the last placements, smoothed."""

    async def place(
        self, ex: Exchange, prompt: Prompt, avoid: tuple[WorkerRef, ...], kv_at: str = ""
    ) -> Placement:
        """Workers for the request; raises Refused when there are none or nobody can tell.

        A placement that comes back is the caller's to settle. One that may have been made and does not come
        back (late, unreadable, the caller cancelled) is settled here: nobody else knows of it.
        """
        placement_id = f"{self._prefix}-{next(self._numbers):x}"
        hop = ex.ledger.open(semconv.HOP_SCHEDULE)
        span = self._telemetry.start(semconv.SCHEDULE, ex.span, kind=SpanKind.CLIENT)
        own_ms: float | None = None
        try:
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
            msg = await self._bus.request(
                self._subject, codec.encode(query), timeout_s=self._timeout_s, headers=inject(span)
            )
            reply = codec.decode_place_reply(msg.data)
            own_ms = reply.spent_ms
            if isinstance(reply, Placement):
                if ex.placed_at_ms is None:
                    ex.placed_at_ms = ex.ledger.elapsed_ms()
                    ex.predicted_ttft_ms = reply.predicted_ttft_ms
                span.set_attribute(semconv.PREDICTED_TTFT_MS, round(reply.predicted_ttft_ms, 3))
                self.predicted_ttft_ms += _WEIGHT * (reply.predicted_ttft_ms - self.predicted_ttft_ms)
                return reply
            fail(span, reply.code)
            raise Refused(reply.code, reply.reason, retry_after_s=reply.retry_after_s)
        except asyncio.CancelledError:
            await self._abandon(placement_id)
            raise
        except (NoResponders, ReplyTimeout) as error:
            fail(span, "scheduler_unavailable")
            if isinstance(error, ReplyTimeout):
                await self._abandon(placement_id)
            raise Refused("scheduler_unavailable", "no scheduler answered") from error
        except msgspec.MsgspecError as error:
            fail(span, "scheduler_unavailable")
            await self._abandon(placement_id)
            raise Refused("scheduler_unavailable", "unreadable answer of the scheduler") from error
        finally:
            ex.close_hop(hop, span, own_ms)

    async def settle(self, settled: Settled) -> None:
        """Tell the schedulers what became of a placement. Never raises: it also ends by itself."""
        try:
            await self._bus.publish(self._settled_subject, codec.encode(settled))
        except BusUnavailable:
            _log.debug("settled not sent: no connection")

    async def _abandon(self, placement_id: str) -> None:
        await self.settle(Settled(placement_id=placement_id, phase="all", ok=False))

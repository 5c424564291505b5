"""From a tokenised prompt to text: place, prefill, hand over, decode; again elsewhere on loss.

Steps 5 to 8 of ARCHITECTURE. The first token is written before the decode job leaves; from then on
prefill's worker is out of the picture, unless the KV is needed again. All waiting is bounded: by claim
timers, by the watchdog (which loses attempts of dead or silent workers), by ``max_attempts`` in a row that
brought no token, and by the patience of a stream that has begun with whoever refuses it.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from sub100_proto.kv import KvHandle
from sub100_proto.placement import Placement, Settled, WorkerRef
from sub100_proto.sampling import Sampling
from sub100_proto.stream import FirstToken, Timing, Tokens
from sub100_proto.subjects import Role
from sub100_shared import semconv
from sub100_shared.bus import BusUnavailable
from sub100_shared.clock import Clock
from sub100_shared.errors import CLIENT_CODES, ClientError, Evicted, Refused
from sub100_shared.telemetry import Span, SpanKind, Telemetry, fail

from .attempts import Attempt, AttemptLost
from .dispatch import Dispatcher
from .exchange import Exchange, Prompt
from .patience import Patience
from .placing import SchedulerClient
from .scored_text import assembler, score_prompt
from .text import ScoredToken, TextAssembler
from .tokenizer import ModelTokenizer

_log = logging.getLogger(__name__)

_KV_GONE = frozenset({"kv_load_failed", "kv_expired"})
_ANY_TOKEN = Sampling(max_tokens=2, temperature=0.0, ignore_eos=True)
"""For a prompt whose KV is needed once more: its first token was delivered long ago, so that any will do."""


class Delivery(Protocol):
    """Where text goes: an SSE stream or a collected body. Awaiting it is the backpressure."""

    async def text(self, text: str, scored: Sequence[ScoredToken] = ()) -> None: ...

    async def keep_alive(self) -> None: ...


class Generator:
    """Runs one request at a time per call; holds no state of requests."""

    def __init__(
        self,
        scheduler: SchedulerClient,
        dispatcher: Dispatcher,
        tokenizer: ModelTokenizer,
        telemetry: Telemetry,
        *,
        max_attempts: int,
        clock: Clock,
        patience_ms: float,
    ) -> None:
        self._scheduler = scheduler
        self._dispatcher = dispatcher
        self._tokenizer = tokenizer
        self._telemetry = telemetry
        self._max_attempts = max_attempts
        self._clock = clock
        self._patience_ms = patience_ms

    async def run(
        self, ex: Exchange, prompt: Prompt, out: Delivery, placement: Placement | None = None
    ) -> None:
        """Deliver the whole answer and set ``ex.finish_reason``; raises Refused, Evicted, ClientError.

        ``placement`` is where to begin, if the caller has asked already; it is the caller's to settle.
        Cancellation (the client left) frees engine and KV before it propagates.
        """
        text = assembler(self._tokenizer, ex.request)
        given = placement
        handover: _Handover | None = None
        patience = Patience(self._clock, self._patience_ms)
        num_fruitless = 0
        gone: set[WorkerRef] = set()
        try:
            while not ex.finish_reason:
                try:
                    if placement is None:
                        kv_at = "" if handover is None else handover.worker.worker_id
                        placement = await self._scheduler.place(ex, prompt, ex.avoid, kv_at)
                except Refused as refused:
                    await _hold_on(ex, patience, refused)
                    continue
                ex.num_attempts += 1
                num_known = len(ex.output_ids)
                is_done = False
                is_alone = handover is not None or ex.request.is_decode_alone
                prefill = None if is_alone else placement.prefill
                try:
                    if prefill is not None:
                        is_again = bool(ex.output_ids)
                        asked = msgspec.structs.replace(prompt, sampling=_ANY_TOKEN) if is_again else prompt
                        first = await self._prefill(ex, asked, prefill, out)
                        if first.kv is not None:
                            handover = _Handover(prefill, first.kv, is_again=is_again)
                        if not is_again:
                            ids = () if first.finish_reason == "stop" else (first.token,)
                            await self._deliver(ex, ids, first.logprobs, first.finish_reason, text, out)
                        num_computed = prompt.num_tokens - first.cached_tokens
                        await self._settle_prefill(placement, prefill, "prefill", first.timing, num_computed)
                    if not ex.finish_reason:
                        is_settled = prefill is not None
                        await self._decode(ex, prompt, placement, handover, text, out, is_settled=is_settled)
                    is_done = True
                except BusUnavailable as refused:  # no job of this attempt has left
                    await _hold_on(ex, patience, refused)
                    ex.num_attempts -= 1
                except AttemptLost as lost:
                    ex.losses.append(lost.code)
                    self._log_loss(ex, lost)
                    if lost.code in CLIENT_CODES:
                        raise _client_error(ex, lost) from lost
                    if lost.code in _KV_GONE:
                        if handover is not None:
                            failed_at = lost.worker.worker_id if lost.code == "kv_load_failed" else ""
                            await self._dispatcher.release(handover.worker, handover.kv, failed_at)
                            ex.no_hand_over |= bool(failed_at) or handover.is_again
                        handover = None
                    elif lost.code != "attempt_unknown":  # the job was lost on the way, not the worker
                        ex.avoid = (*ex.avoid, lost.worker)
                    if handover is not None and handover.is_pulled:  # and with it what it had pulled
                        handover = None
                    if lost.is_gone and lost.worker not in gone:
                        # Several may be gone at once (their machine is): each is met once, and at once.
                        gone.add(lost.worker)
                        continue
                    if lost.elsewhere and lost.is_refusal and ex.has_begun:
                        await _hold_on(ex, patience, _not_taken(lost))
                        continue
                    patience.placed()
                    num_fruitless = 0 if len(ex.output_ids) > num_known else num_fruitless + 1
                    if not lost.elsewhere or num_fruitless >= self._max_attempts:
                        if lost.is_refusal:
                            raise _not_taken(lost) from lost
                        raise Evicted(lost.code, f"the worker was lost ({lost.code})") from lost
                finally:
                    if placement is not given:
                        await self._settle(placement, ok=is_done)
                    placement = None
        finally:
            if handover is not None and not handover.is_pulled:
                await self._dispatcher.release(handover.worker, handover.kv)

    @contextlib.asynccontextmanager
    async def placed(self, ex: Exchange, prompt: Prompt) -> AsyncIterator[Placement]:
        """A placement that several answers begin with, settled when all have ended."""
        placement = await self._scheduler.place(ex, prompt, ())
        is_done = False
        try:
            yield placement
            is_done = True
        finally:
            await self._settle(placement, ok=is_done)

    async def _prefill(self, ex: Exchange, prompt: Prompt, worker: WorkerRef, out: Delivery) -> FirstToken:
        """The prompt is computed and its first token is here; nothing is delivered yet."""
        hop = ex.ledger.open(semconv.HOP_PREFILL)
        span = self._span(semconv.PREFILL, ex, worker)
        attempt: Attempt | None = None
        own_ms: float | None = None
        try:
            attempt = await self._dispatcher.prefill(ex, prompt, worker, hop, span)
            first = await self._first(attempt, out)
            own_ms = first.timing.queue_ms + first.timing.compute_ms
            self._note_cached(ex, first.cached_tokens, span)
            return first
        except AttemptLost as lost:
            fail(span, lost.code)
            raise
        finally:
            ex.close_hop(hop, span, own_ms)
            if attempt is not None:
                await self._dispatcher.end(attempt)

    async def _decode(
        self,
        ex: Exchange,
        prompt: Prompt,
        placement: Placement,
        handover: "_Handover | None",
        text: TextAssembler,
        out: Delivery,
        *,
        is_settled: bool,
    ) -> None:
        """Everything after the output so far. Whoever had no prefill worker before it settles the prompt's
        share with its first token: the worker has computed the prompt, or pulled it."""
        worker = placement.decode
        first_content = not ex.output_ids
        hop = ex.ledger.open(semconv.HOP_DECODE if ex.output_ids else semconv.HOP_PREFILL)
        span = self._span(semconv.DECODE, ex, worker)
        source = None if handover is None or handover.is_pulled else handover
        kv = None if source is None else source.kv
        attempt: Attempt | None = None
        own_ms: float | None = None
        try:
            attempt = await self._dispatcher.decode(ex, prompt, worker, kv, hop, span)
            attempt.source = None if source is None else source.worker
            while not ex.finish_reason:
                event = await self._next(attempt, out)
                if event.timing is not None:
                    own_ms = event.timing.queue_ms + event.timing.transfer_ms + event.timing.compute_ms
                    if handover is not None:
                        handover.is_pulled = True
                    ex.num_transferred_tokens += event.transferred_tokens
                    if first_content:
                        ex.ledger.close(hop, own_ms)
                        self._note_cached(ex, event.cached_tokens, span)
                        if prompt.sampling.prompt_logprobs is not None:
                            await score_prompt(self._tokenizer, ex, prompt, event.prompt_logprobs, text)
                await self._deliver(ex, event.ids, event.logprobs, event.finish_reason, text, out)
                if event.timing is not None and not is_settled:
                    num_computed = 0 if kv is not None else prompt.num_tokens - event.cached_tokens
                    await self._settle_prefill(placement, worker, "decode", event.timing, num_computed)
        except AttemptLost as lost:
            fail(span, lost.code)
            raise
        finally:
            span.set_attribute(semconv.TRANSFERRED_TOKENS, ex.num_transferred_tokens)
            ex.close_hop(hop, span, own_ms)
            if attempt is not None:
                await self._dispatcher.end(attempt)

    async def _deliver(
        self,
        ex: Exchange,
        ids: Sequence[int],
        rows: bytes,
        finish_reason: str,
        text: TextAssembler,
        out: Delivery,
    ) -> None:
        """Tokens to text to the client. A stop string ends the answer whatever the engine says."""
        ex.output_ids.extend(ids)
        piece = text.push(ids, rows) if ids else ""
        if text.is_stopped:
            finish_reason = "stop"
        elif finish_reason:
            piece += text.finish()
            if text.is_stopped:
                finish_reason = "stop"
        ex.num_completion_tokens = text.num_tokens
        scored = text.take_scored()
        if piece or scored:
            ex.pieces.append(piece)
            await out.text(piece, scored)
        ex.finish_reason = finish_reason

    async def _first(self, attempt: Attempt, out: Delivery) -> FirstToken:
        while True:
            event = await attempt.next()
            if isinstance(event, FirstToken):
                return event
            await self._on_wake(attempt, out)

    async def _next(self, attempt: Attempt, out: Delivery) -> Tokens:
        while True:
            event = await attempt.next()
            if isinstance(event, Tokens):
                return event
            await self._on_wake(attempt, out)

    async def _on_wake(self, attempt: Attempt, out: Delivery) -> None:
        """Woken without an event: tokens are missing, or the client needs to hear something."""
        position = attempt.take_gap()
        if position is None:
            await out.keep_alive()
        else:
            await self._dispatcher.resend(attempt, position)

    async def _settle(self, placement: Placement, *, ok: bool) -> None:
        await self._scheduler.settle(Settled(placement_id=placement.placement_id, phase="all", ok=ok))

    async def _settle_prefill(
        self, placement: Placement, worker: WorkerRef, role: Role, timing: Timing, num_computed: int
    ) -> None:
        """The prompt is no longer queued at ``worker``; its time teaches the predictor."""
        await self._scheduler.settle(
            Settled(
                placement_id=placement.placement_id,
                phase="prefill",
                worker_id=worker.worker_id,
                role=role,
                prefill_ms=timing.compute_ms,
                num_computed_tokens=num_computed,
            )
        )

    @staticmethod
    def _note_cached(ex: Exchange, num_cached: int, span: Span) -> None:
        span.set_attribute(semconv.CACHED_TOKENS, num_cached)
        if not ex.output_ids:
            ex.num_cached_tokens = num_cached
            ex.tier = semconv.TIER_WARM if num_cached else semconv.TIER_COLD

    @staticmethod
    def _log_loss(ex: Exchange, lost: AttemptLost) -> None:
        _log.info(
            "attempt lost",
            extra={"request_id": ex.request_id, "worker": lost.worker.worker_id, "code": lost.code},
        )

    def _span(self, name: str, ex: Exchange, worker: WorkerRef) -> Span:
        return self._telemetry.start(
            name, ex.span, kind=SpanKind.PRODUCER, attributes={semconv.WORKER: worker.worker_id}
        )


async def _hold_on(ex: Exchange, patience: Patience, refused: Refused) -> None:
    """A stream that has begun waits a moment for what may come; raises ``refused`` for any other, and when
    its patience has ended."""
    if not ex.has_begun:
        raise refused
    await patience.wait(refused)
    if patience.is_wearing:
        ex.avoid = ()


def _not_taken(lost: AttemptLost) -> Refused:
    return Refused(lost.code, "no worker has taken the job: nothing was done, try again")


def _client_error(ex: Exchange, lost: AttemptLost) -> ClientError:
    """What only a worker could find wrong with the request."""
    if lost.code == "slow_client":
        return ClientError(lost.code, "the client reads too slowly")
    param = ex.request.structured_param if lost.code == "invalid_grammar" else None
    reason = lost.reason or "the engine refuses the request"
    return ClientError(lost.code, f"{param}: {reason}" if param else reason, param=param)


class _Handover:
    """KV that waits at a prefill worker until decode has pulled it."""

    def __init__(self, worker: WorkerRef, kv: KvHandle, *, is_again: bool = False) -> None:
        self.worker = worker
        self.kv = kv
        self.is_again = is_again
        self.is_pulled = False

"""From a tokenised prompt to text: place, prefill, hand over, decode; again elsewhere on loss.

Steps 5 to 8 of ARCHITECTURE. The first token is written before the decode job leaves; from then on
prefill's worker is out of the picture, unless the KV is needed again. All waiting is bounded: by claim
timers, by the watchdog (which loses attempts of dead or silent workers), by what a lost attempt allows
(``replacement``), and by the patience of a stream that has begun with whoever refuses it.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from sub100_proto.kv import KvHandle
from sub100_proto.placement import Placement, Settled, WorkerRef
from sub100_proto.sampling import Sampling
from sub100_proto.stream import FirstToken, Timing, Tokens
from sub100_proto.subjects import Role
from sub100_shared import semconv
from sub100_shared.bus import BusUnavailable
from sub100_shared.clock import Clock
from sub100_shared.errors import Refused
from sub100_shared.telemetry import Span, SpanKind, Telemetry, fail

from .attempts import Attempt, AttemptLost
from .dispatch import Dispatcher
from .exchange import Exchange, Prompt
from .patience import Patience
from .placing import SchedulerClient
from .replacement import Replacement, Then, error_of, is_kv_gone, is_to_avoid, not_taken, puller_at_fault
from .scored_text import assembler, score_prompt
from .text import ScoredToken
from .tokenizer import ModelTokenizer

_log = logging.getLogger(__name__)

E = TypeVar("E", FirstToken, Tokens)

_ANY_TOKEN: Final = Sampling(max_tokens=2, temperature=0.0, ignore_eos=True)
"""For a prompt whose KV is needed once more: its first token was delivered long ago, so that any will do."""


class Delivery(Protocol):
    """Where text goes: an SSE stream or a collected body. Awaiting it is the backpressure."""

    async def text(self, text: str, scored: Sequence[ScoredToken] = ()) -> None: ...

    async def keep_alive(self) -> None: ...


class Generator:
    """Answers prompts, as many at a time as there are calls; holds no state of requests."""

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
        self.scheduler = scheduler
        self.dispatcher = dispatcher
        self.tokenizer = tokenizer
        self.telemetry = telemetry
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
        replacement = Replacement(self._max_attempts)
        patience = Patience(self._clock, self._patience_ms)
        await _Answer(self, ex, prompt, out, replacement, patience).run(placement)

    @contextlib.asynccontextmanager
    async def placed(self, ex: Exchange, prompt: Prompt) -> AsyncIterator[Placement]:
        """A placement that several answers begin with, settled when all have ended."""
        placement = await self.scheduler.place(ex, prompt, ())
        is_done = False
        try:
            yield placement
            is_done = True
        finally:
            await self.settle(placement, ok=is_done)

    async def settle(self, placement: Placement, *, ok: bool) -> None:
        await self.scheduler.settle(Settled(placement_id=placement.placement_id, phase="all", ok=ok))


class _Handover:
    """KV that waits at a prefill worker until decode has pulled it. ``is_again``: it was computed once more,
    for a stream that had lost it."""

    def __init__(self, worker: WorkerRef, kv: KvHandle, *, is_again: bool) -> None:
        self.worker = worker
        self.kv = kv
        self.is_again = is_again
        self.is_pulled = False


class _Answer:
    """One answer on its way: its text so far, and what waits for it elsewhere."""

    def __init__(
        self,
        generator: Generator,
        ex: Exchange,
        prompt: Prompt,
        out: Delivery,
        replacement: Replacement,
        patience: Patience,
    ) -> None:
        self._generator = generator
        self._dispatcher = generator.dispatcher
        self._ex = ex
        self._prompt = prompt
        self._out = out
        self._text = assembler(generator.tokenizer, ex.request)
        self._replacement = replacement
        self._patience = patience
        self._handover: _Handover | None = None
        self._num_known = 0
        """Output tokens before the last attempt."""

    async def run(self, placement: Placement | None) -> None:
        try:
            trouble = None if placement is None else await self._try(placement)
            while not self._ex.finish_reason:
                if trouble is not None:
                    await self._get_over(trouble)
                trouble = await self._place_and_try()
        finally:
            await self._drop_kv()

    async def _place_and_try(self) -> "Refused | AttemptLost | None":
        """Ask for a place and make an attempt there; returns why there is no whole answer."""
        kv_at = "" if self._handover is None else self._handover.worker.worker_id
        try:
            placement = await self._generator.scheduler.place(self._ex, self._prompt, self._ex.avoid, kv_at)
        except Refused as refused:
            return refused
        try:
            return await self._try(placement)
        finally:
            await self._generator.settle(placement, ok=bool(self._ex.finish_reason))

    async def _try(self, placement: Placement) -> "Refused | AttemptLost | None":
        self._num_known = len(self._ex.output_ids)
        self._ex.num_attempts += 1
        try:
            await self._attempt(placement)
        except BusUnavailable as refused:  # no job has left
            self._ex.num_attempts -= 1
            return refused
        except AttemptLost as lost:
            return lost
        return None

    async def _attempt(self, placement: Placement) -> None:
        """Prefill at one worker and decode at another, or all of it at one. Raises AttemptLost."""
        is_alone = self._handover is not None or self._ex.request.is_decode_alone
        prefill = None if is_alone else placement.prefill
        if prefill is not None:
            await self._prefill(placement, prefill)
        if not self._ex.finish_reason:
            await self._decode(placement, is_settled=prefill is not None)

    async def _get_over(self, trouble: "Refused | AttemptLost") -> None:
        """Another attempt may be made when this returns; raises what the client is told if none may."""
        if isinstance(trouble, Refused):
            await self._hold_on(trouble)
        else:
            await self._get_over_loss(trouble)

    async def _get_over_loss(self, lost: AttemptLost) -> None:
        ex = self._ex
        ex.losses.append(lost.code)
        self._log_loss(lost)
        if is_kv_gone(lost):
            failed_at = puller_at_fault(lost)
            if self._handover is not None:
                ex.no_hand_over |= bool(failed_at) or self._handover.is_again
            await self._drop_kv(failed_at)
        if is_to_avoid(lost):
            ex.avoid = (*ex.avoid, lost.worker)
        if self._handover is not None and self._handover.is_pulled:  # lost with the worker that pulled it
            self._handover = None
        if not lost.is_refusal:
            self._patience.placed()
        is_fruitful = len(ex.output_ids) > self._num_known
        match self._replacement.after(lost, has_begun=ex.has_begun, is_fruitful=is_fruitful):
            case Then.AFTER_A_PAUSE:
                await self._hold_on(not_taken(lost))
            case Then.THE_END:
                raise error_of(lost, ex.request.structured_param) from lost

    async def _hold_on(self, refused: Refused) -> None:
        """A stream that has begun waits a moment for what may come; raises ``refused`` for any other, and
        when its patience has ended."""
        if not self._ex.has_begun:
            raise refused
        await self._patience.wait(refused)
        if self._patience.is_wearing:
            self._ex.avoid = ()

    async def _drop_kv(self, failed_at: str = "") -> None:
        """Nobody pulls it any more. ``failed_at``: see ReleaseKv."""
        handover, self._handover = self._handover, None
        if handover is not None and not handover.is_pulled:
            await self._dispatcher.release(handover.worker, handover.kv, failed_at)

    async def _prefill(self, placement: Placement, worker: WorkerRef) -> None:
        """The prompt is computed, its first token delivered, its KV waits. A stream that has lost its KV has
        had that token long ago."""
        ex = self._ex
        is_again = bool(ex.output_ids)
        prompt = msgspec.structs.replace(self._prompt, sampling=_ANY_TOKEN) if is_again else self._prompt
        first = await self._first_token(prompt, worker)
        if first.kv is not None:
            self._handover = _Handover(worker, first.kv, is_again=is_again)
        if not is_again:
            ids = () if first.finish_reason == "stop" else (first.token,)
            await self._deliver(ids, first.logprobs, first.finish_reason)
        num_computed = self._prompt.num_tokens - first.cached_tokens
        await self._settle_prefill(placement, worker, "prefill", first.timing, num_computed)

    async def _first_token(self, prompt: Prompt, worker: WorkerRef) -> FirstToken:
        ex = self._ex
        hop = ex.ledger.open(semconv.HOP_PREFILL)
        span = self._span(semconv.PREFILL, worker)
        attempt: Attempt | None = None
        own_ms: float | None = None
        try:
            attempt = await self._dispatcher.prefill(ex, prompt, worker, hop, span)
            first = await self._next(attempt, FirstToken)
            own_ms = first.timing.queue_ms + first.timing.compute_ms
            self._note_cached(first.cached_tokens, span)
            return first
        except AttemptLost as lost:
            fail(span, lost.code)
            raise
        finally:
            ex.close_hop(hop, span, own_ms)
            if attempt is not None:
                await self._dispatcher.end(attempt)

    async def _decode(self, placement: Placement, *, is_settled: bool) -> None:
        """Everything after the output so far. Whoever had no prefill worker before it settles the prompt's
        share with its first token: the worker has computed the prompt, or pulled it."""
        ex, prompt, worker = self._ex, self._prompt, placement.decode
        first_content = not ex.output_ids
        hop = ex.ledger.open(semconv.HOP_DECODE if ex.output_ids else semconv.HOP_PREFILL)
        span = self._span(semconv.DECODE, worker)
        source = None if self._handover is None or self._handover.is_pulled else self._handover
        kv = None if source is None else source.kv
        attempt: Attempt | None = None
        own_ms: float | None = None
        try:
            attempt = await self._dispatcher.decode(ex, prompt, worker, kv, hop, span)
            attempt.source = None if source is None else source.worker
            while not ex.finish_reason:
                event = await self._next(attempt, Tokens)
                if event.timing is not None:
                    own_ms = event.timing.queue_ms + event.timing.transfer_ms + event.timing.compute_ms
                    if source is not None:
                        source.is_pulled = True
                    ex.num_transferred_tokens += event.transferred_tokens
                    if first_content:
                        ex.ledger.close(hop, own_ms)
                        self._note_cached(event.cached_tokens, span)
                        if prompt.sampling.prompt_logprobs is not None:
                            tokenizer = self._generator.tokenizer
                            await score_prompt(tokenizer, ex, prompt, event.prompt_logprobs, self._text)
                await self._deliver(event.ids, event.logprobs, event.finish_reason)
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

    async def _deliver(self, ids: Sequence[int], rows: bytes, finish_reason: str) -> None:
        """Tokens to text to the client. A stop string ends the answer whatever the engine says."""
        ex, text = self._ex, self._text
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
            await self._out.text(piece, scored)
        ex.finish_reason = finish_reason

    async def _next(self, attempt: Attempt, kind: type[E]) -> E:
        """The attempt's next event. Woken without one, tokens are missing, or the client needs to hear
        something."""
        while True:
            event = await attempt.next()
            if isinstance(event, kind):
                return event
            position = attempt.take_gap()
            if position is None:
                await self._out.keep_alive()
            else:
                await self._dispatcher.resend(attempt, position)

    async def _settle_prefill(
        self, placement: Placement, worker: WorkerRef, role: Role, timing: Timing, num_computed: int
    ) -> None:
        """The prompt is no longer queued at ``worker``; its time teaches the predictor."""
        await self._generator.scheduler.settle(
            Settled(
                placement_id=placement.placement_id,
                phase="prefill",
                worker_id=worker.worker_id,
                role=role,
                prefill_ms=timing.compute_ms,
                num_computed_tokens=num_computed,
            )
        )

    def _note_cached(self, num_cached: int, span: Span) -> None:
        span.set_attribute(semconv.CACHED_TOKENS, num_cached)
        if not self._ex.output_ids:
            self._ex.num_cached_tokens = num_cached
            self._ex.tier = semconv.TIER_WARM if num_cached else semconv.TIER_COLD

    def _log_loss(self, lost: AttemptLost) -> None:
        _log.info(
            "attempt lost",
            extra={"request_id": self._ex.request_id, "worker": lost.worker.worker_id, "code": lost.code},
        )

    def _span(self, name: str, worker: WorkerRef) -> Span:
        return self._generator.telemetry.start(
            name, self._ex.span, kind=SpanKind.PRODUCER, attributes={semconv.WORKER: worker.worker_id}
        )

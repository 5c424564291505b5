"""Where a request runs: filter -> score -> pick, without I/O, clock or state of its own.

**Filter**: ready, heard of lately, serves the model, has not failed this request, the context fits, there
is room by its own book. **Score**: a prefill worker by its predicted time to first token; a decode worker
by its pressure (batch and KV in use) less a credit for blocks that it need not pull. **Pick**: among
those about as good as the best, the one with the least in flight; then the better prefix; then chance.

The decode worker computes the prompt itself where it holds all but a little of it and its own prefill is
predicted to be done before a prefill worker's token would have been handed over.

A stream that goes on elsewhere needs the KV of its prompt again: a pair, where a prefill worker still has it
and hands it over sooner than the decode worker computes it.

A worker whose KV transfers fail is in no pair. Decode workers still compute prompts themselves: for requests
that need no hand-over, and for all where no other decode worker is left.

A pair never spans pools. Of several pools the one that overruns the remaining budget least wins, then the
one under less decode pressure, then the faster.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from sub100_proto.placement import Placement, PlaceRequest, Rejected, WorkerRef

from .fleet import WorkerView
from .predictor import Predictor

NEAR_MS: Final = 1.0
NEAR_SHARE: Final = 0.05
NEAR_PRESSURE: Final = 0.01
MAX_CREDIT: Final = 0.25
_CREDIT_PER_MS: Final = 0.01
RETRY_NO_WORKER_S: Final = 5.0
RETRY_STARTING_S: Final = 2.0
RETRY_FAILED_S: Final = 1.0
MIN_RETRY_S: Final = 0.1
MAX_RETRY_S: Final = 30.0

PAIR: Final = "pair"
SHORT: Final = "short_uncached"
RESUMED: Final = "resumed"
ASKED: Final = "asked_for"
NO_PREFILL: Final = "no_prefill_worker"
NO_TRANSFER: Final = "kv_transfers_fail"
"""Why the decode worker computes the prompt, or does not."""

Chance = Callable[[], float]
"""Uniform in [0, 1)."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """See SchedulerConfig for the meaning."""

    max_queue_factor: float
    decode_alone_tokens: int
    transfer_ms_per_token: float
    handover_ms: float
    max_stall_ms: float


class _Scored(msgspec.Struct, frozen=True, gc=False):
    worker: WorkerView
    score: float
    cached_tokens: int


class _Option(msgspec.Struct, frozen=True):
    """A way to serve the request within one pool."""

    prefill: _Scored | None
    decode: _Scored
    ttft_ms: float
    why: str


class _Field:
    """The candidates of one pool, and what was left out for want of room."""

    __slots__ = ("decodes", "full_decodes", "full_prefills", "prefills")

    def __init__(self) -> None:
        self.prefills: list[WorkerView] = []
        self.decodes: list[WorkerView] = []
        self.full_prefills: list[WorkerView] = []
        self.full_decodes: list[WorkerView] = []

    def leave_out_full(self, request: PlaceRequest, rules: Rules) -> None:
        """A decode worker that has to compute the prompt queues it; KV that it pulls takes a place only."""
        is_alone = not request.kv_at and (request.decode_alone or not self.prefills)
        self.prefills, self.full_prefills = _part(
            self.prefills, lambda worker: worker.is_full(request.num_prompt_tokens)
        )
        self.decodes, self.full_decodes = _part(
            self.decodes,
            lambda worker: (
                worker.num_requests >= rules.max_queue_factor * worker.heartbeat.max_num_seqs
                or worker.is_full(_num_tokens(request) if is_alone or worker.heartbeat.kv_fault else 0)
            ),
        )


def place(
    workers: Sequence[WorkerView],
    matched: Mapping[str, int],
    request: PlaceRequest,
    predictor: Predictor,
    rules: Rules,
    *,
    now_ms: float,
    placement_id: str,
    chance: Chance,
) -> Placement | Rejected:
    """Decide. ``matched`` holds the leading blocks of the prompt that each worker has (absent: none)."""
    fields = _filter(workers, request, rules, now_ms)
    scorer = _Scorer(matched, request, predictor, rules, chance)
    options = [option for field in fields.values() if (option := scorer.best_of(field)) is not None]
    if not options:
        return _reject(workers, fields.values(), request, predictor, now_ms)
    if request.kv_at:
        kv_pool = next((worker.heartbeat.pool for worker in workers if worker.worker_id == request.kv_at), "")
        options = [o for o in options if o.decode.worker.heartbeat.pool == kv_pool] or options
    chosen = options[0] if len(options) == 1 else min(options, key=scorer.rank)
    prefill, decode = chosen.prefill, chosen.decode
    return Placement(
        placement_id=placement_id,
        decode=_ref(decode.worker),
        prefill=None if prefill is None else _ref(prefill.worker),
        cached_tokens_prefill=0 if prefill is None else prefill.cached_tokens,
        cached_tokens_decode=decode.cached_tokens,
        predicted_ttft_ms=chosen.ttft_ms,
        why=chosen.why,
    )


def num_uncached_tokens(request: PlaceRequest, placement: Placement) -> int:
    """What the placement puts into the queue of the worker that computes the prompt."""
    if request.kv_at:
        return 0
    if placement.prefill is not None:
        return request.num_prompt_tokens - placement.cached_tokens_prefill
    return _num_tokens(request) - placement.cached_tokens_decode


def num_queued_tokens(request: PlaceRequest, placement: Placement) -> int:
    """What it puts into that worker's book, who does not know what of it is cached when it takes the job."""
    if request.kv_at:
        return 0
    return _num_tokens(request) if placement.prefill is None else request.num_prompt_tokens


def _filter(
    workers: Sequence[WorkerView], request: PlaceRequest, rules: Rules, now_ms: float
) -> dict[str, _Field]:
    """Candidates by pool."""
    fields: dict[str, _Field] = {}
    for worker in workers:
        beat = worker.heartbeat
        if not _may_serve(worker, request, now_ms) or not _fits(worker, request):
            continue
        if beat.role == "prefill" and beat.kv_fault:
            continue
        field = fields.get(beat.pool)
        if field is None:
            field = fields[beat.pool] = _Field()
        (field.prefills if beat.role == "prefill" else field.decodes).append(worker)
    for field in fields.values():
        field.leave_out_full(request, rules)
    return fields


def _part(
    workers: Sequence[WorkerView], is_full: Callable[[WorkerView], bool]
) -> tuple[list[WorkerView], list[WorkerView]]:
    """Those with room, and the full ones."""
    parts: tuple[list[WorkerView], list[WorkerView]] = [], []
    for worker in workers:
        parts[is_full(worker)].append(worker)
    return parts


def _may_serve(worker: WorkerView, request: PlaceRequest, now_ms: float) -> bool:
    beat = worker.heartbeat
    return (
        beat.state == "ready"
        and beat.model == request.model
        and not request.avoids(beat.worker_id, beat.epoch)
        and not worker.has_lapsed(now_ms)
    )


def _fits(worker: WorkerView, request: PlaceRequest) -> bool:
    """There is room for at least one more token."""
    return _num_tokens(request) < worker.heartbeat.max_model_len


def _num_tokens(request: PlaceRequest) -> int:
    """What a worker computes that has nothing of it."""
    return request.num_prompt_tokens + request.num_output_tokens


class _Scorer:
    """Scores the candidates of one request."""

    def __init__(
        self,
        matched: Mapping[str, int],
        request: PlaceRequest,
        predictor: Predictor,
        rules: Rules,
        chance: Chance,
    ) -> None:
        self._matched = matched
        self._request = request
        self._predictor = predictor
        self._rules = rules
        self._chance = chance

    def best_of(self, field: _Field) -> _Option | None:
        """The pool's best pair; decode alone where KV waits for it, where it is asked for, for a pool without
        workers to pair, and where that is cheaper than a hand-over."""
        if not field.decodes:
            return None
        if self._request.kv_at:
            decode = self._pick_puller(field.decodes)
            return _Option(None, decode, self._handover_ms(decode), RESUMED)
        decode = self._pick([self._score_decode(worker) for worker in field.decodes], NEAR_PRESSURE)
        alone_ms = self._ttft_ms(decode.worker, _num_tokens(self._request) - decode.cached_tokens)
        if why := self._must_be_alone(field):
            return _Option(None, decode, alone_ms, why)
        pair = self._pair(field, decode)
        has_room = not decode.worker.is_full(_num_tokens(self._request))
        if self._request.num_output_tokens > 0:
            if pair is not None and (pair.ttft_ms < alone_ms or not has_room):
                return pair
            return _Option(None, decode, alone_ms, RESUMED) if has_room else None
        is_short = has_room and self._is_short(decode)
        if pair is None or pair.prefill is None:
            return _Option(None, decode, alone_ms, SHORT) if is_short else None
        if is_short and alone_ms <= pair.prefill.score + self._handover_ms(decode):
            return _Option(None, decode, alone_ms, SHORT)
        return pair

    def _pair(self, field: _Field, decode: _Scored) -> _Option | None:
        """With the best prefill worker, and with this decode worker unless it can take no KV. The time to the
        first token that is new: of a stream that goes on it is decode's, after the output that there is."""
        if not field.prefills:
            return None
        if decode.worker.heartbeat.kv_fault:
            decode = self._pick_puller(field.decodes)
        scored = [self._score_prefill(worker) for worker in field.prefills]
        nearest = min(candidate.score for candidate in scored)
        prefill = self._pick(scored, max(NEAR_MS, NEAR_SHARE * nearest))
        if self._request.num_output_tokens == 0:
            return _Option(prefill, decode, prefill.score, PAIR)
        rest_ms = self._handover_ms(decode) + self._ttft_ms(decode.worker, self._request.num_output_tokens)
        return _Option(prefill, decode, prefill.score + rest_ms, RESUMED)

    def _pick_puller(self, decodes: Sequence[WorkerView]) -> _Scored:
        """One that can take KV, if there is one."""
        able = [worker for worker in decodes if not worker.heartbeat.kv_fault]
        return self._pick([self._score_decode(worker) for worker in able or decodes], NEAR_PRESSURE)

    def rank(self, option: _Option) -> tuple[float, float, float]:
        overrun_ms = max(0.0, option.ttft_ms - self._request.budget.remaining_ms)
        return overrun_ms, option.decode.score, option.ttft_ms

    def _score_prefill(self, worker: WorkerView) -> _Scored:
        cached = self._cached_tokens(worker)
        return _Scored(worker, self._ttft_ms(worker, self._request.num_prompt_tokens - cached), cached)

    def _score_decode(self, worker: WorkerView) -> _Scored:
        cached = self._cached_tokens(worker)
        batch = worker.num_requests / max(1, worker.heartbeat.max_num_seqs)
        saved_ms = cached * self._rules.transfer_ms_per_token
        credit = min(MAX_CREDIT, _CREDIT_PER_MS * saved_ms)
        return _Scored(worker, max(batch, worker.load.kv_usage) - credit, cached)

    def _pick(self, scored: Sequence[_Scored], near: float) -> _Scored:
        if len(scored) == 1:
            return scored[0]
        limit = min(candidate.score for candidate in scored) + near
        return min(
            (candidate for candidate in scored if candidate.score <= limit),
            key=lambda candidate: (
                candidate.worker.num_requests,
                -candidate.cached_tokens,
                self._chance(),
            ),
        )

    def _must_be_alone(self, field: _Field) -> str:
        """Why no prefill worker comes into question; empty if one does."""
        if self._request.decode_alone:
            return ASKED
        if not field.prefills and not field.full_prefills:
            return NO_PREFILL
        return NO_TRANSFER if all(worker.heartbeat.kv_fault for worker in field.decodes) else ""

    def _is_short(self, decode: _Scored) -> bool:
        """Whether the decode worker lacks so little of a prompt whose beginning it holds that its running
        streams hardly notice. A prompt that it has never seen goes to prefill, however short."""
        num_left = self._request.num_prompt_tokens - decode.cached_tokens
        if decode.cached_tokens == 0 or num_left > self._rules.decode_alone_tokens:
            return False
        is_idle = decode.worker.num_requests == 0
        stall_ms = num_left * self._predictor.ms_per_token(decode.worker.worker_id)
        return is_idle or stall_ms <= self._rules.max_stall_ms

    def _handover_ms(self, decode: _Scored) -> float:
        """Between a prefill worker's token and the decode worker's first step."""
        num_moved = self._request.num_prompt_tokens - decode.cached_tokens
        return self._rules.handover_ms + self._rules.transfer_ms_per_token * num_moved

    def _cached_tokens(self, worker: WorkerView) -> int:
        """By the index; the last prompt token is always computed."""
        num_blocks = self._matched.get(worker.heartbeat.worker_id, 0)
        return min(num_blocks * worker.heartbeat.block_size, max(0, self._request.num_prompt_tokens - 1))

    def _ttft_ms(self, worker: WorkerView, num_tokens: int) -> float:
        beat = worker.heartbeat
        return self._predictor.ttft_ms(
            beat.worker_id,
            num_ahead=worker.num_tokens_ahead,
            num_tokens=num_tokens,
            max_chunk_tokens=beat.max_chunk_tokens,
        )


def _reject(
    workers: Sequence[WorkerView],
    fields: Iterable[_Field],
    request: PlaceRequest,
    predictor: Predictor,
    now_ms: float,
) -> Rejected:
    """Why nobody may take it, the most useful reason first, and when asking again makes sense."""
    fields = list(fields)
    full_prefills = [worker for field in fields if field.decodes for worker in field.full_prefills]
    if full_prefills:
        excess_ms = min(
            worker.num_excess_tokens(request.num_prompt_tokens) * predictor.ms_per_token(worker.worker_id)
            for worker in full_prefills
        )
        return _rejected("queue_full", "every prefill queue is full", excess_ms / 1e3)
    if any(field.full_decodes for field in fields):
        return _rejected("queue_full", "every decode worker is full", RETRY_FAILED_S)
    usable = [worker for worker in workers if _may_serve(worker, request, now_ms)]
    decodes = [worker for worker in usable if worker.heartbeat.role == "decode"]
    if decodes and not any(_fits(worker, request) for worker in decodes):
        longest = max(worker.heartbeat.max_model_len for worker in decodes)
        return _rejected(
            "context_length_exceeded", f"the context of {longest} tokens is too short", MIN_RETRY_S
        )
    if any(request.avoids(worker.worker_id, worker.heartbeat.epoch) for worker in workers):
        return _rejected("no_capacity", "no other worker is left for this request", RETRY_FAILED_S)
    if any(worker.heartbeat.state == "starting" for worker in workers):
        return _rejected("no_capacity", "workers are starting", RETRY_STARTING_S)
    return _rejected("no_capacity", "no worker serves this model", RETRY_NO_WORKER_S)


def _rejected(code: str, reason: str, retry_after_s: float) -> Rejected:
    return Rejected(code=code, reason=reason, retry_after_s=min(MAX_RETRY_S, max(MIN_RETRY_S, retry_after_s)))


def _ref(worker: WorkerView) -> WorkerRef:
    return WorkerRef(worker_id=worker.heartbeat.worker_id, epoch=worker.heartbeat.epoch)

"""The simulated Engine: one task steps the batch; ``hand_over`` ends leases, ``pulls`` fetches KV.

See ``sub100_engine.api`` for the invariants. Everything runs on one event loop; a step that takes time
takes it asleep on the injected clock.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from sub100_engine.api import EngineInfo, EngineStartError, KvListener, Output, Sink, Work
from sub100_proto import logprobs
from sub100_proto.fleet import Load
from sub100_proto.kv import KvHandle

from . import answers as answer_sources
from .answers import AnswerSource
from .batch import Batch, Step
from .block_pool import BlockPool
from .clock import Clock, MonotonicClock
from .config import SimConfig
from .faults import Faults
from .hand_over import CONNECTOR, HandOvers
from .pulls import Pulls
from .sampling import Choice, rows
from .sequence import Sequence
from .speculation import Acceptance
from .structured import NoInstance
from .timing import TimingModel

_log = logging.getLogger(__name__)

_LOOK_S: Final = 0.1
"""Between the looks of a core that cannot compute what it has."""


class SimEngine:
    """``secret`` is common to engines that hand KV to each other. ``answers`` and ``faults`` default to what
    the configuration says."""

    def __init__(
        self,
        config: SimConfig,
        *,
        secret: bytes = b"",
        clock: Clock | None = None,
        answers: AnswerSource | None = None,
        faults: Faults | None = None,
    ) -> None:
        self._config = config
        self._clock = clock or MonotonicClock()
        self._answers = answers
        self.faults = faults or Faults(
            die_after_steps=config.die_after_steps,
            hang_after_steps=config.hang_after_steps,
            delay_ms=config.delay_ms,
        )
        self._pool = BlockPool(config.num_blocks)
        self._batch = Batch(
            self._pool,
            config.block_size,
            config.max_num_seqs,
            config.max_chunk_tokens,
            config.speculative_tokens,
        )
        self._acceptance = Acceptance(config.acceptance)
        self._num_output_tokens = 0
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._hand_overs = HandOvers(config, self._pool, self._clock, secret, self.faults, self._on_freed)
        self._pulls = Pulls(config, self._clock, secret, self._on_pulled, self._fail)
        self._timing = TimingModel()
        self._sequences: dict[str, Sequence] = {}
        self._refused: dict[str, asyncio.Handle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._work_came = asyncio.Event()
        self._something_ended = asyncio.Event()
        self._on_kv: KvListener = lambda _: None
        self._on_failure: Callable[[str], None] = lambda _: None
        self._num_steps = 0
        self._num_looks = 0
        self._is_dead = False

    async def start(self, on_kv: KvListener) -> EngineInfo:
        config = self._config
        if fault := config.fault_line():
            raise EngineStartError(f"simulated engine: {fault}")
        if self._answers is None:
            self._answers = _answers(config)
        self._timing = config.timing_model()
        self._on_kv = on_kv
        try:
            await self._hand_overs.start()
        except OSError as error:
            raise EngineStartError(
                f"cannot listen for KV on {config.kv_host}:{config.kv_port}: {error}"
            ) from error
        self._spawn(self._run_core(), "sim core")
        self._spawn(self._hand_overs.run(), "sim leases")
        return EngineInfo(
            model=config.model,
            layout=config.layout,
            block_size=config.block_size,
            num_blocks=config.num_blocks,
            max_model_len=config.max_model_len,
            max_num_seqs=config.max_num_seqs,
            max_chunk_tokens=config.max_chunk_tokens,
            dtype=config.dtype,
            connector=CONNECTOR,
            speculation=f"sim-{config.speculative_tokens}" if config.speculative_tokens else "",
            revision=config.revision,
            tensor_parallel=config.tensor_parallel,
        )

    def prefill(self, work: Work, sink: Sink) -> None:
        self._submit(work, sink, is_prefill=True)

    def decode(self, work: Work, sink: Sink) -> None:
        self._submit(work, sink, is_prefill=False)

    def abort(self, attempt: str) -> None:
        sequence = self._sequences.get(attempt)
        if sequence is not None:
            self._end(sequence)
        if (refused := self._refused.pop(attempt, None)) is not None:
            refused.cancel()

    def release(self, kv: KvHandle) -> None:
        self._hand_overs.release(kv.key)

    def load(self) -> Load:
        drafts = self._acceptance.counts
        return Load(
            num_running=self._batch.num_running,
            num_waiting=self._batch.num_waiting,
            num_waiting_tokens=self._batch.num_waiting_tokens,
            kv_usage=self._pool.usage,
            step=self._num_steps + self._num_looks,
            num_output_tokens=self._num_output_tokens,
            num_drafts=drafts.num_drafts,
            num_drafted_tokens=drafts.num_drafted_tokens,
            num_accepted_tokens=drafts.num_accepted_tokens,
            num_prompt_tokens=self._prompt_tokens,
            num_cached_tokens=self._cached_tokens,
            num_pinned_blocks=self._hand_overs.leases.num_pinned_blocks,
            num_released_blocks=self._hand_overs.leases.num_released_blocks,
            num_expired_blocks=self._hand_overs.leases.num_expired_blocks,
            num_pulled_blocks=self._hand_overs.leases.num_pulled_blocks,
        )

    def set_failure_listener(self, on_failure: Callable[[str], None]) -> None:
        self._on_failure = on_failure

    async def drain(self, timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._sequences or len(self._hand_overs):
                    self._something_ended.clear()
                    await self._something_ended.wait()
        return not self._sequences and not len(self._hand_overs)

    async def stop(self) -> None:
        self._is_dead = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sequence in list(self._sequences.values()):
            self._fail(sequence, "worker_lost", "the engine was stopped")
        await self._pulls.stop()
        await self._hand_overs.stop()

    @property
    def _vocab_size(self) -> int:
        assert self._answers is not None
        return self._answers.vocab_size

    # -- submitting and ending

    def _submit(self, work: Work, sink: Sink, *, is_prefill: bool) -> None:
        fault, answer = self._refusal(work), None
        if fault is None and self._answers is not None:
            try:
                answer = self._answers.open(work)
            except NoInstance as error:
                fault = _error(work, "invalid_grammar", str(error))
        if fault is not None:
            # Not from inside the call: a sink is told on the loop, like everything else.
            self._refused[work.attempt] = asyncio.get_running_loop().call_soon(
                self._tell_refused, sink, fault
            )
            return
        assert answer is not None
        choice = Choice.of(work.sampling, self._vocab_size)
        sequence = Sequence(work, sink, answer, choice, is_prefill=is_prefill, now=self._clock.now())
        self._sequences[work.attempt] = sequence
        self._batch.add(sequence)
        self._work_came.set()

    def _tell_refused(self, sink: Sink, fault: Output) -> None:
        self._refused.pop(fault.attempt, None)
        sink(fault)

    def _refusal(self, work: Work) -> Output | None:
        """Why the engine will not even try; None if it will."""
        known = [*work.prompt, *work.output]
        if self._is_dead:
            return _error(work, "worker_lost", "the engine is dead or stopped")
        if work.attempt in self._sequences:
            return _error(work, "engine_error", "the attempt runs already")
        if not work.prompt or work.sampling.max_tokens <= len(work.output):
            return _error(work, "invalid_value", "nothing to compute")
        if len(known) >= self._config.max_model_len:
            return _error(work, "context_length_exceeded", f"{len(known)} tokens")
        if min(known) < 0 or max(known) >= self._vocab_size:
            return _error(work, "invalid_value", "a token id outside the vocabulary")
        return None

    def _end(self, sequence: Sequence) -> None:
        """Nothing more is told of the sequence; its blocks are free. Idempotent."""
        sequence.is_done = True
        self._batch.remove(sequence)
        if self._sequences.get(sequence.work.attempt) is sequence:
            del self._sequences[sequence.work.attempt]
        self._pulls.cancel(sequence.work.attempt)
        self._on_freed()

    def _fail(self, sequence: Sequence, code: str, reason: str) -> None:
        self._end(sequence)
        error = _error(sequence.work, code, reason)
        sequence.sink(msgspec.structs.replace(error, transfer_ms=sequence.transfer_ms))

    # -- the core

    async def _run_core(self) -> None:
        try:
            while True:
                self._work_came.clear()
                step = self._batch.plan()
                for sequence in step.pulls:
                    self._pulls.begin(sequence, self._timing.transfer_s(sequence.num_prompt))
                self._publish_kv()
                if step.chunks:
                    await self._compute(step)
                else:
                    await self._rest()
        except Exception as error:  # the core's own end: told to everyone who waits for it
            _log.exception("simulated core failed")
            self._die(repr(error))

    async def _rest(self) -> None:
        """Until work comes. A core that has nothing but what waits (for KV, for room, to be pulled) looks
        again now and then, as vLLM's does, and counts that as a step: one that makes none hangs."""
        while not self._work_came.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S if self._sequences or len(self._hand_overs) else None):
                    await self._work_came.wait()
                    return
            self._num_looks += 1

    async def _compute(self, step: Step) -> None:
        started_at = self._clock.now()
        for sequence, _ in step.chunks:
            if sequence.scheduled_at is None:
                sequence.scheduled_at = started_at
        # A draft token is verified as a prompt token is computed: beside others, in one pass.
        took_s = self._timing.step_s(step.num_prefill_tokens + step.num_drafted_tokens, step.num_decodes)
        await self._clock.sleep_until(started_at + took_s + self.faults.delay_ms / 1e3)
        if self.faults.hang_after_steps and self._num_steps >= self.faults.hang_after_steps:
            await asyncio.Event().wait()
        self._num_steps += 1
        for sequence, size in step.chunks:
            if sequence.is_done:
                continue
            self._batch.computed(sequence, size)
            if sequence.num_pending == 0:
                self._sample(sequence)
        self._publish_kv()
        if self.faults.die_after_steps and self._num_steps >= self.faults.die_after_steps:
            raise RuntimeError("told to die")

    def _sample(self, sequence: Sequence) -> None:
        """Make the next tokens of a sequence whose known tokens are all computed: one, and one more for
        each draft token that is accepted; an end among them is the end."""
        num_drafted, sequence.num_drafts = sequence.num_drafts, 0
        num_tokens = 1 + self._acceptance.num_accepted(num_drafted)
        sequence.num_drafted += num_drafted
        sequence.num_accepted += num_tokens - 1
        ids: list[int] = []
        finish_reason = ""
        while len(ids) < num_tokens and not finish_reason:
            if 0 <= self.faults.fail_after_tokens <= sequence.num_output - len(sequence.work.output):
                if ids:
                    self._tell(sequence, ids, "")
                self._fail(sequence, "engine_error", "told to fail")
                return
            token, finish_reason = self._next(sequence)
            if finish_reason == "stop":
                break
            ids.append(token)
            sequence.tokens.append(token)
        if len(ids) > 1:
            self._batch.computed(sequence, len(ids) - 1)
        self._tell(sequence, ids, finish_reason)

    def _next(self, sequence: Sequence) -> tuple[int, str]:
        """The next token, and how the answer ends: with it (``length``) or before it (``stop``)."""
        sampling = sequence.work.sampling
        position = sequence.num_output
        is_over = position >= sequence.answer.length and not sampling.ignore_eos
        token = sequence.next_token()
        if position >= sampling.min_tokens and (is_over or token in sampling.stop_token_ids):
            return token, "stop"
        num_known = len(sequence.tokens) + 1
        at_limit = position + 1 >= sampling.max_tokens or num_known >= self._config.max_model_len
        return token, "length" if at_limit else ""

    def _tell(self, sequence: Sequence, ids: list[int], finish_reason: str) -> None:
        hands_over = sequence.is_prefill and not finish_reason
        num_bytes = self._timing.kv_bytes(sequence.num_prompt)
        kv = self._hand_overs.pin(sequence, num_bytes) if hands_over else None
        first = not sequence.is_told
        sequence.is_told = True
        self._num_output_tokens += len(ids)
        if first:
            self._prompt_tokens += sequence.num_prompt
            self._cached_tokens += sequence.cached_tokens
        now = self._clock.now()
        scheduled_at = now if sequence.scheduled_at is None else sequence.scheduled_at
        output = Output(
            attempt=sequence.work.attempt,
            token_ids=ids,
            finish_reason=finish_reason,
            kv=kv,
            cached_tokens=sequence.cached_tokens if first else 0,
            transferred_tokens=sequence.transferred_tokens if first else 0,
            queue_ms=(scheduled_at - sequence.submitted_at) * 1e3 if first else 0.0,
            transfer_ms=sequence.transfer_ms if first else 0.0,
            compute_ms=(now - (sequence.pulled_at or scheduled_at)) * 1e3 if first else 0.0,
            num_drafted=sequence.num_drafted if finish_reason else 0,
            num_accepted=sequence.num_accepted if finish_reason else 0,
            logprobs=self._logprobs(sequence, len(ids)),
            prompt_logprobs=self._prompt_logprobs(sequence) if first else b"",
        )
        if finish_reason or hands_over:
            self._end(sequence)
        sequence.sink(output)

    def _logprobs(self, sequence: Sequence, num_new: int) -> bytes:
        """Rows of the newest tokens, if they are asked for."""
        num_top = sequence.work.sampling.logprobs
        if num_top is None or not num_new:
            return b""
        end = len(sequence.tokens)
        return logprobs.pack(rows(sequence.tokens, end - num_new, end, num_top, self._vocab_size))

    def _prompt_logprobs(self, sequence: Sequence) -> bytes:
        num_top = sequence.work.sampling.prompt_logprobs
        if num_top is None:
            return b""
        return logprobs.pack(rows(sequence.tokens, 1, sequence.num_prompt, num_top, self._vocab_size))

    def _die(self, reason: str) -> None:
        self._is_dead = True
        self._hand_overs.end_all()
        for sequence in list(self._sequences.values()):
            self._fail(sequence, "worker_lost", "the engine core died")
        self._on_failure(reason)

    def _publish_kv(self) -> None:
        change = self._pool.collect()
        if change is not None:
            self._on_kv(change)

    def _on_freed(self) -> None:
        self._something_ended.set()
        self._work_came.set()

    def _on_pulled(self, sequence: Sequence) -> None:
        self._batch.computed(sequence, sequence.num_prompt - sequence.num_computed)
        if not sequence.work.output:
            sequence.num_computed -= 1  # its last token's logits are what the first output needs
        self._work_came.set()

    def _spawn(self, coroutine: Any, name: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _answers(config: SimConfig) -> AnswerSource:
    if config.tokenizer:
        return answer_sources.readable(
            config.tokenizer, config.answer_file, config.answer_min_tokens, config.answer_max_tokens
        )
    return answer_sources.arbitrary(config.vocab_size, config.answer_min_tokens, config.answer_max_tokens)


def _error(work: Work, code: str, reason: str) -> Output:
    return Output(attempt=work.attempt, error=code, reason=reason)

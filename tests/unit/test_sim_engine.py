"""What the simulated engine adds to the behaviour suite: time, chunks, preemption, faults, leases."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from sub100_engine.api import EngineStartError, KvChange, Output, Work
from sub100_engine.sim import (
    CannedAnswers,
    Faults,
    ScriptedAnswers,
    SimConfig,
    SimEngine,
    VirtualClock,
)
from sub100_engine.sim.answers import arbitrary
from sub100_proto.sampling import Sampling

Start = Callable[..., Awaitable[SimEngine]]

SMALL: dict[str, Any] = {
    "vocab_size": 1000,
    "block_size": 4,
    "num_blocks": 64,
    "max_model_len": 200,
    "max_num_seqs": 16,
}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def start(clock: VirtualClock) -> AsyncIterator[Start]:
    engines: list[SimEngine] = []

    async def started(
        *,
        answers: ScriptedAnswers | None = None,
        faults: Faults | None = None,
        changes: list[KvChange] | None = None,
        **fields: Any,
    ) -> SimEngine:
        engine = SimEngine(SimConfig(**{**SMALL, **fields}), clock=clock, answers=answers, faults=faults)
        engines.append(engine)
        await engine.start(lambda change: changes.append(change) if changes is not None else None)
        return engine

    yield started
    for engine in engines:
        await engine.stop()


def work(attempt: str, num_prompt: int, *, max_tokens: int = 4, **sampling: Any) -> Work:
    first = sum(attempt.encode())
    return Work(
        attempt=attempt,
        prompt=[(first + 3 * i) % 1000 for i in range(num_prompt)],
        sampling=Sampling(**{"max_tokens": max_tokens, "temperature": 0.0, "ignore_eos": True, **sampling}),
    )


class Timed:
    """A sink that notes when it was told, in virtual milliseconds."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.outputs: list[Output] = []
        self.at_ms: list[float] = []
        self._over = asyncio.Event()

    def __call__(self, output: Output) -> None:
        self.outputs.append(output)
        self.at_ms.append(round(self._clock.now() * 1e3, 3))
        if output.is_last or output.kv is not None:
            self._over.set()

    @property
    def ids(self) -> list[int]:
        return [token for output in self.outputs for token in output.token_ids]

    async def over(self) -> None:
        await self._over.wait()


async def test_sim_step_takes_what_the_timing_model_says(start: Start, clock: VirtualClock) -> None:
    engine = await start(timing="smollm2-cpu")
    sink = Timed(clock)
    engine.decode(work("a", 100), sink)
    await clock.run(sink.over())
    # 38 + 100 x 0.6, then 38 + 2 for each of the other three tokens
    assert sink.at_ms == [98.0, 138.0, 178.0, 218.0]
    assert sink.outputs[0].compute_ms == pytest.approx(98.0)
    assert engine.load().step == 4


async def test_sim_chunks_a_long_prompt_beside_running_decodes(start: Start, clock: VirtualClock) -> None:
    engine = await start(max_chunk_tokens=16)
    short, long = Timed(clock), Timed(clock)
    told: list[str] = []

    def note(name: str, sink: Timed) -> Callable[[Output], None]:
        def tell(output: Output) -> None:
            told.append(name)
            sink(output)

        return tell

    engine.decode(work("short", 8, max_tokens=6), note("short", short))
    engine.decode(work("long", 40, max_tokens=2), note("long", long))
    await clock.run(long.over())
    # step 1: 8 + 8; then 15 a step beside one decode: 23, 38, 40
    assert told[:7] == ["short", "short", "short", "short", "long", "short", "long"]


async def test_sim_queue_ms_is_the_wait_for_a_free_slot(start: Start, clock: VirtualClock) -> None:
    engine = await start(timing="smollm2-cpu", max_num_seqs=1)
    first, second = Timed(clock), Timed(clock)
    engine.decode(work("a", 100), first)
    engine.decode(work("b", 100), second)
    await clock.run(second.over())
    assert second.outputs[0].queue_ms == pytest.approx(218.0)
    assert second.outputs[0].compute_ms == pytest.approx(98.0)


async def test_sim_preempts_the_newest_and_loses_no_token_when_blocks_run_out(
    start: Start, clock: VirtualClock
) -> None:
    roomy, tight = await start(), await start(num_blocks=50)
    answers: dict[int, list[list[int]]] = {}
    for index, engine in enumerate((roomy, tight)):
        sinks = [Timed(clock) for _ in range(4)]
        for name, sink in zip("abcd", sinks, strict=True):
            engine.decode(work(name, 40, max_tokens=40), sink)
        await asyncio.gather(*(clock.run(sink.over()) for sink in sinks))
        answers[index] = [sink.ids for sink in sinks]
    assert all(len(ids) == 40 for ids in answers[1])
    assert answers[1] == answers[0]
    assert tight.load().kv_usage == 0


async def test_sim_evicts_the_least_recently_used_blocks_and_tells(start: Start, clock: VirtualClock) -> None:
    changes: list[KvChange] = []
    engine = await start(num_blocks=50, changes=changes)
    known: set[bytes] = set()
    for name in ("a", "b", "c"):
        sink = Timed(clock)
        engine.decode(work(name, 80, max_tokens=1), sink)
        await clock.run(sink.over())
    for change in changes:
        known -= set(change.removed)
        known |= set(change.stored)
    assert any(change.removed for change in changes)
    again = [Timed(clock) for _ in range(2)]
    engine.decode(work("c", 80, max_tokens=1), again[0])
    engine.decode(work("a", 80, max_tokens=1), again[1])
    await clock.run(again[1].over())
    assert again[0].outputs[0].cached_tokens == 76
    assert again[1].outputs[0].cached_tokens < 76
    assert len(known) == 50


async def test_sim_lease_frees_blocks_at_its_end_and_leaves_a_tombstone(
    start: Start, clock: VirtualClock
) -> None:
    prefill, decode = await start(lease_s=30.0), await start()
    sink = Timed(clock)
    prefill.prefill(work("a", 10), sink)
    await clock.advance(1)
    assert prefill.load().kv_usage > 0
    await clock.advance(28.9)
    assert prefill.load().kv_usage > 0
    await clock.advance(0.2)
    assert prefill.load().kv_usage == 0

    late = Timed(clock)
    job = work("b", 10)
    decode.decode(
        Work(
            attempt="b",
            prompt=work("a", 10).prompt,
            sampling=job.sampling,
            output=sink.ids,
            kv=sink.outputs[0].kv,
        ),
        late,
    )
    async with asyncio.timeout(PATIENCE_S):
        await late.over()
    assert late.outputs[-1].error == "kv_expired"
    assert "expired" in late.outputs[-1].reason


@pytest.mark.parametrize("faults", [Faults(corrupt_kv=True), Faults(stall_kv=True)])
async def test_sim_pull_fails_when_the_producer_sends_wrong_bytes_or_none(
    start: Start, clock: VirtualClock, faults: Faults
) -> None:
    prefill, decode = await start(faults=faults), await start(pull_timeout_s=0.1)
    sink, told = Timed(clock), Timed(clock)
    prefill.prefill(work("a", 10), sink)
    await clock.advance(1)
    decode.decode(
        Work(
            attempt="b",
            prompt=work("a", 10).prompt,
            sampling=work("a", 10).sampling,
            output=sink.ids,
            kv=sink.outputs[0].kv,
        ),
        told,
    )
    async with asyncio.timeout(PATIENCE_S):
        await told.over()
    assert told.outputs[-1].error == "kv_load_failed"
    assert told.ids == []
    assert prefill.load().kv_usage > 0


async def test_sim_decode_with_kv_and_no_output_gives_the_whole_answer(
    start: Start, clock: VirtualClock
) -> None:
    prefill, decode = await start(), await start()
    for num_prompt in (1, 3, 4, 5):  # around a block
        job = work(f"p{num_prompt}", num_prompt, max_tokens=6)
        sink, told = Timed(clock), Timed(clock)
        prefill.prefill(job, sink)
        await clock.run(sink.over())
        kv = sink.outputs[0].kv
        decode.decode(Work(attempt="d", prompt=job.prompt, sampling=job.sampling, kv=kv), told)
        async with asyncio.timeout(PATIENCE_S):
            await told.over()
        assert told.outputs[0].transferred_tokens == num_prompt
        assert told.ids[0] == sink.ids[0]
        assert len(told.ids) == 6
    assert decode.load().kv_usage == 0


async def test_sim_goes_on_with_others_while_a_pull_stalls(start: Start, clock: VirtualClock) -> None:
    prefill, decode = await start(faults=Faults(stall_kv=True)), await start(pull_timeout_s=20.0)
    sink, stalled, neighbour = Timed(clock), Timed(clock), Timed(clock)
    prefill.prefill(work("a", 10), sink)
    await clock.advance(1)
    job = work("a", 10)
    decode.decode(
        Work(
            attempt="stalled",
            prompt=job.prompt,
            sampling=job.sampling,
            output=sink.ids,
            kv=sink.outputs[0].kv,
        ),
        stalled,
    )
    decode.decode(work("b", 8, max_tokens=10), neighbour)
    async with asyncio.timeout(PATIENCE_S):
        await neighbour.over()
    assert len(neighbour.ids) == 10
    assert stalled.outputs == []
    decode.abort("stalled")
    assert decode.load().kv_usage == 0


async def test_sim_makes_one_token_a_step_and_yields_between_steps(start: Start, clock: VirtualClock) -> None:
    engine = await start(timing="zero")
    sink = Timed(clock)
    engine.decode(work("a", 8, max_tokens=16), sink)
    num_told: list[int] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(sink.outputs) < 16:
            await asyncio.sleep(0)
            num_told.append(len(sink.outputs))
    assert [len(output.token_ids) for output in sink.outputs] == [1] * 16
    assert engine.load().step == 16
    assert set(num_told) >= set(range(1, 17))


async def test_sim_prefill_ends_without_token_or_kv_when_eos_comes_first(
    start: Start, clock: VirtualClock
) -> None:
    engine = await start(answers=ScriptedAnswers(lambda _: [], arbitrary(1000, 8, 64)))
    sink = Timed(clock)
    engine.prefill(work("a", 8, ignore_eos=False), sink)
    await clock.run(sink.over())
    (told,) = sink.outputs
    assert (told.token_ids, told.finish_reason, told.kv) == ([], "stop", None)
    assert engine.load().kv_usage == 0


async def test_sim_stop_ends_what_runs_and_refuses_what_comes(start: Start, clock: VirtualClock) -> None:
    engine = await start(timing="smollm2-cpu")
    running, late = Timed(clock), Timed(clock)
    engine.decode(work("a", 8, max_tokens=100), running)
    await clock.advance(1)
    await engine.stop()
    engine.decode(work("b", 8), late)
    await late.over()
    for sink in (running, late):
        assert [output.error for output in sink.outputs if output.is_last] == ["worker_lost"]
    assert engine.load().kv_usage == 0


async def test_sim_tells_everyone_and_the_listener_when_its_core_dies(
    start: Start, clock: VirtualClock
) -> None:
    engine = await start(faults=Faults(die_after_steps=2))
    reasons: list[str] = []
    engine.set_failure_listener(reasons.append)
    running, late = Timed(clock), Timed(clock)
    engine.decode(work("a", 8, max_tokens=10), running)
    await clock.run(running.over())
    assert len(running.ids) == 2
    assert running.outputs[-1].error == "worker_lost"
    assert len(reasons) == 1
    engine.decode(work("b", 8), late)
    await clock.run(late.over())
    assert late.outputs[-1].error == "worker_lost"


async def test_sim_step_stands_still_when_it_hangs(start: Start, clock: VirtualClock) -> None:
    engine = await start(timing="smollm2-cpu", faults=Faults(hang_after_steps=3))
    sink = Timed(clock)
    engine.decode(work("a", 8, max_tokens=10), sink)
    await clock.advance(10)
    assert engine.load().step == 3
    assert len(sink.ids) == 3
    engine.abort("a")
    assert engine.load().kv_usage == 0


async def test_sim_fails_the_attempt_after_so_many_tokens(start: Start, clock: VirtualClock) -> None:
    engine = await start(faults=Faults(fail_after_tokens=2))
    sink = Timed(clock)
    engine.decode(work("a", 8, max_tokens=10), sink)
    await clock.run(sink.over())
    assert (len(sink.ids), sink.outputs[-1].error) == (2, "engine_error")


async def test_sim_answers_with_exactly_the_scripted_tokens(start: Start, clock: VirtualClock) -> None:
    def script(asked: Work) -> Sequence[int] | None:
        return [7, 8, 9] if asked.attempt == "a" else None

    engine = await start(answers=ScriptedAnswers(script, arbitrary(1000, 8, 64)))
    scripted, other = Timed(clock), Timed(clock)
    engine.decode(work("a", 8, max_tokens=10, ignore_eos=False), scripted)
    engine.decode(work("b", 8, max_tokens=10), other)
    await clock.run(other.over())
    assert scripted.ids == [7, 8, 9]
    assert scripted.outputs[-1].finish_reason == "stop"
    assert len(other.ids) == 10


def test_canned_answers_vary_only_without_a_seed() -> None:
    source = CannedAnswers([[i] for i in range(500)], 1000, 8, 64)

    def first(prompt: int, **sampling: Any) -> tuple[int, int]:
        answer = source.open(Work(attempt="a", prompt=[prompt], sampling=Sampling(max_tokens=9, **sampling)))
        return answer.token(0), answer.length

    assert first(1, temperature=0.0) == first(1, temperature=0.0, seed=4)
    assert first(1, temperature=0.0) != first(2, temperature=0.0)
    assert first(1, seed=5) == first(1, seed=5)
    assert first(1, seed=5) != first(1, seed=6)
    assert len({first(1) for _ in range(8)}) > 1
    assert all(8 <= first(prompt, temperature=0.0)[1] <= 64 for prompt in range(200))


async def test_sim_refuses_to_start_with_values_that_cannot_work() -> None:
    for fields, word in (
        ({"num_blocks": 1}, "max_model_len"),
        ({"timing": "fast"}, "fast"),
        ({"tokenizer": "/nonexistent"}, "tokenizer"),
    ):
        engine = SimEngine(SimConfig(**{**SMALL, **fields}))
        with pytest.raises(EngineStartError, match=word):
            await engine.start(lambda _: None)
        await engine.stop()
        await engine.stop()

"""The simulated engine's speculation in virtual time: what a step makes, what it costs, what it yields to."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from sub100_engine.api import Output, Work
from sub100_engine.sim import SimConfig, SimEngine, VirtualClock
from sub100_engine.sim.speculation import Acceptance
from sub100_proto.sampling import Sampling

Start = Callable[..., Awaitable[SimEngine]]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def start(clock: VirtualClock) -> AsyncIterator[Start]:
    engines: list[SimEngine] = []

    async def started(**fields: Any) -> SimEngine:
        small = {"vocab_size": 1000, "block_size": 4, "num_blocks": 64, "max_model_len": 200}
        config = SimConfig(**{**small, "max_num_seqs": 16, "timing": "smollm2-cpu", **fields})
        engine = SimEngine(config, clock=clock)
        engines.append(engine)
        await engine.start(lambda _: None)
        return engine

    yield started
    for engine in engines:
        await engine.stop()


def work(attempt: str, num_prompt: int, max_tokens: int) -> Work:
    return Work(
        attempt=attempt,
        prompt=[(sum(attempt.encode()) + 3 * i) % 1000 for i in range(num_prompt)],
        sampling=Sampling(max_tokens=max_tokens, temperature=0.0, ignore_eos=True),
    )


async def decoded(engine: SimEngine, clock: VirtualClock, *works: Work) -> dict[str, list[tuple[float, int]]]:
    """By attempt, when how many tokens came: virtual milliseconds."""
    told: dict[str, list[tuple[float, int]]] = {work.attempt: [] for work in works}

    def sink(output: Output) -> None:
        assert not output.error
        told[output.attempt].append((round(clock.now() * 1e3, 3), len(output.token_ids)))

    for item in works:
        engine.decode(item, sink)
    await clock.run(engine.drain(60))
    return told


async def test_sim_drafts_all_accepted_make_a_step_worth_all_of_them(
    start: Start, clock: VirtualClock
) -> None:
    engine = await start(speculative_tokens=3, acceptance=1.0)
    told = await decoded(engine, clock, work("a", 10, 10))
    # 38 + 10 x 0.6 for the prompt; then 38 + 2 + 3 x 0.6 a step; the last one is cut at max_tokens
    assert told["a"] == [(44.0, 1), (85.8, 4), (127.6, 4), (169.4, 1)]
    load = engine.load()
    assert (load.num_drafts, load.num_drafted_tokens, load.num_output_tokens) == (3, 9, 10)


async def test_sim_drafts_never_accepted_cost_their_verification(start: Start, clock: VirtualClock) -> None:
    engine = await start(speculative_tokens=3, acceptance=0.0)
    told = await decoded(engine, clock, work("a", 10, 3))
    assert told["a"] == [(44.0, 1), (85.8, 1), (127.6, 1)]
    assert engine.load().num_accepted_tokens == 0


async def test_sim_drafts_share_the_chunk_and_no_decode_waits_for_them(
    start: Start, clock: VirtualClock
) -> None:
    engine = await start(speculative_tokens=3, acceptance=1.0, max_num_seqs=4, max_chunk_tokens=8)
    told = await decoded(engine, clock, work("a", 2, 9), work("b", 2, 9), work("c", 2, 9))
    # three decodes take 3 of 8 tokens; 3 drafts for the first, 2 for the second, none for the third
    assert [told[name][1] for name in "abc"] == [(88.6, 4), (88.6, 3), (88.6, 1)]


async def test_sim_drafts_take_free_blocks_only(start: Start, clock: VirtualClock) -> None:
    roomy = await decoded(await start(speculative_tokens=3), clock, *(work(n, 30, 60) for n in "abcd"))
    tight = await start(speculative_tokens=3, num_blocks=50)
    told = await decoded(tight, clock, *(work(n, 30, 60) for n in "abcd"))
    for name in "abcd":
        assert sum(size for _, size in told[name]) == sum(size for _, size in roomy[name]) == 60
    assert tight.load().kv_usage == 0


def test_acceptance_stops_at_the_first_wrong_draft() -> None:
    acceptance = Acceptance(0.5)
    lengths = [acceptance.num_accepted(4) for _ in range(20_000)]
    # P(0) = 1/2, P(1) = 1/4, ..., P(4) = 1/16
    for length, share in enumerate((0.5, 0.25, 0.125, 0.0625, 0.0625)):
        assert lengths.count(length) / len(lengths) == pytest.approx(share, abs=0.01)
    assert acceptance.counts.num_drafts == 20_000
    assert acceptance.counts.num_accepted_tokens == sum(lengths)

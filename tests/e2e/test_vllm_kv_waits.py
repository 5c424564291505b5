"""Handed-over KV that waits, and pulls that nobody waits for any more, cost an engine next to nothing."""

import asyncio
import contextlib
import random
import time
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

pytest.register_assert_rewrite("tests.contract.engine_suite")

from tests.contract.engine_rig import Recorder, Rig  # noqa: E402
from tests.e2e.conftest import PULL_TIMEOUT_S  # noqa: E402
from tests.kv_proxy import proxied  # noqa: E402
from tests.patience import at_best_async  # noqa: E402

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


async def test_core_rests_while_its_kv_waits_to_be_pulled(rig: Rig) -> None:
    await rig.idle(rig.prefill)
    _, kv = await rig.handed_over(rig.prompt(100))
    core = psutil.Process(rig.prefill.core_pid)  # type: ignore[attr-defined]
    steps, used, began_s = rig.prefill.load().step, core.cpu_times(), time.monotonic()
    await asyncio.sleep(1)
    more, after, took_s = rig.prefill.load().step - steps, core.cpu_times(), time.monotonic() - began_s
    assert rig.prefill.load().kv_usage > 0
    assert more < 120 * took_s  # vLLM alone makes 700 a second
    assert after.user + after.system - used.user - used.system < 0.12 * took_s
    rig.prefill.release(kv)
    await rig.idle(rig.prefill)


async def test_resting_core_hears_of_a_pull_and_of_a_prompt_at_once(rig: Rig) -> None:
    """Each would wait for the time-out of the rest, 20 ms, five times."""

    async def spent_s() -> float:
        started_s = time.monotonic()
        for _ in range(5):
            await rig.prefilled(rig.work(rig.prompt(8), max_tokens=1))
        return time.monotonic() - started_s

    async def longer_s() -> float:
        """Than without KV that waits."""
        await rig.idle(rig.prefill)
        alone_s = min([await spent_s() for _ in range(4)])
        _, held = await rig.handed_over(rig.prompt(100))
        beside_s = min([await spent_s() for _ in range(4)])
        rig.prefill.release(held)
        return beside_s - alone_s

    await at_best_async(longer_s, 0.05, "longer by")


async def test_abort_in_mid_pull_frees_the_blocks_at_once(rig: Rig) -> None:
    """Not when the pull would have ended."""
    prompt = rig.prompt(100)
    first, kv = await rig.handed_over(prompt)
    with proxied(kv, stall_at=20_000) as handle:
        stalled = Recorder(rig.work(prompt, output=[first], kv=handle))
        rig.decode.decode(stalled.work, stalled)
        await rig.until(lambda: rig.decode.load().kv_usage > 0)
        rig.decode.abort(stalled.work.attempt)
        async with asyncio.timeout(PULL_TIMEOUT_S / 2):
            await rig.idle(rig.decode)
    assert stalled.outputs == []
    again = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
    assert [first, *again.ids] == await rig.expected(prompt)


async def test_aborted_pulls_leave_room_for_others(rig: Rig) -> None:
    """More of them than there are threads to pull with."""
    prompts = [rig.prompt(100) for _ in range(7)]
    handed_over = [await rig.handed_over(prompt) for prompt in prompts]
    (healthy, (token, kv)), *stalling = zip(prompts, handed_over, strict=True)
    with contextlib.ExitStack() as stack:
        attempts = []
        for prompt, (first, held) in stalling:
            handle = stack.enter_context(proxied(held, stall_at=20_000))
            attempts.append(Recorder(rig.work(prompt, output=[first], kv=handle)))
            rig.decode.decode(attempts[-1].work, attempts[-1])
        await rig.until(lambda: rig.decode.load().num_waiting >= len(attempts))
        for attempt in attempts:
            rig.decode.abort(attempt.work.attempt)
        async with asyncio.timeout(PULL_TIMEOUT_S / 2):
            rest = await rig.decoded(rig.work(healthy, output=[token], kv=kv))
        assert rest.last.error == ""
        await rig.idle(rig.decode)
    for _, (_, held) in stalling:
        rig.prefill.release(held)
    await rig.idle(rig.prefill)


async def test_aborts_in_mid_transfer_damage_no_other_answer(rig: Rig) -> None:
    """Blocks of an aborted pull are another request's at once; a late byte would change its answer."""
    chance = random.Random(5)
    sampling: dict[str, Any] = {"max_tokens": 16, "ignore_eos": True}
    prompts = [rig.prompt(chance.randrange(300, 900)) for _ in range(24)]
    finished: list[tuple[list[int], list[int]]] = []

    async def ask(prompt: list[int], is_aborted: bool, after_s: float) -> None:
        first, kv = await rig.handed_over(prompt, **sampling)
        recorder = Recorder(rig.work(prompt, output=[first], kv=kv, **sampling))
        rig.decode.decode(recorder.work, recorder)
        if is_aborted:
            await asyncio.sleep(after_s)
            rig.decode.abort(recorder.work.attempt)
            rig.prefill.release(kv)
            return
        await rig.ended(recorder)
        assert recorder.last.error == ""
        finished.append((prompt, [first, *recorder.ids]))

    await asyncio.gather(*(ask(p, chance.random() < 0.3, chance.uniform(0, 0.02)) for p in prompts))
    assert 10 <= len(finished) < len(prompts)
    for prompt, answer in finished:
        assert answer == await rig.expected(prompt, **sampling)
    await rig.idle(rig.decode)
    await rig.idle(rig.prefill)

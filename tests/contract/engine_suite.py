"""One behaviour suite for every Engine: the invariants of ``sub100_engine.api`` as tests.

An engine's test module defines a fixture ``rig`` that yields a Rig and subclasses EngineBehaviour::

    class TestSimEngine(EngineBehaviour):
        pass

Engines may be shared by the tests of a module: prompts are fresh, so that no test warms another's cache.
"""

import asyncio
import itertools
from typing import Any

import msgspec
import pytest
from tests.contract.engine_rig import Recorder, Rig
from tests.kv_proxy import proxied

from sub100_proto import blocks, tokens
from sub100_shared.errors import http_status

_numbers = itertools.count(1)
_KV_GONE = {"kv_expired", "kv_load_failed"}


def _around_a_block(rig: Rig) -> list[int]:
    size = rig.prefill_info.block_size
    return [1, 2, size - 1, size, size + 1, 3 * size + 5, 500]


class EngineBehaviour:
    """Subclass it beside a fixture ``rig``."""

    # -- first token and hand-over

    async def test_prefill_tells_one_token_and_the_kv_of_exactly_the_prompt(self, rig: Rig) -> None:
        for num_tokens in _around_a_block(rig):
            told = await rig.prefilled(rig.work(rig.prompt(num_tokens)))
            assert len(told.outputs) == 1
            assert len(told.ids) == 1
            assert told.last.finish_reason == ""
            kv = told.last.kv
            assert kv is not None
            assert kv.num_tokens == num_tokens
            assert kv.layout == rig.prefill_info.layout
            rig.prefill.release(kv)

    async def test_handover_gives_the_answer_of_one_engine_at_every_block_edge(self, rig: Rig) -> None:
        for num_tokens in _around_a_block(rig):
            prompt = rig.prompt(num_tokens)
            first, kv = await rig.handed_over(prompt)
            rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
            assert rest.last.error == "", rest.last
            assert [first, *rest.ids] == await rig.expected(prompt), num_tokens

    async def test_decode_with_kv_computes_no_prompt_token(self, rig: Rig) -> None:
        prompt = rig.prompt(2 * rig.prefill_info.block_size + 3)
        first, kv = await rig.handed_over(prompt)
        rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
        assert rest.outputs[0].transferred_tokens == len(prompt)
        assert all(output.transferred_tokens == 0 for output in rest.outputs[1:])

    async def test_decode_with_kv_goes_on_after_several_output_tokens(self, rig: Rig) -> None:
        prompt = rig.prompt(rig.prefill_info.block_size + 7)
        answer = await rig.expected(prompt, ignore_eos=True)
        _, kv = await rig.handed_over(prompt)
        rest = await rig.decoded(rig.work(prompt, output=answer[:5], kv=kv, ignore_eos=True))
        assert rest.ids == answer[5:]

    async def test_handover_with_warm_caches_gives_the_same_answer_and_frees_all(self, rig: Rig) -> None:
        prompt = rig.prompt(2 * rig.prefill_info.block_size + 9)
        answers: list[list[int]] = []
        for _ in range(3):
            first, kv = await rig.handed_over(prompt)
            rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
            assert rest.last.error == "", rest.last
            answers.append([first, *rest.ids])
        assert answers == [await rig.expected(prompt)] * 3
        await rig.idle(rig.prefill)
        await rig.idle(rig.decode)

    async def test_decode_with_kv_and_no_output_makes_the_first_token_itself(self, rig: Rig) -> None:
        for num_tokens in _around_a_block(rig):
            prompt = rig.prompt(num_tokens)
            first, kv = await rig.handed_over(prompt)
            told = await rig.decoded(rig.work(prompt, kv=kv))
            assert told.outputs[0].token_ids[0] == first
            assert told.ids == await rig.expected(prompt)

    async def test_handover_keeps_the_seed(self, rig: Rig) -> None:
        for seed in (1, 2, 3):
            prompt = rig.prompt(40)
            sampling: dict[str, Any] = {"temperature": 1.0, "seed": seed}
            first, kv = await rig.handed_over(prompt, **sampling)
            rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv, **sampling))
            assert [first, *rest.ids] == await rig.expected(prompt, **sampling)

    async def test_handovers_at_the_same_time_do_not_mix(self, rig: Rig) -> None:
        prompts = [rig.prompt(30 + 11 * i) for i in range(4)]

        async def answer(prompt: list[int]) -> list[int]:
            first, kv = await rig.handed_over(prompt)
            return [first, *(await rig.decoded(rig.work(prompt, output=[first], kv=kv))).ids]

        answers = await asyncio.gather(*map(answer, prompts))
        assert answers == [await rig.expected(prompt) for prompt in prompts]

    # -- decode alone

    async def test_decode_alone_gives_the_same_answer_as_after_a_handover(self, rig: Rig) -> None:
        prompt = rig.prompt(50)
        first, kv = await rig.handed_over(prompt)
        rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
        alone = await rig.decoded(rig.work(prompt))
        assert alone.ids == [first, *rest.ids]
        assert alone.outputs[0].transferred_tokens == 0

    async def test_decode_without_kv_goes_on_after_the_output_given(self, rig: Rig) -> None:
        prompt = rig.prompt(50)
        answer = await rig.expected(prompt, ignore_eos=True)
        for k in (1, 6, 11):
            rest = await rig.decoded(rig.work(prompt, output=answer[:k], ignore_eos=True))
            assert rest.ids == answer[k:]
            assert rest.last.finish_reason == "length"

    # -- how answers end

    async def test_prefill_of_one_token_answer_ends_it_without_kv(self, rig: Rig) -> None:
        told = await rig.prefilled(rig.work(rig.prompt(20), max_tokens=1))
        assert told.last.finish_reason == "length"
        assert len(told.ids) == 1
        assert told.last.kv is None
        await rig.idle(rig.prefill)

    async def test_decode_counts_given_output_for_max_tokens(self, rig: Rig) -> None:
        prompt = rig.prompt(20)
        first, kv = await rig.handed_over(prompt, max_tokens=6, ignore_eos=True)
        rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv, max_tokens=6, ignore_eos=True))
        assert len(rest.ids) == 5
        assert rest.last.finish_reason == "length"

    async def test_stop_token_ends_the_answer_and_is_not_told(self, rig: Rig) -> None:
        prompt = rig.prompt(33)
        answer = await rig.expected(prompt, ignore_eos=True)
        stop = next((t for t in answer[2:] if answer.index(t) >= 2), None)
        if stop is None:
            pytest.fail(f"the model repeats itself from the start: {answer}")
        told = await rig.decoded(rig.work(prompt, stop_token_ids=[stop], ignore_eos=True))
        assert told.ids == answer[: answer.index(stop)]
        assert told.last.finish_reason == "stop"

    async def test_stop_token_at_once_ends_a_prefill_without_token_or_kv(self, rig: Rig) -> None:
        prompt = rig.prompt(33)
        answer = await rig.expected(prompt)
        told = await rig.prefilled(rig.work(prompt, stop_token_ids=[answer[0]]))
        assert (told.ids, told.last.finish_reason, told.last.kv) == ([], "stop", None)

    async def test_min_tokens_outlast_a_stop_token(self, rig: Rig) -> None:
        prompt = rig.prompt(33)
        stop = (await rig.expected(prompt, ignore_eos=True))[0]
        told = await rig.decoded(rig.work(prompt, stop_token_ids=[stop], min_tokens=3, ignore_eos=True))
        assert 3 <= len(told.ids) <= 12
        assert told.last.finish_reason in {"stop", "length"}

    async def test_outputs_end_once_and_only_the_first_carries_durations(self, rig: Rig) -> None:
        told = await rig.decoded(rig.work(rig.prompt(20), ignore_eos=True))
        await rig.idle(rig.decode)
        assert told.num_after_last == 0
        assert [output.is_last for output in told.outputs].count(True) == 1
        assert all(output.token_ids for output in told.outputs[:-1])
        assert told.outputs[0].queue_ms >= 0
        assert told.outputs[0].compute_ms > 0
        assert all(output.compute_ms == 0 for output in told.outputs[1:])

    # -- prefix cache

    async def test_prefill_reuses_the_blocks_of_a_prompt_it_has_seen(self, rig: Rig) -> None:
        size = rig.prefill_info.block_size
        prompt = rig.prompt(3 * size + 5)
        cold = await rig.prefilled(rig.work(prompt))
        warm = await rig.prefilled(rig.work(prompt))
        assert cold.last.cached_tokens == 0
        assert warm.last.cached_tokens == 3 * size
        assert warm.ids == cold.ids

    async def test_kv_that_was_pulled_is_had_again_for_one_block(self, rig: Rig) -> None:
        """A stream whose decode worker died goes on elsewhere: the blocks are free, and still in the prefix
        cache. The first token need not be asked for as it was."""
        size = rig.prefill_info.block_size
        prompt = rig.prompt(3 * size + 5)
        first, kv = await rig.handed_over(prompt)
        lost = await rig.decoded(rig.work(prompt, output=[first], kv=kv, max_tokens=4, ignore_eos=True))
        said = [first, *lost.ids]
        await rig.idle(rig.prefill)
        again = await rig.prefilled(rig.work(prompt, max_tokens=2, ignore_eos=True))
        assert again.last.cached_tokens == 3 * size
        rest = await rig.decoded(rig.work(prompt, output=said, kv=again.last.kv, ignore_eos=True))
        assert [*said, *rest.ids] == await rig.expected(prompt, ignore_eos=True)

    async def test_salt_separates_prefix_caches(self, rig: Rig) -> None:
        prompt = rig.prompt(3 * rig.prefill_info.block_size)
        await rig.prefilled(rig.work(prompt, salt="one"))
        other = await rig.prefilled(rig.work(prompt, salt="two"))
        assert other.last.cached_tokens == 0

    async def test_kv_events_are_the_chain_hashes_of_the_prompt(self, rig: Rig) -> None:
        size = rig.prefill_info.block_size
        for salt in ("", "tenant"):
            prompt = rig.prompt(2 * size + 1)
            expected = blocks.split(blocks.chain(tokens.pack(prompt), size, salt))
            await rig.prefilled(rig.work(prompt, salt=salt))

            def are_stored(hashes: list[bytes] = expected) -> bool:
                return set(hashes) <= {h for change in rig.prefill_changes for h in change.stored}

            await rig.until(are_stored)

    # -- KV that cannot be had

    async def test_kv_that_was_released_fails_at_once(self, rig: Rig) -> None:
        prompt = rig.prompt(40)
        first, kv = await rig.handed_over(prompt)
        rig.prefill.release(kv)
        await rig.idle(rig.prefill)
        told = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
        assert (told.last.error, told.ids) == ("kv_expired", [])

    async def test_kv_that_was_pulled_is_gone(self, rig: Rig) -> None:
        prompt = rig.prompt(40)
        first, kv = await rig.handed_over(prompt)
        await rig.decoded(rig.work(prompt, output=[first], kv=kv))
        await rig.idle(rig.prefill)
        told = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
        assert (told.last.error, told.ids) == ("kv_expired", [])

    async def test_kv_of_another_prompt_is_never_used(self, rig: Rig) -> None:
        prompt, other = rig.prompt(40), rig.prompt(40)
        first, kv = await rig.handed_over(prompt)
        told = await rig.decoded(rig.work(other, output=[first], kv=kv))
        assert told.last.error in _KV_GONE
        assert told.ids == []

    @pytest.mark.parametrize(
        "change", [{"num_tokens": 39}, {"layout": "another"}, {"endpoint": "127.0.0.1:1", "shm": ""}]
    )
    async def test_kv_that_does_not_fit_fails_and_is_not_recomputed(
        self, rig: Rig, change: dict[str, Any]
    ) -> None:
        prompt = rig.prompt(40)
        first, kv = await rig.handed_over(prompt)
        odd = msgspec.structs.replace(kv, **change)
        told = await rig.decoded(rig.work(prompt, output=[first], kv=odd))
        assert told.last.error in _KV_GONE
        assert told.ids == []
        rig.prefill.release(kv)
        await rig.idle(rig.decode)

    async def test_kv_that_nobody_comes_for_is_counted(self, rig: Rig) -> None:
        """P01: what was released is stranded; what was pulled, or found whole in decode's own cache, is
        not."""
        await rig.idle(rig.prefill)
        size = rig.prefill_info.block_size
        before = rig.prefill.load()

        def stranded() -> tuple[int, int, int]:
            load = rig.prefill.load()
            num_released = load.num_released_blocks - before.num_released_blocks
            return load.num_pinned_blocks, num_released, load.num_expired_blocks - before.num_expired_blocks

        _, kv = await rig.handed_over(rig.prompt(2 * size + 1))
        await rig.until(lambda: stranded() == (3, 0, 0))
        rig.prefill.release(kv)
        await rig.until(lambda: stranded() == (0, 3, 0))
        for prompt, is_warm in ((rig.prompt(2 * size + 1), False), (rig.prompt(2 * size), True)):
            if is_warm:
                await rig.decoded(rig.work(prompt, ignore_eos=True))
            first, kv = await rig.handed_over(prompt)
            rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv, ignore_eos=True))
            assert rest.last.error == ""
            await rig.idle(rig.prefill)
            await rig.until(lambda: stranded() == (0, 3, 0))

    # -- abort

    async def test_abort_silences_the_attempt_and_frees_its_blocks(self, rig: Rig) -> None:
        await rig.idle(rig.decode)
        recorder = Recorder(rig.work(rig.prompt(40), max_tokens=2000, ignore_eos=True))
        rig.decode.decode(recorder.work, recorder)
        async with asyncio.timeout(rig.timeout_s):
            await recorder.until(lambda r: len(r.outputs) >= 3)
        num_told = len(recorder.outputs)
        rig.decode.abort(recorder.work.attempt)
        await rig.idle(rig.decode)
        assert len(recorder.outputs) == num_told
        assert not recorder.is_over

    async def test_abort_before_the_pull_is_silent_and_the_kv_can_still_be_released(self, rig: Rig) -> None:
        await rig.idle(rig.decode)
        prompt = rig.prompt(40)
        first, kv = await rig.handed_over(prompt)
        recorder = Recorder(rig.work(prompt, output=[first], kv=kv))
        rig.decode.decode(recorder.work, recorder)
        rig.decode.abort(recorder.work.attempt)
        await rig.idle(rig.decode)
        rig.prefill.release(kv)
        await rig.idle(rig.prefill)
        assert recorder.outputs == []

    @pytest.mark.parametrize("is_aborted", [True, False])
    async def test_kv_of_a_decode_that_never_began_is_the_next_workers(
        self, rig: Rig, is_aborted: bool
    ) -> None:
        """Who sent the job sends the same handle on, or releases it."""
        await rig.idle(rig.decode)
        prompt = rig.prompt(40)
        first, kv = await rig.handed_over(prompt)
        vain = Recorder(rig.work(prompt, output=[first if is_aborted else 2**31], kv=kv))
        rig.decode.decode(vain.work, vain)
        if is_aborted:
            rig.decode.abort(vain.work.attempt)
        else:
            assert (await rig.ended(vain)).last.error
        await rig.idle(rig.decode)
        rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
        assert rest.last.error == ""
        assert rest.outputs[0].transferred_tokens == len(prompt)

    async def test_abort_of_a_finished_prefill_leaves_its_kv(self, rig: Rig) -> None:
        prompt = rig.prompt(40)
        work = rig.work(prompt)
        told = await rig.prefilled(work)
        rig.prefill.abort(work.attempt)
        rig.prefill.abort("nobody")
        rest = await rig.decoded(rig.work(prompt, output=told.ids, kv=told.last.kv))
        assert rest.last.error == ""
        assert rest.outputs[0].transferred_tokens == len(prompt)

    # -- odd requests

    async def test_odd_requests_fail_alone(self, rig: Rig) -> None:
        good = rig.prompt(30)
        neighbour = Recorder(rig.work(good, ignore_eos=True))
        rig.decode.decode(neighbour.work, neighbour)
        odd = [
            rig.work([]),
            rig.work([2**32 - 1, 5, 6]),
            rig.work(rig.prompt(10), output=[2**31]),
            rig.work(rig.prompt(rig.prefill_info.max_model_len + 1)),
        ]
        for work in odd:
            told = await rig.decoded(work)
            assert told.last.error
            assert http_status(told.last.error) != 500, told.last
            assert told.ids == []
        await rig.ended(neighbour)
        assert neighbour.ids == await rig.expected(good, ignore_eos=True)

    # -- load and drain

    async def test_load_while_a_pull_stalls_is_of_an_engine_that_waits_and_steps(self, rig: Rig) -> None:
        """Nothing runs and nothing is to be computed; who watches its steps must not take it for hung."""
        await rig.idle(rig.decode)
        prompt = rig.prompt(40)
        first, kv = await rig.handed_over(prompt)
        with proxied(kv, stall_at=100) as handle:  # in the payload
            stalled = Recorder(rig.work(prompt, output=[first], kv=handle))
            rig.decode.decode(stalled.work, stalled)
            await rig.until(lambda: rig.decode.load().kv_usage > 0)
            before = rig.decode.load()
            await rig.until(lambda: rig.decode.load().step >= before.step + 2)
            during = rig.decode.load()
            rig.decode.abort(stalled.work.attempt)
        assert (during.num_running, during.num_waiting, during.num_waiting_tokens) == (0, 1, 0)
        await rig.idle(rig.decode)
        rig.prefill.release(kv)
        await rig.idle(rig.prefill)

    async def test_load_counts_steps_and_running(self, rig: Rig) -> None:
        await rig.idle(rig.decode)
        before = rig.decode.load()
        recorder = Recorder(rig.work(rig.prompt(40), max_tokens=2000, ignore_eos=True))
        rig.decode.decode(recorder.work, recorder)
        async with asyncio.timeout(rig.timeout_s):
            await recorder.until(lambda r: len(r.outputs) >= 3)
        during = rig.decode.load()
        rig.decode.abort(recorder.work.attempt)
        await rig.idle(rig.decode)
        assert during.num_running == 1
        assert during.kv_usage > 0
        assert during.step >= before.step + 3

    async def test_engine_that_only_holds_kv_for_others_steps_on(self, rig: Rig) -> None:
        await rig.idle(rig.prefill)
        _, kv = await rig.handed_over(rig.prompt(40))
        before = rig.prefill.load()
        assert (before.num_running, before.num_waiting) == (0, 0)
        assert before.num_pinned_blocks > 0
        await rig.until(lambda: rig.prefill.load().step >= before.step + 2)
        rig.prefill.release(kv)
        await rig.idle(rig.prefill)

    async def test_drain_waits_for_what_runs_and_says_when_it_took_too_long(self, rig: Rig) -> None:
        recorder = Recorder(rig.work(rig.prompt(40), max_tokens=2000, ignore_eos=True))
        rig.decode.decode(recorder.work, recorder)
        async with asyncio.timeout(rig.timeout_s):
            await recorder.until(lambda r: bool(r.outputs))
        assert await rig.decode.drain(0.001) is False
        rig.decode.abort(recorder.work.attempt)
        assert await rig.decode.drain(rig.timeout_s) is True

    async def test_drain_waits_for_kv_that_is_to_be_pulled(self, rig: Rig) -> None:
        await rig.idle(rig.prefill)
        prompt = rig.prompt(40)
        first, kv = await rig.handed_over(prompt)
        assert await rig.prefill.drain(0.001) is False
        draining = asyncio.ensure_future(rig.prefill.drain(rig.timeout_s))
        rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv))
        assert rest.last.error == ""
        assert await draining is True

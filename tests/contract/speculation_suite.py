"""What speculation must not change, for every Engine: a sibling of ``engine_suite``, run as that is.

The fixture ``speculating`` yields a Rig whose ``decode`` speculates and whose ``reference`` does not; the
drafts are sometimes right and sometimes wrong.
"""

import asyncio
from typing import Any

import pytest
from tests.contract.engine_rig import Recorder, Rig


def num_kept(told: Recorder) -> int:
    """Tokens that came in addition to the one of their step."""
    return sum(max(0, len(output.token_ids) - 1) for output in told.outputs)


class SpeculationBehaviour:
    """Subclass it beside a fixture ``speculating``."""

    async def test_speculation_keeps_greedy_answers_at_every_block_edge(self, speculating: Rig) -> None:
        rig = speculating
        size = rig.prefill_info.block_size
        fields: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True}
        for num_tokens in (1, 2, size - 1, size, size + 1, 3 * size + 5, 500):
            prompt = rig.prompt(num_tokens)
            for _ in range(2):  # with a cold cache, then with a warm one
                first, kv = await rig.handed_over(prompt, **fields)
                rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv, **fields))
                assert rest.last.error == "", rest.last
                assert [first, *rest.ids] == await rig.expected(prompt, **fields), num_tokens

    async def test_speculation_keeps_greedy_answers_of_eight_at_once(self, speculating: Rig) -> None:
        rig = speculating
        fields: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True}
        prompts = [rig.prompt(20 + 13 * i) for i in range(8)]

        async def answer(prompt: list[int]) -> list[int]:
            first, kv = await rig.handed_over(prompt, **fields)
            return [first, *(await rig.decoded(rig.work(prompt, output=[first], kv=kv, **fields))).ids]

        answers = await asyncio.gather(*map(answer, prompts))
        assert answers == [await rig.expected(prompt, **fields) for prompt in prompts]

    async def test_speculation_keeps_answers_taken_up_again(self, speculating: Rig) -> None:
        rig = speculating
        prompt = rig.prompt(70)
        fields: dict[str, Any] = {"max_tokens": 48, "ignore_eos": True}
        answer = await rig.expected(prompt, **fields)
        for k in (1, 5, 30, 47):
            _, kv = await rig.handed_over(prompt, **fields)
            for handle in (kv, None):
                rest = await rig.decoded(rig.work(prompt, output=answer[:k], kv=handle, **fields))
                assert rest.ids == answer[k:], (k, handle is None)

    async def test_speculation_keeps_decode_alone(self, speculating: Rig) -> None:
        rig = speculating
        for num_tokens in (1, 50, 200):
            prompt = rig.prompt(num_tokens)
            alone = await rig.decoded(rig.work(prompt, max_tokens=40, ignore_eos=True))
            assert alone.ids == await rig.expected(prompt, max_tokens=40, ignore_eos=True)

    async def test_speculation_makes_several_tokens_a_step_and_counts_them(self, speculating: Rig) -> None:
        rig = speculating
        before = rig.decode.load()
        told = await rig.decoded(rig.work(rig.prompt(60), max_tokens=200, ignore_eos=True))
        after = rig.decode.load()
        num_steps = after.step - before.step  # outputs may be of several, where they were not taken in time
        assert len(told.ids) == 200
        assert 0 < 200 - num_steps <= told.last.num_accepted <= told.last.num_drafted
        assert all(output.num_drafted == 0 for output in told.outputs[:-1])
        assert after.num_drafted_tokens - before.num_drafted_tokens == told.last.num_drafted
        assert after.num_accepted_tokens - before.num_accepted_tokens == told.last.num_accepted
        assert after.num_output_tokens - before.num_output_tokens == 200
        assert 0 < after.num_drafts - before.num_drafts <= num_steps

    async def test_speculation_rejects_drafts_too(self, speculating: Rig) -> None:
        """Else the tests above would hold for an engine that believes its drafter."""
        told = await speculating.decoded(
            speculating.work(speculating.prompt(60), max_tokens=400, ignore_eos=True)
        )
        assert told.last.num_accepted < told.last.num_drafted

    async def test_max_tokens_cut_within_a_draft(self, speculating: Rig) -> None:
        rig = speculating
        prompt = rig.prompt(40)
        answer = await rig.expected(prompt, max_tokens=24, ignore_eos=True)
        for max_tokens in range(2, 24):
            fields: dict[str, Any] = {"max_tokens": max_tokens, "ignore_eos": True}
            told = await rig.decoded(rig.work(prompt, **fields))
            assert told.ids == answer[:max_tokens]
            assert told.last.finish_reason == "length"
            assert told.num_after_last == 0

    async def test_stop_token_ends_the_answer_within_a_draft(self, speculating: Rig) -> None:
        rig = speculating
        prompt = rig.prompt(40)
        answer = await rig.expected(prompt, max_tokens=40, ignore_eos=True)
        stops = [token for i, token in enumerate(answer) if i >= 2 and answer.index(token) == i][:20]
        assert len(stops) > 5
        for stop in stops:
            fields: dict[str, Any] = {"max_tokens": 40, "stop_token_ids": [stop], "ignore_eos": True}
            told = await rig.decoded(rig.work(prompt, **fields))
            assert told.ids == answer[: answer.index(stop)]
            assert told.last.finish_reason == "stop"

    async def test_answer_reaches_the_end_of_the_context(self, speculating: Rig) -> None:
        rig = speculating
        room = 60
        prompt = rig.prompt(rig.prefill_info.max_model_len - room)
        told = await rig.decoded(rig.work(prompt, max_tokens=room + 10, ignore_eos=True))
        assert told.last.finish_reason == "length"
        assert told.ids == await rig.expected(prompt, max_tokens=room + 10, ignore_eos=True)

    @pytest.mark.parametrize(
        "sampling",
        [
            {"temperature": 1.0},
            {"temperature": 1.0, "seed": 3},
            {"temperature": 1.0, "top_k": 20},
            {"temperature": 0.7, "top_p": 0.9, "top_k": 50, "seed": 9},
        ],
        ids=lambda sampling: "-".join(sampling),
    )
    async def test_sampled_neighbours_change_no_greedy_answer(
        self, speculating: Rig, sampling: dict[str, Any]
    ) -> None:
        rig = speculating
        fields: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True}
        prompt = rig.prompt(50)
        works = [rig.work(prompt, **fields)]
        works += [rig.work(rig.prompt(30 + i), **{**fields, **sampling}) for i in range(3)]
        told, *neighbours = await asyncio.gather(*map(rig.decoded, works))
        assert told.ids == await rig.expected(prompt, **fields)
        for neighbour in neighbours:
            assert (len(neighbour.ids), neighbour.last.finish_reason) == (60, "length"), neighbour.last

    @pytest.mark.parametrize("sampling", [{}, {"repetition_penalty": 0.6}], ids=["plain", "penalty"])
    async def test_logit_bias_decides_in_drafts_too(self, speculating: Rig, sampling: dict[str, Any]) -> None:
        """Beside a neighbour without one, whose answer stays its own."""
        rig = speculating
        prompt, other = rig.prompt(40), rig.prompt(45)
        fields: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True, **sampling}
        answer = await rig.expected(prompt, **fields)
        biased = fields | {"logit_bias": {answer[0]: -100, answer[3]: -100, answer[7]: 1}}
        first, kv = await rig.handed_over(prompt, **biased)
        told, neighbour = await asyncio.gather(
            rig.decoded(rig.work(prompt, output=[first], kv=kv, **biased)),
            rig.decoded(rig.work(other, **fields)),
        )
        assert told.last.error == "", told.last
        assert [first, *told.ids] == await rig.expected(prompt, **biased)
        assert not {answer[0], answer[3]} & {first, *told.ids}
        assert neighbour.ids == await rig.expected(other, **fields)
        assert told.last.num_drafted > 0

    async def test_min_p_decides_in_drafts_too(self, speculating: Rig) -> None:
        """At 1 only the likeliest token is left, whatever the temperature; the neighbours have none."""
        rig = speculating
        prompt = rig.prompt(40)
        fields: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True}
        works = [rig.work(prompt, **fields, min_p=1.0, temperature=1.3)]
        works += [rig.work(rig.prompt(30), **fields), rig.work(rig.prompt(31), **fields, temperature=1.0)]
        told, *neighbours = await asyncio.gather(*map(rig.decoded, works))
        assert told.last.error == "", told.last
        assert told.last.num_drafted > 0
        if rig.is_model:
            assert told.ids == await rig.expected(prompt, **fields)
        assert neighbours[0].ids == await rig.expected(neighbours[0].work.prompt, **fields)
        assert len(neighbours[1].ids) == 60

    async def test_abort_in_the_middle_of_drafts_frees_everything(self, speculating: Rig) -> None:
        rig = speculating
        await rig.idle(rig.decode)
        recorder = Recorder(rig.work(rig.prompt(40), max_tokens=2000, ignore_eos=True))
        rig.decode.decode(recorder.work, recorder)
        async with asyncio.timeout(rig.timeout_s):
            await recorder.until(lambda r: num_kept(r) > 0)
        rig.decode.abort(recorder.work.attempt)
        await rig.idle(rig.decode)

"""The behaviour suite's second half: what counts output over a hand-over, and answers of other shapes.

Subclass it beside a fixture ``rig`` whose ``text`` turns token ids into text, as EngineBehaviour is.
"""

import asyncio
import json
from typing import Any

import pytest

from sub100_proto.logprobs import Row, unpack

from .engine_rig import Recorder, Rig

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Oslo", "Rome"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "is_open": {"type": "boolean"},
    },
    "required": ["city", "count", "is_open"],
    "additionalProperties": False,
}


NOISE = 1e-3


def json_schema(schema: Any) -> dict[str, Any]:
    return {"structured": {"kind": "json_schema", "spec": json.dumps(schema)}}


def rows(recorder: Recorder) -> list[Row]:
    num_top = recorder.work.sampling.logprobs
    assert num_top is not None
    return unpack(b"".join(output.logprobs for output in recorder.outputs), num_top)


def assert_same_rows(found: list[Row], expected: list[Row]) -> None:
    """Equal but for the noise of floats, which another batch or chunk brings along. It decides near ties:
    which of two ids is the last among the top ones, and a rank so far down that neighbours are closer than
    the noise."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=NOISE)
        assert abs(ours.rank - theirs.rank) <= theirs.rank // 50
        assert [p for _, p in ours.top] == pytest.approx([p for _, p in theirs.top], abs=NOISE)
        mine, other = dict(ours.top), dict(theirs.top)
        assert len(mine) == len(other) == len(theirs.top)
        for token in mine.keys() & other.keys():
            assert mine[token] == pytest.approx(other[token], abs=NOISE)
        for token in mine.keys() ^ other.keys():
            assert {**mine, **other}[token] == pytest.approx(theirs.top[-1][1], abs=NOISE)


class AnswerShapes:
    """Subclass it beside a fixture ``rig``."""

    # -- log probabilities

    @pytest.mark.parametrize("num_top", [0, 1, 20])
    async def test_logprobs_over_a_handover_are_those_of_one_engine(self, rig: Rig, num_top: int) -> None:
        prompt = rig.prompt(rig.prefill_info.block_size + 5)
        fields: dict[str, Any] = {"logprobs": num_top, "ignore_eos": True}
        told = await rig.prefilled(rig.work(prompt, **fields))
        rest = await rig.decoded(rig.work(prompt, output=told.ids, kv=told.last.kv, **fields))
        whole = await rig.decoded(rig.work(prompt, **fields), rig.reference)
        assert told.ids + rest.ids == whole.ids
        assert_same_rows(rows(told) + rows(rest), rows(whole))
        assert all(len(row.top) == num_top for row in rows(whole))
        assert all(row.logprob <= 0 and row.rank >= 1 for row in rows(whole))

    async def test_logprobs_go_on_after_output_that_was_computed_elsewhere(self, rig: Rig) -> None:
        prompt = rig.prompt(40)
        fields: dict[str, Any] = {"logprobs": 5, "temperature": 1.0, "seed": 3, "ignore_eos": True}
        whole = await rig.decoded(rig.work(prompt, **fields), rig.reference)
        for k in (1, 4, 11):
            rest = await rig.decoded(rig.work(prompt, output=whole.ids[:k], **fields))
            assert rest.ids == whole.ids[k:]
            assert_same_rows(rows(rest), rows(whole)[k:])

    async def test_logprobs_travel_only_when_asked_for(self, rig: Rig) -> None:
        told = await rig.decoded(rig.work(rig.prompt(20)))
        assert all(output.logprobs == output.prompt_logprobs == b"" for output in told.outputs)

    async def test_stop_token_has_no_logprobs(self, rig: Rig) -> None:
        prompt = rig.prompt(33)
        answer = await rig.expected(prompt, ignore_eos=True)
        stop = next(t for t in answer[2:] if answer.index(t) >= 2)
        told = await rig.decoded(rig.work(prompt, stop_token_ids=[stop], logprobs=2, ignore_eos=True))
        assert len(rows(told)) == len(told.ids) == answer.index(stop)

    async def test_prompt_logprobs_come_once_and_whole_with_a_warm_cache_too(self, rig: Rig) -> None:
        prompt = rig.prompt(3 * rig.prefill_info.block_size + 7)
        await rig.decoded(rig.work(prompt))
        told = await rig.decoded(rig.work(prompt, prompt_logprobs=3, logprobs=3))
        first = unpack(told.outputs[0].prompt_logprobs, 3)
        assert len(first) == len(prompt) - 1
        assert all(output.prompt_logprobs == b"" for output in told.outputs[1:])
        assert len(rows(told)) == len(told.ids)

    async def test_prompt_logprobs_are_what_the_tokens_have_as_output(self, rig: Rig) -> None:
        prompt = rig.prompt(30)
        whole = await rig.decoded(rig.work(prompt, logprobs=2, ignore_eos=True))
        scored = await rig.decoded(rig.work(prompt + whole.ids, prompt_logprobs=2, max_tokens=1))
        found = unpack(scored.outputs[0].prompt_logprobs, 2)
        assert_same_rows(found[len(prompt) - 1 :], rows(whole))

    # -- which tokens may come

    async def test_allowed_tokens_are_kept_over_the_handover(self, rig: Rig) -> None:
        prompt = rig.prompt(40)
        fields: dict[str, Any] = {"allowed_token_ids": [11, 25, 40], "ignore_eos": True}
        first, kv = await rig.handed_over(prompt, **fields)
        rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv, **fields))
        assert {first, *rest.ids} <= {11, 25, 40}
        assert len(rest.ids) == 11

    async def test_logit_bias_bans_and_forces(self, rig: Rig) -> None:
        prompt = rig.prompt(40)
        answer = await rig.expected(prompt, ignore_eos=True)
        banned: dict[str, Any] = {"logit_bias": {answer[0]: -100, answer[2]: -100}, "ignore_eos": True}
        first, kv = await rig.handed_over(prompt, **banned)
        rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv, **banned))
        assert not {answer[0], answer[2]} & {first, *rest.ids}
        forced = await rig.decoded(rig.work(prompt, logit_bias={17: 100}, ignore_eos=True))
        assert set(forced.ids) == {17}

    async def test_bad_words_that_span_the_handover_do_not_come(self, rig: Rig) -> None:
        prompt = rig.prompt(40)
        answer = await rig.expected(prompt, ignore_eos=True)
        for word in ([answer[0], answer[1]], answer[0:3], [answer[2]]):
            fields: dict[str, Any] = {"bad_words": [word], "ignore_eos": True}
            first, kv = await rig.handed_over(prompt, **fields)
            rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv, **fields))
            told = [first, *rest.ids]
            assert all(told[i : i + len(word)] != word for i in range(len(told)))
            assert told[: len(word) - 1] == answer[: len(word) - 1]

    async def test_min_p_of_one_leaves_the_likeliest_token(self, rig: Rig) -> None:
        prompt = rig.prompt(40)
        answer = await rig.expected(prompt, ignore_eos=True)
        first, kv = await rig.handed_over(prompt, ignore_eos=True)
        work = rig.work(prompt, output=[first], kv=kv, min_p=1.0, temperature=1.0, seed=5, ignore_eos=True)
        rest = await rig.decoded(work)
        if rig.is_model:
            assert [first, *rest.ids] == answer
        assert rest.last.finish_reason == "length"

    # -- answers of a shape

    @pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 11}], ids=["greedy", "seeded"])
    async def test_json_is_valid_wherever_the_handover_falls(
        self, rig: Rig, sampling: dict[str, Any]
    ) -> None:
        prompt = rig.prompt(40)
        fields = {**json_schema(SCHEMA), "max_tokens": 300, **sampling}
        whole = await rig.decoded(rig.work(prompt, **fields), rig.reference)
        assert whole.last.finish_reason == "stop", rig.text(whole.ids)
        answer = json.loads(rig.text(whole.ids))
        assert answer["city"] in ("Oslo", "Rome")
        assert 0 <= answer["count"] <= 99
        assert set(answer) == {"city", "count", "is_open"}
        first, kv = await rig.handed_over(prompt, **fields)
        rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv, **fields))
        assert [first, *rest.ids] == whole.ids
        for k in range(1, len(whole.ids)):
            rest = await rig.decoded(rig.work(prompt, output=whole.ids[:k], **fields))
            assert whole.ids[:k] + rest.ids == whole.ids, k
            assert rest.last.finish_reason == "stop"

    async def test_choice_is_one_of_them(self, rig: Rig) -> None:
        prompt = rig.prompt(40)
        fields: dict[str, Any] = {
            "structured": {"kind": "choice", "spec": '["left", "right"]'},
            "max_tokens": 20,
        }
        first, kv = await rig.handed_over(prompt, **fields)
        rest = await rig.decoded(rig.work(prompt, output=[first], kv=kv, **fields))
        assert rig.text([first, *rest.ids]) in ("left", "right")

    async def test_json_object_begins_as_one(self, rig: Rig) -> None:
        fields: dict[str, Any] = {"structured": {"kind": "json_object"}, "max_tokens": 16}
        told = await rig.decoded(rig.work(rig.prompt(40), **fields))
        assert rig.text(told.ids).lstrip().startswith("{")

    async def test_grammar_that_cannot_be_had_fails_alone(self, rig: Rig) -> None:
        neighbours = [Recorder(rig.work(rig.prompt(30), max_tokens=60, ignore_eos=True)) for _ in range(4)]
        for neighbour in neighbours:
            rig.decode.decode(neighbour.work, neighbour)
        odd: list[dict[str, Any]] = [
            json_schema({"type": "banana"}),
            json_schema({"$ref": "#/nowhere"}),
            {"structured": {"kind": "json_schema", "spec": "{"}},
            {"structured": {"kind": "regex", "spec": "(("}},
            {"structured": {"kind": "grammar", "spec": "root ::= nowhere"}},
            {"structured": {"kind": "choice", "spec": "[]"}},
        ]
        for submit in (rig.prefill.prefill, rig.decode.decode):
            for fields in odd:
                recorder = Recorder(rig.work(rig.prompt(20), **fields))
                submit(recorder.work, recorder)
                told = await rig.ended(recorder)
                assert told.last.error == "invalid_grammar", (fields, told.last)
                assert told.ids == []
        await asyncio.gather(*map(rig.ended, neighbours))
        assert all(len(neighbour.ids) == 60 for neighbour in neighbours)
        await rig.idle(rig.prefill)

"""Answers of other shapes through the whole system, as the official client reads them: log probabilities,
several answers, an echoed prompt, JSON. The hand-over falls after the first token."""

import json
import math
from typing import Annotated, Any, Literal

import openai
import pydantic
import pytest
from openai.types.chat import ChatCompletionMessageParam
from tests.e2e.raw_http import post
from tests.e2e.system import MODEL, log_of
from tests.stack import Stack

CHAT: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Tell me something."}]
LONG: dict[str, Any] = {"ignore_eos": True}
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Oslo", "Rome"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["city", "count"],
    "additionalProperties": False,
}


def fields(**own: Any) -> dict[str, Any]:
    extra = {**LONG, **own.pop("extra_body", {})}
    return {"model": MODEL, "temperature": 0, "max_tokens": 12, "extra_body": extra, **own}


# -- log probabilities


@pytest.mark.parametrize("num_top", [0, 5, 20])
def test_chat_logprobs_cover_the_text_token_by_token(client: openai.OpenAI, num_top: int) -> None:
    asked = fields(messages=CHAT, logprobs=True, top_logprobs=num_top)
    [choice] = client.chat.completions.create(**asked).choices
    assert choice.logprobs is not None
    content = choice.logprobs.content
    assert content is not None
    assert len(content) == 12
    spelled = b"".join(bytes(token.bytes or []) for token in content)
    assert spelled.decode(errors="ignore").startswith(choice.message.content or "")
    for token in content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == num_top
        likeliest = [other.logprob for other in token.top_logprobs]
        assert likeliest == sorted(likeliest, reverse=True)
        if num_top:  # greedy: the likeliest token is the one that came, or ties with it
            assert token.top_logprobs[0].logprob == pytest.approx(token.logprob, abs=1e-2)
        assert sum(math.exp(logprob) for logprob in likeliest) < 1.001


def test_streamed_logprobs_are_those_of_the_body_and_go_with_their_text(client: openai.OpenAI) -> None:
    asked = fields(messages=CHAT, logprobs=True, top_logprobs=3)
    whole = client.chat.completions.create(**asked).choices[0]
    with client.chat.completions.create(**asked, stream=True) as stream:
        chunks = [chunk.choices[0] for chunk in stream]
    streamed = [token for c in chunks if c.logprobs for token in c.logprobs.content or []]
    assert whole.logprobs is not None
    assert [token.bytes for token in streamed] == [token.bytes for token in whole.logprobs.content or []]
    for ours, theirs in zip(streamed, whole.logprobs.content or [], strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-2)
    text, spelled = "", b""
    for chunk in chunks:
        text += chunk.delta.content or ""
        spelled += b"".join(
            bytes(t.bytes or []) for t in (chunk.logprobs.content if chunk.logprobs else None) or []
        )
        assert spelled.decode(errors="replace").startswith(text.rstrip("\ufffd"))
    assert text == whole.message.content


def test_stop_string_leaves_no_logprobs_behind_it(client: openai.OpenAI) -> None:
    """A02 with log probabilities: the stop string spans the hand-over and several tokens."""
    whole = client.chat.completions.create(**fields(messages=CHAT)).choices[0].message.content or ""
    for start, end in ((0, 2), (1, 9), (5, 7)):
        stop = whole[start:end]
        cut = whole.find(stop)
        [choice] = client.chat.completions.create(**fields(messages=CHAT, stop=stop, logprobs=True)).choices
        assert choice.message.content == whole[:cut]
        assert choice.finish_reason == "stop"
        assert choice.logprobs is not None
        tokens = choice.logprobs.content or []
        spelled = b"".join(bytes(token.bytes or []) for token in tokens).decode(errors="replace")
        assert spelled.startswith(whole[:cut])
        shorter = b"".join(bytes(token.bytes or []) for token in tokens[:-1]).decode(errors="replace")
        assert len(shorter) < cut or not tokens


def test_completion_logprobs_have_openais_shape(client: openai.OpenAI) -> None:
    [choice] = client.completions.create(**fields(prompt="Once upon", logprobs=2)).choices
    found = choice.logprobs
    assert found is not None
    assert found.tokens is not None
    assert found.text_offset is not None
    assert found.top_logprobs is not None
    assert found.token_logprobs is not None
    assert len(found.tokens) == len(found.text_offset) == len(found.token_logprobs) == 12
    assert all(len(alternatives) in (2, 3) for alternatives in found.top_logprobs)
    assert found.text_offset[0] == 0
    assert found.text_offset == sorted(found.text_offset)
    for token, offset in zip(found.tokens, found.text_offset, strict=True):
        if not token.startswith("bytes:") and "\ufffd" not in choice.text:
            assert choice.text[offset : offset + len(token)] == token


def test_answer_without_logprobs_says_null(client: openai.OpenAI) -> None:
    assert client.chat.completions.create(**fields(messages=CHAT)).choices[0].logprobs is None
    assert client.completions.create(**fields(prompt="x")).choices[0].logprobs is None


# -- the prompt's


def test_echo_puts_the_prompt_before_the_answer(client: openai.OpenAI) -> None:
    prompt = "Once upon a time"
    plain = client.completions.create(**fields(prompt=prompt))
    echoed = client.completions.create(**fields(prompt=prompt, echo=True))
    assert echoed.choices[0].text == prompt + plain.choices[0].text
    assert echoed.usage == plain.usage or echoed.usage is not None
    with client.completions.create(**fields(prompt=prompt, echo=True), stream=True) as stream:
        assert "".join(chunk.choices[0].text for chunk in stream) == echoed.choices[0].text


@pytest.mark.parametrize("is_stream", [False, True])
def test_echo_with_logprobs_scores_the_prompt_too(client: openai.OpenAI, is_stream: bool) -> None:
    prompt = "Once upon a time"
    asked = fields(prompt=prompt, echo=True, logprobs=1, max_tokens=3)
    if is_stream:
        with client.completions.create(**asked, stream=True) as stream:
            parts = [chunk.choices[0].logprobs for chunk in stream]
        tokens = [token for part in parts if part for token in part.tokens or []]
        scores = [score for part in parts if part for score in part.token_logprobs or []]
        offsets = [offset for part in parts if part for offset in part.text_offset or []]
    else:
        answer = client.completions.create(**asked)
        found = answer.choices[0].logprobs
        assert found is not None
        tokens, scores, offsets = found.tokens or [], found.token_logprobs or [], found.text_offset or []
        assert answer.usage is not None
        assert len(tokens) == answer.usage.prompt_tokens + 3
    assert scores[0] is None
    assert all(score is not None and score <= 0 for score in scores[1:])
    assert offsets == sorted(offsets)
    assert "".join(tokens[:-3]).endswith(prompt)


def test_prompt_logprobs_score_every_token_but_the_first(stack: Stack) -> None:
    body = {"model": MODEL, "messages": CHAT, "max_tokens": 2, "prompt_logprobs": 2, "temperature": 0}
    answer = post(stack.url, body, stack.keys["plain"])
    assert answer.status == 200, answer.body
    found = json.loads(answer.body)
    first, *others = found["prompt_logprobs"]
    assert first is None
    assert len(others) + 1 == found["usage"]["prompt_tokens"]
    for position in others:
        assert len(position) in (2, 3)
        assert all(entry["logprob"] <= 0 and entry["rank"] >= 1 for entry in position.values())


def test_prompt_too_long_to_be_scored_is_a_400(stack: Stack) -> None:
    body = {"model": MODEL, "prompt": [300] * 7000, "max_tokens": 1, "prompt_logprobs": 20}
    answer = post(stack.url, body, stack.keys["plain"], path="/v1/completions")
    assert (answer.status, answer.error["param"]) == (400, "prompt_logprobs")


# -- several answers


def test_several_answers_are_those_of_their_seeds(client: openai.OpenAI) -> None:
    def one(seed: int) -> str:
        answer = client.chat.completions.create(**{**fields(messages=CHAT, seed=seed), "temperature": 1})
        return str(answer.choices[0].message.content)

    asked = {**fields(messages=CHAT, seed=5, n=3), "temperature": 1}
    whole = client.chat.completions.create(**asked)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    assert [choice.message.content for choice in whole.choices] == [one(5), one(6), one(7)]
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 36
    assert whole.usage.prompt_tokens == client_prompt_tokens(client)


def client_prompt_tokens(client: openai.OpenAI) -> int:
    usage = client.chat.completions.create(**fields(messages=CHAT)).usage
    assert usage is not None
    return int(usage.prompt_tokens)


def test_several_answers_stream_side_by_side_with_one_end_each(client: openai.OpenAI, stack: Stack) -> None:
    asked = {**fields(messages=CHAT, seed=5, n=4, logprobs=True), "temperature": 1}
    whole = client.chat.completions.create(**asked)
    with client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    *deltas, last = chunks
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.completion_tokens, last.usage.prompt_tokens) == (48, client_prompt_tokens(client))
    texts, roles, reasons = [""] * 4, [0] * 4, [0] * 4
    num_scored = [0] * 4
    for chunk in deltas:
        [choice] = chunk.choices
        assert reasons[choice.index] == 0, "nothing after an answer's final chunk"
        texts[choice.index] += choice.delta.content or ""
        roles[choice.index] += choice.delta.role is not None
        reasons[choice.index] += choice.finish_reason is not None
        num_scored[choice.index] += len((choice.logprobs.content if choice.logprobs else None) or [])
    assert texts == [choice.message.content for choice in whole.choices]
    assert (roles, reasons, num_scored) == ([1] * 4, [1] * 4, [12] * 4)


def test_several_answers_count_once_in_the_log(stack: Stack) -> None:
    body = {"model": MODEL, "messages": CHAT, "max_tokens": 3, "n": 2, **LONG}
    answer = post(stack.url, body, stack.keys["plain"])
    line = log_of(stack, answer.headers["x-request-id"])
    assert (line["status"], line["num_completion_tokens"]) == (200, 6)


def test_several_completions_carry_their_indexes(client: openai.OpenAI) -> None:
    answer = client.completions.create(**fields(prompt="Once", n=3))
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.text for choice in answer.choices}) == 1  # greedy


# -- constraints and shapes


def test_logit_bias_and_allowed_tokens_decide_what_comes(client: openai.OpenAI) -> None:
    forced = client.chat.completions.create(
        **fields(messages=CHAT, logit_bias={"300": 100}, logprobs=True)
    ).choices[0]
    assert forced.logprobs is not None
    assert len({tuple(token.bytes or ()) for token in forced.logprobs.content or []}) == 1
    allowed = client.chat.completions.create(
        **fields(messages=CHAT, logprobs=True, extra_body={"allowed_token_ids": [300, 301]})
    ).choices[0]
    assert allowed.logprobs is not None
    assert len({tuple(token.bytes or ()) for token in allowed.logprobs.content or []}) <= 2


def test_bad_word_does_not_come(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(**fields(messages=CHAT, logprobs=True)).choices[0]
    assert plain.logprobs is not None
    words = [token.token for token in plain.logprobs.content or []]
    word = next(word for word in words if word.isascii() and word.strip() == word != "")
    other = client.chat.completions.create(
        **fields(messages=CHAT, logprobs=True, extra_body={"bad_words": [word]})
    ).choices[0]
    assert other.logprobs is not None
    assert word not in [token.token for token in other.logprobs.content or []]


@pytest.mark.parametrize("is_stream", [False, True])
def test_json_schema_is_kept(client: openai.OpenAI, is_stream: bool) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": CHAT,
        "temperature": 0,
        "max_tokens": 200,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "place", "schema": SCHEMA, "strict": True},
        },
    }
    if is_stream:
        with client.chat.completions.create(**asked, stream=True) as stream:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    else:
        text = client.chat.completions.create(**asked).choices[0].message.content or ""
    answer = json.loads(text)
    assert set(answer) == {"city", "count"}
    assert answer["city"] in ("Oslo", "Rome")
    assert 0 <= answer["count"] <= 99


class Place(pydantic.BaseModel):
    """What a user of the client's ``parse`` writes."""

    model_config = pydantic.ConfigDict(extra="forbid")
    city: Literal["Oslo", "Rome"]
    is_open: bool
    roads: Annotated[list[Literal["north", "east"]], pydantic.Field(min_length=2, max_length=3)]


def test_official_client_parses_an_answer_into_a_model(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(model=MODEL, messages=CHAT, max_tokens=200, response_format=Place)
    place = answer.choices[0].message.parsed
    assert place is not None
    assert 2 <= len(place.roads) <= 3
    with client.chat.completions.stream(
        model=MODEL, messages=CHAT, max_tokens=200, response_format=Place
    ) as stream:
        final = stream.get_final_completion().choices[0]
    assert final.message.parsed is not None
    assert final.finish_reason == "stop"


def test_several_json_answers_are_all_valid(client: openai.OpenAI) -> None:
    shape = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
    answer = client.chat.completions.create(
        model=MODEL,
        messages=CHAT,
        n=3,
        seed=1,
        temperature=1,
        max_tokens=200,
        response_format=shape,  # type: ignore[call-overload]
    )
    for choice in answer.choices:
        assert set(json.loads(choice.message.content or "")) == {"city", "count"}


def test_choice_is_one_of_them(client: openai.OpenAI) -> None:
    extra = {"structured_outputs": {"choice": ["left", "right"]}}
    answer = client.chat.completions.create(model=MODEL, messages=CHAT, max_tokens=20, extra_body=extra)
    assert answer.choices[0].message.content in ("left", "right")


@pytest.mark.parametrize("is_stream", [False, True])
def test_shape_that_no_engine_can_have_is_a_400_that_names_the_field(stack: Stack, is_stream: bool) -> None:
    """Found by the worker, after dispatch: neither engine takes this expression."""
    body = {"model": MODEL, "messages": CHAT, "guided_regex": "((", "stream": is_stream}
    answer = post(stack.url, body, stack.keys["plain"])
    assert answer.status == 400, answer.body
    assert (answer.error["param"], answer.error["code"]) == ("guided_regex", "invalid_grammar")

"""The surface as the official client sees it: shapes, usage, finish reasons, errors, models."""

from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam
from tests.e2e.raw_http import DONE, post
from tests.e2e.system import MODEL
from tests.stack import Stack

CHAT: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Tell me something."}]
TO_THE_LIMIT: dict[str, Any] = {"ignore_eos": True}
"""Makes the length of an answer the client's choice."""


def stream_chat(client: openai.OpenAI, **fields: Any) -> list[ChatCompletionChunk]:
    limits: dict[str, Any] = {"max_tokens": 8} | fields
    with client.chat.completions.create(
        model=MODEL, messages=CHAT, temperature=0, stream=True, **limits
    ) as stream:
        return list(stream)


def test_chat_answers_in_one_body(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=CHAT, temperature=0, max_tokens=8, extra_body=TO_THE_LIMIT
    )
    assert answer.object == "chat.completion"
    assert answer.model == MODEL
    assert answer.id.startswith("chatcmpl-")
    [choice] = answer.choices
    assert (choice.index, choice.finish_reason, choice.message.role) == (0, "length", "assistant")
    assert choice.message.content
    assert choice.message.tool_calls is None
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8
    assert answer.usage.prompt_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8


def test_chat_streams_the_same_text_as_the_body(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"max_tokens": 24, "extra_body": TO_THE_LIMIT}
    whole = client.chat.completions.create(model=MODEL, messages=CHAT, temperature=0, **fields)
    chunks = stream_chat(client, **fields)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content


def test_chat_stream_has_role_first_and_one_finish_reason_last(client: openai.OpenAI) -> None:
    """A06, the part without tools: every chunk but the final one says ``finish_reason: null``."""
    chunks = stream_chat(client, extra_body=TO_THE_LIMIT)
    assert {(chunk.object, chunk.id, chunk.created, chunk.model) for chunk in chunks} == {
        ("chat.completion.chunk", chunks[0].id, chunks[0].created, MODEL)
    }
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert [delta.role for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["length"]
    assert not deltas[-1].content
    assert all(delta.tool_calls is None for delta in deltas)
    assert all(chunk.usage is None for chunk in chunks)


def test_chat_stream_has_one_usage_chunk_when_asked(client: openai.OpenAI) -> None:
    chunks = stream_chat(client, stream_options={"include_usage": True}, extra_body=TO_THE_LIMIT)
    *others, last = chunks
    assert all(chunk.usage is None for chunk in others)
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 8
    assert last.usage.total_tokens == last.usage.prompt_tokens + 8
    whole = client.chat.completions.create(
        model=MODEL, messages=CHAT, temperature=0, max_tokens=8, extra_body=TO_THE_LIMIT
    )
    assert whole.usage is not None
    assert last.usage.prompt_tokens == whole.usage.prompt_tokens


def test_stream_ends_with_exactly_one_done(stack: Stack) -> None:
    """A04 (c): one ``[DONE]``, nothing after it; the headers let no proxy hold events back."""
    body = {"model": MODEL, "messages": CHAT, "max_tokens": 8, "stream": True}
    answer = post(stack.url, body, stack.keys["plain"])
    assert answer.status == 200
    assert answer.headers.get_content_type() == "text/event-stream"
    assert "no-cache" in answer.headers["cache-control"]
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["content-encoding"] is None
    assert [event for event in answer.events if event == DONE] == [DONE]
    assert answer.events[-1] == DONE
    assert len(answer.finish_reasons) == 1


@pytest.mark.parametrize("num_tokens", [1, 2, 3])
@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_limit_is_exact_on_both_sides_of_the_hand_over(
    client: openai.OpenAI, num_tokens: int, limit: str
) -> None:
    """P06: prefill makes token 1 and decode the rest; the client sees one answer of the asked length."""
    fields: dict[str, Any] = {limit: num_tokens, "extra_body": TO_THE_LIMIT}
    whole = client.chat.completions.create(model=MODEL, messages=CHAT, temperature=0, **fields)
    assert whole.usage is not None
    assert whole.usage.completion_tokens == num_tokens
    assert whole.choices[0].finish_reason == "length"
    with client.chat.completions.create(
        model=MODEL, messages=CHAT, temperature=0, stream=True, **fields
    ) as stream:
        chunks = list(stream)
    assert chunks[-1].choices[0].finish_reason == "length"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content


def test_two_equal_limits_are_one_and_two_different_ones_are_refused(client: openai.OpenAI) -> None:
    both = client.chat.completions.create(
        model=MODEL, messages=CHAT, max_tokens=2, max_completion_tokens=2, extra_body=TO_THE_LIMIT
    )
    assert both.usage is not None
    assert both.usage.completion_tokens == 2
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=CHAT, max_tokens=2, max_completion_tokens=3)
    assert caught.value.param == "max_tokens"


def test_completion_answers_and_streams_the_same(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"model": MODEL, "prompt": "Once upon a time", "temperature": 0}
    whole = client.completions.create(**fields, max_tokens=12, extra_body=TO_THE_LIMIT)
    assert whole.object == "text_completion"
    [choice] = whole.choices
    assert (choice.index, choice.finish_reason) == (0, "length")
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 12
    with client.completions.create(**fields, max_tokens=12, stream=True, extra_body=TO_THE_LIMIT) as stream:
        chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == choice.text
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == [
        "length"
    ]


def test_completion_takes_token_ids_as_the_prompt(client: openai.OpenAI) -> None:
    ids = [300 + i for i in range(40)]
    answer = client.completions.create(model=MODEL, prompt=ids, max_tokens=1)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 40


def test_models_are_listed_and_looked_up_by_name(client: openai.OpenAI) -> None:
    [model] = list(client.models.list())
    assert (model.id, model.object, model.owned_by) == (MODEL, "model", "sub100")
    assert client.models.retrieve(MODEL) == model
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("another-model")
    assert caught.value.code == "model_not_found"


def test_client_errors_become_the_official_exceptions(stack: Stack) -> None:
    with openai.OpenAI(base_url=f"{stack.url}/v1", api_key="sk-wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError) as refused:
            stranger.models.list()
        assert refused.value.code == "invalid_api_key"
    with openai.OpenAI(base_url=f"{stack.url}/v1", api_key=stack.keys["plain"], max_retries=0) as known:
        with pytest.raises(openai.NotFoundError) as unknown:
            known.chat.completions.create(model="gpt-5", messages=CHAT)
        assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.BadRequestError) as invalid:
            known.chat.completions.create(model=MODEL, messages=CHAT, temperature=3)
        assert (invalid.value.param, invalid.value.type) == ("temperature", "invalid_request_error")


def test_seed_repeats_a_sampled_answer(client: openai.OpenAI) -> None:
    def sample(seed: int) -> str:
        answer = client.chat.completions.create(
            model=MODEL, messages=CHAT, temperature=1, seed=seed, max_tokens=16, extra_body=TO_THE_LIMIT
        )
        return answer.choices[0].message.content or ""

    texts = {seed: sample(seed) for seed in (1, 2, 3, 4)}
    assert {seed: sample(seed) for seed in texts} == texts
    assert len(set(texts.values())) > 1


def test_penalties_and_top_p_are_accepted_at_their_ends(client: openai.OpenAI) -> None:
    for fields in (
        {"top_p": 0.01, "presence_penalty": 2, "frequency_penalty": -2},
        {"top_p": 1, "presence_penalty": -2, "frequency_penalty": 2, "temperature": 2},
    ):
        answer = client.chat.completions.create(
            model=MODEL, messages=CHAT, max_tokens=4, extra_body={**TO_THE_LIMIT, **fields}
        )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 4

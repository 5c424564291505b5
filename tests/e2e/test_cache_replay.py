"""C11: a hit is what the miss was, in the form that was asked for, and far sooner."""

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.e2e.raw_http import DONE, LiveStream, post
from tests.e2e.slow import prompt_of_steps, slow_stack
from tests.e2e.system import MODEL, sim_only
from tests.e2e.test_cache_field_cases import assistant, body, fill, hits, is_hit, user
from tests.patience import at_best
from tests.stack import Stack

pytestmark = sim_only
STEP_S = 0.05
NUM_STEPS = 8
WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture(scope="module")
def own(tiny_model: Path) -> Iterator[Stack]:
    with slow_stack(tiny_model, STEP_S, SUB100_SIM_ANSWER_MAX_TOKENS="8") as running:
        yield running


@pytest.fixture
def client(own: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{own.url}/v1", api_key=own.keys["similar"], max_retries=0) as made:
        yield made


def plain() -> dict[str, Any]:
    return body(user(f"Say something {secrets.token_hex(4)}."))


def after_tools() -> dict[str, Any]:
    """The answer of an agent's last turn: calls and their results are in what it was asked."""
    function = {"name": "weather", "arguments": '{"place": "Oslo"}'}
    call = {"id": f"call_{secrets.token_hex(4)}", "type": "function", "function": function}
    return body(
        user("How is the weather in Oslo?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": f"rain {secrets.token_hex(4)}"},
        user("So?"),
    )


@pytest.mark.parametrize("fills_with_stream", [True, False], ids=["stream fills", "body fills"])
@pytest.mark.parametrize("question", [plain, after_tools])
def test_openai_client_reads_a_hit_that_was_filled_the_other_way(
    own: Stack, client: openai.OpenAI, question: Any, fills_with_stream: bool
) -> None:
    """Same text, finish reason and usage; no tool calls where there were none; a new id, a later date."""
    request = question()
    began_s = int(time.time())
    miss = fill(own, request | (WITH_USAGE if fills_with_stream else {}))
    assert is_hit(hits(own, request))

    whole: Any = client.chat.completions.create(**request)
    streamed: Any = request | WITH_USAGE
    chunks = list(client.chat.completions.create(**streamed))

    choice = whole.choices[0]
    assert choice.message.tool_calls is None
    assert choice.finish_reason == "stop"
    first, *_, last, usage = chunks
    assert first.choices[0].delta.role == "assistant"
    assert not any(chunk.choices[0].delta.tool_calls for chunk in chunks[:-1])
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == choice.message.content
    assert last.choices[0].finish_reason == "stop"
    assert usage.usage == whole.usage
    ids = {whole.id, *(chunk.id for chunk in chunks)}
    assert len(ids) == 2
    dates = {whole.created, *(chunk.created for chunk in chunks)}
    assert min(dates) >= began_s
    told = miss.chunks if fills_with_stream else [miss.json]
    assert told[0]["id"] not in ids
    assert told[-1]["usage"]["total_tokens"] == whole.usage.total_tokens
    told_text = miss.text if fills_with_stream else told[0]["choices"][0]["message"]["content"]
    assert told_text == choice.message.content


def test_replayed_stream_begins_with_the_role_and_ends_with_done(own: Stack) -> None:
    request = plain()
    fill(own, request)
    hit = hits(own, request | {"stream": True})
    assert hit.chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert hit.events[-1] == DONE
    assert hit.events.count(DONE) == 1
    assert len(hit.chunks) > 3, "not in one lump"
    assert all("tool_calls" not in choice["delta"] for chunk in hit.chunks for choice in chunk["choices"])


def test_first_token_of_a_hit_is_far_sooner_than_that_of_a_miss(own: Stack) -> None:
    """A prompt of several steps: ``NUM_STEPS * STEP_S`` without the cache."""
    request = prompt_of_steps(NUM_STEPS, salt=secrets.token_hex(4)) | {"stream": True, "max_tokens": 200}
    del request["ignore_eos"]
    missed_s = first_token_s(own, request)
    hits(own, request)
    assert missed_s >= (NUM_STEPS - 1) * STEP_S
    at_best(lambda: first_token_s(own, request), missed_s / 4, "the first token of a hit after")


def first_token_s(own: Stack, request: dict[str, Any]) -> float:
    began_s = time.monotonic()
    with LiveStream(own.url, request, own.keys["similar"]) as stream:
        stream.next_text()
        found_s = time.monotonic() - began_s
        assert stream.rest()[-1] == DONE
    return found_s


@pytest.mark.parametrize(
    "change",
    [
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
        {"tool_choice": "required"},
        {"reasoning_effort": "high"},
        {"reasoning": {"effort": "high"}},
        {"modalities": ["text", "audio"]},
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"model": f"{MODEL}-2"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_request_for_what_is_not_served_is_not_answered_from_the_cache(
    own: Stack, change: dict[str, Any]
) -> None:
    """C05 and C11: with tools, reasoning settings or another model it is another question."""
    request = plain()
    fill(own, request)
    answer = post(own.url, request | change, own.keys["similar"])
    assert answer.status == 200 or answer.error["code"]
    assert answer.headers["x-sub100-cache"] not in ("exact", "semantic", "joined")


def test_image_beside_the_same_text_is_not_answered_from_the_cache(own: Stack) -> None:
    """C05."""
    text = f"What is this {secrets.token_hex(4)}?"
    fill(own, body(user(text)))
    image = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/x.png"}}
    parts = [{"type": "text", "text": text}, image]
    for content in (parts, parts[::-1]):
        request = body({"role": "user", "content": content})
        assert post(own.url, request, own.keys["similar"]).error["code"]


def test_answer_of_another_conversation_with_the_same_tool_result_is_not_reused(own: Stack) -> None:
    """C04: the same result and last turn, after another call."""
    one = after_tools()
    other = body(*one["messages"])
    call = one["messages"][1]["tool_calls"][0]
    function = {"name": "weather", "arguments": '{"place": "Bergen"}'}
    other["messages"][1] = assistant("") | {"content": None, "tool_calls": [call | {"function": function}]}
    fill(own, one)
    assert not is_hit(post(own.url, other, own.keys["similar"]))
    hits(own, one)

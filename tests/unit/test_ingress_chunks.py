import json
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sub100_ingress import chunks
from sub100_ingress.chunks import ChatChunks, ChunkWriter, CompletionChunks, Usage
from sub100_ingress.errors_http import error_body
from sub100_shared.errors import ClientError, Evicted, Refused, Sub100Error

USAGE = Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=5)
ACCOUNT = {"tier": "cold", "ttft_ms": 12.5}
USAGE_JSON = {
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "total_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 5},
}


def event(data: bytes) -> Any:
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    assert data.count(b"\n") == 2
    return json.loads(data.removeprefix(b"data: "))


def writer(kind: type[ChunkWriter], *, include_usage: bool = False) -> ChunkWriter:
    return kind(request_id="req-1", model='m"1', include_usage=include_usage, created=123)


def test_chat_stream_has_openai_chunks() -> None:
    w = writer(ChatChunks)
    first, delta, final = event(w.role()), event(w.delta("hé\n")), event(w.final("length"))
    answer_id = first.pop("id")
    assert answer_id.startswith("chatcmpl-req-1-")
    assert delta.pop("id") == final.pop("id") == answer_id
    common = {"object": "chat.completion.chunk", "created": 123, "model": 'm"1'}

    def choice(delta: dict[str, str], finish_reason: str | None) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}

    assert first == {**common, "choices": [choice({"role": "assistant", "content": ""}, None)]}
    assert delta == {**common, "choices": [choice({"content": "hé\n"}, None)]}
    assert final == {**common, "choices": [choice({}, "length")]}


def test_completion_stream_has_openai_chunks() -> None:
    w = writer(CompletionChunks)
    assert w.role() == b""
    delta, final = event(w.delta("x")), event(w.final("stop"))
    assert delta.pop("id") == final.pop("id")
    common = {"object": "text_completion", "created": 123, "model": 'm"1'}
    assert delta == {
        **common,
        "choices": [{"index": 0, "text": "x", "logprobs": None, "finish_reason": None}],
    }
    assert final == {
        **common,
        "choices": [{"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}],
    }


@pytest.mark.parametrize("kind", [ChatChunks, CompletionChunks])
def test_stream_with_usage_has_it_in_the_last_chunk_only(kind: type[ChunkWriter]) -> None:
    w = writer(kind, include_usage=True)
    for data in filter(None, (w.role(), w.delta("x"), w.final("stop"))):
        assert event(data)["usage"] is None
    last = event(w.usage(USAGE, json.dumps(ACCOUNT).encode()))
    assert (last["choices"], last["usage"], last["sub100"]) == ([], USAGE_JSON, ACCOUNT)


@pytest.mark.parametrize("kind", [ChatChunks, CompletionChunks])
def test_stream_without_usage_has_no_usage_key(kind: type[ChunkWriter]) -> None:
    w = writer(kind)
    assert not any("usage" in event(data) for data in filter(None, (w.role(), w.delta("x"), w.final("stop"))))


@given(st.text())
def test_delta_carries_any_text_as_valid_utf8_on_one_line(text: str) -> None:
    data = writer(ChatChunks).delta(text)
    data.decode("utf-8")
    assert event(data)["choices"][0]["delta"]["content"] == text


def test_chat_body_has_openai_shape_and_no_tool_calls() -> None:
    body = json.loads(
        (w := writer(ChatChunks)).body([w.whole("hi", "stop")], USAGE, sub100=json.dumps(ACCOUNT).encode())
    )
    assert body.pop("id").startswith("chatcmpl-req-1-")
    assert body == {
        "object": "chat.completion",
        "created": 123,
        "model": 'm"1',
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hi", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE_JSON,
        "sub100": ACCOUNT,
    }


def test_completion_body_has_openai_shape() -> None:
    body = json.loads(
        (w := writer(CompletionChunks)).body(
            [w.whole("hi", "length")], USAGE, sub100=json.dumps(ACCOUNT).encode()
        )
    )
    assert body["choices"] == [{"index": 0, "text": "hi", "logprobs": None, "finish_reason": "length"}]
    assert (body["object"], body["usage"]) == ("text_completion", USAGE_JSON)


def test_answers_to_one_request_id_have_different_ids() -> None:
    first, second = (event(writer(ChatChunks).final("stop"))["id"] for _ in range(2))
    assert first != second


def test_sse_constants_are_a_done_event_and_a_comment() -> None:
    assert chunks.DONE == b"data: [DONE]\n\n"
    assert chunks.KEEP_ALIVE.startswith(b":")
    assert chunks.KEEP_ALIVE.endswith(b"\n\n")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ClientError("invalid_value", 'bad "x"', param="messages[0].role"), "invalid_request_error"),
        (ClientError("invalid_api_key", "no"), "authentication_error"),
        (ClientError("model_not_found", "no", param="model"), "invalid_request_error"),
        (ClientError("request_too_large", "no"), "invalid_request_error"),
        (Refused("rate_limit_exceeded", "no"), "rate_limit_error"),
        (Refused("no_capacity", "no"), "server_error"),
        (Evicted("worker_lost", "no"), "server_error"),
    ],
)
def test_error_body_has_openai_shape(error: Sub100Error, kind: str) -> None:
    expected = {
        "error": {"message": error.message, "type": kind, "param": error.param, "code": error.code},
        "request_id": "req-1",
    }
    assert json.loads(error_body(error, "req-1")) == expected
    assert event(chunks.error_event(error, "req-1")) == expected


def client(sse: bytes) -> openai.OpenAI:
    """The official client, fed with these bytes instead of a connection."""

    def respond(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=sse)

    http: Any = httpx.Client(transport=httpx.MockTransport(respond))
    return openai.OpenAI(api_key="k", base_url="http://test/v1", http_client=http, max_retries=0)


def test_openai_client_reads_a_stream_with_keep_alives_and_usage() -> None:
    w = writer(ChatChunks, include_usage=True)
    sse = b"".join(
        [
            chunks.KEEP_ALIVE,
            w.role(),
            w.delta("a\n"),
            chunks.KEEP_ALIVE,
            w.delta("🙂"),
            w.final("stop"),
            w.usage(USAGE, json.dumps(ACCOUNT).encode()),
            chunks.DONE,
        ]
    )
    read = list(
        client(sse).chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], stream=True
        )
    )
    choices = [chunk.choices[0] for chunk in read if chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == "a\n🙂"
    assert [choice.finish_reason for choice in choices] == [None, None, None, "stop"]
    assert not any(choice.delta.tool_calls for choice in choices)
    assert read[-1].usage is not None
    assert read[-1].usage.total_tokens == 10


def test_openai_client_raises_at_an_error_inside_a_stream() -> None:
    w = writer(ChatChunks)
    sse = w.role() + w.delta("a") + chunks.error_event(Evicted("worker_lost", "the worker was lost"), "req-1")
    stream = client(sse).chat.completions.create(
        model="m", messages=[{"role": "user", "content": "x"}], stream=True
    )
    with pytest.raises(openai.APIError, match="the worker was lost") as raised:
        list(stream)
    assert raised.value.code == "worker_lost"

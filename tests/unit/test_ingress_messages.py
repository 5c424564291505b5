import json
from typing import Any

import pytest

from sub100_ingress.messages import ChatMessage, ToolCall
from sub100_ingress.openai_request import GenerationRequest, parse_chat
from sub100_shared.errors import ClientError

USER = {"role": "user", "content": "hi"}


def chat(**fields: Any) -> GenerationRequest:
    return parse_chat(json.dumps({"model": "m", "messages": [USER], **fields}).encode())


def test_messages_keep_parts_and_join_them_by_newline() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    request = chat(messages=[{"role": "system", "content": parts}, {"role": "user", "content": parts}])
    assert request.messages is not None
    assert [(m.role, m.parts, m.text) for m in request.messages] == [
        ("system", ("one", "two"), "one\ntwo"),
        ("user", ("one", "two"), "one\ntwo"),
    ]


def test_messages_treat_developer_as_system() -> None:
    assert chat(messages=[{"role": "developer", "content": "x"}, USER]) == chat(
        messages=[{"role": "system", "content": "x"}, USER]
    )


@pytest.mark.parametrize("content", [{"content": None}, {}, {"content": ""}, {"content": []}], ids=str)
def test_messages_accept_an_assistant_call_without_content(content: dict[str, Any]) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1'}}
    request = chat(
        messages=[
            USER,
            {"role": "assistant", **content, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        ]
    )
    assert request.messages is not None
    assert request.messages[1].text == ""
    assert request.messages[1].tool_calls == (ToolCall(id="c1", name="f", arguments='{"a": [1'),)
    assert request.messages[2] == ChatMessage(role="tool", parts=("42",), tool_call_id="c1")


WRONG_MESSAGES: list[tuple[Any, str]] = [
    ({"role": "banana", "content": "x"}, "messages[1].role"),
    ({"role": "function", "content": "x"}, "messages[1].role"),
    ({"content": "x"}, "messages[1].role"),
    ({"role": None, "content": "x"}, "messages[1].role"),
    ("hi", "messages[1]"),
    ({"role": " - at `$.evil`" * 1000, "content": "x"}, "messages[1].role"),
    ({"role": "a\n - at `$.evil", "content": "x"}, "messages[1].role"),
    ({"role": "user", "content": [{"type": " - at `$.evil`"}]}, "messages[1].content[0].type"),
    ({"role": "user"}, "messages[1].content"),
    ({"role": "user", "content": None}, "messages[1].content"),
    ({"role": "user", "content": []}, "messages[1].content"),
    ({"role": "system", "content": None}, "messages[1].content"),
    ({"role": "user", "content": 5}, "messages[1].content"),
    ({"role": "user", "content": {"type": "text", "text": "x"}}, "messages[1].content"),
    ({"role": "user", "content": ["x"]}, "messages[1].content[0]"),
    (
        {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "hologram"}]},
        "messages[1].content[1].type",
    ),
    ({"role": "user", "content": [{"type": "text"}]}, "messages[1].content[0].text"),
    ({"role": "user", "content": [{"text": "x"}]}, "messages[1].content[0].type"),
    (
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:4222/"}}]},
        "messages[1].content[0].type",
    ),
    (
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},
        "messages[1].content[0].type",
    ),
    (
        {"role": "user", "content": "x", "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
        "messages[1].tool_calls",
    ),
    ({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}, "messages[1].tool_calls[0].id"),
    ({"role": "tool", "content": "42"}, "messages[1].tool_call_id"),
    ({"role": "tool", "content": "42", "tool_call_id": "c"}, "messages[1].tool_call_id"),
    (
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}] * 129},
        "messages[1].tool_calls",
    ),
    (
        {
            "role": "assistant",
            "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "[" * 20_000 + "]" * 20_000}}],
        },
        "messages[1].tool_calls[0].function.arguments",
    ),
]


@pytest.mark.parametrize(("message", "param"), WRONG_MESSAGES, ids=lambda value: str(value)[:60])
def test_messages_name_the_place_of_a_fault(message: Any, param: str) -> None:
    with pytest.raises(ClientError) as refused:
        chat(messages=[USER, message])
    assert (refused.value.status, refused.value.param) == (400, param)
    assert len(refused.value.message) < 400

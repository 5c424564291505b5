"""Server-sent events of answers that call: chunks, ids, finish reasons, and when the ledger closes."""

import json
from typing import Any

import msgspec
import pytest

from sub100_ingress.chunks import ChatChunks
from sub100_ingress.events import CallingEvents, Events, events_of
from sub100_ingress.exchange import Exchange
from sub100_ingress.keys import Tenant
from sub100_ingress.openai_request import parse_chat
from sub100_ingress.tools import ToolUse
from sub100_shared.ledger import Ledger
from sub100_shared.telemetry import Telemetry

TELEMETRY = Telemetry.create("ingress", "i", "r", {})
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


def exchange(**fields: Any) -> Exchange:
    """Of a request that offers ``f``; its ledger's clock stands still."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        **fields,
    }
    request = parse_chat(json.dumps(body).encode())
    if isinstance(request.tools, ToolUse):
        use = msgspec.structs.replace(request.tools, form="hermes")
        request = msgspec.structs.replace(request, tools=use)
    return Exchange(
        request_id="r",
        tenant=Tenant(name="t"),
        request=request,
        ledger=Ledger(lambda: 0.0),
        span=TELEMETRY.start("chat", None),
    )


def events(ex: Exchange) -> Events:
    return events_of(ex, ChatChunks(request_id="r", model="m"))


def choices(data: bytes) -> list[dict[str, Any]]:
    blocks = data.split(b"\n\n")[:-1]
    return [choice for block in blocks for choice in json.loads(block.removeprefix(b"data: "))["choices"]]


def answered(ex: Exchange, text: str, reason: str = "stop") -> list[dict[str, Any]]:
    """The choices of all chunks of ``text``, which comes in single characters."""
    out = events(ex)
    data = b"".join(out.text(char, ()) for char in text)
    ex.finish_reason = reason
    return choices(data + out.final())


def test_call_begins_with_id_type_and_name_and_goes_on_with_arguments() -> None:
    role, content, head, *arguments, final = answered(exchange(), "So: " + CALL)
    assert role["delta"] == {"role": "assistant", "content": ""}
    assert content["delta"] == {"content": "S"}
    found = [each["delta"] for each in (head, *arguments)]
    assert found.pop(0) == {"content": "o"}
    assert found.pop(0) == {"content": ":"}
    [begun] = found.pop(0)["tool_calls"]
    assert begun.pop("id").startswith("call_")
    assert begun == {"index": 0, "type": "function", "function": {"name": "f", "arguments": ""}}
    pieces = [delta["tool_calls"][0] for delta in found]
    assert {tuple(piece) for piece in pieces} == {("index", "function")}
    assert "".join(piece["function"]["arguments"] for piece in pieces) == '{"a": 1}'
    assert (final["delta"], final["finish_reason"]) == ({}, "tool_calls")
    assert {each["finish_reason"] for each in (role, content, head, *arguments)} == {None}


@pytest.mark.parametrize(
    ("fields", "text", "reason", "told"),
    [
        ({}, CALL, "stop", "tool_calls"),
        ({}, "Hello.", "stop", "stop"),
        ({}, CALL[:-20], "length", "length"),
        ({}, CALL, "length", "length"),
        ({}, CALL[:-20], "stop", "stop"),
        ({}, CALL + CALL[:-20], "stop", "stop"),
        ({"tool_choice": "none"}, CALL, "stop", "stop"),
        ({"tool_choice": "required"}, '[{"name":"f","arguments":{}}]', "stop", "tool_calls"),
    ],
)
def test_finish_reason_is_tool_calls_when_all_of_them_are_complete(
    fields: dict[str, Any], text: str, reason: str, told: str
) -> None:
    """A06: a call that was cut, by the limit or by the model, is no reason to make it."""
    ex = exchange(**fields)
    found = answered(ex, text, reason)
    assert [each["finish_reason"] for each in found] == [None] * (len(found) - 1) + [told]
    assert (ex.told_reason or ex.finish_reason) == told


def test_plain_answer_beside_tools_has_no_tool_calls_key() -> None:
    """A06: an empty list reads as a call."""
    assert not any("tool_calls" in each["delta"] for each in answered(exchange(), "Hello <tool."))
    assert answered(exchange(tool_choice="none"), CALL)[1]["delta"] == {"content": "<"}


def test_first_token_is_the_first_that_is_told() -> None:
    """O04: not the mark that is held back; the call's name is told with its first argument."""
    ex = exchange()
    out = events(ex)
    assert isinstance(out, CallingEvents)
    assert out.text('<tool_call>{"name": "f", "arguments": ', ()) == b""
    assert ex.ledger.ttft_ms is None
    assert out.text("{", ())
    assert ex.ledger.ttft_ms is not None


def test_ids_are_new_in_every_telling() -> None:
    ids = {
        call["id"]
        for _ in range(2)
        for each in answered(exchange(), CALL + CALL)
        for call in each["delta"].get("tool_calls", ())
        if "id" in call
    }
    assert len(ids) == 4

"""C11 for answers that call: kept for tenants that say so, whole calls only, new ids in each telling."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.bus_watch import BusWatch
from tests.e2e.raw_http import Answer
from tests.e2e.slow import slow_stack
from tests.e2e.system import sim_only
from tests.e2e.test_cache_field_cases import ask, body, fill, hits, user
from tests.stack import Stack
from tokenizers import Tokenizer

pytestmark = sim_only
CALL = {"name": "add", "arguments": {"a": 1, "b": [2, 3]}}
SAID = f"Wait. <tool_call> {json.dumps(CALL)} </tool_call>"
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
NAMED = {"type": "function", "function": {"name": "add"}}


@pytest.fixture(scope="module")
def stack(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose model always says SAID and stops."""
    script = tmp_path_factory.mktemp("script") / "answer.txt"
    script.write_text(SAID, encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    num_tokens = str(len(tokenizer.encode(SAID, add_special_tokens=False).ids))
    with slow_stack(
        tiny_model,
        0.01,
        SUB100_SIM_ANSWER_FILE=str(script),
        SUB100_SIM_ANSWER_MIN_TOKENS=num_tokens,
        SUB100_SIM_ANSWER_MAX_TOKENS=num_tokens,
    ) as running:
        yield running


def question(**fields: Any) -> dict[str, Any]:
    tool = {"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}
    return body(user(f"Add {secrets.token_hex(4)}."), tools=[tool], **fields)


def told(answer: Answer) -> tuple[str, list[tuple[str, str]], list[str], list[str]]:
    """Content, calls, their ids, finish reasons; of a stream or a body."""
    if not answer.body.startswith(b"data: "):
        [choice] = answer.json["choices"]
        calls = choice["message"].get("tool_calls", [])
        named = [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
        ids = [call["id"] for call in calls]
        return choice["message"]["content"] or "", named, ids, [choice["finish_reason"]]
    found: list[list[str]] = []
    ids = []
    for choice in (choice for chunk in answer.chunks for choice in chunk["choices"]):
        for piece in choice["delta"].get("tool_calls", ()):
            if "id" in piece:
                ids.append(piece["id"])
                found.append([piece["function"]["name"], ""])
            found[piece["index"]][1] += piece["function"]["arguments"]
    return answer.text, [(name, arguments) for name, arguments in found], ids, answer.finish_reasons


@pytest.mark.parametrize("fills_with_stream", [True, False], ids=["stream fills", "body fills"])
@pytest.mark.parametrize("choice", ["auto", "required", NAMED], ids=["auto", "required", "named"])
def test_call_is_told_again_in_both_forms_with_new_ids(
    stack: Stack, choice: Any, fills_with_stream: bool
) -> None:
    request = question(tool_choice=choice)
    miss = told(fill(stack, request | (STREAM if fills_with_stream else {}), "tools"))
    again = [told(hits(stack, request | form, "tools")) for form in (STREAM, {}, {})]
    assert miss[3] == ["tool_calls"]
    assert len(miss[1]) == 1
    for text, calls, _, reasons in again:
        assert (text, calls, reasons) == (miss[0], miss[1], miss[3])
    ids = [each[2][0] for each in (miss, *again)]
    assert len(set(ids)) == len(ids)


def test_answer_beside_tools_is_not_kept_for_who_did_not_say_so(stack: Stack) -> None:
    request = question()
    for _ in range(2):
        assert ask(stack, request, "demo").headers["x-sub100-cache"] == "bypass"


def test_call_that_is_not_whole_is_never_kept(stack: Stack, bus: BusWatch) -> None:
    """A stop string of the client's ends it: that is ``stop``, and no whole call."""
    mark = bus.mark()
    cut = ask(stack, question(stop='"b"'), "tools")
    assert told(cut) == (SAID[: SAID.index('"b"')], [], [], ["stop"])
    ask(stack, question(), "tools")
    bus.wait(lambda: bool(bus.since(mark, ".cache.fill")), "a fill")
    assert len(bus.since(mark, ".cache.fill")) == 1


def test_other_tools_are_another_question(stack: Stack) -> None:
    """C04 and C05."""
    request = question()
    fill(stack, request, "tools")
    other = {
        "type": "function",
        "function": {"name": "add", "description": "Adds.", "parameters": PARAMETERS},
    }
    for change in ({"tools": [other]}, {"tool_choice": "none"}, {"parallel_tool_calls": False}):
        assert ask(stack, request | change, "tools").headers["x-sub100-cache"] == "miss"

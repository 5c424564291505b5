"""Tools as the official client uses them: called, answered, and an answer in words. On both engines."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.e2e.raw_http import DONE, Answer, deltas, post
from tests.e2e.system import MODEL, PATIENT, sim_only
from tests.stack import Stack, running_stack
from tokenizers import Tokenizer

CITIES = ["Oslo", "Bergen"]
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of the next days.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"enum": CITIES},
                "days": {"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 4},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
TIME: dict[str, Any] = {"type": "function", "function": {"name": "get_time"}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
QUESTION: dict[str, Any] = {"role": "user", "content": "What is the weather in Oslo?"}
BODY: dict[str, Any] = {
    "model": MODEL,
    "messages": [QUESTION],
    "tools": [TIME, WEATHER],
    "temperature": 0,
    "max_tokens": 400,
}


def check_weather(name: str, arguments: str) -> None:
    assert name == "get_weather"
    found = json.loads(arguments)
    assert found["city"] in CITIES
    assert 2 <= len(found["days"]) <= 4


def calls_of(chunks: list[dict[str, Any]], index: int = 0) -> list[dict[str, Any]]:
    """The calls of one choice, their pieces put together; checks that each begins once, in order."""
    calls: list[dict[str, Any]] = []
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    for piece in (piece for choice in choices for piece in choice["delta"].get("tool_calls", ())):
        if "id" in piece:
            assert piece["index"] == len(calls)
            assert piece["type"] == "function"
            calls.append({"id": piece["id"], **piece["function"]})
        else:
            assert set(piece) == {"index", "function"}
            calls[piece["index"]]["arguments"] += piece["function"]["arguments"]
    return calls


def ask(stack: Stack, tenant: str = "plain", **fields: Any) -> Answer:
    answer = post(stack.url, BODY | fields, stack.keys[tenant])
    assert answer.status == 200, answer.body
    return answer


def test_client_calls_a_tool_and_gets_an_answer(client: openai.OpenAI) -> None:
    """A06: the round trip; the answer in words has no ``tool_calls``, though the tools are still offered."""
    fields: dict[str, Any] = {"model": MODEL, "tools": [WEATHER], "temperature": 0}
    messages: list[Any] = [QUESTION]
    first = client.chat.completions.create(
        messages=messages, tool_choice="required", parallel_tool_calls=False, max_tokens=400, **fields
    )
    [choice] = first.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert choice.message.tool_calls is not None
    [call] = choice.message.tool_calls
    assert call.type == "function"
    check_weather(call.function.name, call.function.arguments)
    messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "Rain."}]
    second = client.chat.completions.create(messages=messages, max_tokens=8, **fields)
    assert second.choices[0].message.content
    assert second.choices[0].message.tool_calls is None
    assert "tool_calls" not in second.choices[0].message.model_dump(exclude_unset=True)
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


@pytest.mark.parametrize("choice", [NAMED, "required"], ids=["named", "required"])
def test_streamed_call_is_the_one_of_the_body(stack: Stack, choice: Any) -> None:
    fields: dict[str, Any] = {"tool_choice": choice, "tools": [WEATHER], "parallel_tool_calls": False}
    whole = ask(stack, **fields).json["choices"][0]
    streamed = ask(stack, **fields, stream=True)
    assert streamed.events[-1] == DONE
    calls = calls_of(streamed.chunks)
    assert [(call["name"], call["arguments"]) for call in calls] == [
        (call["function"]["name"], call["function"]["arguments"]) for call in whole["message"]["tool_calls"]
    ]
    for call in calls:
        check_weather(call["name"], call["arguments"])
    assert streamed.text == ""
    assert streamed.finish_reasons == [whole["finish_reason"]] == ["tool_calls"]
    assert [len(chunk["choices"]) for chunk in streamed.chunks] == [1] * len(streamed.chunks)


def test_clients_own_accumulator_puts_a_streamed_call_together(client: openai.OpenAI) -> None:
    strict: Any = {"type": "function", "function": WEATHER["function"] | {"strict": True}}
    fields: dict[str, Any] = {"tools": [strict], "tool_choice": NAMED, "temperature": 0, "max_tokens": 400}
    messages: list[Any] = [QUESTION]
    with client.chat.completions.stream(model=MODEL, messages=messages, **fields) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    [choice] = final.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    [call] = choice.message.tool_calls
    check_weather(call.function.name, call.function.arguments)
    assert [(event.name, event.arguments) for event in done] == [
        (call.function.name, call.function.arguments)
    ]


def test_cut_call_ends_with_length(stack: Stack) -> None:
    """A06: in the stream and in the body."""
    fields: dict[str, Any] = {"tool_choice": NAMED, "max_tokens": 8}
    whole = ask(stack, **fields).json["choices"][0]
    streamed = ask(stack, **fields, stream=True)
    assert streamed.finish_reasons == [whole["finish_reason"]] == ["length"]
    [call] = calls_of(streamed.chunks)
    assert [call["arguments"]] == [each["function"]["arguments"] for each in whole["message"]["tool_calls"]]
    with pytest.raises(json.JSONDecodeError):
        json.loads(call["arguments"])


def test_each_choice_has_its_own_calls(stack: Stack) -> None:
    fields: dict[str, Any] = {"tool_choice": NAMED, "n": 2, "seed": 3, "temperature": 1}
    streamed = ask(stack, **fields, stream=True)
    calls = [call for index in range(2) for call in calls_of(streamed.chunks, index)]
    assert len(calls) == len({call["id"] for call in calls}) == 2
    calls += [
        choice["message"]["tool_calls"][0]["function"] for choice in ask(stack, **fields).json["choices"]
    ]
    for call in calls:
        check_weather(call["name"], call["arguments"])
    assert streamed.finish_reasons == ["tool_calls"] * 2


def test_answer_of_a_model_that_calls_nothing_is_plain(stack: Stack) -> None:
    """A06 and A02: text beside tools is the text without them, to the last held-back blank."""
    fields: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True}
    body = ask(stack, **fields).json["choices"][0]
    assert "tool_calls" not in body["message"]
    silent = ask(stack, **fields, tool_choice="none").json["choices"][0]
    assert body["message"]["content"] == silent["message"]["content"]
    streamed = ask(stack, **fields, stream=True)
    assert streamed.text == body["message"]["content"]
    assert streamed.finish_reasons == ["length"]
    assert not calls_of(streamed.chunks)


SAID = (
    'I look. <tool_call> {"name": "get_weather", "arguments": {"city": "Oslo", "days": [1, 2]}} </tool_call>'
)


@pytest.fixture(scope="module")
def scripted(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose model always says SAID and stops."""
    script = tmp_path_factory.mktemp("script") / "answer.txt"
    script.write_text(SAID, encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    num_tokens = len(tokenizer.encode(SAID, add_special_tokens=False).ids)
    env = PATIENT | {
        "SUB100_SIM_ANSWER_FILE": str(script),
        "SUB100_SIM_ANSWER_MIN_TOKENS": str(num_tokens),
        "SUB100_SIM_ANSWER_MAX_TOKENS": str(num_tokens),
    }
    with running_stack(tiny_model, env=env) as stack:
        yield stack


@sim_only
@pytest.mark.parametrize("is_parallel", [True, False])
def test_call_of_the_models_own_accord_is_told_from_its_text(scripted: Stack, is_parallel: bool) -> None:
    fields: dict[str, Any] = {"parallel_tool_calls": is_parallel}
    message = ask(scripted, **fields).json["choices"][0]
    assert message["finish_reason"] == "tool_calls"
    assert message["message"]["content"] == "I look."
    [call] = message["message"]["tool_calls"]
    check_weather(call["function"]["name"], call["function"]["arguments"])
    streamed = ask(scripted, **fields, stream=True)
    [told] = calls_of(streamed.chunks)
    assert told["arguments"] == call["function"]["arguments"] == '{"city": "Oslo", "days": [1, 2]}'
    assert streamed.text == "I look."
    assert streamed.finish_reasons == ["tool_calls"]


@sim_only
def test_call_at_every_limit_is_cut_and_never_garbled(scripted: Stack) -> None:
    """A06: the hand-over, and the end, in every token of the mark, the name and the arguments."""
    for num_tokens in range(1, 40):
        whole = ask(scripted, max_tokens=num_tokens).json["choices"][0]
        streamed = ask(scripted, max_tokens=num_tokens, stream=True)
        calls = whole["message"].get("tool_calls", [])
        told = [(call["name"], call["arguments"]) for call in calls_of(streamed.chunks)]
        assert told == [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
        assert "".join(deltas(streamed.chunks)) == (whole["message"]["content"] or "")
        assert streamed.finish_reasons == [whole["finish_reason"]]
        if told:
            assert '{"city": "Oslo", "days": [1, 2]}'.startswith(told[0][1])


@sim_only
def test_calls_that_nobody_offered_are_words(scripted: Stack) -> None:
    answer = ask(scripted, tools=[TIME]).json["choices"][0]
    assert (answer["message"]["content"], answer["finish_reason"]) == (SAID, "stop")
    assert "tool_calls" not in answer["message"]

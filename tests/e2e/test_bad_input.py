"""Hostile and mistaken requests: the right 4xx in OpenAI's shape, at once, and nobody else notices."""

import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.e2e.bus_watch import BusWatch
from tests.e2e.raw_http import Answer, post
from tests.e2e.system import MODEL
from tests.patience import at_best
from tests.stack import Stack

MESSAGES = [{"role": "user", "content": "hello"}]
VALID: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "max_tokens": 2}
QUICK_S = 1.0
"""What stalls on hostile input takes far longer."""


def refused(stack: Stack, bus: BusWatch, body: Any, *, status: int = 400, path: str = "") -> dict[str, Any]:
    """Post; the error object of a refusal that was quick and dispatched nothing."""
    mark = bus.mark()
    answers: list[Answer] = []

    def refused_after_s() -> float:
        answers.append(post(stack.url, body, stack.keys["plain"], path=path or "/v1/chat/completions"))
        assert answers[-1].status == status, answers[-1].body[:300]
        return answers[-1].elapsed_s

    at_best(refused_after_s, QUICK_S, "refused after")
    answer = answers[-1]
    assert answer.headers.get_content_type() == "application/json"
    # Whatever a refused request had published would be here before the next one's placement.
    assert post(stack.url, VALID, stack.keys["plain"]).status == 200
    bus.wait(lambda: any(".decode.job." in subject for subject in bus.dispatched_since(mark)), "a job")
    assert len(bus.since(mark, ".scheduler.place.")) == 1
    return answer.error


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b"[1]",
        b'"x"',
        b"null",
        b'{"model": NaN}',
        b"\xff\xfe",
        b'{"a": 1, "a": 2}',
        b"{}x",
    ],
    ids=lambda body: repr(body)[:20],
)
def test_not_a_json_object_is_invalid_json(stack: Stack, bus: BusWatch, body: bytes) -> None:
    assert refused(stack, bus, body)["code"] == "invalid_json"


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    return opening * depth + closing * depth


DEEP = [100, 1_000, 20_000, 100_000]


@pytest.mark.parametrize("depth", DEEP)
@pytest.mark.parametrize("place", ["body", "unknown", "metadata", "tools", "object", "arguments"])
def test_deep_nesting_is_refused_at_once(stack: Stack, bus: BusWatch, depth: int, place: str) -> None:
    """S05: wherever it hides, at every depth; the worker never sees it."""
    valid = json.dumps(VALID)[:-1]
    deep = nested(depth)
    if place == "arguments":
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": deep}}
        turn = {"role": "assistant", "tool_calls": [call]}
        body = json.dumps(VALID | {"messages": [*MESSAGES, turn]})
    else:
        body = {
            "body": deep,
            "unknown": f'{valid}, "unknown": {deep}}}',
            "metadata": f'{valid}, "metadata": {deep}}}',
            "tools": f'{valid}, "tools": [{{"type": "function", "function": {{"parameters": {deep}}}}}]}}',
            "object": f'{valid}, "unknown": {nested(depth, chr(123) + chr(34) + "a" + chr(34) + ":", "}")}}}',
        }[place]
    error = refused(stack, bus, body.encode())
    assert error["code"] in ("invalid_json", "invalid_value")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("huge exponent", '"unknown": 1e400'),
        ("long number", '"unknown": ' + "9" * 10_000_000),
        ("a million keys", '"unknown": {' + ", ".join(f'"{i}": 0' for i in range(1_000_000)) + "}"),
        ("a million values", '"unknown": [' + "0," * 1_100_000 + "0]"),
        ("repeated key", '"temperature": 0, "temperature": 1'),
        ("NaN", '"temperature": NaN'),
        ("Infinity", '"temperature": Infinity'),
    ],
    ids=lambda value: value if len(value) < 20 else "",
)
def test_hostile_json_values_are_refused_at_once(stack: Stack, bus: BusWatch, name: str, text: str) -> None:
    """S05."""
    body = json.dumps(VALID)[:-1] + ", " + text + "}"
    assert refused(stack, bus, body.encode())["code"] == "invalid_json"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 2**31),
        ("max_tokens", 1.5),
        ("max_tokens", "5"),
        ("n", 100_000),
        ("n", 0),
        ("n", -1),
        ("best_of", 5),
        ("logprobs", 1_000_000),
        ("prompt_logprobs", -1),
        ("temperature", -1),
        ("temperature", 1e9),
        ("temperature", "0"),
        ("top_p", 0),
        ("top_p", 1.01),
        ("presence_penalty", 3),
        ("stop", [f"s{i}" for i in range(10_000)]),
        ("stop", ""),
        ("stop", [""]),
        ("stop", "x" * 100_000),
        ("stop", 5),
        ("seed", 2**70),
        ("messages", []),
        ("messages", "hello"),
        ("messages", [{"content": "no role"}]),
        ("messages", [{"role": "user"}]),
        ("messages", [{"role": "user", "content": 5}]),
        ("messages", [5]),
        ("model", ""),
        ("model", 5),
        ("stream", "yes"),
        ("stream_options", {"include_usage": True}),
        ("repetition_penalty", 0),
        ("min_tokens", 5),
        ("top_k", -2),
        ("n", 17),
        ("min_p", 2),
        ("logprobs", 5),
        ("top_logprobs", 5),
        ("prompt_logprobs", 1_000),
        ("logit_bias", {"5": 200}),
        ("logit_bias", {"hello": 1}),
        ("logit_bias", {"1000000000": 1}),
        ("allowed_token_ids", []),
        ("allowed_token_ids", [2**31 - 1]),
        ("bad_words", [" "]),
        ("bad_words", ["x"] * 1000),
        ("tools", [{"type": "function", "function": {"name": "f f"}}]),
        ("tools", [{"type": "function", "function": {"name": "f", "parameters": "x"}}]),
        ("tools", [{"type": "function", "function": {"name": f"f{i}"}} for i in range(200)]),
        ("tool_choice", "required"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_odd_value_is_a_400_that_names_the_field(
    stack: Stack, bus: BusWatch, field: str, value: object
) -> None:
    """S09 and A04 (a); the request behind it on the same worker succeeds (``refused``)."""
    error = refused(stack, bus, VALID | {field: value})
    assert error["type"] == "invalid_request_error"
    assert str(error["param"]).startswith(field)


def openai_schema(schema: object) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_schema", "schema": {"type": "object"}}},
        {"response_format": {"type": "not-a-type"}},
        {"response_format": "json_object"},
        openai_schema({"type": "not-a-type"}),
        openai_schema({"$ref": "#"}),
        openai_schema({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
        openai_schema({}),
        openai_schema({"type": "array", "minItems": 10**9}),
        openai_schema({"enum": list(range(10_000))}),
        openai_schema({"description": "x" * 100_000}),
        {"structured_outputs": {"json": ""}},
        {"structured_outputs": {"json_object": False}},
        {"structured_outputs": {"choice": []}},
        {"guided_choice": []},
        {"guided_json": {"type": "banana"}},
    ],
    ids=lambda fields: json.dumps(fields)[:60],
)
def test_hopeless_shape_is_a_400_that_names_the_field(
    stack: Stack, bus: BusWatch, fields: dict[str, Any]
) -> None:
    """A12: before any work."""
    error = refused(stack, bus, VALID | fields)
    assert error["type"] == "invalid_request_error"
    assert str(error["param"]).startswith(next(iter(fields)))


def test_hopeless_shapes_leave_their_neighbours_alone(stack: Stack) -> None:
    """A12: 20 ordinary requests sent alongside all succeed, also where only the engine finds the fault."""
    odd = [
        openai_schema({"type": "not-a-type"}),
        {"guided_regex": "(("},
        {"guided_grammar": "root ::= nowhere"},
        {"guided_grammar": "{"},
        {"guided_choice": []},
    ]
    bodies = [VALID | {"max_tokens": 20, "ignore_eos": True} for _ in range(20)]
    bodies += [VALID | fields for fields in odd * 2]
    with ThreadPoolExecutor(len(bodies)) as pool:
        answers = list(pool.map(lambda body: post(stack.url, body, stack.keys["plain"]), bodies))
    assert [answer.status for answer in answers[:20]] == [200] * 20
    assert [answer.status for answer in answers[20:]] == [400] * 10
    for answer in answers[20:]:
        assert answer.error["type"] == "invalid_request_error"
        assert str(answer.error["param"]).startswith(("response_format", "guided_"))


@pytest.mark.parametrize("fields", [{"n": 0}, {"max_tokens": -1}, {"temperature": 5}])
def test_invalid_stream_request_is_refused_before_any_event(
    stack: Stack, bus: BusWatch, fields: dict[str, Any]
) -> None:
    """A04 (a): JSON with a 4xx, not a stream."""
    refused(stack, bus, VALID | {"stream": True} | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"echo": True, "max_tokens": 0},
        {"echo": "yes"},
        {"logprobs": 21},
        {"logprobs": True},
        {"prompt": ""},
        {"prompt": []},
        {"prompt": [-1]},
        {"prompt": [2**31 - 1]},
        {"prompt": ["a", "b"]},
        {"prompt": [1, "a"]},
        {"suffix": "x"},
    ],
    ids=repr,
)
def test_odd_completion_is_a_400(stack: Stack, bus: BusWatch, fields: dict[str, Any]) -> None:
    """S09: token ids that are not of this vocabulary never reach an engine."""
    body = {"model": MODEL, "prompt": "hello", "max_tokens": 2} | fields
    refused(stack, bus, body, path="/v1/completions")


def test_internal_fields_from_a_client_go_nowhere(stack: Stack, bus: BusWatch) -> None:
    """S09: engine internals of vLLM are not ours to forward."""
    canary = f"canary{secrets.token_hex(6)}"
    internals = {
        "kv_transfer_params": {"do_remote_prefill": True, "remote_host": canary},
        "logits_processors": [canary],
        "priority": 0,
        "request_id": canary,
        "cache_salt": canary,
        "vllm_xargs": {"x": canary},
    }
    mark = bus.mark()
    answer = post(stack.url, VALID | internals, stack.keys["plain"])
    assert answer.status == 200, answer.body
    bus.wait(lambda: any(".decode.job." in s for s in bus.dispatched_since(mark)), "a decode job")
    assert not any(canary.encode() in msg.data for msg in bus.since(mark, "."))

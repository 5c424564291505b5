"""Messages in every form that clients send: parts, missing content, roles, unknown fields."""

import secrets
import socket
from typing import Any

import pytest
from tests.e2e.bus_watch import BusWatch
from tests.e2e.raw_http import Answer, post
from tests.e2e.system import MODEL
from tests.stack import Stack

CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"city": "Oslo"}'}}
QUESTION = {"role": "user", "content": "What is the weather in Oslo?"}
LOOK_UP = {"name": "look_up", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "rain"}


def ask(stack: Stack, messages: list[dict[str, Any]], *, tenant: str = "plain", **fields: Any) -> Answer:
    body = {"model": MODEL, "messages": messages, "max_tokens": 4, "temperature": 0} | fields
    return post(stack.url, body, stack.keys[tenant])


def num_prompt_tokens(answer: Answer) -> int:
    assert answer.status == 200, answer.body
    return int(answer.json["usage"]["prompt_tokens"])


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize("role", ["system", "user"])
def test_text_parts_reach_the_model_like_their_joined_text(stack: Stack, role: str) -> None:
    """A07: all parts count, none is dropped."""
    first, second = "The first marker is seventeen.", "The second marker is forty."
    tail = [] if role == "user" else [QUESTION]
    as_parts = ask(stack, [{"role": role, "content": parts(first, second)}, *tail])
    as_text = ask(stack, [{"role": role, "content": f"{first}\n{second}"}, *tail])
    only_second = ask(stack, [{"role": role, "content": parts(second)}, *tail])
    assert num_prompt_tokens(as_parts) == num_prompt_tokens(as_text)
    assert num_prompt_tokens(as_parts) > num_prompt_tokens(only_second)
    assert as_parts.json["choices"][0]["message"] == as_text.json["choices"][0]["message"]


@pytest.mark.parametrize("content", [{"content": None}, {}, {"content": ""}, {"content": []}])
def test_assistant_turn_with_tool_calls_needs_no_content(stack: Stack, content: dict[str, Any]) -> None:
    """A07: null, absent, empty text and no parts are all how SDKs write a turn that only called a tool."""
    turn = {"role": "assistant", "tool_calls": [CALL], **content}
    answer = ask(stack, [QUESTION, turn, RESULT])
    assert answer.status == 200, answer.body
    assert "tool_calls" not in answer.json["choices"][0]["message"]
    with_tools = ask(stack, [QUESTION, turn, RESULT], tools=[{"type": "function", "function": LOOK_UP}])
    assert num_prompt_tokens(with_tools) > num_prompt_tokens(answer)


def test_unknown_part_type_is_refused_by_its_place(stack: Stack) -> None:
    """A07: 400 that names the part."""
    hologram = {"type": "hologram", "hologram": "x"}
    answer = ask(stack, [{"role": "user", "content": [*parts("a"), hologram]}])
    assert answer.status == 400
    assert "messages[0].content[1]" in f"{answer.error['param']} {answer.error['message']}"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f"}},
    ],
    ids=lambda part: str(part["type"]),
)
def test_media_parts_are_refused_not_fetched(stack: Stack, part: dict[str, Any]) -> None:
    answer = ask(stack, [{"role": "user", "content": [*parts("a"), part]}])
    assert answer.status == 400
    assert answer.error["code"] == "unsupported_value"
    assert answer.error["param"] == "messages[0].content[1].type"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]", "0x7f000001"])
@pytest.mark.parametrize("scheme", ["http", "https", "HTTP", "file", "ftp"])
def test_image_url_reaches_no_server_of_ours(stack: Stack, scheme: str, host: str) -> None:
    """S04: nothing is fetched, however the address is written, so nothing behind ingress can be read so."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"{scheme}://{host}:{server.getsockname()[1]}/x.png"
        part = {"type": "image_url", "image_url": {"url": url}}
        answer = ask(stack, [{"role": "user", "content": [*parts("a"), part]}])
        assert (answer.status, answer.error["code"]) == (400, "unsupported_value")
        with pytest.raises(BlockingIOError):
            server.accept()


def test_developer_is_the_system_role(stack: Stack) -> None:
    """A08: the same prompt, and the same entry of the cache."""
    note = f"Be brief. {secrets.token_hex(4)}"
    developer = ask(stack, [{"role": "developer", "content": note}, QUESTION], tenant="demo", stop="\x00")
    system = ask(stack, [{"role": "system", "content": note}, QUESTION], tenant="demo", stop="\x00")
    assert num_prompt_tokens(developer) == num_prompt_tokens(system)
    assert developer.json["choices"] == system.json["choices"]


def test_unknown_role_is_refused(stack: Stack) -> None:
    """A08."""
    answer = ask(stack, [{"role": "banana", "content": "x"}])
    assert answer.status == 400
    assert "messages[0].role" in f"{answer.error['param']} {answer.error['message']}"


def test_fields_for_others_are_ignored_and_go_nowhere(stack: Stack, bus: BusWatch) -> None:
    """A08: neither echoed nor forwarded to the bus, in payloads or headers."""
    canary = f"canary{secrets.token_hex(8)}"
    message = {**QUESTION, "id": canary, "agent": canary, "traceId": canary}
    mark = bus.mark()
    answer = ask(
        stack,
        [message],
        store=True,
        metadata={"note": canary},
        service_tier="auto",
        client_metadata={"note": canary},
        user=canary,
    )
    assert answer.status == 200, answer.body
    jobs = bus.since(mark, ".prefill.job.", ".decode.job.", ".scheduler.", ".cache.")
    assert canary.encode() not in answer.body
    assert canary not in str(answer.headers)
    assert jobs
    for msg in jobs:
        assert canary.encode() not in msg.data
        assert set(msg.headers) <= {"traceparent", "tracestate"}, msg.headers


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("functions", [{"name": "f"}]),
        ("modalities", ["text", "audio"]),
        ("echo", True),
        ("best_of", 3),
        ("use_beam_search", True),
    ],
)
def test_what_is_not_there_yet_is_a_400_that_names_it(stack: Stack, field: str, value: Any) -> None:
    answer = ask(stack, [QUESTION], **{field: value})
    assert answer.status == 400
    assert answer.error["code"] == "unsupported_parameter"
    assert answer.error["param"] == field


def test_neutral_values_of_what_is_not_there_yet_pass(stack: Stack) -> None:
    """SDKs send defaults."""
    answer = ask(
        stack, [QUESTION], n=1, logprobs=False, tools=[], response_format={"type": "text"}, logit_bias={}
    )
    assert answer.status == 200, answer.body

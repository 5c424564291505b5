"""A decode worker is killed while it makes an answer of another shape: the answer goes on elsewhere and is
the one of a quiet run, log probabilities, choices, JSON and calls of tools included. On both engines.

P07's list: plain text is in test_errors_in_stream, the rest here.
"""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.bus_watch import BusWatch, watching
from tests.e2e.losing import decoder_of, revive
from tests.e2e.raw_http import DONE, LiveStream, post
from tests.e2e.scrape import Scrape
from tests.e2e.system import ENGINE, MODEL, PATIENT, log_of, sim_only
from tests.patience import NUM_TRIES
from tests.stack import Stack, running_stack
from tokenizers import Tokenizer

from sub100_proto import codec
from sub100_proto.jobs import DecodeJob

pytestmark = pytest.mark.timeout(400)

NUM_TOKENS = 60 if ENGINE == "sim" else 400
"""Enough to be killed in the middle: the simulated engine takes 15 ms a token, the tiny model about 5."""
NEAR = 1e-6 if ENGINE == "sim" else 0.05
"""Chunks are of other sizes after the loss. In bfloat16 near ties would flip: the model runs in float32."""
BODY: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Tell me a story."}],
    "temperature": 0,
    "max_tokens": NUM_TOKENS,
    "ignore_eos": True,
}
CHEAP_HAND_OVER = {
    "SUB100_SCHEDULER_TRANSFER_MS_PER_TOKEN": "0.001",
    "SUB100_SCHEDULER_HANDOVER_MS": "0.1",
}
"""So that on no machine computing a long prompt once more is predicted to be quicker."""
STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
WORDS: dict[str, Any] = {
    "type": "array",
    "items": {"enum": ["north", "east"]},
    "minItems": 40,
    "maxItems": 40,
}
WAY: dict[str, Any] = {
    "type": "object",
    "properties": {"way": WORDS},
    "required": ["way"],
    "additionalProperties": False,
}
NAMED = {"type": "function", "function": {"name": "walk"}}
CALLING: dict[str, Any] = BODY | {
    "tools": [{"type": "function", "function": {"name": "walk", "parameters": WAY}}],
    "max_tokens": 400,
    "ignore_eos": False,
}


@pytest.fixture(scope="module")
def stack(tiny_model: Path) -> Iterator[Stack]:
    env = {"SUB100_SIM_DELAY_MS": "15", "SUB100_INGRESS_STALL_TIMEOUT_S": "10", **CHEAP_HAND_OVER}
    env |= {f"SUB100_{role}_DTYPE": "float32" for role in ("PREFILL", "DECODE")}
    with running_stack(tiny_model, engine=ENGINE, num_decode=2, env={**PATIENT, **env}) as stack:
        yield stack


class Answer:
    """The choices of a stream, put together again. ``calls``: name and arguments of each, by choice."""

    def __init__(self, num_choices: int) -> None:
        self.texts = [""] * num_choices
        self.calls: list[list[dict[str, str]]] = [[] for _ in range(num_choices)]
        self.scored: list[list[dict[str, Any]]] = [[] for _ in range(num_choices)]
        self.reasons: list[list[str]] = [[] for _ in range(num_choices)]
        self.usage: dict[str, Any] = {}

    def take(self, event: Any) -> None:
        assert "error" not in event, event
        self.usage = event.get("usage") or self.usage
        for choice in event["choices"]:
            index = choice["index"]
            assert not self.reasons[index], "nothing comes after a final chunk"
            self.texts[index] += choice["delta"].get("content") or ""
            for piece in choice["delta"].get("tool_calls", ()):
                if "id" in piece:
                    self.calls[index].append(piece["function"])
                else:
                    self.calls[index][piece["index"]]["arguments"] += piece["function"]["arguments"]
            self.scored[index] += (choice["logprobs"] or {}).get("content") or []
            self.reasons[index] += [choice["finish_reason"]] if choice["finish_reason"] else []

    @property
    def num_chars(self) -> int:
        """Of the choice that has the fewest."""
        called = [sum(len(call["arguments"]) for call in calls) for calls in self.calls]
        return min(len(text) + num for text, num in zip(self.texts, called, strict=True))


def killed_after(stack: Stack, bus: BusWatch, body: dict[str, Any], num_chars: int) -> Answer:
    """The streamed answer of a request whose first decode worker was killed when so much was there; asked
    again if a worker was done with all of it by then, for a busy machine lets a client read late."""
    for _ in range(NUM_TRIES):
        answer, num_attempts = killed_once(stack, bus, body, num_chars)
        if num_attempts > 1:
            return answer
    raise AssertionError("each answer was whole before its worker was killed")


def killed_once(stack: Stack, bus: BusWatch, body: dict[str, Any], num_chars: int) -> tuple[Answer, int]:
    mark = bus.mark()
    answer = Answer(body.get("n", 1))
    with LiveStream(stack.url, body | STREAM, stack.keys["plain"]) as stream:
        while answer.num_chars < num_chars:
            answer.take(stream.next_event())
        lost = decoder_of(stack, bus, mark)
        lost.signal(signal.SIGKILL)
        request_id = stream.response.headers["x-request-id"]
        try:
            *events, end = stream.rest()
        finally:
            revive(stack, lost)
    assert end == DONE
    for event in events:
        if isinstance(event, dict):
            answer.take(event)
    return answer, log_of(stack, request_id)["num_attempts"]


def quiet(stack: Stack, body: dict[str, Any]) -> dict[str, Any]:
    answer = post(stack.url, body, stack.keys["plain"])
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


def test_logprobs_go_on_exactly_after_a_loss(stack: Stack, bus: BusWatch) -> None:
    """P07."""
    body = BODY | {"logprobs": True, "top_logprobs": 4}
    expected = quiet(stack, body)["choices"][0]
    answer = killed_after(stack, bus, body, 20)
    assert answer.texts == [expected["message"]["content"]]
    assert answer.reasons == [["length"]]
    [scored] = answer.scored
    whole = expected["logprobs"]["content"]
    assert [token["bytes"] for token in scored] == [token["bytes"] for token in whole]
    assert len(scored) == NUM_TOKENS
    assert [t["logprob"] for t in scored] == pytest.approx([t["logprob"] for t in whole], abs=NEAR)
    assert answer.usage["completion_tokens"] == NUM_TOKENS


def test_long_prompt_goes_on_with_the_kv_that_prefill_still_has(stack: Stack, bus: BusWatch) -> None:
    """Prefill computes the last block, which its cache has not; decode computes nothing of the prompt."""

    def num_cached() -> float:
        name = "sub100_engine_prompt_tokens_total"
        return Scrape(stack.replicas["prefill-1"]).total(name, sub100_source="cached")

    words = " ".join(f"word{number % 97}" for number in range(1200))
    body = BODY | {"messages": [{"role": "user", "content": words}]}
    mark, before = bus.mark(), num_cached()
    answer = killed_after(stack, bus, body, 20)
    num_prompt = answer.usage["prompt_tokens"]
    assert num_prompt > 3_000  # whatever the scheduler has learnt of a busy machine: too long for decode
    assert len(bus.since(mark, ".prefill.job.")) >= 2
    resumed = codec.decode_job(bus.since(mark, ".decode.job.")[-1].data)
    assert isinstance(resumed, DecodeJob)
    assert resumed.kv is not None
    assert num_cached() - before >= num_prompt - 2 * 32
    assert answer.texts == [quiet(stack, body)["choices"][0]["message"]["content"]]


def test_each_choice_goes_on_with_its_own_output_after_a_loss(stack: Stack, bus: BusWatch) -> None:
    """P07: usage counts each token of each choice once."""
    body = BODY | {"n": 3, "seed": 11, "temperature": 1.0}
    whole = quiet(stack, body)
    answer = killed_after(stack, bus, body, 20)
    assert answer.texts == [choice["message"]["content"] for choice in whole["choices"]]
    assert len(set(answer.texts)) > 1
    assert answer.reasons == [["length"]] * 3
    assert answer.usage["completion_tokens"] == 3 * NUM_TOKENS
    assert answer.usage["prompt_tokens"] == whole["usage"]["prompt_tokens"]


def test_client_that_leaves_frees_every_choice(stack: Stack, bus: BusWatch) -> None:
    with LiveStream(stack.url, BODY | STREAM | {"n": 4}, stack.keys["plain"]) as stream:
        for _ in range(8):
            stream.next_text()
    bus.wait_idle("prefill-1", "decode-1", "decode-2")


@sim_only
def test_several_answers_that_nobody_can_go_on_with_end_in_one_error_event(stack: Stack) -> None:
    """A04 (b): no answer gets a finish reason, and nothing follows the error."""
    workers = [stack.replicas["decode-1"], stack.replicas["decode-2"]]
    with LiveStream(stack.url, BODY | STREAM | {"n": 2}, stack.keys["plain"]) as stream:
        stream.next_text()
        for worker in workers:
            worker.signal(signal.SIGKILL)
        try:
            *events, last = stream.rest()
        finally:
            revive(stack, *workers)
    assert last["error"]["type"] == "server_error"
    chunks = [event for event in events if isinstance(event, dict)]
    assert not [c for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    assert DONE not in events


def test_json_is_valid_after_a_loss(stack: Stack, bus: BusWatch) -> None:
    """P07: the grammar goes on where it was, not at its root."""
    shape = {"type": "json_schema", "json_schema": {"name": "way", "schema": WAY}}
    body = BODY | {"response_format": shape, "max_tokens": 400, "ignore_eos": False}
    expected = quiet(stack, body)["choices"][0]["message"]["content"]
    answer = killed_after(stack, bus, body, 30)
    assert answer.texts == [expected]
    found = json.loads(answer.texts[0])
    assert len(found["way"]) == 40
    assert set(found["way"]) <= {"north", "east"}
    assert answer.reasons == [["stop"]]


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_forced_call_goes_on_exactly_after_a_loss(stack: Stack, bus: BusWatch, choice: Any) -> None:
    """P07: one call, told once, its arguments whole."""
    body = CALLING | {"tool_choice": choice, "parallel_tool_calls": False}
    [expected] = quiet(stack, body)["choices"][0]["message"]["tool_calls"]
    answer = killed_after(stack, bus, body, 60)
    assert answer.calls == [[expected["function"]]]
    assert len(json.loads(answer.calls[0][0]["arguments"])["way"]) == 40
    assert answer.texts == [""]
    assert answer.reasons == [["tool_calls"]]


WALKED = {"name": "walk", "arguments": {"way": ["north", "east"] * 20}}
SAID = f"I go. <tool_call> {json.dumps(WALKED)} </tool_call> <tool_call> {json.dumps(WALKED)} </tool_call>"


@pytest.fixture(scope="module")
def saying(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A slow stack whose model always says SAID and stops."""
    script = tmp_path_factory.mktemp("script") / "answer.txt"
    script.write_text(SAID, encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    num_tokens = str(len(tokenizer.encode(SAID, add_special_tokens=False).ids))
    env = PATIENT | {
        "SUB100_SIM_ANSWER_FILE": str(script),
        "SUB100_SIM_ANSWER_MIN_TOKENS": num_tokens,
        "SUB100_SIM_ANSWER_MAX_TOKENS": num_tokens,
        "SUB100_SIM_DELAY_MS": "15",
        "SUB100_INGRESS_STALL_TIMEOUT_S": "5",
    }
    with running_stack(tiny_model, num_decode=2, env=env) as stack:
        yield stack


@sim_only
@pytest.mark.parametrize("num_chars", [3, 60, 360], ids=["within the mark", "in a call", "in the next call"])
def test_call_of_the_models_own_accord_goes_on_exactly_after_a_loss(saying: Stack, num_chars: int) -> None:
    """P07: what was held back on one worker is told with what another adds."""
    with watching(saying) as bus:
        bus.wait_idle("prefill-1", "decode-1", "decode-2")
        answer = killed_after(saying, bus, CALLING, num_chars)
    call = {"name": "walk", "arguments": json.dumps(WALKED["arguments"])}
    assert answer.calls == [[call, call]]
    assert answer.texts == ["I go."]
    assert answer.reasons == [["tool_calls"]]

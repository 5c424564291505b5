"""The exact tier end to end: what may be answered from it, and what never."""

import secrets
from typing import Any

import pytest
from tests.e2e.bus_watch import BusWatch
from tests.e2e.raw_http import Answer, LiveStream, deltas, post
from tests.e2e.system import MODEL
from tests.patience import eventually
from tests.stack import Stack


@pytest.fixture
def question() -> str:
    """A prompt that nobody has asked before."""
    return f"Question {secrets.token_hex(8)}: tell me something."


@pytest.fixture(scope="module")
def stop(stack: Stack) -> str:
    """A stop string that ends answers of any engine early, so that they are complete and may be kept."""
    return ending(stack)


def ending(stack: Stack) -> str:
    """The commonest letter of a long answer: nearly every answer meets it, and after the blank that they all
    begin with (an answer that ends before it has begun is not kept)."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "temperature": 0}
    text = post(stack.url, body | {"max_tokens": 64, "ignore_eos": True}, stack.keys["plain"]).json["choices"]
    found: str = text[0]["message"]["content"]
    letters = [letter for letter in found[8:] if letter not in " \ufffd"]
    return max(set(letters), key=letters.count)


def ask(stack: Stack, question: str, *, tenant: str = "demo", path: str = "", **fields: Any) -> Answer:
    messages = [{"role": "user", "content": question}]
    body = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 200} | fields
    answer = post(stack.url, body, stack.keys[tenant])
    assert answer.status == 200, answer.body
    return answer


def is_hit(answer: Answer) -> bool:
    tier: str = answer.headers["x-sub100-tier"]
    assert (tier == "cache_exact") == (answer.headers["age"] is not None)
    return tier == "cache_exact"


def fill(stack: Stack, question: str, **fields: Any) -> list[Answer]:
    """Ask until it is a hit; returns the misses before, of which one is kept. The first answer is on its way
    there when the second is asked for, and on a busy machine a look-up may come after the first token."""
    answers: list[Answer] = []

    def has_hit() -> bool:
        answers.append(ask(stack, question, **fields))
        return is_hit(answers[-1])

    assert not has_hit()
    eventually(has_hit, "a hit")
    return answers[:-1]


def hits(stack: Stack, question: str, **fields: Any) -> Answer:
    """Ask until it is a hit, and return that."""

    def hit() -> Answer | None:
        answer = ask(stack, question, **fields)
        return answer if is_hit(answer) else None

    return eventually(hit, "a hit")


def test_second_request_is_a_hit_with_the_same_answer(stack: Stack, question: str, stop: str) -> None:
    """C11: text, finish reason and usage are the first one's; the id is new."""
    misses = fill(stack, question, stop=stop)
    hit = hits(stack, question, stop=stop)
    assert said(hit) in [said(miss) for miss in misses]
    assert hit.json["id"] not in [miss.json["id"] for miss in misses]


def said(answer: Answer) -> tuple[Any, ...]:
    usage = answer.json["usage"]
    return answer.json["choices"], *(usage[f"{kind}_tokens"] for kind in ("prompt", "completion", "total"))


def test_hit_touches_no_worker(stack: Stack, bus: BusWatch, question: str, stop: str) -> None:
    """Once its tenant is known to hit: before, the dispatch runs beside the look-up."""
    fill(stack, question, stop=stop)
    eventually(lambda: not dispatched_by_a_hit(stack, bus, question, stop), "a hit that dispatches nothing")


def dispatched_by_a_hit(stack: Stack, bus: BusWatch, question: str, stop: str) -> list[str]:
    mark = bus.mark()
    hits(stack, question, stop=stop)
    bus.wait(lambda: bool(bus.since(mark, ".cache.lookup")), "the look-up")
    return bus.dispatched_since(mark)


@pytest.mark.parametrize("fills_with_stream", [True, False])
def test_stream_and_body_share_an_entry(
    stack: Stack, question: str, stop: str, fills_with_stream: bool
) -> None:
    """C11: filled one way and hit the other."""
    streamed: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    misses = fill(stack, question, stop=stop, **(streamed if fills_with_stream else {}))
    hit = hits(stack, question, stop=stop, **({} if fills_with_stream else streamed))
    assert told(hit) in [told(miss) for miss in misses]
    stream = misses[0] if fills_with_stream else hit
    assert stream.chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}


def told(answer: Answer) -> tuple[str, list[str], int]:
    """Text, finish reasons and usage, of a stream or a body."""
    if "event-stream" in answer.headers["content-type"]:
        return answer.text, answer.finish_reasons, answer.chunks[-1]["usage"]["total_tokens"]
    [choice] = answer.json["choices"]
    total: int = answer.json["usage"]["total_tokens"]
    return choice["message"]["content"], [choice["finish_reason"]], total


def test_replayed_stream_has_the_same_chunks(stack: Stack, question: str, stop: str) -> None:
    misses = fill(stack, question, stop=stop, stream=True)
    hit = hits(stack, question, stop=stop, stream=True)
    assert (deltas(hit.chunks), len(hit.events)) in [(deltas(m.chunks), len(m.events)) for m in misses]


def test_tenants_never_share_an_answer(stack: Stack, question: str, stop: str) -> None:
    """C06: neither plainly nor by naming the other tenant, in fields or headers."""
    fill(stack, question, stop=stop)
    mine = {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 200}
    body = {"model": MODEL, "stop": [stop], "user": "demo", "metadata": {"tenant": "demo"}} | mine
    headers = [("X-Tenant", "demo"), ("X-Sub100-Tenant", "demo"), ("OpenAI-Organization", "demo")]
    foreign = post(stack.url, body, stack.keys["other"], headers=headers)
    assert foreign.status == 200
    assert not is_hit(foreign)
    hits(stack, question, stop=stop)


def test_tenant_without_the_cache_is_never_answered_from_it(
    stack: Stack, bus: BusWatch, question: str, stop: str
) -> None:
    mark = bus.mark()
    for _ in range(3):
        assert not is_hit(ask(stack, question, tenant="plain", stop=stop))
    bus.wait(lambda: len(bus.since(mark, ".scheduler.place.")) >= 3, "three placements")
    assert bus.since(mark, ".cache.") == []


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": 199},
        {"temperature": 0.5, "seed": 7},
        {"seed": 7},
        {"top_p": 0.9},
        {"presence_penalty": 0.5},
        {"frequency_penalty": 0.5},
        {"top_k": 3},
        {"repetition_penalty": 1.1},
        {"min_tokens": 1},
        {"stop_token_ids": [5]},
    ],
    ids=lambda change: "+".join(change),
)
def test_any_field_that_changes_the_answer_misses(
    stack: Stack, question: str, stop: str, change: dict[str, Any]
) -> None:
    """C05: exactly one thing differs."""
    fill(stack, question, stop=stop)
    assert not is_hit(ask(stack, question, **{"stop": stop} | change))
    hits(stack, question, stop=stop)


def test_other_messages_miss(stack: Stack, question: str, stop: str) -> None:
    """C04: the same last turn in another conversation is another question; A07: part borders count."""
    fill(stack, question, stop=stop)
    last = {"role": "user", "content": question}
    for messages in (
        [{"role": "system", "content": "Be brief."}, last],
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}, last],
        [{"role": "user", "content": question.upper()}],
        [{"role": "user", "content": question.replace(" tell", "  tell")}],
        [{"role": "user", "content": [{"type": "text", "text": t} for t in ("x", question)]}],
        [{"role": "user", "name": "ann", "content": question}],
    ):
        assert not is_hit(ask(stack, "", messages=messages, stop=stop)), messages
    hits(stack, f"  {question}\r\n", stop=stop)


def test_another_stop_misses(stack: Stack, question: str, stop: str) -> None:
    """C05."""
    fill(stack, question, stop=stop)
    assert not is_hit(ask(stack, question, stop=[stop, "\x00"]))


def test_truncated_answer_never_enters(stack: Stack, question: str) -> None:
    """C09: an answer cut by its limit is computed again, every time."""
    for _ in range(3):
        cut = ask(stack, question, max_tokens=2, ignore_eos=True)
        assert cut.json["choices"][0]["finish_reason"] == "length"
        assert not is_hit(cut)


def test_answer_whose_client_left_never_enters(stack: Stack, bus: BusWatch, question: str) -> None:
    """C08: the next one gets a whole answer, not the fragment."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": 4000,
        "ignore_eos": True,
        "stream": True,
    }
    with LiveStream(stack.url, body, stack.keys["demo"]) as stream:
        stream.next_text()
        stream.reset()
    mark = bus.mark()
    bus.wait_idle("prefill-1", "decode-1")
    assert bus.since(mark, ".cache.fill") == []
    with LiveStream(stack.url, body, stack.keys["demo"]) as again:
        assert "cache" not in str(again.response.headers["x-sub100-tier"])

"""Faults that people met in caches like this one: whose answer it is, and whether it is whole."""

import contextlib
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.e2e.bus_watch import BusWatch
from tests.e2e.losing import revive
from tests.e2e.raw_http import DONE, Answer, LiveStream, deltas, post
from tests.e2e.slow import slow_stack
from tests.e2e.system import MODEL, sim_only
from tests.patience import eventually
from tests.stack import Stack

pytestmark = sim_only
STEP_S = 0.02
MAX_TTL_S = 86_400
Message = dict[str, Any]


@pytest.fixture(scope="module")
def stack(tiny_model: Path) -> Iterator[Stack]:
    """Two decode workers, slow enough to be lost in mid answer."""
    with slow_stack(
        tiny_model,
        STEP_S,
        num_decode=2,
        SUB100_INGRESS_STALL_TIMEOUT_S="10",
        SUB100_SIM_ANSWER_MIN_TOKENS="24",
        SUB100_SIM_ANSWER_MAX_TOKENS="32",
    ) as running:
        yield running


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def body(*messages: Message, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": list(messages), "temperature": 0, "max_tokens": 200} | fields


def ask(stack: Stack, request: dict[str, Any], tenant: str = "similar", **headers: str) -> Answer:
    answer = post(stack.url, request, stack.keys[tenant], headers=[*headers.items()])
    assert answer.status == 200, answer.body
    return answer


def is_hit(answer: Answer) -> bool:
    return answer.headers["x-sub100-cache"] in ("exact", "semantic")


def asked_until_hit(stack: Stack, request: dict[str, Any], tenant: str = "similar") -> list[Answer]:
    """A hit, after any number of misses: on a busy machine the first token may be before a look-up, and what
    is generated then is kept, too."""
    answers: list[Answer] = []

    def has_hit() -> bool:
        answers.append(ask(stack, request, tenant))
        return is_hit(answers[-1])

    eventually(has_hit, "a hit")
    return answers


def fill(stack: Stack, request: dict[str, Any], tenant: str = "similar") -> Answer:
    """Ask until it is a hit; returns the first answer, a miss."""
    first, *others = asked_until_hit(stack, request, tenant)
    assert others, "it was there before"
    return first


def hits(stack: Stack, request: dict[str, Any], tenant: str = "similar") -> Answer:
    return asked_until_hit(stack, request, tenant)[-1]


def salt() -> str:
    return secrets.token_hex(4)


def test_same_last_turn_of_other_conversations_never_hits(stack: Stack) -> None:
    """C04: two people, two programs, two tool results."""
    s = salt()
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    pairs = [
        [
            body(user(f"Who is {name} {s}?"), assistant(f"{name} is a writer."), user("How old is he?"))
            for name in ("Tom", "Tim")
        ],
        [
            body(user(f"Write {what} in Python {s}."), assistant("def f():"), user("continue"))
            for what in ("quicksort", "mergesort")
        ],
        [
            body(
                user(f"Weather {s}?"),
                asked,
                {"role": "tool", "tool_call_id": "c1", "content": result},
                user("So?"),
            )
            for result in ("sun", "rain")
        ],
        [body({"role": "system", "content": f"{tone} {s}"}, user("Hello?")) for tone in ("Nice.", "Rude.")],
    ]
    for one, other in pairs:
        fill(stack, one)
        assert not is_hit(ask(stack, other)), other
        hits(stack, one)


@pytest.mark.parametrize(
    "change",
    [
        {"n": 2},
        {"logprobs": True},
        {"logprobs": True, "top_logprobs": 2},
        {"response_format": {"type": "json_object"}},
        {"logit_bias": {"5": 1}},
        {"min_p": 0.1},
        {"bad_words": ["never"]},
        {"temperature": None},
        {"temperature": 1},
        {"max_completion_tokens": 199, "max_tokens": None},
        {"stop": ["\x00"]},
        {"seed": 1},
    ],
    ids=lambda change: "+".join(f"{name}={value}" for name, value in change.items())[:40],
)
def test_one_changed_field_is_never_answered_from_the_other(stack: Stack, change: dict[str, Any]) -> None:
    """C05: in either direction."""
    one = body(user(f"How is it going {salt()}?"))
    fill(stack, one, "demo")
    changed = ask(stack, one | change, "demo")
    assert not is_hit(changed)
    hits(stack, one, "demo")


def test_nothing_of_a_tenant_reaches_another(stack: Stack) -> None:
    """C06: the same question, a long one that is nearly equal, and every way to name the other tenant."""
    canary = secrets.token_hex(8)
    short = body(user(f"My code is {canary}. What is my code?"))
    words = " ".join(f"word{i}" for i in range(500))
    long = body(user(f"{words} My code is {canary}. What is my code?"))
    nearly = body(user(f"{words} My code is {canary}. What is my code now?"))
    fill(stack, short)
    fill(stack, long)
    foreign = {"user": "similar", "metadata": {"tenant": "similar"}, "cache_salt": "similar"}
    headers = {"X-Tenant": "similar", "X-Sub100-Tenant": "similar", "X-Cache-Namespace": "similar"}
    for request in (short, long, nearly):
        assert not is_hit(ask(stack, request | foreign, "stranger", **headers))


@pytest.mark.parametrize("how", ["prefill killed", "decode killed"])
def test_answer_that_was_put_together_from_two_workers_is_kept_whole(
    stack: Stack, bus: BusWatch, how: str
) -> None:
    """C08: what was lost in mid stream goes on elsewhere; what is replayed is all of it."""
    request = body(user(f"Tell me more {salt()}."), stream=True)
    mark = bus.mark()
    with LiveStream(stack.url, request, stack.keys["similar"]) as stream:
        pieces = [stream.next_text() for _ in range(5)]
        role = how.split()[0]
        bus.wait(lambda: bool(bus.since(mark, ".decode.job.")), "a decode job")
        lost = stack.replicas[bus.since(mark, f".{role}.job.")[-1].subject.rpartition(".")[2]]
        lost.signal(signal.SIGKILL)
        try:
            *events, end = stream.rest()
        finally:
            revive(stack, lost)
    assert end == DONE
    text = "".join(pieces + deltas(events))

    def is_kept() -> bool:
        again = ask(stack, request)
        assert again.text == text
        return is_hit(again)

    eventually(is_kept, "a hit")


def test_client_that_leaves_in_the_last_moment_leaves_nothing_or_all(stack: Stack) -> None:
    """C08: reset when the finish reason is there, or just before."""
    for num_read in (22, 23, 24, 25):
        request = body(user(f"Almost done {salt()}."), stream=True)
        whole = ask(stack, request, "plain").text
        with LiveStream(stack.url, request, stack.keys["similar"]) as stream:
            for _ in range(num_read):
                if not isinstance(stream.next_event(), dict):
                    break
            stream.reset()
        for _ in range(2):
            assert ask(stack, request).text == whole


def test_several_answers_are_never_kept(stack: Stack, bus: BusWatch) -> None:
    """C08 with n=2, of which one may be cut."""
    request = body(user(f"Two of them {salt()}."), n=2)
    mark = bus.mark()
    for _ in range(2):
        assert ask(stack, request).headers["x-sub100-cache"] == "bypass"
    assert bus.since(mark, ".cache.") == []


def test_cut_answer_is_not_an_answer_to_the_whole_question(stack: Stack) -> None:
    """C09."""
    request = body(user(f"At length {salt()}."))
    cut = ask(stack, request | {"max_tokens": 5})
    assert cut.json["choices"][0]["finish_reason"] == "length"
    whole = ask(stack, request)
    assert not is_hit(whole)
    assert whole.json["choices"][0]["finish_reason"] == "stop"
    assert not is_hit(ask(stack, request | {"max_tokens": 5}))


def test_error_is_never_replayed(stack: Stack) -> None:
    """C09: refused while the fleet is away, answered by an engine when it is back."""
    request = body(user(f"Are you there {salt()}?"))
    scheduler = stack.replicas["scheduler-1"]
    scheduler.terminate()
    scheduler.wait()
    try:
        refused = post(stack.url, request, stack.keys["similar"])
        assert refused.status == 503
        assert refused.error["code"] == "scheduler_unavailable"
    finally:
        scheduler.start()
        stack.wait_ready("scheduler-1")
    answer = ask(stack, request)
    assert answer.headers["x-sub100-cache"] == "miss"
    assert answer.json["choices"][0]["finish_reason"] == "stop"


def test_refusal_for_too_many_at_once_is_never_replayed(stack: Stack) -> None:
    """C09: 429, and when there is room again the engine answers; that answer is kept."""
    request = body(user(f"Is there room {salt()}?"))
    endless = body(user("Take your time."), stream=True, max_tokens=4000, ignore_eos=True)
    with LiveStream(stack.url, endless, stack.keys["single"]) as busy:
        busy.next_text()
        for _ in range(2):
            refused = post(stack.url, request, stack.keys["single"])
            assert refused.status == 429
            assert refused.error["code"]
        busy.reset()

    def answered() -> Answer | None:  # it may take a moment to be seen that the other has left
        answer = post(stack.url, request, stack.keys["single"])
        return None if answer.status == 429 else answer

    answer = eventually(answered, "a place")
    assert answer.headers["x-sub100-cache"] == "miss"
    assert answer.json["choices"][0]["finish_reason"] == "stop"
    assert hits(stack, request, "single").json["choices"] == answer.json["choices"]


def test_answer_without_text_is_never_kept(stack: Stack, bus: BusWatch) -> None:
    """C09: it is more likely a fault than an answer; the stated policy is to compute it again."""
    request = body(user(f"Say nothing {salt()}."), allowed_token_ids=[7], stop_token_ids=[7])
    mark = bus.mark()
    for _ in range(2):
        empty = ask(stack, request)
        assert empty.json["choices"][0]["message"]["content"] == ""
        assert empty.json["choices"][0]["finish_reason"] == "stop"
        assert not is_hit(empty)
    fills = bus.since(mark, ".cache.fill.")
    assert fills == []


def test_every_key_of_the_running_system_has_an_end(stack: Stack) -> None:
    """C12: after fills of streams and bodies, and of answers that were cut or left."""
    for fields in ({"stream": True}, {}, {"stop": ["\x00"]}, {"seed": 3}):
        fill(stack, body(user(f"Do you end {salt()}?"), **fields))
    ask(stack, body(user(f"Cut {salt()}."), max_tokens=2, ignore_eos=True))
    with (
        LiveStream(stack.url, body(user(f"Left {salt()}."), stream=True), stack.keys["similar"]) as stream,
        contextlib.closing(redis.Redis.from_url(stack.redis.url)) as store,
    ):
        stream.next_text()
        stream.reset()
        ends = {key: store.ttl(key) for key in store.scan_iter()}
    assert len(ends) >= 4
    assert {key: ttl for key, ttl in ends.items() if not 0 < ttl <= MAX_TTL_S} == {}
    answers = {ttl for key, ttl in ends.items() if key.startswith(b"sub100:cache:v4:{similar}:")}
    assert 0 < max(answers) <= 600, "what the tenant's key says"

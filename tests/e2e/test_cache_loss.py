"""The cache without its Redis, and the region without its cache: requests never notice."""

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.raw_http import Answer, post
from tests.e2e.system import ENGINE, MODEL, PATIENT
from tests.stack import Stack, running_stack

HEAL_TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def own(tiny_model: Path) -> Iterator[Stack]:
    """A stack whose Redis may be killed."""
    with running_stack(tiny_model, engine=ENGINE, env=PATIENT) as running:
        yield running


def ask(stack: Stack, question: str) -> Answer:
    body: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": 100,
        "stop": ["e", "a", "o", "\ufffd"],
    }
    answer = post(stack.url, body, stack.keys["demo"], timeout_s=10)
    assert answer.status == 200, answer.body
    return answer


def is_hit(answer: Answer) -> bool:
    return "cache" in str(answer.headers["x-sub100-tier"])


def wait_hit(stack: Stack, question: str) -> Answer:
    deadline = time.monotonic() + HEAL_TIMEOUT_S
    while not is_hit(answer := ask(stack, question)):
        assert time.monotonic() < deadline, f"no hit within {HEAL_TIMEOUT_S} s"
        time.sleep(0.05)
    return answer


def test_killed_redis_costs_hits_and_nothing_else_and_heals(own: Stack) -> None:
    question = secrets.token_hex(8)
    answer = wait_hit(own, question)
    own.redis.kill()
    try:
        for _ in range(5):
            miss = ask(own, question)
            assert not is_hit(miss)
            assert miss.json["choices"] == answer.json["choices"]
    finally:
        own.redis.start()
    assert wait_hit(own, question).json["choices"] == answer.json["choices"]
    assert own.replicas["cache-1"].is_running


def test_hung_redis_costs_no_request_more_than_the_allotment(own: Stack) -> None:
    """A look-up that hangs is given up; after a few, Redis is not asked any more."""
    question = secrets.token_hex(8)
    wait_hit(own, question)
    own.redis.pause()
    try:
        answers = [ask(own, question) for _ in range(6)]
    finally:
        own.redis.resume()
    assert not any(map(is_hit, answers))
    assert max(answer.elapsed_s for answer in answers) < 1.5
    assert answers[-1].elapsed_s < 0.25  # the breaker is open: nobody waits for Redis
    wait_hit(own, question)


def test_killed_cache_service_costs_hits_and_nothing_else(own: Stack) -> None:
    question = secrets.token_hex(8)
    wait_hit(own, question)
    cache = own.replicas["cache-1"]
    cache.signal(9)
    cache.wait()
    miss = ask(own, question)
    assert not is_hit(miss)
    assert miss.elapsed_s < 1  # nobody listens: known at once
    cache.start()
    own.wait_ready("cache-1", timeout_s=20)
    assert is_hit(wait_hit(own, question))

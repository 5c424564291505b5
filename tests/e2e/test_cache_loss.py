"""The cache without its Redis, and the region without its cache: requests never notice."""

import secrets
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.raw_http import Answer, post
from tests.e2e.system import MODEL, sim_only
from tests.patience import at_best, eventually
from tests.stack import Stack, running_stack

pytestmark = sim_only


@pytest.fixture(scope="module")
def own(tiny_model: Path) -> Iterator[Stack]:
    """A stack whose Redis may be killed; a look-up's allotment is half a second."""
    with running_stack(tiny_model, env={"SUB100_INGRESS_BUDGET_MS": "5000"}) as running:
        yield running


def ask(stack: Stack, question: str) -> Answer:
    body: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": 100,
        "stop": ["e", "a", "o", "\ufffd"],
    }
    answer = post(stack.url, body, stack.keys["demo"])
    assert answer.status == 200, answer.body
    return answer


def is_hit(answer: Answer) -> bool:
    return "cache" in str(answer.headers["x-sub100-tier"])


def wait_hit(stack: Stack, question: str) -> Answer:
    def hit() -> Answer | None:
        answer = ask(stack, question)
        return answer if is_hit(answer) else None

    return eventually(hit, "a hit")


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
        # The breaker is open: nobody waits for Redis.
        at_best(lambda: ask(own, question).elapsed_s, 0.25, "answered after")
    finally:
        own.redis.resume()
    assert not any(map(is_hit, answers))
    assert statistics.median(answer.elapsed_s for answer in answers) < 1.5
    wait_hit(own, question)


def test_killed_cache_service_costs_hits_and_nothing_else(own: Stack) -> None:
    question = secrets.token_hex(8)
    wait_hit(own, question)
    cache = own.replicas["cache-1"]
    cache.signal(9)
    cache.wait()

    def missed_after_s() -> float:
        miss = ask(own, question)
        assert not is_hit(miss)
        return miss.elapsed_s

    at_best(missed_after_s, 0.25, "nobody listens, which is known after")
    cache.start()
    own.wait_ready("cache-1")
    assert is_hit(wait_hit(own, question))

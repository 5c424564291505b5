import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.patience import PATIENCE_S
from tests.unit.ingress_exchange import DEMO

from sub100_ingress.judge import Case, JudgeQueue
from sub100_ingress.model_judge import is_yes, request_of
from sub100_proto.cache import CacheAlias
from sub100_shared.errors import Evicted

SAME = frozenset(
    {
        ("How do I reset my password?", "What are the steps to reset my password?"),
        ("Capital of France?", "Which city is France's capital?"),
    }
)
"""An oracle's labels: these pairs have one answer, no other pair has."""


class Oracle:
    """A Judge that knows; while ``stalled`` it thinks."""

    def __init__(self) -> None:
        self.can_say = asyncio.Event()
        self.can_say.set()
        self.num_at_once = self.most_at_once = 0
        self.num_asked = 0
        self.second = asyncio.Event()
        self.errors: list[Exception] = []

    async def same_answer(self, case: Case) -> bool:
        self.num_asked += 1
        if self.num_asked == 2:
            self.second.set()
        self.num_at_once += 1
        self.most_at_once = max(self.most_at_once, self.num_at_once)
        try:
            await self.can_say.wait()
            if self.errors:
                raise self.errors.pop()
            return (case.neighbour, case.question) in SAME
        finally:
            self.num_at_once -= 1


class Court:
    """A queue with an oracle, what it published, and whether the fleet is quiet."""

    def __init__(self, **options: Any) -> None:
        self.oracle = Oracle()
        self.is_quiet = True
        self.published: asyncio.Queue[CacheAlias] = asyncio.Queue()
        self.queue = JudgeQueue(self.oracle, lambda: self.is_quiet, self.published.put, **options)

    async def next_alias(self) -> bytes:
        return (await asyncio.wait_for(self.published.get(), PATIENCE_S)).digest

    async def until(self, **expected: int) -> None:
        """A case is counted when it is over, a turn of the loop after its alias."""
        async with asyncio.timeout(PATIENCE_S):
            while self.queue.num_cases != expected:  # noqa: ASYNC110
                await asyncio.sleep(0)


def case(digest: bytes, neighbour: str = "Capital of France?", question: str = "") -> Case:
    return Case(
        request_id="r",
        tenant=DEMO,
        neighbour=neighbour,
        question=question or "Which city is France's capital?",
        context="",
        alias=CacheAlias(tenant="demo", digest=digest, target=b"t", generation=b"g"),
    )


@pytest.fixture
async def court() -> AsyncIterator[Court]:
    made = Court(max_cases=3, timeout_s=1.0)
    task = asyncio.create_task(made.queue.run())
    yield made
    task.cancel()
    await asyncio.wait({task})


async def test_yes_makes_an_alias_and_no_makes_none(court: Court) -> None:
    court.queue.offer(case(b"no", "Is it safe?", "Is it not safe?"))
    court.queue.offer(case(b"yes"))
    assert await court.next_alias() == b"yes"
    assert court.published.empty()
    await court.until(yes=1, no=1, error=0, dropped=0)


async def test_cases_over_the_limit_are_dropped_and_one_runs_at_a_time(court: Court) -> None:
    court.oracle.can_say.clear()
    for number in range(8):
        court.queue.offer(case(bytes([number])))
    assert court.queue.num_cases["dropped"] == 5
    court.oracle.can_say.set()
    assert [await court.next_alias() for _ in range(3)] == [b"\0", b"\1", b"\2"]
    assert court.oracle.most_at_once == 1


async def test_loaded_fleet_is_not_asked(court: Court) -> None:
    court.is_quiet = False
    court.queue.offer(case(b"busy"))
    while not court.queue.num_cases["dropped"]:  # noqa: ASYNC110  # one turn of the loop
        await asyncio.sleep(0)
    court.is_quiet = True
    court.queue.offer(case(b"quiet"))
    assert await court.next_alias() == b"quiet"


@pytest.mark.parametrize("error", [Evicted("worker_lost", "x"), RuntimeError("bug")])
async def test_error_of_the_judge_costs_one_case(court: Court, error: Exception) -> None:
    court.oracle.errors.append(error)
    court.queue.offer(case(b"lost"))
    court.queue.offer(case(b"next"))
    assert await court.next_alias() == b"next"
    await court.until(yes=1, no=0, error=1, dropped=0)


async def test_judge_that_never_answers_costs_one_case(court: Court) -> None:
    court.oracle.can_say.clear()
    court.queue.offer(case(b"never"))
    court.queue.offer(case(b"next"))
    await asyncio.wait_for(court.oracle.second.wait(), PATIENCE_S)
    court.oracle.can_say.set()
    assert await court.next_alias() == b"next"


@pytest.mark.parametrize("answer", ["YES", "yes.", " Yes, both", '"YES"', "YES\nYES"])
def test_yes_is_the_first_word(answer: str) -> None:
    assert is_yes(answer)


@pytest.mark.parametrize("answer", ["", " ", "NO", "no. YES", "YESTERDAY", "Y", "I think YES", "YES/NO"])
def test_everything_else_is_a_no(answer: str) -> None:
    assert not is_yes(answer)


def test_model_is_asked_greedily_and_shortly() -> None:
    request = request_of("m", "new?", "old?", "Answer like a pirate.")
    assert (request.sampling.temperature, request.max_tokens, request.n) == (0, 4, 1)
    assert request.messages is not None
    text = request.messages[0].text
    assert "old?" in text
    assert "new?" in text
    assert "Answer like a pirate." in text

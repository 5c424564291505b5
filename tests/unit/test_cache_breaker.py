"""The cache's breaker."""

import asyncio

import pytest

from sub100_cache.breaker import MAX_SLOW, Breaker
from sub100_cache.embedders.api import EmbedderUnavailable
from sub100_cache.embedders.bounded import BoundedEmbedder
from sub100_cache.store.commands import StoreUnavailable, open_commands

SLOW_S = 0.25


def closed() -> Breaker:
    breaker = Breaker(SLOW_S)
    breaker.probed("")
    return breaker


def test_breaker_is_open_until_the_first_probe() -> None:
    breaker = Breaker(SLOW_S)
    assert breaker.is_open
    breaker.answered()
    assert breaker.is_open
    breaker.probed("")
    assert not breaker.is_open


def test_breaker_opens_at_once_when_a_connection_fails() -> None:
    breaker = closed()
    breaker.failed("ConnectionError")
    assert breaker.is_open
    assert breaker.reason == "ConnectionError"


def test_breaker_opens_only_after_late_answers_in_a_row() -> None:
    breaker = closed()
    for _ in range(3):
        for _ in range(MAX_SLOW - 1):
            breaker.was_slow()
        breaker.answered()
    assert not breaker.is_open
    for _ in range(MAX_SLOW):
        breaker.was_slow()
    assert breaker.is_open


def test_breaker_starts_to_count_anew_when_a_probe_closed_it() -> None:
    breaker = closed()
    for _ in range(MAX_SLOW):
        breaker.was_slow()
    breaker.probed("late")
    assert breaker.is_open
    breaker.probed("")
    breaker.was_slow()
    assert not breaker.is_open


def hanging() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def test_breaker_stays_closed_when_callers_had_no_time() -> None:
    """Whoever asks with a budget of a millisecond closes the cache for nobody else."""
    breaker = closed()
    for _ in range(2 * MAX_SLOW):
        running = hanging()
        breaker.gave_up(running, 0.001)
        running.set_result(None)
    await asyncio.sleep(1.5 * SLOW_S)  # the time that a late call is given
    assert not breaker.is_open


async def test_breaker_opens_when_calls_hang_however_short_their_callers_waited() -> None:
    breaker = closed()
    for _ in range(MAX_SLOW):
        breaker.gave_up(hanging(), 0.001)
    assert not breaker.is_open
    await asyncio.sleep(1.5 * SLOW_S)
    assert breaker.is_open
    assert breaker.reason == "slow"


async def test_breaker_opens_at_once_when_callers_waited_long_enough() -> None:
    breaker = closed()
    for _ in range(MAX_SLOW):
        breaker.gave_up(hanging(), SLOW_S)
    assert breaker.is_open


async def test_store_stays_open_to_others_when_a_client_leaves_it_no_time() -> None:
    commands = open_commands("redis://127.0.0.1:1", max_connections=2 * MAX_SLOW)
    commands.breaker.probed("")
    for _ in range(2 * MAX_SLOW):
        running = hanging()
        with pytest.raises(StoreUnavailable, match="late"):
            await commands.run(running, 0.001)
        running.set_result(None)
    assert not commands.breaker.is_open
    await commands.close()


class SlowEmbedder:
    """Answers when it may; a job whose time is over when it comes to it is ``late``."""

    id, dimension = "slow", 1

    def __init__(self) -> None:
        self.error = ""
        self.may_answer = asyncio.Event()

    async def embed(self, text: str, timeout_s: float) -> bytes:
        await self.may_answer.wait()
        if self.error:
            raise EmbedderUnavailable(self.error)
        return b"vector"

    async def close(self) -> None:
        self.may_answer.set()


@pytest.mark.parametrize("is_queued_too_long", [True, False])
async def test_embedder_stays_open_to_others_when_a_client_leaves_it_no_time(
    is_queued_too_long: bool,
) -> None:
    embedder = SlowEmbedder()
    front = BoundedEmbedder(embedder, closed(), 0)
    embedder.error = "late" if is_queued_too_long else ""
    if is_queued_too_long:
        embedder.may_answer.set()
    for _ in range(2 * MAX_SLOW):
        with pytest.raises(EmbedderUnavailable, match="late"):
            await front.embed("t", "x", 0.001)
    embedder.may_answer.set()
    await asyncio.sleep(1.5 * SLOW_S)
    assert not front.breaker.is_open
    await front.close()

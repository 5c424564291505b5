"""A stream that has begun waits for a place, and not for ever."""

import asyncio

import pytest

from sub100_ingress.patience import Patience
from sub100_shared.errors import Refused

REFUSED = Refused("no_capacity", "none")


class Now:
    def __init__(self) -> None:
        self.ms = 100.0

    def __call__(self) -> float:
        return self.ms


async def test_patience_ends_with_the_refusal_when_its_time_is_over() -> None:
    now = Now()
    patience = Patience(now, 50)
    await patience.wait(REFUSED)
    now.ms += 50
    with pytest.raises(Refused) as raised:
        await patience.wait(REFUSED)
    assert raised.value is REFUSED


async def test_patience_begins_anew_after_a_place_was_found() -> None:
    now = Now()
    patience = Patience(now, 50)
    await patience.wait(REFUSED)
    now.ms += 60
    patience.placed()
    await patience.wait(REFUSED)


async def test_patience_ends_at_once_when_the_client_leaves() -> None:
    waiting = asyncio.create_task(Patience(Now(), 1e6).wait(REFUSED))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

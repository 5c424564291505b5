"""How tests wait, and how they bound time, on a machine that is busy with other things.

What must come at last is waited for with ``eventually``, for as long as PATIENCE_S: a test that passes ends
as soon as it is so, and only one that fails waits that long. A bound on time is one on the *best* of several
tries (``at_best``): whatever a neighbour takes away, it does not take it from all of them, and what is slow
by itself is slow each time.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

PATIENCE_S: Final = 45.0
"""Below pytest's own time-out, so that a test says itself what never came."""
POLL_S: Final = 0.02
NUM_TRIES: Final = 8

T = TypeVar("T")


def eventually(look: Callable[[], T | None], what: str, timeout_s: float = PATIENCE_S) -> T:
    """Look again and again until it is so (true, there, or not empty); returns what was seen."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(POLL_S)
    return found


async def eventually_async(look: Callable[[], T | None], what: str, timeout_s: float = PATIENCE_S) -> T:
    """The same for the state of other tasks of this loop."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        await asyncio.sleep(POLL_S / 4)
    return found


def at_best(measure: Callable[[], float], bound: float, what: str) -> None:
    """Measure until it is below the bound; NUM_TRIES at most. ``measure`` may fail for its own reasons."""
    tries: list[float] = []
    while not tries or tries[-1] >= bound:
        assert len(tries) < NUM_TRIES, f"{what} {min(tries):.3f} at best, not below {bound:g}: {tries}"
        tries.append(measure())


async def at_best_async(measure: Callable[[], Awaitable[float]], bound: float, what: str) -> None:
    tries: list[float] = []
    while not tries or tries[-1] >= bound:
        assert len(tries) < NUM_TRIES, f"{what} {min(tries):.3f} at best, not below {bound:g}: {tries}"
        tries.append(await measure())

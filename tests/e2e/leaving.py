"""How long a client that leaves is remembered: from its RST until nothing of it is left anywhere."""

import secrets
import time
from collections.abc import Callable
from typing import Any, Final

from tests.e2e.bus_watch import BusWatch
from tests.e2e.raw_http import LiveStream
from tests.e2e.scrape import Scrape
from tests.e2e.slow import prompt_of_steps
from tests.patience import PATIENCE_S
from tests.stack import Stack

POLL_S: Final = 0.002
_LEFT: Final = (
    "sub100_job_open",
    "sub100_engine_requests",
    "sub100_engine_kv_usage_ratio",
    "sub100_placement_open",
)
"""Jobs and blocks of the workers, what their engines have, and the scheduler's placements."""


def before_the_first_token(stack: Stack, bus: BusWatch) -> LiveStream:
    mark = bus.mark()
    stream = _ask(stack, num_steps=8)
    bus.wait(lambda: bool(bus.since(mark, ".prefill.job.")), "the prefill job")
    return stream


def between_prefill_and_decode(stack: Stack, bus: BusWatch) -> LiveStream:
    """The first token is prefill's; decode has its job at most."""
    stream = _ask(stack)
    stream.next_text()
    return stream


def in_mid_stream(stack: Stack, bus: BusWatch) -> LiveStream:
    stream = _ask(stack)
    for _ in range(5):
        stream.next_text()
    return stream


MOMENTS: Final[dict[str, Callable[[Stack, BusWatch], LiveStream]]] = {
    "before the first token": before_the_first_token,
    "between prefill and decode": between_prefill_and_decode,
    "in mid-stream": in_mid_stream,
}


def freed_ms(stack: Stack, bus: BusWatch, begin: Callable[[Stack, BusWatch], LiveStream]) -> float:
    """Begin, leave, and wait until nothing is held any more; -1 if nothing ever was."""
    stream = begin(stack, bus)
    if not num_left(stack):
        return -1.0
    left_at = time.monotonic()
    stream.reset()
    while num_left(stack):
        assert time.monotonic() - left_at < PATIENCE_S, "never freed"
        time.sleep(POLL_S)
    return (time.monotonic() - left_at) * 1e3


def num_left(stack: Stack) -> float:
    """What workers and scheduler still hold, read where they hold it (heartbeats come too seldom)."""
    holders = [r for r in stack.replicas.values() if r.service in ("prefill", "decode", "scheduler")]
    scrape = Scrape(*holders)
    assert all(scrape.samples(name) for name in _LEFT), "a metric has another name"
    return sum(scrape.total(name) for name in _LEFT)


def _ask(stack: Stack, num_steps: int = 1) -> LiveStream:
    body: dict[str, Any] = prompt_of_steps(num_steps, salt=secrets.token_hex(4))
    return LiveStream(stack.url, body | {"stream": True, "max_tokens": 4000}, stack.keys["plain"])

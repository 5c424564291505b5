"""Work given up before its first token: queues empty, KV goes, the next request finds a free worker."""

import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.bus_watch import BusWatch
from tests.e2e.raw_http import DONE, LiveStream, post
from tests.e2e.slow import STEP_S, prompt_of_steps, slow_stack
from tests.e2e.system import sim_only
from tests.patience import at_best
from tests.stack import Stack

pytestmark = sim_only

FREED_S = 20.0
"""Below the lease of 30 s that would free anything in the end."""


@pytest.fixture(scope="module")
def stack(tiny_model: Path) -> Iterator[Stack]:
    with slow_stack(tiny_model, SUB100_INGRESS_KEEP_ALIVE_S="0.3") as running:
        yield running


def wait_kv_free(bus: BusWatch, worker_id: str) -> None:
    def is_free() -> bool:
        beat = bus.beat(worker_id)
        return beat is not None and beat.load.kv_usage == 0

    bus.wait(is_free, f"no KV in use on {worker_id}", FREED_S)


def test_ten_dropped_long_prompts_do_not_delay_a_short_one(stack: Stack, bus: BusWatch) -> None:
    """D03: each of the ten would hold prefill for a dozen steps; the short prompt waits for none of them."""
    key = stack.keys["plain"]

    def delay_s() -> float:
        salt = secrets.token_hex(4)
        idle = post(stack.url, prompt_of_steps(1, salt=f"idle {salt}"), key)
        dropped = [
            LiveStream(stack.url, prompt_of_steps(12, salt=f"{i} {salt}") | {"stream": i % 2 == 0}, key)
            for i in range(10)
        ]
        bus.wait(lambda: bus.num_in("prefill-1") == 10, "ten prompts on prefill")
        for i, stream in enumerate(dropped):
            stream.reset() if i % 3 else stream.close()
        short = post(stack.url, prompt_of_steps(1, salt=f"short {salt}"), key)
        assert short.status == 200
        return short.elapsed_s - idle.elapsed_s

    at_best(delay_s, 5 * STEP_S, "the short prompt took longer by")
    bus.wait_idle("prefill-1", "decode-1")
    wait_kv_free(bus, "prefill-1")


def test_first_token_that_crosses_its_abort_leaves_no_kv(stack: Stack, bus: BusWatch) -> None:
    """P01: prefill hangs, its request goes elsewhere, and when it wakes up it ends its work: what it has
    computed for nobody is freed by the abort, not by the lease."""
    prefill = stack.replicas["prefill-1"]
    body = prompt_of_steps(5, salt="crossing") | {"stream": True}
    with LiveStream(stack.url, body, stack.keys["plain"]) as stream:
        assert isinstance(stream.next_event(), bytes)
        prefill.signal(signal.SIGSTOP)
        try:
            assert stream.rest()[-1] == DONE
        finally:
            prefill.signal(signal.SIGCONT)
    bus.wait_idle("prefill-1", "decode-1")
    wait_kv_free(bus, "prefill-1")
    assert post(stack.url, prompt_of_steps(1, salt="after"), stack.keys["plain"]).status == 200

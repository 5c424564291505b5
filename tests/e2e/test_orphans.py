"""Nothing works for nobody: what an ingress began that has died ends, whether it comes back or not, and what
an ingress does not know any more it has ended."""

import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.bus_watch import BusWatch, publish
from tests.e2e.raw_http import LiveStream
from tests.e2e.scrape import Scrape
from tests.e2e.system import MODEL, PATIENT, sim_only
from tests.patience import eventually
from tests.stack import Stack, running_stack

from sub100_proto import codec, subjects
from sub100_proto.jobs import Abort
from sub100_proto.stream import StreamBatch, Tokens

pytestmark = [sim_only, pytest.mark.timeout(200)]

BODY: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 4000,
    "ignore_eos": True,
    "stream": True,
}
"""80 s long: no stream ends by itself while a test waits."""


@pytest.fixture(scope="module")
def stack(tiny_model: Path) -> Iterator[Stack]:
    with running_stack(tiny_model, env={**PATIENT, "SUB100_SIM_DELAY_MS": "20"}) as running:
        yield running


def is_idle(stack: Stack) -> bool:
    workers = Scrape(stack.replicas["prefill-1"], stack.replicas["decode-1"])
    return not workers.total("sub100_job_open") and not workers.total("sub100_engine_kv_usage_ratio")


@pytest.mark.parametrize("is_back", [True, False])
def test_streams_of_a_killed_ingress_end_and_their_kv_is_free(stack: Stack, is_back: bool) -> None:
    streams = []
    for number in range(5):
        message = {"role": "user", "content": f"{number} {secrets.token_hex(4)}"}
        streams.append(LiveStream(stack.url, BODY | {"messages": [message]}, stack.keys["plain"]))
        for _ in range(3):  # it runs on decode
            streams[-1].next_text()
    ingress = stack.replicas["ingress-1"]
    ingress.signal(signal.SIGKILL)
    ingress.wait()
    for stream in streams:
        stream.close()
    if is_back:
        ingress.start()
    eventually(lambda: is_idle(stack), "workers without jobs")
    if not is_back:
        ingress.start()
    stack.wait_http(f"{stack.url}/readyz")


def test_worker_that_goes_on_with_an_unknown_attempt_is_told_to_stop(stack: Stack, bus: BusWatch) -> None:
    """Its Abort was lost, or another life of this ingress began it."""
    attempt = secrets.token_urlsafe(12)
    batch = StreamBatch("decode-1", 1, (Tokens(attempt, 3, (7,)),))
    mark = bus.mark()
    publish(stack, subjects.stream_events("local", "ingress-1"), codec.encode(batch))
    bus.wait(lambda: bool(bus.told_since(mark, "decode", Abort)), "the abort")
    assert bus.told_since(mark, "decode", Abort) == [Abort(attempt=attempt)]

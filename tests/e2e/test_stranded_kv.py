"""KV that was handed over and that nobody comes for: clients leave between prefill and decode, ingress dies
there. Blocks come back, new prompts find room, and a metric says how many were stranded. On both engines."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.bus_watch import BusWatch
from tests.e2e.raw_http import DONE, LiveStream, post
from tests.e2e.scrape import Scrape
from tests.e2e.system import ENGINE, MODEL, PATIENT
from tests.patience import eventually
from tests.stack import Replica, Stack, running_stack

from sub100_proto import codec, subjects
from sub100_proto.fleet import Heartbeat, ServiceStatus

pytestmark = pytest.mark.timeout(400)

NUM_CLIENTS = 200
NUM_AT_ONCE = 20
BLOCK = 32
PROMPT_BLOCKS = 4
LEASE_S = 12.0


@pytest.fixture(scope="module")
def stack(tiny_model: Path) -> Iterator[Stack]:
    env = {"SUB100_PREFILL_LEASE_S": str(LEASE_S), "SUB100_INGRESS_CLAIM_TIMEOUT_MS": "30000"}
    with running_stack(tiny_model, engine=ENGINE, env={**PATIENT, **env}) as running:
        yield running


def body(number: int, **fields: Any) -> dict[str, Any]:
    """A prompt of its own, PROMPT_BLOCKS long: no cache holds any of it, so prefill has to compute it."""
    ids = [300 + (number * 31 + i * i) % 3000 for i in range(PROMPT_BLOCKS * BLOCK - 3)]
    fixed = {"model": MODEL, "temperature": 0, "max_tokens": 8, "ignore_eos": True}
    return {**fixed, "prompt": [350 + number % 3000, *ids], **fields}


def kv(stack: Stack) -> dict[str, float]:
    """Prefill's blocks: pinned now, and stranded since its start."""
    scrape = Scrape(stack.replicas["prefill-1"])
    return {
        "pinned": scrape.total("sub100_kv_pinned"),
        "in use": scrape.total("sub100_engine_kv_usage_ratio"),
        **{
            outcome: scrape.total("sub100_kv_stranded_total", sub100_outcome=outcome)
            for outcome in ("released", "expired")
        },
    }


def wait_freed(stack: Stack) -> None:
    """Until prefill pins and uses nothing."""

    def is_free() -> bool:
        found = kv(stack)
        return not (found["pinned"] or found["in use"])

    eventually(is_free, "prefill's KV free")


@contextlib.contextmanager
def repeated(bus: BusWatch, subject: str, word: Heartbeat | ServiceStatus) -> Iterator[None]:
    """Somebody's last word is said again and again: nobody takes him for lost, however long it takes."""
    is_over = threading.Event()

    def speak() -> None:
        while not is_over.wait(0.2):
            bus.publish(subject, codec.encode(word))

    speaking = threading.Thread(target=speak)
    speaking.start()
    try:
        yield
    finally:
        is_over.set()
        speaking.join()


@contextlib.contextmanager
def held_up(bus: BusWatch, decode: Replica) -> Iterator[None]:
    """Decode hangs."""
    beat = eventually(lambda: bus.beat(decode.instance), "a heartbeat")
    decode.signal(signal.SIGSTOP)
    try:
        with repeated(bus, subjects.heartbeat("local", "decode", decode.instance), beat):
            yield
    finally:
        decode.signal(signal.SIGCONT)


def in_the_gap(stack: Stack, bus: BusWatch, numbers: range) -> list[LiveStream]:
    """Clients whose prompts are computed while decode, which hangs, does not come for the KV."""
    key, mark = stack.keys["plain"], bus.mark()
    streams = [LiveStream(stack.url, body(n, stream=True), key, path="/v1/completions") for n in numbers]
    bus.wait(lambda: len(bus.since(mark, ".decode.job.")) >= len(numbers), "decode jobs")
    bus.wait(lambda: kv(stack)["pinned"] == len(numbers) * PROMPT_BLOCKS, "pinned KV")
    return streams


def test_two_hundred_clients_that_leave_between_prefill_and_decode_strand_nothing(
    stack: Stack, bus: BusWatch
) -> None:
    """P01: x200, the hop to decode held up. Prefill's KV is free at once, not when its lease ends; the metric
    counts every block; a new prompt is answered in between, as ever."""
    before = kv(stack)
    decode = stack.replicas["decode-1"]
    for first in range(0, NUM_CLIENTS, NUM_AT_ONCE):
        with held_up(bus, decode):
            streams = in_the_gap(stack, bus, range(first, first + NUM_AT_ONCE))
            for stream in streams:
                stream.reset()
            wait_freed(stack)
        bus.wait_idle("decode-1")
        assert post(stack.url, body(1000 + first), stack.keys["plain"], path="/v1/completions").status == 200
    after = kv(stack)
    assert after["released"] - before["released"] == NUM_CLIENTS * PROMPT_BLOCKS
    assert after["expired"] == before["expired"]
    bus.wait_idle("prefill-1", "decode-1")
    eventually(lambda: not Scrape(decode).total("sub100_engine_kv_usage_ratio"), "decode's KV free")


def test_kv_of_an_ingress_that_died_in_between_is_free_when_its_lease_ends(
    stack: Stack, bus: BusWatch
) -> None:
    """P01: nobody is left who could release it, and workers take its ingress for alive. Meanwhile another
    client's prompts are served."""
    before = kv(stack)
    decode, ingress = stack.replicas["decode-1"], stack.replicas["ingress-1"]
    with held_up(bus, decode):
        streams = in_the_gap(stack, bus, range(2000, 2000 + NUM_AT_ONCE))
        for replica in (ingress, decode):  # with decode go its jobs
            replica.signal(signal.SIGKILL)
            replica.wait()
    for stream in streams:
        stream.close()
    alive = ServiceStatus(service="ingress", instance="ingress-1", state="ready")
    with repeated(bus, subjects.status("local", "ingress", "ingress-1"), alive):
        for replica in (ingress, decode):
            replica.start()
        wait_freed(stack)
    after = kv(stack)
    assert after["expired"] - before["expired"] == NUM_AT_ONCE * PROMPT_BLOCKS
    assert after["released"] == before["released"]
    stack.wait_ready("ingress-1", "decode-1")
    stack.wait_http(f"{stack.url}/readyz")
    answer = post(stack.url, body(3000, stream=True), stack.keys["plain"], path="/v1/completions")
    assert answer.events[-1] == DONE

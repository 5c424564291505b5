"""A client that leaves stops its work everywhere, whenever and however it leaves."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.bus_watch import BusWatch
from tests.e2e.raw_http import LiveStream, post
from tests.e2e.system import MODEL, log_of
from tests.patience import at_best
from tests.stack import Stack

from sub100_proto.jobs import Abort

WORKERS = ("prefill-1", "decode-1")
STOP_S = 2.0
"""The case's bound for work to stop, heartbeats (two a second) included."""

ENDLESS: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Count for ever."}],
    "temperature": 0,
    "max_tokens": 8000,
    "ignore_eos": True,
}
SHORT: dict[str, Any] = ENDLESS | {"max_tokens": 2}


@pytest.fixture
def bus(bus: BusWatch) -> Iterator[BusWatch]:
    """Each test begins and ends with idle workers."""
    bus.wait_idle(*WORKERS)
    yield bus
    bus.wait_idle(*WORKERS)


def kv_usage(bus: BusWatch, worker_id: str) -> float:
    beat = bus.beat(worker_id)
    assert beat is not None
    return beat.load.kv_usage


@pytest.mark.parametrize("how", ["close", "reset"])
def test_leaving_in_mid_stream_stops_the_engine(stack: Stack, bus: BusWatch, how: str) -> None:
    """D01: FIN or RST after 10 deltas."""

    def stopped_after_s() -> float:
        with LiveStream(stack.url, ENDLESS | {"stream": True}, stack.keys["plain"]) as stream:
            request_id = stream.response.headers["x-request-id"]
            for _ in range(10):
                stream.next_text()
            bus.wait(lambda: bus.num_in("decode-1") == 1, "running")
            getattr(stream, how)()
            took_s = bus.wait_idle(*WORKERS)
        line = log_of(stack, request_id)
        assert line["code"] == "cancelled"
        assert line["num_completion_tokens"] < 8000
        return took_s

    at_best(stopped_after_s, STOP_S, "work stopped after")
    assert bus.told_since(0, "decode", Abort)


def test_fifty_clients_that_leave_leave_nothing(stack: Stack, bus: BusWatch) -> None:
    """D01: x50, some before and some after the first delta; then everything is as before."""
    before = [kv_usage(bus, worker) for worker in WORKERS]
    for i in range(50):
        with LiveStream(stack.url, ENDLESS | {"stream": True}, stack.keys["plain"]) as stream:
            for _ in range(i % 4):
                stream.next_text()
            stream.reset()
    bus.wait_idle(*WORKERS)
    bus.wait(
        lambda: all(kv_usage(bus, w) <= b + 0.02 for w, b in zip(WORKERS, before, strict=True)), "KV free"
    )
    assert post(stack.url, SHORT, stack.keys["plain"]).status == 200


def test_leaving_without_a_stream_stops_the_engine(stack: Stack, bus: BusWatch) -> None:
    """D02: also where nothing has been sent yet; five retries never pile up."""

    def stopped_after_s() -> float:
        mark = bus.mark()
        for num in range(1, 6):
            with LiveStream(stack.url, ENDLESS, stack.keys["plain"]):
                bus.wait(lambda num=num: len(bus.since(mark, ".decode.job.")) == num, "a decode job")  # type: ignore[misc]
        took_s = bus.wait(lambda: len(bus.told_since(mark, "decode", Abort)) >= 5, "an abort each")
        took_s += bus.wait_idle(*WORKERS)
        assert len(bus.told_since(mark, "decode", Abort)) == 5
        return took_s

    at_best(stopped_after_s, STOP_S, "work stopped after")


def test_left_request_is_logged_as_cancelled_not_as_200(stack: Stack, bus: BusWatch) -> None:
    """D02."""
    headers = [("X-Request-Id", "left-without-stream")]
    with LiveStream(stack.url, ENDLESS, stack.keys["plain"], headers=headers) as client:
        bus.wait(lambda: bus.num_in("decode-1") == 1, "running")
        client.reset()
    line = log_of(stack, "left-without-stream")
    assert (line["code"], line["status"]) == ("cancelled", 499)


def test_official_client_that_closes_its_stream_stops_the_engine(
    stack: Stack, bus: BusWatch, client: Any
) -> None:
    """D01: openai's ``close()``."""

    def stopped_after_s() -> float:
        stream = client.chat.completions.create(
            model=MODEL,
            messages=ENDLESS["messages"],
            max_tokens=8000,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        for _ in range(10):
            next(stream)
        stream.close()
        return bus.wait_idle(*WORKERS)

    at_best(stopped_after_s, STOP_S, "work stopped after")


def test_slots_are_given_back_however_requests_end(stack: Stack, bus: BusWatch) -> None:
    """D06: a tenant with 3 slots fills them; aborts, refusals and ends give all of them back."""
    key = stack.keys["narrow"]
    for how in ("close", "reset", "finish", "refused"):
        streams = [LiveStream(stack.url, ENDLESS | {"stream": True}, key) for _ in range(3)]
        for stream in streams:
            stream.next_text()
        over = post(stack.url, SHORT, key)
        assert over.status == 429
        assert over.error["code"] == "tenant_concurrency_exceeded"
        assert int(over.headers["retry-after"]) >= 1
        for stream in streams:
            stream.reset() if how == "reset" else stream.close()
        if how == "finish":
            bus.wait_idle(*WORKERS)
            assert {post(stack.url, SHORT, key).status for _ in range(6)} == {200}
        if how == "refused":
            assert {post(stack.url, SHORT | {"n": 0}, key).status for _ in range(6)} == {400}
        bus.wait_idle(*WORKERS)


def test_every_placement_is_settled_when_all_is_over(stack: Stack, bus: BusWatch) -> None:
    """D06: the scheduler's count of what is in flight ends where it began."""
    mark = bus.mark()
    for how in ("close", "reset"):
        with LiveStream(stack.url, ENDLESS | {"stream": True}, stack.keys["plain"]) as stream:
            stream.next_text()
            getattr(stream, how)()
    post(stack.url, SHORT, stack.keys["plain"])
    bus.wait(lambda: len(bus.since(mark, ".scheduler.placed.")) == 3, "three placements")

    def is_settled() -> bool:
        return sum(b"all" in msg.data for msg in bus.since(mark, ".scheduler.settled.")) == 3

    bus.wait(is_settled, "three placements settled for good")


def test_requests_beside_one_that_is_left_go_on(stack: Stack, bus: BusWatch) -> None:
    """The abort of one hits no other."""
    alone = post(stack.url, ENDLESS | {"stream": True, "max_tokens": 150}, stack.keys["plain"])
    texts: list[str] = []

    def run() -> None:
        body = ENDLESS | {"stream": True, "max_tokens": 150}
        texts.append(post(stack.url, body, stack.keys["plain"]).text)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
        with LiveStream(stack.url, ENDLESS | {"stream": True}, stack.keys["plain"]) as left:
            left.next_text()
            left.reset()
    for thread in threads:
        thread.join()
    assert texts == [alone.text] * 4

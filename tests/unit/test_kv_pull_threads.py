"""Pulls of one decode worker, side by side."""

import threading
from collections.abc import Iterator

import pytest

from sub100_engine.vllm.pull_threads import MAX_PEERS, THREADS_A_PEER, PullThreads
from sub100_proto.kv import KvHandle

WAIT_S = 20


def of(peer: str) -> KvHandle:
    return KvHandle(connector="c", key="k", num_tokens=1, layout="l", lease_s=30, endpoint=peer)


@pytest.fixture
def threads() -> Iterator[PullThreads]:
    threads = PullThreads()
    yield threads
    threads.close()


def test_peer_that_hangs_holds_up_no_other(threads: PullThreads) -> None:
    release = threading.Event()
    hanging = [threads.submit(of("hangs"), lambda: release.wait(WAIT_S)) for _ in range(2 * THREADS_A_PEER)]
    try:
        assert threads.submit(of("other"), lambda: "pulled").result(WAIT_S) == "pulled"
        assert not any(pull.done() for pull in hanging)
    finally:
        release.set()
    assert all(pull.result(WAIT_S) for pull in hanging)


def test_threads_are_bounded_however_many_peers_come_and_go(threads: PullThreads) -> None:
    before = threading.active_count()
    pulls = [
        threads.submit(of(f"peer-{number}"), lambda number=number: number)  # type: ignore[misc]
        for number in range(4 * MAX_PEERS)
    ]
    assert [pull.result(WAIT_S) for pull in pulls] == list(range(4 * MAX_PEERS))
    for _ in range(1000):
        if threading.active_count() - before <= MAX_PEERS:
            break
        threading.Event().wait(0.01)
    assert threading.active_count() - before <= MAX_PEERS

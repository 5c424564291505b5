"""Exporter and puller over real sockets: the right bytes arrive, or an error does.

Three ways for the bytes, one suite. NIXL is in the engine's environment only, so that its tests run there.
"""

import collections
import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.integration.kv_pair import HELD, KEY, NUM_BLOCKS, Consumer, Producer, memory, through
from tests.kv_proxy import Tampering
from tests.patience import PATIENCE_S, at_best, eventually

from sub100_engine.vllm.peers import MAX_IDLE_S, Cancellation, Peers
from sub100_engine.vllm.pull_threads import PullThreads
from sub100_engine.vllm.puller import KvPullError
from sub100_engine.vllm.wire import MAX_MESSAGE_BYTES, NONCE_BYTES


@pytest.fixture(params=["tcp", "shm", pytest.param("nixl", marks=pytest.mark.vllm)])
def way(request: pytest.FixtureRequest) -> str:
    """How the bytes move."""
    name: str = request.param
    return name


@pytest.fixture
def producer(tmp_path: Path, way: str) -> Iterator[Producer]:
    producer = Producer(tmp_path, way)
    yield producer
    producer.exporter.stop()


@pytest.fixture
def consumer(way: str) -> Iterator[Consumer]:
    consumer = Consumer(way)
    yield consumer
    consumer.close()


def test_pull_moves_the_blocks_in_order_and_no_others(producer: Producer, consumer: Consumer) -> None:
    target = consumer.pull(producer.handle)
    untouched = memory(2)
    for layer, source in enumerate(producer.memory.layers):
        assert np.array_equal(target.layers[layer][:4], source[list(HELD)])
        assert np.array_equal(target.layers[layer][4:], untouched.layers[layer][4:])
    assert producer.next_outcome() == "pulled"


def test_pull_from_a_later_block_moves_the_rest_only(producer: Producer, consumer: Consumer) -> None:
    target = consumer.pull(producer.handle, first=3)
    assert np.array_equal(target.layers[0][0], producer.memory.layers[0][HELD[3]])


def test_one_connection_serves_one_pull_after_the_other(producer: Producer, consumer: Consumer) -> None:
    for i in range(20):
        producer.leases.pin(f"k{i}", "request", b"prompt", HELD[i % 4 :] + HELD[: i % 4])
        target = consumer.pull(msgspec.structs.replace(producer.handle, key=f"k{i}"))
        assert np.array_equal(target.layers[2][0], producer.memory.layers[2][HELD[i % 4]])


def test_pull_falls_back_to_tcp_where_the_directory_is_not_shared(
    producer: Producer, consumer: Consumer
) -> None:
    target = consumer.pull(msgspec.structs.replace(producer.handle, shm="/nowhere"))
    assert np.array_equal(target.layers[0][0], producer.memory.layers[0][HELD[0]])


def test_pull_survives_an_idle_connection_that_died(
    producer: Producer, consumer: Consumer, tmp_path: Path, way: str
) -> None:
    consumer.pull(producer.handle)
    producer.exporter.stop()
    again = Producer(tmp_path, way)
    target = consumer.pull(again.handle)
    assert np.array_equal(target.layers[0][0], again.memory.layers[0][HELD[0]])
    again.exporter.stop()


def test_second_pull_of_a_key_is_expired(producer: Producer, consumer: Consumer) -> None:
    consumer.pull(producer.handle)
    assert consumer.failure(producer.handle).code == "kv_expired"


def test_released_and_unknown_keys_are_expired(producer: Producer, consumer: Consumer) -> None:
    assert consumer.peers.release(producer.handle) is True
    assert consumer.failure(producer.handle).code == "kv_expired"
    assert consumer.failure(msgspec.structs.replace(producer.handle, key="never")).code == "kv_expired"


def test_kv_of_another_prompt_or_layout_is_refused_and_stays(producer: Producer, consumer: Consumer) -> None:
    assert consumer.failure(producer.handle, prompt=b"another").code == "kv_load_failed"
    other = msgspec.structs.replace(producer.handle, layout="other")
    assert consumer.failure(other).code == "kv_load_failed"
    assert len(producer.leases) == 1


def test_nobody_there_is_a_failed_load(consumer: Consumer, producer: Producer) -> None:
    gone = msgspec.structs.replace(producer.over_tcp(), endpoint="127.0.0.1:1")
    assert consumer.failure(gone).code == "kv_load_failed"
    nowhere = msgspec.structs.replace(producer.over_tcp(), endpoint="")
    assert consumer.failure(nowhere).code == "kv_load_failed"


def test_wrong_secret_gets_nothing_and_ends_nothing(producer: Producer, way: str) -> None:
    stranger = Consumer(way, b"x" * 32)
    assert stranger.failure(producer.handle).code == "kv_load_failed"
    assert stranger.peers.release(producer.handle) is False
    stranger.close()
    assert len(producer.leases) == 1


def test_exporter_outlives_peers_that_talk_nonsense(producer: Producer, consumer: Consumer) -> None:
    for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * MAX_MESSAGE_BYTES):
        with socket.create_connection(("127.0.0.1", producer.port), 5) as peer, contextlib.suppress(OSError):
            peer.settimeout(5)
            assert len(peer.recv(NONCE_BYTES)) == NONCE_BYTES
            peer.sendall(noise)
    assert np.array_equal(consumer.pull(producer.over_tcp()).layers[0][0], producer.memory.layers[0][HELD[0]])


@contextlib.contextmanager
def silent(address: str | tuple[str, int]) -> Iterator[socket.socket]:
    """Somebody who lets others connect and says nothing."""
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(8)
        yield listener


def test_pull_from_peers_that_say_nothing_ends_in_its_time_whatever_is_tried(tmp_path: Path) -> None:
    """Two addresses, each with an idle connection and a new one, share the time of one pull."""
    consumer = Consumer("shm")
    held = Producer(tmp_path)
    for handle in (held.handle, held.over_tcp()):
        consumer.peers.release(handle)
    held.exporter.stop()
    endpoint = ("127.0.0.1", held.port)
    with silent(str(tmp_path / "kv.sock")), silent(endpoint):
        started_s = time.monotonic()
        assert consumer.failure(held.handle, timeout_s=0.8).code == "kv_load_failed"
        assert 0.5 < time.monotonic() - started_s < 2.4, "each of four tries would take 0.8 s"
    consumer.close()


def test_pulls_from_a_peer_that_says_nothing_end_together(tmp_path: Path) -> None:
    """A few threads pull from each peer: whoever waits for one has his time all the same, and no more."""
    consumer, threads, timeout_s = Consumer("tcp"), PullThreads(), 1.0
    held = Producer(tmp_path, "tcp")
    held.exporter.stop()

    def apart_s() -> float:
        """Between the first end and the last."""
        ended_s: list[float] = []
        pull = partial(consumer.puller(timeout_s).pull, held.handle, b"prompt", 0, range(len(HELD)))
        ordered_s = time.monotonic()
        pulls = [threads.submit(held.handle, partial(pull, ordered_s=ordered_s)) for _ in range(6)]
        for each in pulls:
            each.add_done_callback(lambda _: ended_s.append(time.monotonic()))
        codes = {each.exception(PATIENCE_S).code for each in pulls}  # type: ignore[union-attr]
        assert codes == {"kv_load_failed"}
        return max(ended_s) - min(ended_s)

    with silent(("127.0.0.1", held.port)):
        at_best(apart_s, 0.5 * timeout_s, "apart by")
    threads.close()
    consumer.close()


def test_connections_that_idled_are_closed_though_nobody_asks_any_more(tmp_path: Path) -> None:
    """They hold shared memory, of a peer that may be gone."""
    producer, peers = Producer(tmp_path), Peers(KEY, max_idle_s=0.05)
    for handle in (producer.handle, producer.over_tcp()):
        assert peers.release(handle)
    eventually(lambda: len(producer.exporter.connections) == 0, "no connection")
    assert peers.release(producer.handle)
    eventually(lambda: len(producer.exporter.connections) == 0, "no connection once more")
    peers.close()
    producer.exporter.stop()


@pytest.fixture
def tampering(producer: Producer) -> Iterator[Tampering]:
    proxy = Tampering(producer.port)
    yield proxy
    proxy.close()


only_tcp = pytest.mark.parametrize("way", ["tcp"], indirect=True)
over_network = pytest.mark.parametrize(
    "way", ["tcp", pytest.param("nixl", marks=pytest.mark.vllm)], indirect=True
)
FAULT_AT = {"tcp": 700, "shm": 700, "nixl": 300}
"""In the payload's frames; with NIXL in the grant, since its bytes take another way (test_kv_nixl)."""


@over_network
def test_pull_waits_for_no_connection_that_was_forgotten_while_it_idled(
    producer: Producer, consumer: Consumer, tampering: Tampering
) -> None:
    """P09: an address translator drops idle connections and tells nobody; the next pull is as quick as
    any."""
    handle = through(tampering, producer)
    consumer.pull(handle)
    assert producer.next_outcome() == "pulled"
    producer.leases.pin("late", "request", b"prompt", HELD)
    tampering.forget()
    consumer.idled_s += MAX_IDLE_S + 1
    started_s = time.monotonic()
    target = consumer.pull(msgspec.structs.replace(handle, key="late"), timeout_s=20.0)
    assert time.monotonic() - started_s < 10
    assert np.array_equal(target.layers[0][0], producer.memory.layers[0][HELD[0]])
    assert tampering.num_connections == 2


@over_network
def test_connection_that_idled_a_moment_is_used_again(
    producer: Producer, consumer: Consumer, tampering: Tampering
) -> None:
    handle = through(tampering, producer)
    consumer.pull(handle)
    producer.leases.pin("late", "request", b"prompt", HELD)
    consumer.idled_s += MAX_IDLE_S - 1
    consumer.pull(msgspec.structs.replace(handle, key="late"))
    assert tampering.num_connections == 1


@only_tcp
def test_proxy_that_changes_nothing_does_no_harm(
    producer: Producer, consumer: Consumer, tampering: Tampering
) -> None:
    target = consumer.pull(through(tampering, producer))
    assert np.array_equal(target.layers[1][0], producer.memory.layers[1][HELD[0]])
    assert tampering.num_bytes > 1000


@only_tcp
def test_flipped_bit_is_a_failed_load(producer: Producer, consumer: Consumer, tampering: Tampering) -> None:
    tampering.flip_at = 900
    error = consumer.failure(through(tampering, producer))
    assert (error.code, "checksum" in str(error)) == ("kv_load_failed", True)


def test_short_payload_is_a_failed_load_and_the_kv_stays(
    producer: Producer, consumer: Consumer, tampering: Tampering, way: str
) -> None:
    tampering.cut_at = FAULT_AT[way]
    assert consumer.failure(through(tampering, producer)).code == "kv_load_failed"
    assert np.array_equal(consumer.pull(producer.over_tcp()).layers[0][0], producer.memory.layers[0][HELD[0]])


def test_stalled_payload_is_given_up_in_time(
    producer: Producer, consumer: Consumer, tampering: Tampering, way: str
) -> None:
    tampering.stall_at = FAULT_AT[way]
    started_s = time.monotonic()
    error = consumer.failure(through(tampering, producer), timeout_s=0.3)
    assert error.code == "kv_load_failed"
    assert time.monotonic() - started_s < 10, "it stalls for 30 s"


def test_stop_ends_listeners_and_removes_the_socket(producer: Producer, tmp_path: Path) -> None:
    producer.exporter.stop()
    producer.exporter.stop()
    assert not (tmp_path / "kv.sock").exists()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", producer.port), 1)


def test_aborted_pulls_never_touch_blocks_that_others_have_by_then(
    producer: Producer, consumer: Consumer
) -> None:
    """As an engine does: blocks of a pull that is over, aborted or not, are the next one's at once."""
    slots: queue.SimpleQueue[range] = queue.SimpleQueue()
    for first in range(0, NUM_BLOCKS, len(HELD)):
        slots.put(range(first, first + len(HELD)))
    puller = consumer.puller()
    faults: list[str] = []
    ends: collections.Counter[str] = collections.Counter()

    def run(thread: int) -> None:
        random = np.random.default_rng(thread)
        for turn in range(40):
            key = f"{thread}-{turn}"
            held = tuple(int(block) for block in random.permutation(NUM_BLOCKS)[: len(HELD)])
            producer.leases.pin(key, key, b"prompt", held)
            cancellation = Cancellation()
            abort = threading.Timer(random.uniform(0, 0.004), cancellation.set)
            if random.random() < 0.3:
                abort.start()
            slot = slots.get(timeout=30)
            try:
                puller.pull(
                    msgspec.structs.replace(producer.handle, key=key), b"prompt", 0, slot, cancellation
                )
            except KvPullError:
                ends["aborted"] += 1
            else:
                ends["pulled"] += 1
                for mine, theirs in zip(consumer.memory.layers, producer.memory.layers, strict=True):
                    if not np.array_equal(mine[list(slot)], theirs[list(held)]):
                        faults.append(key)
            slots.put(slot)
            abort.cancel()
            producer.leases.end(key, "released")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert faults == []
    assert sum(ends.values()) == 6 * 40
    assert ends["pulled"] >= 6 * 40 * 0.6
    assert ends["aborted"] >= 1
    assert len(producer.leases) == 1

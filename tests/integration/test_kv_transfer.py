"""Exporter and puller over real sockets: the right bytes arrive, or an error does.

Three ways for the bytes, one suite. NIXL is in the engine's environment only, so that its tests run there.
"""

import collections
import contextlib
import os
import queue
import resource
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.kv_proxy import Tampering
from tests.patience import PATIENCE_S, at_best

from sub100_engine.vllm.exporter import MAX_CONNECTIONS, Exporter
from sub100_engine.vllm.kv_memory import KvMemory
from sub100_engine.vllm.leases import Leases
from sub100_engine.vllm.nixl_agent import NixlAgent
from sub100_engine.vllm.nixl_reading import NixlReading
from sub100_engine.vllm.nixl_serving import NixlServing
from sub100_engine.vllm.pull_threads import PullThreads
from sub100_engine.vllm.puller import (
    MAX_IDLE_S,
    Cancellation,
    KvPullError,
    Peers,
    Puller,
    connector_of,
    host_id,
)
from sub100_engine.vllm.wire import MAX_MESSAGE_BYTES, NONCE_BYTES
from sub100_proto.kv import KvHandle

KEY = b"k" * 32
NUM_BLOCKS = 16
ROW_WORDS = (12, 12, 8)
HELD = (5, 2, 11, 3)


def memory(seed: int) -> KvMemory:
    random = np.random.default_rng(seed)
    layers = [random.integers(0, 2**63, (NUM_BLOCKS, words), np.uint64) for words in ROW_WORDS]
    return KvMemory(layers, "test")


def nixl_agent() -> NixlAgent:
    os.environ |= {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"}
    return NixlAgent(f"test-{secrets.token_hex(4)}")


class Producer:
    """A prefill worker's side, with the lease ``key`` on blocks HELD."""

    def __init__(
        self,
        directory: Path,
        way: str = "auto",
        lease_s: float = 30.0,
        proof_timeout_s: float = 5.0,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self.way = way
        self.memory = memory(1)
        self.nixl = NixlServing(nixl_agent(), self.memory) if way == "nixl" else None
        self.leases = Leases(lease_s, time.monotonic)
        self.leases.pin("key", "request", b"prompt", HELD)
        self.exporter = Exporter(self.memory, self.leases, KEY, self.nixl, proof_timeout_s, max_connections)
        self.port = self.exporter.start("127.0.0.1", 0, directory / "kv.sock")
        self.handle = KvHandle(
            connector=connector_of(way),
            key="key",
            num_tokens=100,
            layout=self.memory.layout,
            lease_s=lease_s,
            endpoint=f"127.0.0.1:{self.port}",
            host_id=host_id(),
            shm="" if way == "tcp" else str(directory),
        )

    def next_outcome(self, timeout_s: float = 5.0) -> str:
        """How the lease ended; the exporter hears of a pull's end just after the puller returns."""
        deadline_s = time.monotonic() + timeout_s
        while not (ended := self.leases.take_ended()):
            assert time.monotonic() < deadline_s, "the lease does not end"
            time.sleep(0.002)
        return ended[0].outcome

    def over_tcp(self) -> KvHandle:
        return msgspec.structs.replace(self.handle, shm="")


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


class Consumer:
    """A decode worker's side, on other memory."""

    def __init__(self, way: str, key: bytes = KEY) -> None:
        self.idled_s = 0.0
        self.peers = Peers(key, use_shared_memory=way != "tcp", clock=lambda: time.monotonic() + self.idled_s)
        self.memory = memory(2)
        self._reading = NixlReading(nixl_agent(), self.memory) if way == "nixl" else None

    def pull(self, handle: KvHandle, first: int = 0, timeout_s: float = 5.0) -> KvMemory:
        """Into blocks 0, 1, ..."""
        self.puller(timeout_s).pull(handle, b"prompt", first, range(len(HELD) - first))
        return self.memory

    def failure(self, handle: KvHandle, prompt: bytes = b"prompt", timeout_s: float = 5.0) -> KvPullError:
        with pytest.raises(KvPullError) as error:
            self.puller(timeout_s).pull(handle, prompt, 0, range(len(HELD)))
        return error.value

    def puller(self, timeout_s: float = 5.0) -> Puller:
        return Puller(self.memory, self.peers, timeout_s, self._reading)

    def close(self) -> None:
        self.peers.close()
        if self._reading is not None:
            self._reading.close()


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


def test_peer_that_trickles_its_proof_is_hung_up_on_in_time(tmp_path: Path) -> None:
    """It needs no secret to hold one of the few connections, so it does not hold it for long."""
    producer = Producer(tmp_path, "tcp", proof_timeout_s=0.4)
    try:
        with socket.create_connection(("127.0.0.1", producer.port), 5) as peer:
            started_s = time.monotonic()
            assert len(peer.recv(NONCE_BYTES)) == NONCE_BYTES
            peer.settimeout(0.1)
            told: bytes | None = None
            while told is None and time.monotonic() < started_s + 20:
                with contextlib.suppress(TimeoutError):
                    peer.sendall(b"x")
                    told = peer.recv(1)
            assert told == b""
    finally:
        producer.exporter.stop()


def test_peers_that_connect_and_say_nothing_keep_no_puller_out(tmp_path: Path) -> None:
    """However many: they have proved nothing, so that the oldest makes place."""
    producer, consumer = Producer(tmp_path, "tcp", proof_timeout_s=30), Consumer("tcp")
    with contextlib.ExitStack() as strangers:
        for _ in range(2 * MAX_CONNECTIONS):
            strangers.enter_context(socket.create_connection(("127.0.0.1", producer.port), 5))
        consumer.pull(producer.handle)
        assert producer.next_outcome() == "pulled"
        assert len(producer.exporter.connections) <= MAX_CONNECTIONS
    consumer.close()
    producer.exporter.stop()


def test_fleet_with_more_decode_workers_than_connections_is_served(tmp_path: Path) -> None:
    """Each keeps its connection for the next time; the one that has idled longest makes place, and its worker
    opens another."""
    producer = Producer(tmp_path, "tcp", max_connections=4)
    consumers = [Consumer("tcp") for _ in range(6)]
    for round_ in range(2):
        for number, consumer in enumerate(consumers):
            key = f"{round_}-{number}"
            producer.leases.pin(key, "request", b"prompt", HELD)
            consumer.pull(msgspec.structs.replace(producer.handle, key=key))
    assert len(producer.exporter.connections) <= 4
    for consumer in consumers:
        consumer.close()
    producer.exporter.stop()


def test_newcomer_takes_no_place_of_one_that_is_served(tmp_path: Path) -> None:
    producer = Producer(tmp_path, "tcp", max_connections=1)
    proxy, slow, late = Tampering(producer.port), Consumer("tcp"), Consumer("tcp")
    proxy.stall_at = 300
    pulling = threading.Thread(target=lambda: slow.pull(through(proxy, producer), timeout_s=10))
    pulling.start()
    try:
        while proxy.num_bytes < 300:
            time.sleep(0.002)
        assert late.failure(producer.handle, timeout_s=1).code == "kv_load_failed"
    finally:
        proxy.stop.set()
        pulling.join(10)
    assert producer.next_outcome() == "pulled"
    slow.close()
    late.close()
    proxy.close()
    producer.exporter.stop()


def test_listener_that_gets_no_thread_serves_afterwards(tmp_path: Path) -> None:
    producer, consumer = Producer(tmp_path, "tcp"), Consumer("tcp")
    before = threading.stack_size(1 << 46)
    try:
        with socket.create_connection(("127.0.0.1", producer.port), 5) as refused:
            assert refused.recv(NONCE_BYTES) == b""
    finally:
        threading.stack_size(before)
    consumer.pull(producer.handle)
    assert producer.next_outcome() == "pulled"
    consumer.close()
    producer.exporter.stop()


def test_listener_rests_while_it_cannot_accept_and_serves_afterwards(tmp_path: Path) -> None:
    """Out of file descriptors, each try fails at once."""
    producer, consumer = Producer(tmp_path, "tcp"), Consumer("tcp")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    with socket.socket() as waiting:
        resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno() + 8, hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            waiting.connect(("127.0.0.1", producer.port))
            used_s = time.process_time()
            threading.Event().wait(0.5)
            assert time.process_time() - used_s < 0.2
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for descriptor in taken:
                os.close(descriptor)
        consumer.pull(producer.handle)
    assert producer.next_outcome() == "pulled"
    consumer.close()
    producer.exporter.stop()


@pytest.fixture
def tampering(producer: Producer) -> Iterator[Tampering]:
    proxy = Tampering(producer.port)
    yield proxy
    proxy.close()


def through(proxy: Tampering, producer: Producer) -> KvHandle:
    return msgspec.structs.replace(producer.over_tcp(), endpoint=proxy.endpoint)


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

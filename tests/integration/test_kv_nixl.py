"""What only a NIXL transfer can suffer: the bytes go another way than the words about them.

The producer is a process of its own, so that it can be stopped and killed.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
from tests.patience import PATIENCE_S, eventually
from tests.servers import shared_memory

from sub100_engine.vllm.exporter import Exporter
from sub100_engine.vllm.kv_memory import KvMemory, Words
from sub100_engine.vllm.leases import Leases
from sub100_engine.vllm.nixl_agent import NixlAgent
from sub100_engine.vllm.nixl_reading import NixlReading
from sub100_engine.vllm.nixl_serving import NixlServing
from sub100_engine.vllm.peers import Cancellation, Peers, host_id
from sub100_engine.vllm.puller import NIXL_CONNECTOR, KvPullError, Puller
from sub100_proto.kv import KvHandle

pytestmark = pytest.mark.vllm

KEY = b"k" * 32
NUM_BLOCKS = 64
NUM_LAYERS = 8
ROW_WORDS = 1 << 10
WINDOW_BYTES = 1 << 19
"""A layer fills it, so that a pull takes a read for each layer, at most one ahead of the layer it is at."""
NUM_KEYS = 4
BLOCKS = tuple(range(NUM_BLOCKS))


def memory(seed: int) -> KvMemory:
    rows = np.arange(NUM_BLOCKS * ROW_WORDS, dtype=np.uint64).reshape(NUM_BLOCKS, ROW_WORDS)
    return KvMemory([rows * np.uint64(seed + layer) for layer in range(NUM_LAYERS)], "test")


def agent() -> NixlAgent:
    os.environ |= {
        "UCX_TLS": "tcp",
        "UCX_NET_DEVICES": "lo",
        "UCX_TCP_TX_SEG_SIZE": "256k",
        "UCX_TCP_RX_SEG_SIZE": "512k",
    }
    return NixlAgent(f"test-{secrets.token_hex(4)}")


def produce(directory: str, lease_s: float) -> None:
    """The other process: a prefill worker whose KV waits under ``key0``, ``key1``, ..."""
    held = memory(3)
    leases = Leases(lease_s, time.monotonic)
    exporter = Exporter(held, leases, KEY, NixlServing(agent(), held))
    port = exporter.start("127.0.0.1", 0, Path(directory) / "kv.sock")
    handle = KvHandle(
        connector=NIXL_CONNECTOR,
        key="key0",
        num_tokens=1,
        layout=held.layout,
        lease_s=lease_s,
        endpoint=f"127.0.0.1:{port}",
        host_id=host_id(),
    )
    for number in range(NUM_KEYS):
        leases.pin(f"key{number}", f"request{number}", b"prompt", BLOCKS)
    sys.stdout.write(msgspec.json.encode(handle).decode() + "\n")
    sys.stdout.flush()
    while ended := sys.stdin.readline():  # each line asks for what ended since the last
        assert ended
        outcomes = [lease.outcome for lease in leases.take_ended()]
        sys.stdout.write(msgspec.json.encode(outcomes).decode() + "\n")
        sys.stdout.flush()


class Producer:
    def __init__(self, directory: Path, lease_s: float) -> None:
        code = f"from tests.integration.test_kv_nixl import produce; produce({str(directory)!r}, {lease_s})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        )
        assert self.process.stdout is not None
        self._told = self.process.stdout
        self.handle = msgspec.json.decode(self._told.readline(), type=KvHandle)

    def key(self, number: int) -> KvHandle:
        return msgspec.structs.replace(self.handle, key=f"key{number}")

    def send(self, sig: int) -> None:
        self.process.send_signal(sig)

    def ended(self) -> list[str]:
        """How leases ended since the last call."""
        assert self.process.stdin is not None
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        return msgspec.json.decode(self._told.readline(), type=list[str])

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.communicate(timeout=10)


@pytest.fixture
def make_producer(tmp_path: Path) -> Iterator[Callable[..., Producer]]:
    made: list[Producer] = []

    def make(lease_s: float = 30.0) -> Producer:
        directory = tmp_path / f"p{len(made)}"
        directory.mkdir()
        made.append(Producer(directory, lease_s))
        return made[-1]

    yield make
    for producer in made:
        producer.close()


class Target(KvMemory):
    """Our KV memory; ``on_layer`` is called when a layer's blocks have come."""

    def __init__(self) -> None:
        super().__init__(memory(1).layers, "test")
        self.on_layer: Callable[[int], None] = lambda layer: None

    def scatter(self, layer: int, block_ids: Sequence[int], words: Words) -> None:
        super().scatter(layer, block_ids, words)
        self.on_layer(layer)


class Consumer:
    def __init__(self) -> None:
        self.memory = Target()
        self.peers = Peers(KEY)
        self.agent = agent()
        self.reading = NixlReading(self.agent, self.memory, WINDOW_BYTES)

    def pull(
        self, handle: KvHandle, timeout_s: float = 10.0, cancellation: Cancellation | None = None
    ) -> None:
        puller = Puller(self.memory, self.peers, timeout_s, self.reading)
        puller.pull(handle, b"prompt", 0, BLOCKS, cancellation)

    def failure(self, handle: KvHandle, **options: object) -> KvPullError:
        with pytest.raises(KvPullError) as error:
            self.pull(handle, **options)  # type: ignore[arg-type]
        return error.value

    def close(self) -> None:
        self.peers.close()
        self.reading.close()

    def holds_what_was_pulled(self) -> bool:
        expected = memory(3)
        return all(map(np.array_equal, self.memory.layers, expected.layers))

    def at_layer(self, layer: int, act: Callable[[], object]) -> None:
        """In the middle of the next pull."""

        def once(done: int) -> None:
            if done == layer:
                self.memory.on_layer = lambda _: None
                act()

        self.memory.on_layer = once


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    consumer = Consumer()
    yield consumer
    consumer.close()


def test_pull_reads_many_windows_and_ends_the_lease(
    make_producer: Callable[..., Producer], consumer: Consumer
) -> None:
    producer = make_producer()
    for number in range(NUM_KEYS):
        consumer.memory.layers[0][:] = 0
        consumer.pull(producer.key(number))
        assert consumer.holds_what_was_pulled()
    deadline_s = time.monotonic() + PATIENCE_S
    outcomes: list[str] = []
    while len(outcomes) < NUM_KEYS and time.monotonic() < deadline_s:
        outcomes += producer.ended()
    assert outcomes == ["pulled"] * NUM_KEYS


def test_pulls_at_the_same_time_do_not_mix(
    make_producer: Callable[..., Producer], consumer: Consumer
) -> None:
    producer = make_producer()
    others = [Consumer() for _ in range(2)]
    everybody = [consumer, *others]
    threads = [
        threading.Thread(target=each.pull, args=(producer.key(number),))
        for number, each in enumerate(everybody)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all(each.holds_what_was_pulled() for each in everybody)
    for each in others:
        each.close()


@pytest.mark.parametrize("layer", [0, 3])
def test_producer_that_is_killed_is_a_failed_load_and_its_successor_serves(
    make_producer: Callable[..., Producer], consumer: Consumer, layer: int
) -> None:
    producer = make_producer()
    consumer.at_layer(layer, lambda: producer.send(signal.SIGKILL))
    started_s = time.monotonic()
    assert consumer.failure(producer.handle).code == "kv_load_failed"
    assert time.monotonic() - started_s < 5
    assert consumer.failure(producer.key(1)).code == "kv_load_failed"
    consumer.pull(make_producer().handle)
    assert consumer.holds_what_was_pulled()


def test_producer_that_hangs_is_given_up_in_time_and_serves_when_it_goes_on(
    make_producer: Callable[..., Producer], consumer: Consumer
) -> None:
    producer, other = make_producer(), make_producer()
    consumer.at_layer(1, lambda: producer.send(signal.SIGSTOP))
    started_s = time.monotonic()
    assert consumer.failure(producer.handle, timeout_s=1.0).code == "kv_load_failed"
    assert time.monotonic() - started_s < 4
    consumer.pull(other.handle)
    assert consumer.holds_what_was_pulled()
    producer.send(signal.SIGCONT)
    consumer.memory.layers[0][:] = 0
    consumer.pull(producer.key(1))
    assert consumer.holds_what_was_pulled()


def test_given_up_read_never_writes_into_blocks_again(
    make_producer: Callable[..., Producer], consumer: Consumer
) -> None:
    """They are another request's by then."""
    producer = make_producer()
    consumer.at_layer(1, lambda: producer.send(signal.SIGSTOP))
    consumer.failure(producer.handle, timeout_s=0.5)
    for layer in consumer.memory.layers:
        layer[:] = 7
    producer.send(signal.SIGCONT)
    time_is_up_s = time.monotonic() + 1
    while time.monotonic() < time_is_up_s:  # whatever was on its way has arrived by then
        consumer.agent.progress()
    assert all((layer == 7).all() for layer in consumer.memory.layers)


def test_cancelled_pull_ends_at_once_and_disturbs_no_other(
    make_producer: Callable[..., Producer], consumer: Consumer
) -> None:
    producer = make_producer()
    cancellation = Cancellation()
    consumer.at_layer(2, cancellation.set)
    started_s = time.monotonic()
    error = consumer.failure(producer.handle, cancellation=cancellation)
    assert (error.code, "nobody" in str(error)) == ("kv_load_failed", True)
    assert time.monotonic() - started_s < 2
    consumer.pull(producer.handle)  # its lease is as it was
    assert consumer.holds_what_was_pulled()


def test_lease_that_ends_while_the_puller_hangs_frees_the_blocks(
    make_producer: Callable[..., Producer], consumer: Consumer
) -> None:
    producer = make_producer(lease_s=3.0)
    ended: list[str] = []

    def hang() -> None:
        deadline_s = time.monotonic() + 10
        while len(ended) < NUM_KEYS and time.monotonic() < deadline_s:
            ended.extend(producer.ended())

    consumer.at_layer(1, hang)
    started_s = time.monotonic()
    consumer.failure(producer.handle)
    assert ended == ["expired"] * NUM_KEYS
    assert time.monotonic() - started_s < 8  # it does not wait for its own time-out then


def test_bytes_that_changed_on_their_way_are_a_failed_load(consumer: Consumer, tmp_path: Path) -> None:
    held = memory(3)
    serving = NixlServing(agent(), held)
    readable = held.layers[2]
    held.layers[2] = readable.copy()  # checksums are of this one
    readable[40, 7] ^= np.uint64(1 << 40)
    leases = Leases(30.0, time.monotonic)
    leases.pin("key", "request", b"prompt", BLOCKS)
    exporter = Exporter(held, leases, KEY, serving)
    port = exporter.start("127.0.0.1", 0, None)
    handle = KvHandle(
        connector=NIXL_CONNECTOR,
        key="key",
        num_tokens=1,
        layout=held.layout,
        lease_s=30.0,
        endpoint=f"127.0.0.1:{port}",
    )
    error = consumer.failure(handle)
    assert (error.code, "checksum of layer 2" in str(error)) == ("kv_load_failed", True)
    assert len(leases) == 1
    exporter.stop()


def test_side_without_nixl_is_refused(make_producer: Callable[..., Producer], consumer: Consumer) -> None:
    producer = make_producer()
    plain = Puller(consumer.memory, consumer.peers, 5.0)
    with pytest.raises(KvPullError, match="sub100-nixl-1"):
        plain.pull(producer.handle, b"prompt", 0, BLOCKS)
    forged = msgspec.structs.replace(producer.handle, connector="sub100-pull-1")
    with pytest.raises(KvPullError, match="NIXL"):
        plain.pull(forged, b"prompt", 0, BLOCKS)


def test_nothing_spins_when_nothing_moves(make_producer: Callable[..., Producer], consumer: Consumer) -> None:
    producer = make_producer()
    consumer.pull(producer.handle)
    processes = [psutil.Process(producer.process.pid), psutil.Process()]
    before = [sum(process.cpu_times()[:2]) for process in processes]
    threading.Event().wait(2)
    used = [sum(process.cpu_times()[:2]) - was for process, was in zip(processes, before, strict=True)]
    assert max(used) < 0.2


def test_nothing_is_left_of_killed_peers(make_producer: Callable[..., Producer], consumer: Consumer) -> None:
    before = shared_memory()
    producer = make_producer()
    consumer.pull(producer.handle)
    consumer.at_layer(1, lambda: producer.send(signal.SIGKILL))
    consumer.failure(producer.key(1))
    eventually(lambda: shared_memory() <= before, "nothing left")  # but what others had for a moment

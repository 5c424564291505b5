"""Who finds a place at an exporter's listener, whatever others do there."""

import contextlib
import os
import resource
import socket
import threading
import time
from pathlib import Path

import msgspec
from tests.integration.kv_pair import HELD, Consumer, Producer, through
from tests.kv_proxy import Tampering

from sub100_engine.vllm.exporter import MAX_CONNECTIONS
from sub100_engine.vllm.wire import NONCE_BYTES


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

"""Simulated KV on its way: who may pull, what a puller accepts, what a bad peer costs."""

import asyncio
import struct
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.kv_proxy import Tampering
from tests.patience import PATIENCE_S

from sub100_engine.sim import Faults
from sub100_engine.sim import kv_wire as wire
from sub100_engine.sim.block_pool import BlockPool
from sub100_engine.sim.kv_pull import MAX_IDLE_S, KvPuller
from sub100_engine.sim.kv_wire import KvListener, KvUnavailable, kv_payload
from sub100_engine.sim.leases import LeaseBook
from sub100_proto.kv import KvHandle

PROMPT = [11, 12, 13, 14, 15]
PAYLOAD = kv_payload(PROMPT, 4, "")
SECRET = b"of the deployment"


class Producer:
    """One lease behind a real listener."""

    def __init__(self) -> None:
        self.pool = BlockPool(8)
        self.book = LeaseBook(self.pool, 30.0)
        self.listener = KvListener(self.book, "layout", SECRET, self._on_pulled, Faults())
        self.pulled = asyncio.Event()

    def _on_pulled(self, key: str) -> None:
        self.book.end(key, "pulled")
        self.pulled.set()

    def hand_over(self) -> KvHandle:
        held = self.pool.take((), 2)
        assert held is not None
        lease = self.book.pin(held, PAYLOAD, len(PROMPT), now=0.0)
        return KvHandle(
            connector="sim",
            key=lease.key,
            num_tokens=len(PROMPT),
            layout="layout",
            lease_s=30.0,
            endpoint=self.listener.endpoint,
        )


@pytest.fixture
async def producer() -> AsyncIterator[Producer]:
    it = Producer()
    await it.listener.start("127.0.0.1")
    yield it
    await it.listener.stop()


async def fetch(handle: KvHandle, *, secret: bytes = SECRET, expected: bytes = PAYLOAD) -> None:
    puller = KvPuller("layout", secret)
    try:
        await puller.pull(handle, expected, len(PROMPT), timeout_s=PATIENCE_S)
    finally:
        puller.close()


async def test_pull_confirms_and_frees_the_blocks(producer: Producer) -> None:
    await fetch(producer.hand_over())
    async with asyncio.timeout(PATIENCE_S):
        await producer.pulled.wait()
    assert producer.pool.num_held == 0


async def test_puller_keeps_its_connection_and_replaces_it_when_the_producer_comes_back(
    producer: Producer,
) -> None:
    puller = KvPuller("layout", SECRET)
    gone = msgspec.structs.replace(producer.hand_over(), key="unknown")
    with pytest.raises(KvUnavailable, match="unknown"):
        await puller.pull(gone, PAYLOAD, len(PROMPT), timeout_s=PATIENCE_S)
    for _ in range(3):
        await puller.pull(producer.hand_over(), PAYLOAD, len(PROMPT), timeout_s=PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            await producer.pulled.wait()
        producer.pulled.clear()
    assert producer.listener.num_connections == 1

    await producer.listener.stop()
    with pytest.raises(KvUnavailable) as lost:
        await puller.pull(producer.hand_over(), PAYLOAD, len(PROMPT), timeout_s=PATIENCE_S)
    assert lost.value.code == "kv_load_failed"
    await producer.listener.start("127.0.0.1")
    await puller.pull(producer.hand_over(), PAYLOAD, len(PROMPT), timeout_s=PATIENCE_S)
    puller.close()


async def test_puller_waits_for_no_connection_that_was_forgotten_while_it_idled(producer: Producer) -> None:
    """P09: an address translator drops idle connections and tells nobody; the next pull is as quick as
    any."""
    now_s = 0.0
    puller = KvPuller("layout", SECRET, lambda: now_s)
    proxy = Tampering(int(producer.listener.endpoint.rpartition(":")[2]))
    try:
        for idle_s, num_connections in ((0.0, 1), (MAX_IDLE_S - 1, 1), (MAX_IDLE_S, 2)):
            now_s += idle_s
            if num_connections == 2:
                proxy.forget()
            handle = msgspec.structs.replace(producer.hand_over(), endpoint=proxy.endpoint)
            await puller.pull(handle, PAYLOAD, len(PROMPT), timeout_s=20.0)
            assert proxy.num_connections == num_connections
    finally:
        puller.close()
        proxy.close()


async def test_pull_is_refused_without_the_deployments_secret_and_keeps_the_lease(producer: Producer) -> None:
    handle = producer.hand_over()
    with pytest.raises(KvUnavailable, match="secret") as refused:
        await fetch(handle, secret=b"another")
    assert refused.value.code == "kv_load_failed"
    assert producer.pool.num_held == 2
    await fetch(handle)


async def test_pull_rejects_the_kv_of_another_prompt_and_keeps_the_lease(producer: Producer) -> None:
    handle = producer.hand_over()
    for other in (kv_payload([11, 12, 13, 14, 99], 4, ""), kv_payload(PROMPT, 4, "tenant"), PAYLOAD[:-1]):
        with pytest.raises(KvUnavailable, match="checksum"):
            await fetch(handle, expected=other)
    assert producer.pool.num_held == 2


@pytest.mark.parametrize("why", ["pulled", "released", "expired"])
async def test_pull_of_an_ended_lease_fails_at_once_and_says_why(producer: Producer, why: str) -> None:
    handle = producer.hand_over()
    producer.book.end(handle.key, why)
    with pytest.raises(KvUnavailable, match=why) as gone:
        await fetch(handle)
    assert gone.value.code == "kv_expired"


@pytest.mark.parametrize("endpoint", ["", "nowhere", "127.0.0.1:", "127.0.0.1:1", "127.0.0.1:x"])
async def test_pull_from_an_odd_endpoint_is_a_failed_load(producer: Producer, endpoint: str) -> None:
    handle = msgspec.structs.replace(producer.hand_over(), endpoint=endpoint)
    with pytest.raises(KvUnavailable) as failed:
        await fetch(handle)
    assert failed.value.code == "kv_load_failed"


async def test_listener_hangs_up_on_a_silent_peer(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "REQUEST_TIMEOUT_S", 0.01)
    host, _, port = producer.listener.endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(PATIENCE_S):
        assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", struct.pack("<I", 2**31), struct.pack("<I", 3) + b"abc"]
)
async def test_listener_hangs_up_on_nonsense_and_goes_on(producer: Producer, sent: bytes) -> None:
    host, _, port = producer.listener.endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    async with asyncio.timeout(PATIENCE_S):
        assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    await fetch(producer.hand_over())

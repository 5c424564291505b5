"""Ingress asks the cache on a real NATS: one that is away is asked once in a while, and sent nothing."""

from collections.abc import AsyncIterator

import pytest
from tests.servers import Server
from tests.unit.ingress_exchange import TELEMETRY, exchange

from sub100_ingress.absence import MAX_AWAY, PAUSE_MS, Absence
from sub100_ingress.cache_key import CacheKey
from sub100_ingress.exchange import Exchange
from sub100_ingress.lookup import CacheClient
from sub100_ingress.replicas import Replicas
from sub100_proto import codec, subjects
from sub100_proto.cache import CacheMiss, CacheReply
from sub100_shared.bus import Bus, Incoming
from sub100_shared.clock import monotonic_ms
from sub100_shared.ledger import Ledger

KEY = CacheKey(digest=bytes(32), scope=bytes(32), question="", revision="r")
AWAY = CacheMiss(reason="unavailable")


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


class Cache:
    def __init__(self) -> None:
        self.reply: CacheReply = AWAY
        self.num_asked = 0
        self.num_written = 0

    async def on_lookup(self, msg: Incoming) -> bytes:
        self.num_asked += 1
        return codec.encode(self.reply)

    def on_write(self, msg: Incoming) -> None:
        self.num_written += 1


@pytest.fixture(name="cache")
async def _cache(nats_server: Server, region: str) -> AsyncIterator[Cache]:
    bus = await Bus.connect(nats_server.url, name="cache")
    cache = Cache()
    await bus.serve(subjects.cache_lookup(region), cache.on_lookup, queue="cache")
    await bus.listen(subjects.cache_fill(region), cache.on_write)
    yield cache
    await bus.close(2)


@pytest.fixture(name="clock")
def _clock() -> Clock:
    return Clock()


@pytest.fixture(name="client")
async def _client(bus: Bus, region: str, clock: Clock) -> CacheClient:
    replicas = Replicas(monotonic_ms)
    client = CacheClient(bus, TELEMETRY, Absence(clock), replicas, monotonic_ms, region=region, ttl_s=60)
    await client.start()
    return client


def patient() -> Exchange:
    """A machine may be busy: its look-up has ten seconds."""
    run = exchange()
    run.ledger = Ledger(lambda: 0.0, total_ms=100_000)
    return run


async def ask(client: CacheClient, num: int) -> list[str]:
    replies = [await client.lookup(patient(), KEY) for _ in range(num)]
    return [reply.reason for reply in replies if isinstance(reply, CacheMiss)]


@pytest.mark.parametrize("reason", ["unavailable", "cut_off"])
async def test_cache_that_is_away_is_asked_once_in_a_while(
    cache: Cache, client: CacheClient, clock: Clock, reason: str
) -> None:
    cache.reply = CacheMiss(reason=reason)
    assert await ask(client, MAX_AWAY + 5) == [reason] * MAX_AWAY + ["unavailable"] * 5
    assert cache.num_asked == MAX_AWAY
    clock.now_ms += PAUSE_MS
    cache.reply = CacheMiss(generation=b"g")
    assert await ask(client, 5) == ["absent"] * 5
    assert cache.num_asked == MAX_AWAY + 5


async def test_cache_that_nobody_serves_is_asked_once_in_a_while(
    client: CacheClient, bus: Bus, region: str
) -> None:
    assert await ask(client, MAX_AWAY) == ["unavailable"] * MAX_AWAY
    cache = Cache()
    await bus.serve(subjects.cache_lookup(region), cache.on_lookup, queue="cache")
    assert await ask(client, 5) == ["unavailable"] * 5
    assert not cache.num_asked


async def test_cache_that_finds_nothing_is_asked_by_everybody(cache: Cache, client: CacheClient) -> None:
    cache.reply = CacheMiss(reason="unreadable", generation=b"g")
    assert await ask(client, 3 * MAX_AWAY) == ["unreadable"] * 3 * MAX_AWAY
    assert cache.num_asked == 3 * MAX_AWAY


@pytest.mark.parametrize(("generation", "num"), [(b"", 0), (b"g", 1)])
async def test_answer_is_sent_to_the_cache_if_it_would_be_kept(
    cache: Cache, client: CacheClient, bus: Bus, generation: bytes, num: int
) -> None:
    run = patient()
    run.finish_reason, run.pieces = "stop", ["Hello"]
    await client.fill(run, KEY, generation)
    await ask(client, 1)  # behind the fill, on the same connection
    assert cache.num_written == num

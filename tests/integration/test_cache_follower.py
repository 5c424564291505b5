"""A replica that follows the log of invalidations, on a real JetStream and a real Redis."""

import secrets
from collections.abc import AsyncIterator

import pytest
from nats.aio.client import Client as Nats
from tests.servers import Server

from sub100_cache.follower import Follower, LogSettings
from sub100_cache.freshness import Freshness
from sub100_cache.invalidations import Invalidations
from sub100_cache.store.commands import Commands, open_commands
from sub100_cache.store.counts import Counts
from sub100_cache.store.generations import Generations, Question
from sub100_cache.store.ledger import Ledger
from sub100_cache.store.log_place import LogPlace, Place
from sub100_cache.store.seal import Seal
from sub100_cache.store.sweep import Sweep
from sub100_cache.upkeep import Upkeep
from sub100_proto import codec
from sub100_proto.cache import CacheInvalidate
from sub100_shared.bus import Bus
from sub100_shared.clock import monotonic_ms

SETTINGS = LogSettings(max_age_s=3600, max_bytes=2**20, num_replicas=1)


class Replica:
    """All that follows, and a look-up's view of it while the records are being forgotten."""

    def __init__(self, bus: Bus, commands: Commands, name: str) -> None:
        self.log = bus.durable_log(name, name)
        self.freshness = Freshness(monotonic_ms, 10)
        self.generations = _Watched(commands, self.freshness)
        ledger, counts = Ledger(commands), Counts(commands, 3600)
        sweep = Sweep(commands, self.generations, ledger, Seal())
        upkeep = Upkeep(counts, ledger, sweep, monotonic_ms, counts_interval_s=1, ledger_interval_s=1)
        self.follower = Follower(
            self.log,
            "eu",
            self.freshness,
            self.generations,
            LogPlace(commands, 3600),
            Invalidations(self.generations, sweep, ledger, counts, upkeep, self.freshness, self.log, "eu"),
            monotonic_ms,
            settings=SETTINGS,
            max_staleness_s=10,
        )

    async def ensure(self) -> None:
        await self.log.ensure(max_age_s=3600, max_bytes=2**20, num_replicas=1)


class _Watched(Generations):
    def __init__(self, commands: Commands, freshness: Freshness) -> None:
        super().__init__(commands, 3600)
        self._freshness = freshness
        self.while_forgetting: list[tuple[bool, Place]] = []

    async def forget_all(self) -> None:
        self.while_forgetting.append((self._freshness.is_cut_off, self._freshness.place))
        await super().forget_all()


@pytest.fixture
async def commands(own_redis_server: Server) -> AsyncIterator[Commands]:
    """Its own Redis: all tenants' records are forgotten."""
    opened = open_commands(own_redis_server.url, max_connections=4)
    await opened.probe()
    yield opened
    await opened.close()


@pytest.fixture
def name() -> str:
    return f"log_{secrets.token_hex(4)}"


async def remade(server: Server, replica: Replica, name: str) -> None:
    """The log is lost and another takes its place."""
    client = Nats()
    await client.connect(server.url)
    await client.jetstream().delete_stream(name)
    await client.close()
    await replica.ensure()


async def test_nothing_is_served_from_the_old_logs_place_while_records_begin_anew(
    nats_server: Server, bus: Bus, commands: Commands, name: str
) -> None:
    one, other = Replica(bus, commands, name), Replica(bus, commands, name)
    await one.ensure()
    for _ in range(3):
        await one.log.append(name, codec.encode(CacheInvalidate(tenant="somebody")))
    for replica in (one, other):
        await replica.follower.catch_up()
    old = one.freshness.place
    one.generations.while_forgetting.clear()
    await remade(nats_server, one, name)
    await one.follower.catch_up()

    assert old.position == 3
    assert one.generations.while_forgetting == [(True, Place())]
    assert one.freshness.place == Place((await one.log.ends()).identity, 0)
    assert one.freshness.place.identity != old.identity
    assert not one.freshness.is_cut_off
    # The other has not noticed yet: what it marks with its old place hides nothing.
    tenant = Question("t")
    before = await other.generations.establish(tenant, other.freshness.place, 1)
    await one.log.append(name, codec.encode(CacheInvalidate(tenant="t")))
    await one.follower.catch_up()
    after = await one.generations.standing(tenant, 1)
    assert before.number < after.number
    await other.follower.catch_up()
    assert other.freshness.place == one.freshness.place
    assert await one.generations.standing(tenant, 1) == after

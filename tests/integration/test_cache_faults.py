"""A dead, hung or absent Redis costs look-ups nothing, and heals by itself."""

import hashlib

from redis.asyncio import Redis
from tests.integration.cache_service import Client, running_cache
from tests.integration.worker_fleet import Signal
from tests.patience import PATIENCE_S
from tests.servers import Server

from sub100_cache.breaker import MAX_SLOW
from sub100_proto import codec, subjects
from sub100_proto.cache import CacheHit, CacheMiss, CacheReply
from sub100_proto.fleet import ServiceStatus
from sub100_shared.bus import Bus, Incoming
from sub100_shared.lifecycle import Runtime

NUM_HANGS = 8
DIGEST = hashlib.sha256(b"a prompt").digest()


class Statuses:
    """What a service says about itself."""

    def __init__(self) -> None:
        self.last: ServiceStatus | None = None
        self.changed = Signal()

    def on_message(self, msg: Incoming) -> None:
        self.last = codec.decode_status(msg.data)
        self.changed()

    async def until(self, *, is_well: bool) -> ServiceStatus:
        def is_so() -> bool:
            return self.last is not None and self.last.state == "ready" and (not self.last.detail) == is_well

        await self.changed.until(is_so, PATIENCE_S)
        assert self.last is not None
        return self.last


async def watch(bus: Bus, runtime: Runtime) -> Statuses:
    statuses = Statuses()
    await bus.listen(subjects.status(runtime.region, "cache", runtime.instance), statuses.on_message)
    runtime.spawn(runtime.report_status(), "status")
    return statuses


def is_unavailable(reply: CacheReply) -> bool:
    return isinstance(reply, CacheMiss) and reply.reason == "unavailable"


async def test_cache_misses_at_once_while_redis_is_dead_and_recovers_after_it(
    nats_server: Server, own_redis_server: Server, bus: Bus, region: str, tenant: str
) -> None:
    client = Client(bus, region, tenant)
    async with running_cache(nats_server, own_redis_server.url, region) as runtime:
        statuses = await watch(bus, runtime)
        await client.stored(DIGEST)

        own_redis_server.kill()
        await client.reply_until(DIGEST, is_unavailable)
        status = await statuses.until(is_well=False)
        spent_ms = sorted([(await client.look_up(DIGEST)).spent_ms for _ in range(20)])
        await client.fill(DIGEST)

        assert "no Redis" in status.detail
        assert str(own_redis_server.port) not in status.detail
        assert spent_ms[10] < 1.0

        own_redis_server.start()
        await statuses.until(is_well=True)
        reply = await client.look_up(DIGEST)
        assert isinstance(reply, CacheMiss)
        assert reply.reason == "absent"
        assert isinstance(await client.stored(DIGEST), CacheHit)


async def test_cache_starts_without_redis_and_finds_it_later(
    nats_server: Server, own_redis_server: Server, bus: Bus, region: str, tenant: str
) -> None:
    own_redis_server.kill()
    client = Client(bus, region, tenant)
    async with running_cache(nats_server, own_redis_server.url, region) as runtime:
        statuses = await watch(bus, runtime)

        assert is_unavailable(await client.look_up(DIGEST))
        assert "no Redis" in (await statuses.until(is_well=False)).detail

        own_redis_server.start()
        await statuses.until(is_well=True)
        assert isinstance(await client.stored(DIGEST), CacheHit)


async def test_cache_lookup_costs_its_allotment_at_most_while_redis_hangs(
    nats_server: Server, own_redis_server: Server, bus: Bus, region: str, tenant: str
) -> None:
    client = Client(bus, region, tenant)
    async with running_cache(nats_server, own_redis_server.url, region) as runtime:
        statuses = await watch(bus, runtime)
        await client.stored(DIGEST)

        own_redis_server.pause()
        replies = [await client.look_up(DIGEST, allotted_ms=20) for _ in range(MAX_SLOW)]
        await statuses.until(is_well=False)
        unasked = [await client.look_up(DIGEST, allotted_ms=20) for _ in range(9)]
        own_redis_server.resume()

        assert all(is_unavailable(reply) for reply in replies + unasked)
        # It waited its allotment, then gave up asking; at best, for this machine may add to any of them.
        assert 18 <= min(reply.spent_ms for reply in replies) < 20 + 100
        assert min(reply.spent_ms for reply in unasked) < 10

        await statuses.until(is_well=True)
        assert isinstance(
            await client.reply_until(DIGEST, lambda reply: isinstance(reply, CacheHit)), CacheHit
        )


async def test_cache_keeps_its_connections_when_answers_are_late(
    nats_server: Server, own_redis_server: Server, bus: Bus, region: str, tenant: str
) -> None:
    """A cancelled command would close its connection, and where connecting takes longer than an
    allotment nothing would ever be found."""
    client = Client(bus, region, tenant)
    async with (
        running_cache(nats_server, own_redis_server.url, region),
        Redis.from_url(own_redis_server.url) as redis,
    ):
        await client.stored(DIGEST)
        for _ in range(NUM_HANGS):
            own_redis_server.pause()
            for _ in range(MAX_SLOW - 1):
                assert is_unavailable(await client.look_up(DIGEST, allotted_ms=2))
            own_redis_server.resume()
            await client.reply_until(DIGEST, lambda reply: isinstance(reply, CacheHit))
        num_connections = (await redis.info("stats"))["total_connections_received"]

    # About as many as were ever busy at once; by far not one for each late answer.
    assert num_connections < NUM_HANGS * (MAX_SLOW - 1) / 2

"""Fixtures for tests on a real NATS server and a real Redis, one of each for the session.

Tests share the servers and stay apart by ``region``, which is new for each test and part of every
subject, and by ``tenant``, which is part of every cache key.
"""

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from tests.integration.bus_link import linked
from tests.integration.cache_service import running_cache
from tests.integration.two_regions import CONFIG, World, is_absent, until
from tests.integration.worker_fleet import Fleet, Ingress
from tests.servers import Server, nats_server, redis_server

from sub100_cache.tenants import TenantRules
from sub100_shared.bus import Bus


@pytest.fixture(scope="session", name="nats_server")
def _nats_server() -> Iterator[Server]:
    with nats_server() as server:
        yield server


@pytest.fixture(scope="session", name="redis_server")
def _redis_server() -> Iterator[Server]:
    with redis_server() as server:
        yield server


@pytest.fixture
def own_nats_server() -> Iterator[Server]:
    """For tests that harm it."""
    with nats_server() as server:
        yield server


@pytest.fixture
def own_redis_server() -> Iterator[Server]:
    """For tests that harm it."""
    with redis_server() as server:
        yield server


@pytest.fixture
def region() -> str:
    return f"t{secrets.token_hex(4)}"


@pytest.fixture
def tenant() -> str:
    return f"tenant-{secrets.token_hex(4)}"


@pytest.fixture
async def redis(redis_server: Server) -> AsyncIterator[Redis]:
    """The test's own connection: it looks at what is stored, and spoils it."""
    async with Redis.from_url(redis_server.url) as connection:
        yield connection


@pytest.fixture
async def bus(nats_server: Server) -> AsyncIterator[Bus]:
    """The test's own connection: it plays ingress, workers and replicas."""
    connection = await Bus.connect(nats_server.url, name="test")
    yield connection
    await connection.close(2)


@pytest.fixture
async def fleet(bus: Bus, region: str, nats_server: Server, tmp_path: Path) -> AsyncIterator[Fleet]:
    workers = Fleet(bus, region, nats_server.url, tmp_path)
    await workers.listen()
    yield workers
    await workers.close()


@pytest.fixture
async def ingress(bus: Bus, region: str) -> Ingress:
    own = Ingress(bus, region)
    await own.start()
    return own


@pytest.fixture
async def world(
    own_nats_server: Server, redis_server: Server, own_redis_server: Server, tenant: str
) -> AsyncIterator[World]:
    rules = {tenant: TenantRules(regions=frozenset({"eu", "us"}))}
    bus = await Bus.connect(own_nats_server.url, name="test")
    async with (
        linked(own_nats_server) as link,
        running_cache(own_nats_server, redis_server.url, "eu", config=CONFIG, rules=rules),
    ):
        world = World(bus, tenant, link, own_redis_server)
        await until(world.eu, "in contact", b"", is_absent)
        yield world
    await bus.close(2)

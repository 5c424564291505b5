"""The log that regions share, on a real JetStream."""

import secrets

import pytest
from tests.servers import Server, nats_server

from sub100_shared.bus import Bus
from sub100_shared.durable_log import PAGE, DurableLog, LogEnds, LogUnavailable


@pytest.fixture
def subject() -> str:
    return f"log.{secrets.token_hex(4)}"


@pytest.fixture
async def log(bus: Bus, subject: str) -> DurableLog:
    log = bus.durable_log(subject.replace(".", "_"), subject)
    await log.ensure(max_age_s=3600, max_bytes=2**20, num_replicas=1)
    return log


async def test_log_is_empty_at_first_and_counts_from_one(log: DurableLog, subject: str) -> None:
    ends = await log.ends()
    assert (ends.first, ends.last) == (1, 0)
    assert await log.read(1, 0) == []

    positions = [await log.append(subject, str(number).encode()) for number in range(3)]

    assert positions == [1, 2, 3]
    assert await log.ends() == LogEnds(ends.identity, 1, 3)


async def test_log_gives_a_page_in_order(log: DurableLog, subject: str) -> None:
    for number in range(PAGE + 5):
        await log.append(subject, str(number + 1).encode())

    first = await log.read(1, PAGE + 5)
    rest = await log.read(PAGE + 1, PAGE + 5)

    assert [record.position for record in first] == list(range(1, PAGE + 1))
    assert [record.data for record in rest] == [str(PAGE + 1 + n).encode() for n in range(5)]


async def test_log_keeps_its_identity_when_it_is_ensured_again(
    log: DurableLog, bus: Bus, subject: str
) -> None:
    await log.append(subject, b"x")
    before = await log.ends()
    again = bus.durable_log(subject.replace(".", "_"), subject)
    await again.ensure(max_age_s=1, max_bytes=1, num_replicas=1)

    assert await again.ends() == before


async def test_log_drops_its_oldest_records_at_its_limit_and_says_so(bus: Bus, subject: str) -> None:
    log = bus.durable_log(subject.replace(".", "_"), subject)
    await log.ensure(max_age_s=3600, max_bytes=2000, num_replicas=1)
    for _ in range(20):
        await log.append(subject, b"x" * 300)

    ends = await log.ends()

    assert ends.last == 20
    assert 1 < ends.first <= 20
    assert [record.position for record in await log.read(1, 20)] == list(range(ends.first, 21))


async def test_log_is_unavailable_without_jetstream_and_without_a_connection() -> None:
    with nats_server(jetstream=False) as server:
        bus = await Bus.connect(server.url, name="test")
        log = bus.durable_log("any", "any")
        with pytest.raises(LogUnavailable):
            await log.ensure(max_age_s=1, max_bytes=1, num_replicas=1)
        with pytest.raises(LogUnavailable):
            await log.append("any", b"x")
        await bus.close(2)
        with pytest.raises(LogUnavailable, match="no connection"):
            await log.ends()


async def test_log_survives_the_death_of_its_server(own_nats_server: Server, subject: str) -> None:
    bus = await Bus.connect(own_nats_server.url, name="test")
    log = bus.durable_log("kept", subject)
    await log.ensure(max_age_s=3600, max_bytes=2**20, num_replicas=1)
    await log.append(subject, b"x")
    before = await log.ends()
    await bus.close(2)
    own_nats_server.kill()
    own_nats_server.start()

    bus = await Bus.connect(own_nats_server.url, name="test")
    log = bus.durable_log("kept", subject)
    assert await log.ends() == before
    assert [record.data for record in await log.read(1, 1)] == [b"x"]
    await bus.close(2)

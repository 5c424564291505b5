"""Ingress asks for placements on a real NATS: what it does not get to hear of, it settles all the same."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.integration.scheduler_service import Asker, Worker, eventually, running_scheduler
from tests.patience import PATIENCE_S
from tests.servers import Server
from tests.unit.ingress_exchange import TELEMETRY, exchange

from sub100_ingress.exchange import Prompt
from sub100_ingress.placing import SchedulerClient
from sub100_ingress.replicas import Replicas
from sub100_proto import codec, subjects
from sub100_proto.placement import Placement, PlaceRequest, Rejected, Settled, WorkerRef
from sub100_proto.sampling import Sampling
from sub100_scheduler.view import RegionView
from sub100_shared.bus import Bus, Incoming, NoResponders
from sub100_shared.clock import monotonic_ms
from sub100_shared.errors import Refused

PROMPT = Prompt(packed=b"", num_tokens=64, block_hashes=b"", salt="s", sampling=Sampling(max_tokens=8))


class Scheduler:
    """Answers when it may; notes what it was asked and what was settled."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[PlaceRequest] = asyncio.Queue()
        self.settled: asyncio.Queue[Settled] = asyncio.Queue()
        self.may_answer = asyncio.Event()
        self.rejects = False

    async def on_place(self, msg: Incoming) -> bytes:
        request = codec.decode_place_request(msg.data)
        self.asked.put_nowait(request)
        await self.may_answer.wait()
        if self.rejects:
            return codec.encode(Rejected(code="no_capacity", reason="none"))
        worker = WorkerRef(worker_id="d1", epoch=1)
        return codec.encode(Placement(placement_id=request.placement_id, decode=worker))

    def on_settled(self, msg: Incoming) -> None:
        self.settled.put_nowait(codec.decode_settled(msg.data))


@pytest.fixture
async def scheduler(nats_server: Server, region: str) -> AsyncIterator[Scheduler]:
    bus = await Bus.connect(nats_server.url, name="scheduler")
    made = Scheduler()
    await bus.serve(subjects.scheduler_place(region), made.on_place, queue="scheduler")
    await bus.listen(subjects.scheduler_settled(region), made.on_settled)
    yield made
    made.may_answer.set()
    await bus.close(2)


@pytest.fixture
async def view(nats_server: Server, region: str, bus: Bus) -> AsyncIterator[RegionView]:
    """Of a real scheduler with one worker."""
    worker = Worker(bus, region, "d1", "decode")
    async with running_scheduler(nats_server, region) as found:
        await worker.start()
        await eventually(lambda: len(found.fleet.workers) == 1)
        yield found
        await worker.die()


async def client_of(
    bus: Bus, region: str, timeout_ms: float = PATIENCE_S * 1e3, patience_ms: float = 0
) -> SchedulerClient:
    """Who has heard of no replica yet."""
    client = SchedulerClient(
        bus,
        TELEMETRY,
        Replicas(monotonic_ms),
        monotonic_ms,
        region=region,
        timeout_ms=timeout_ms,
        patience_ms=patience_ms,
    )
    await client.start()
    return client


async def test_placement_is_settled_when_its_asker_is_cancelled(
    scheduler: Scheduler, bus: Bus, region: str
) -> None:
    asking = asyncio.create_task((await client_of(bus, region)).place(exchange(), PROMPT, ()))
    async with asyncio.timeout(PATIENCE_S):
        asked = await scheduler.asked.get()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        settled = await scheduler.settled.get()
    assert asked.placement_id
    assert settled == Settled(placement_id=asked.placement_id, phase="all", ok=False)


async def test_placement_that_came_back_is_left_to_the_caller(
    scheduler: Scheduler, bus: Bus, region: str
) -> None:
    scheduler.may_answer.set()
    client = await client_of(bus, region)
    placements = [await client.place(exchange(), PROMPT, ()) for _ in range(2)]
    scheduler.rejects = True
    with pytest.raises(Refused, match="none"):
        await client.place(exchange(), PROMPT, ())
    await client.settle(Settled(placement_id="end", phase="all"))
    async with asyncio.timeout(PATIENCE_S):
        asked = [await scheduler.asked.get() for _ in range(3)]
        assert (await scheduler.settled.get()).placement_id == "end"  # nothing was before it
    assert [placement.placement_id for placement in placements] == [one.placement_id for one in asked[:2]]
    assert len({one.placement_id for one in asked}) == 3


async def test_fleet_holds_nothing_of_a_placement_that_came_too_late(
    view: RegionView, bus: Bus, region: str
) -> None:
    """It would count as load for a minute: the fleet looks full while it idles."""
    impatient = await client_of(bus, region, timeout_ms=0.001)
    for _ in range(20):
        with pytest.raises(Refused, match="no scheduler answered"):
            await impatient.place(exchange(), PROMPT, ())
    asker = Asker(bus, region)
    placed = await asker.place()  # on the same connection: read after the twenty
    assert isinstance(placed, Placement)
    await asker.settle(Settled(placement_id=placed.placement_id, phase="all"))
    await eventually(lambda: not len(view.inflight))
    assert [worker.inflight_decodes for worker in view.fleet.workers] == [0]


async def test_request_waits_for_a_scheduler_that_comes_back(
    nats_server: Server, bus: Bus, region: str
) -> None:
    client = await client_of(bus, region, patience_ms=PATIENCE_S * 1e3)
    placing = asyncio.create_task(client.place(exchange(), PROMPT, ()))
    with pytest.raises(NoResponders):  # behind the first question, on the same connection
        await bus.request(subjects.scheduler_place(region), b"", timeout_s=PATIENCE_S)
    assert not placing.done()
    back = Scheduler()
    back.may_answer.set()
    other = await Bus.connect(nats_server.url, name="scheduler")
    await other.serve(subjects.scheduler_place(region), back.on_place, queue="scheduler")
    assert (await placing).decode.worker_id == "d1"
    assert back.asked.qsize() == 1
    await other.close(2)


async def test_request_is_refused_when_no_scheduler_comes_back(bus: Bus, region: str) -> None:
    client = await client_of(bus, region, patience_ms=100)
    with pytest.raises(Refused) as raised:
        await client.place(exchange(), PROMPT, ())
    assert raised.value.code == "scheduler_unavailable"
    assert raised.value.retry_after_s >= 1


async def test_stream_that_has_begun_is_left_to_its_own_patience(bus: Bus, region: str) -> None:
    client = await client_of(bus, region, patience_ms=1e9)
    begun = exchange()
    begun.output_ids = [7]
    with pytest.raises(Refused, match="no scheduler answered"):
        await client.place(begun, PROMPT, ())

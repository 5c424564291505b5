"""The scheduler on a real NATS: placements, KV dumps, lapses, replicas."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.integration.scheduler_service import (
    SAID_INTERVAL_S,
    Asker,
    Worker,
    eventually,
    prompt_blocks,
    running_scheduler,
)
from tests.patience import PATIENCE_S
from tests.servers import Server

from sub100_proto import subjects
from sub100_proto.placement import Placement, PlaceReply, Rejected, Settled
from sub100_proto.subjects import Role
from sub100_scheduler.fleet import LAPSE_INTERVALS
from sub100_scheduler.view import RegionView
from sub100_shared import semconv
from sub100_shared.bus import Bus, NoResponders, ReplyTimeout
from sub100_shared.telemetry import Telemetry, inject

StartWorker = Callable[[str, Role], Awaitable[Worker]]


@pytest.fixture
async def start_worker(bus: Bus, region: str) -> AsyncIterator[StartWorker]:
    workers: list[Worker] = []

    async def start(worker_id: str, role: Role) -> Worker:
        worker = Worker(bus, region, worker_id, role)
        workers.append(worker)
        await worker.start()
        return worker

    yield start
    for worker in workers:
        await worker.die()


@pytest.fixture
async def view(nats_server: Server, region: str) -> AsyncIterator[RegionView]:
    async with running_scheduler(nats_server, region) as view:
        yield view


@pytest.fixture
def asker(bus: Bus, region: str) -> Asker:
    return Asker(bus, region)


def placed(reply: PlaceReply) -> Placement:
    assert isinstance(reply, Placement), reply
    return reply


def prefill_of(reply: PlaceReply) -> str:
    worker = placed(reply).prefill
    assert worker is not None
    return worker.worker_id


async def test_scheduler_places_a_pair_and_says_what_it_spent(
    view: RegionView, start_worker: StartWorker, asker: Asker
) -> None:
    await start_worker("p1", "prefill")
    await start_worker("d1", "decode")
    await eventually(lambda: len(view.fleet.workers) == 2)

    placement = placed(await asker.place(100))

    assert placement.prefill is not None
    assert (placement.prefill.worker_id, placement.prefill.epoch) == ("p1", 1)
    assert (placement.decode.worker_id, placement.decode.epoch) == ("d1", 1)
    assert placement.predicted_ttft_ms > 0
    assert 0 < placement.spent_ms < 100
    assert placement.placement_id


async def test_scheduler_refuses_with_a_time_to_retry_when_no_worker_serves(
    view: RegionView, asker: Asker
) -> None:
    reply = await asker.place()

    assert isinstance(reply, Rejected)
    assert reply.code == "no_capacity"
    assert reply.retry_after_s > 0


async def test_scheduler_places_on_decode_alone_when_no_prefill_worker_is_left(
    view: RegionView, start_worker: StartWorker, asker: Asker
) -> None:
    await start_worker("d1", "decode")
    await eventually(lambda: len(view.fleet.workers) == 1)

    placement = placed(await asker.place())

    assert placement.prefill is None
    assert placement.decode.worker_id == "d1"


async def test_scheduler_counts_placements_before_any_heartbeat_tells_of_them(
    view: RegionView, start_worker: StartWorker, asker: Asker
) -> None:
    """R02: eight long prompts at once over two prefill workers are four and four."""
    for worker_id in ("p1", "p2"):
        await start_worker(worker_id, "prefill")
    await start_worker("d1", "decode")
    await eventually(lambda: len(view.fleet.workers) == 3)

    replies = await asyncio.gather(*(asker.place(5_000, max_tokens=1) for _ in range(8)))

    assert Counter(map(prefill_of, replies)) == {"p1": 4, "p2": 4}
    for reply in replies:
        await asker.settle(Settled(placement_id=placed(reply).placement_id, phase="prefill"))
    await eventually(lambda: all(worker.inflight_prefills == 0 for worker in view.fleet.workers))
    assert sum(worker.inflight_decodes for worker in view.fleet.workers) == 8


async def test_scheduler_learns_a_workers_speed_from_settled_prefills(
    view: RegionView, start_worker: StartWorker, asker: Asker
) -> None:
    await start_worker("p1", "prefill")
    await start_worker("d1", "decode")
    await eventually(lambda: len(view.fleet.workers) == 2)

    for num_tokens in [200, 400, 800, 1600] * 10:
        placement = placed(await asker.place(num_tokens))
        await asker.settle(
            Settled(
                placement_id=placement.placement_id,
                phase="prefill",
                worker_id="p1",
                role="prefill",
                prefill_ms=10 + 0.2 * num_tokens,
                num_computed_tokens=num_tokens,
            )
        )
        await asker.settle(Settled(placement_id=placement.placement_id, phase="all"))
    await eventually(lambda: len(view.inflight) == 0)

    assert placed(await asker.place(1000)).predicted_ttft_ms == pytest.approx(210, rel=0.1)


async def test_scheduler_follows_kv_events_and_sends_a_prompt_where_its_prefix_is(
    view: RegionView, start_worker: StartWorker, asker: Asker
) -> None:
    workers = [await start_worker(f"p{number}", "prefill") for number in range(3)]
    await start_worker("d1", "decode")
    await eventually(lambda: len(view.fleet.workers) == 4 and not view.feed.wanting)
    prompt = prompt_blocks(3_200)

    await workers[1].hold(prompt)
    await eventually(lambda: view.index.num_blocks("p1") == 100)
    placement = placed(await asker.place(3_210, block_hashes=b"".join(prompt)))

    assert prefill_of(placement) == "p1"
    assert placement.cached_tokens_prefill == 3_200


async def test_scheduler_asks_for_a_dump_after_a_gap(
    view: RegionView, start_worker: StartWorker, asker: Asker
) -> None:
    worker = await start_worker("p1", "prefill")
    await eventually(lambda: view.fleet.get("p1") is not None and not view.feed.wanting)
    num_dumps = worker.num_dumps
    first, lost, third = prompt_blocks(320, 1), prompt_blocks(640, 2), prompt_blocks(960, 3)

    await worker.hold(first)
    await worker.hold(lost, is_lost=True)
    await worker.hold(third)
    await eventually(lambda: view.index.num_blocks("p1") == 60)

    assert worker.num_dumps == num_dumps + 1
    for prompt, num_blocks in ((first, 10), (lost, 20), (third, 30)):
        assert view.index.match(b"".join(prompt)) == {"p1": num_blocks}


async def test_scheduler_asks_for_a_dump_when_the_last_event_was_lost(
    view: RegionView, start_worker: StartWorker
) -> None:
    """No later event shows the gap: the heartbeat does."""
    worker = await start_worker("p1", "prefill")
    await eventually(lambda: view.fleet.get("p1") is not None and not view.feed.wanting)

    await worker.hold(prompt_blocks(320), is_lost=True)

    await eventually(lambda: view.index.num_blocks("p1") == 10)


async def test_new_scheduler_asks_workers_for_what_they_hold(
    nats_server: Server, region: str, start_worker: StartWorker
) -> None:
    worker = await start_worker("p1", "prefill")
    await worker.hold(prompt_blocks(320))

    async with running_scheduler(nats_server, region) as view:
        await eventually(lambda: view.index.num_blocks("p1") == 10)


async def test_scheduler_stops_placing_on_a_worker_that_fell_silent(
    view: RegionView, start_worker: StartWorker, asker: Asker
) -> None:
    """R04: a dead worker's warm prefix draws nobody, and its blocks are gone with it."""
    dead = await start_worker("p1", "prefill")
    await start_worker("p2", "prefill")
    await start_worker("d1", "decode")
    await eventually(lambda: len(view.fleet.workers) == 3 and not view.feed.wanting)
    prompt = prompt_blocks(3_200)
    await dead.hold(prompt)
    await eventually(lambda: view.index.num_blocks("p1") == 100)
    assert prefill_of(await asker.place(3_210, block_hashes=b"".join(prompt))) == "p1"

    await dead.die()
    await eventually(lambda: view.fleet.get("p1") is None)

    replies = [await asker.place(3_210, block_hashes=b"".join(prompt)) for _ in range(50)]
    assert {prefill_of(reply) for reply in replies} == {"p2"}
    assert view.index.match(b"".join(prompt)) == {}


async def test_scheduler_treats_a_new_epoch_as_a_new_worker(
    view: RegionView, start_worker: StartWorker, asker: Asker
) -> None:
    worker = await start_worker("p1", "prefill")
    await start_worker("d1", "decode")
    await eventually(lambda: len(view.fleet.workers) == 2 and not view.feed.wanting)
    await worker.hold(prompt_blocks(320))
    await eventually(lambda: view.index.num_blocks("p1") == 10)
    await asker.place(1_000)

    worker.epoch, worker.seq = 2, 0
    worker.blocks.clear()
    await worker.say()
    await eventually(lambda: view.index.num_blocks("p1") == 0)

    reborn = view.fleet.get("p1")
    assert reborn is not None
    assert reborn.inflight_prefills == 0
    assert placed(await asker.place()).prefill is not None
    assert placed(await asker.place()).prefill.epoch == 2  # type: ignore[union-attr]


async def test_scheduler_gives_a_worker_no_share_before_it_is_ready(
    view: RegionView, start_worker: StartWorker, asker: Asker
) -> None:
    """R08."""
    await start_worker("p1", "prefill")
    late = await start_worker("p2", "prefill")
    await start_worker("d1", "decode")
    late.state = "starting"
    await late.say()
    await eventually(lambda: _state(view, "p2") == "starting")

    assert {prefill_of(await asker.place(1_000)) for _ in range(20)} == {"p1"}

    late.state = "ready"
    await late.say()
    await eventually(lambda: _state(view, "p2") == "ready")
    assert "p2" in {prefill_of(await asker.place(1_000)) for _ in range(3)}


async def test_replicas_share_what_they_have_placed(
    nats_server: Server, region: str, start_worker: StartWorker, asker: Asker
) -> None:
    """R03: a burst over two replicas spreads as if there were one."""
    for number in range(4):
        await start_worker(f"p{number}", "prefill")
    await start_worker("d1", "decode")
    async with (
        running_scheduler(nats_server, region, "s1") as one,
        running_scheduler(nats_server, region, "s2") as two,
    ):
        await eventually(lambda: len(one.fleet.workers) == len(two.fleet.workers) == 5)

        replies = [await asker.place(2_000) for _ in range(32)]
        await eventually(lambda: len(one.inflight) == len(two.inflight) == 32)

        assert len({placed(reply).placement_id.split("-")[0] for reply in replies}) == 2
        assert all(6 <= count <= 10 for count in Counter(map(prefill_of, replies)).values())
        for view in (one, two):
            assert sum(worker.inflight_prefills for worker in view.fleet.workers) == 32
            assert sum(worker.inflight_prefill_tokens for worker in view.fleet.workers) == 64_000

        for reply in replies:
            await asker.settle(Settled(placement_id=placed(reply).placement_id, phase="all"))
        await eventually(lambda: len(one.inflight) == len(two.inflight) == 0)
        for view in (one, two):
            assert all(worker.num_requests == 0 for worker in view.fleet.workers)


async def test_scheduler_survives_a_request_it_cannot_read(view: RegionView, bus: Bus, region: str) -> None:
    with pytest.raises(ReplyTimeout):
        await bus.request(subjects.scheduler_place(region), b"\xc1 nonsense", timeout_s=0.2)
    assert isinstance(await Asker(bus, region).place(), Rejected)


async def test_scheduler_ignores_ragged_hashes_of_a_prompt(
    view: RegionView, start_worker: StartWorker, asker: Asker
) -> None:
    await start_worker("d1", "decode")
    await eventually(lambda: len(view.fleet.workers) == 1)

    assert placed(await asker.place(block_hashes=b"12345")).cached_tokens_decode == 0


async def test_scheduler_keeps_its_fleet_over_a_restart_of_nats(own_nats_server: Server, region: str) -> None:
    """While nobody could be heard nobody is blamed."""
    bus = await Bus.connect(own_nats_server.url, name="workers")
    worker = Worker(bus, region, "d1", "decode")
    await worker.start()
    async with running_scheduler(own_nats_server, region) as view:
        await eventually(lambda: len(view.fleet.workers) == 1)

        own_nats_server.kill()
        await eventually(lambda: not bus.is_connected)
        await asyncio.sleep(1.5 * LAPSE_INTERVALS * SAID_INTERVAL_S)  # the time that must not count
        assert view.fleet.get("d1") is not None
        own_nats_server.start()
        await eventually(lambda: bus.is_connected)

        assert placed(await _first_reply(Asker(bus, region))).decode.worker_id == "d1"
    await worker.die()
    await bus.close(2)


async def test_scheduler_span_is_a_child_of_the_caller(
    nats_server: Server, region: str, start_worker: StartWorker, asker: Asker
) -> None:
    exporter = InMemorySpanExporter()
    telemetry = Telemetry.create("scheduler", "s1", region, {}, exporter=exporter)
    caller = Telemetry.create("ingress", "i1", region, {}, exporter=InMemorySpanExporter())
    parent = caller.start(semconv.SCHEDULE, None)
    await start_worker("d1", "decode")

    async with running_scheduler(nats_server, region, telemetry=telemetry) as view:
        await eventually(lambda: len(view.fleet.workers) == 1)
        placed(await asker.place(headers=inject(parent)))
    telemetry.shutdown()
    caller.shutdown()

    (span,) = exporter.get_finished_spans()
    assert span.name == semconv.SCHEDULE_SERVE
    assert span.parent is not None
    assert span.parent.span_id == parent.get_span_context().span_id
    assert span.parent.trace_id == parent.get_span_context().trace_id
    assert (span.attributes or {})[semconv.WORKER] == "d1"


def _state(view: RegionView, worker_id: str) -> str:
    worker = view.fleet.get(worker_id)
    return "" if worker is None else worker.heartbeat.state


async def _first_reply(asker: Asker) -> PlaceReply:
    """The scheduler's connection may come back after the caller's."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await asker.place()
            except NoResponders:
                await asyncio.sleep(0.05)

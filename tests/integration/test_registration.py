"""Workers that do not fit their pool, as processes on a real NATS beside a real scheduler: refused, told, not
ready, let in when they fit."""

import asyncio
import json
import logging
import signal

import pytest
from tests.integration.scheduler_service import Asker, running_scheduler
from tests.integration.worker_fleet import BLOCK_SIZE, MODEL, Fleet, Signal, Worker
from tests.patience import PATIENCE_S
from tests.servers import Server

from sub100_proto import codec, subjects
from sub100_proto.fleet import ServiceStatus
from sub100_proto.placement import Placement, Rejected
from sub100_shared.bus import Bus, Incoming

IN_PLACE = {"SIM_REVISION": "76543210fedc"}


class Statuses:
    """What each process says of itself."""

    def __init__(self) -> None:
        self.last: dict[str, ServiceStatus] = {}
        self.changed = Signal()

    def __call__(self, msg: Incoming) -> None:
        status = codec.decode_status(msg.data)
        self.last[status.instance] = status
        self.changed()

    async def until(self, worker: Worker, state: str) -> ServiceStatus:
        await self.changed.until(
            lambda: worker.worker_id in self.last and self.last[worker.worker_id].state == state
        )
        return self.last[worker.worker_id]


@pytest.fixture
async def statuses(bus: Bus, region: str) -> Statuses:
    statuses = Statuses()
    await bus.listen(subjects.status_all(region), statuses)
    return statuses


def refusals(log: str) -> list[str]:
    """The reasons in a worker's log."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [line["reason"] for line in lines if line.get("event") == "refused by the scheduler"]


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("DECODE_BLOCK_SIZE", "64", f"block size 64, but pool default has {BLOCK_SIZE}"),
        ("DECODE_DTYPE", "float32", "dtype float32, but pool default has auto"),
        ("DECODE_MODEL", "another", f"model another, but pool default has {MODEL}"),
        ("SIM_TENSOR_PARALLEL", "2", "tensor parallel size 2, but pool default has 1"),
        ("SIM_REVISION", "0123456789ab", "model revision 0123456789ab, but pool default has 76543210fedc"),
    ],
)
async def test_worker_unlike_its_pool_is_refused_told_and_not_ready(
    fleet: Fleet,
    statuses: Statuses,
    bus: Bus,
    region: str,
    nats_server: Server,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    value: str,
    reason: str,
) -> None:
    """P05: block size, dtype, model, tensor parallel size and model revision."""
    with caplog.at_level(logging.ERROR, "sub100_scheduler"):
        async with running_scheduler(nats_server, region):
            prefill, decode = await asyncio.gather(
                fleet.start("prefill", **IN_PLACE), fleet.start("decode", **IN_PLACE)
            )
            odd = await fleet.launch("decode", **(IN_PLACE | {variable: value}))
            beat = await odd.beat(lambda beat: bool(beat.refusal))
            assert beat.refusal.startswith(reason)
            assert beat.state == "starting"
            status = await statuses.until(odd, "starting")
            assert status.detail.startswith(f"refused: {reason}")
            beats = len(odd.beats)
            await odd.changed.until(lambda: len(odd.beats) >= beats + 3)
            for _ in range(20):
                answer = await Asker(bus, region).place(model=MODEL)
                assert isinstance(answer, Placement)
                assert answer.decode.worker_id == decode.worker_id
                assert answer.prefill is not None
                assert answer.prefill.worker_id == prefill.worker_id
    assert odd.beats[-1].state == "starting"
    assert len(refusals(odd.log())) == 1
    logged = [record for record in caplog.records if record.message == "worker refused"]
    assert [record.__dict__["worker_id"] for record in logged] == [odd.worker_id]
    assert logged[0].__dict__["reason"].startswith(reason)


async def test_refused_worker_is_let_in_when_those_in_place_have_left(
    fleet: Fleet, statuses: Statuses, bus: Bus, region: str, nats_server: Server
) -> None:
    async with running_scheduler(nats_server, region):
        old = await fleet.start("decode")
        new = await fleet.launch("decode", DECODE_BLOCK_SIZE="64")
        await new.beat(lambda beat: bool(beat.refusal))
        old.send_signal(signal.SIGTERM)
        await old.exited()
        await new.beat(lambda beat: beat.state == "ready" and not beat.refusal)
        await statuses.until(new, "ready")
        asker = Asker(bus, region)

        async def is_placed() -> bool:
            answer = await asker.place(model=MODEL)
            return isinstance(answer, Placement) and answer.decode.worker_id == new.worker_id

        async with asyncio.timeout(PATIENCE_S):
            while not await is_placed():  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_refused_worker_sets_no_measure_for_a_scheduler_that_starts_anew(
    fleet: Fleet, bus: Bus, region: str, nats_server: Server
) -> None:
    async with running_scheduler(nats_server, region):
        right = await fleet.start("decode")
        odd = await fleet.launch("decode", DECODE_BLOCK_SIZE="64")
        await odd.beat(lambda beat: bool(beat.refusal))
    async with running_scheduler(nats_server, region, "s2") as view:
        beats = len(odd.beats)
        await odd.changed.until(lambda: len(odd.beats) >= beats + 3)
        assert [worker.worker_id for worker in view.fleet.workers] == [right.worker_id]
        assert right.beats[-1].state == "ready"
        assert odd.beats[-1].refusal


async def test_worker_is_ready_without_any_scheduler(fleet: Fleet, statuses: Statuses) -> None:
    worker = await fleet.start("decode")
    status = await statuses.until(worker, "ready")
    assert status.detail == ""


async def test_draining_ends_a_refused_worker(fleet: Fleet, region: str, nats_server: Server) -> None:
    async with running_scheduler(nats_server, region):
        await fleet.start("decode")
        odd = await fleet.launch("decode", DECODE_BLOCK_SIZE="64")
        await odd.beat(lambda beat: bool(beat.refusal))
        odd.send_signal(signal.SIGTERM)
        assert await odd.exited() == 0


async def test_only_refused_workers_are_no_capacity(
    fleet: Fleet, bus: Bus, region: str, nats_server: Server
) -> None:
    async with running_scheduler(nats_server, region):
        await fleet.start("prefill")
        odd = await fleet.launch("decode", DECODE_DTYPE="float32")
        await odd.beat(lambda beat: bool(beat.refusal))
        answer = await Asker(bus, region).place(model=MODEL)
    assert isinstance(answer, Rejected)
    assert answer.code == "no_capacity"

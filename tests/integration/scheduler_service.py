"""Schedulers in the test's own process on a real NATS, and workers that only say what workers say."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from tests.patience import PATIENCE_S, eventually_async
from tests.servers import Server

from sub100_proto import blocks, codec, subjects
from sub100_proto.budget import Budget
from sub100_proto.fleet import Heartbeat, KvDump, KvEvents, Load, State
from sub100_proto.placement import PlaceReply, PlaceRequest, Settled
from sub100_proto.subjects import Role
from sub100_scheduler.config import SchedulerConfig
from sub100_scheduler.scheduler_metrics import PlacementMetrics
from sub100_scheduler.service import Placer, SchedulerService
from sub100_scheduler.view import RegionView
from sub100_shared.bus import Bus, BusUnavailable, Incoming
from sub100_shared.clock import monotonic_ms
from sub100_shared.config import Common
from sub100_shared.lifecycle import Runtime
from sub100_shared.telemetry import Telemetry

BLOCK = 32
INTERVAL_S = 0.1
SAID_INTERVAL_S = 0.5
"""More than a busy machine keeps this process waiting for: nobody lapses who did not die."""


async def eventually(is_so: Callable[[], bool]) -> None:
    await eventually_async(is_so, "what is waited for")


class Worker:
    """A worker as schedulers see it: heartbeats, numbered KV events, and dumps when asked."""

    def __init__(self, bus: Bus, region: str, worker_id: str, role: Role, **changed: Any) -> None:
        self._bus = bus
        self._region = region
        self._changed = changed
        self._beating: asyncio.Task[None] | None = None
        self.worker_id = worker_id
        self.role: Role = role
        self.state: State = "ready"
        self.epoch = 1
        self.seq = 0
        self.load = Load()
        self.blocks: set[bytes] = set()
        self.num_dumps = 0

    async def start(self) -> None:
        subject = subjects.control(self._region, self.role, self.worker_id)
        await self._bus.serve(subject, self._on_control)
        self.beat()

    def beat(self) -> None:
        """Begin to send heartbeats."""
        self._beating = asyncio.create_task(self._beat())

    async def die(self) -> None:
        """Fall silent, as a killed process does."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)

    async def say(self) -> None:
        fields: dict[str, Any] = {
            "model": "m",
            "layout": "bf16/32",
            "block_size": BLOCK,
            "num_blocks": 100_000,
            "max_model_len": 8_192,
            "max_num_seqs": 256,
            "max_chunk_tokens": 2_048,
            "interval_s": SAID_INTERVAL_S,
        }
        heartbeat = Heartbeat(
            worker_id=self.worker_id,
            role=self.role,
            epoch=self.epoch,
            state=self.state,
            load=self.load,
            kv_seq=self.seq,
            **(fields | self._changed),
        )
        with contextlib.suppress(BusUnavailable):
            await self._bus.publish(
                subjects.heartbeat(self._region, self.role, self.worker_id), codec.encode(heartbeat)
            )

    async def hold(self, stored: Iterable[bytes], *, is_lost: bool = False) -> None:
        """Take blocks in; the event takes its number although ``is_lost`` keeps it from being sent."""
        stored = list(stored)
        self.blocks.update(stored)
        self.seq += 1
        if not is_lost:
            events = KvEvents(
                worker_id=self.worker_id, epoch=self.epoch, seq=self.seq, stored=b"".join(stored)
            )
            await self._bus.publish(subjects.kv_events(self._region, self.worker_id), codec.encode(events))

    async def _beat(self) -> None:
        while True:
            await self.say()
            await asyncio.sleep(INTERVAL_S)

    async def _on_control(self, msg: Incoming) -> bytes:
        codec.decode_control(msg.data)
        self.num_dumps += 1
        return codec.encode(
            KvDump(worker_id=self.worker_id, epoch=self.epoch, seq=self.seq, hashes=b"".join(self.blocks))
        )


class Asker:
    """Asks for placements as ingress does."""

    def __init__(self, bus: Bus, region: str) -> None:
        self._bus = bus
        self._region = region

    async def place(
        self, num_prompt_tokens: int = 64, *, headers: dict[str, str] | None = None, **changed: Any
    ) -> PlaceReply:
        fields: dict[str, Any] = {
            "request_id": "r1",
            "tenant": "t",
            "model": "m",
            "block_hashes": b"",
            "max_tokens": 16,
            "budget": Budget(total_ms=100, remaining_ms=80, allotted_ms=5),
        }
        query = PlaceRequest(num_prompt_tokens=num_prompt_tokens, **(fields | changed))
        return await self.ask(codec.encode(query), headers)

    async def ask(self, payload: bytes, headers: dict[str, str] | None = None) -> PlaceReply:
        msg = await self._bus.request(
            subjects.scheduler_place(self._region), payload, timeout_s=PATIENCE_S, headers=headers
        )
        return codec.decode_place_reply(msg.data)

    async def settle(self, settled: Settled) -> None:
        await self._bus.publish(subjects.scheduler_settled(self._region), codec.encode(settled))


def prompt_blocks(num_tokens: int, seed: int = 0) -> list[bytes]:
    """Chain hashes of a prompt that no other seed shares a block with."""
    ids = random.Random(seed).randbytes(4 * num_tokens)
    return blocks.split(blocks.chain(ids, BLOCK, f"salt-{seed}"))


@contextlib.asynccontextmanager
async def running_scheduler(
    nats: Server, region: str, name: str = "s1", *, telemetry: Telemetry | None = None
) -> AsyncIterator[RegionView]:
    """Started as the lifecycle starts it and ended in the lifecycle's order; yields what it knows."""
    config = SchedulerConfig(listen_first_s=2 * INTERVAL_S, tick_s=0.02)
    bus = await Bus.connect(nats.url, name=name)
    telemetry = telemetry or Telemetry.create("scheduler", name, region, {})
    runtime = Runtime("scheduler", Common(region=region, instance=name), bus, telemetry)
    view = RegionView(
        config.rules(),
        tick_ms=config.tick_s * 1e3,
        inflight_ttl_ms=config.inflight_ttl_s * 1e3,
        max_placements=config.max_placements,
        max_index_blocks=config.max_index_blocks,
        chance=random.Random(1).random,
    )
    placer = Placer(
        bus,
        telemetry,
        view,
        monotonic_ms,
        region=region,
        scheduler_id=name,
        metrics=PlacementMetrics(runtime.metrics),
    )
    service = SchedulerService(runtime, config, view, placer, monotonic_ms)
    try:
        await service.start()
        yield view
    finally:
        await service.drain(5)
        await bus.stop_receiving()
        await service.stop()
        await runtime.cancel_tasks()
        await bus.close(5)

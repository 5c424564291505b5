"""What is sent over the bus and given up is given up: in the moment in which the reply comes, or while NATS
takes nothing."""

import asyncio
import random

from tests.servers import Server

from sub100_shared.bus import Bus, Incoming

NUM_REQUESTS = 400


class GivingUp:
    """Cancels a task when called; ``in_time`` says whether the task was told."""

    def __init__(self, task: asyncio.Task[Incoming]) -> None:
        self._task = task
        self.in_time = False

    def __call__(self) -> None:
        self.in_time = self._task.cancel()


async def test_cancellation_that_comes_with_the_reply_is_not_lost(bus: Bus, region: str) -> None:
    """Whoever was told that it is cancelled must end so: else a client that left would be served on."""

    async def answer(msg: Incoming) -> bytes:
        return msg.data

    subject = f"sub100.v1.{region}.test.echo"
    await bus.serve(subject, answer, queue="test", max_inflight=8)
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    for _ in range(20):
        await bus.request(subject, b"x", timeout_s=5)
    round_trip_s = (loop.time() - started_at) / 20
    chance = random.Random(3)
    num_cancelled = 0
    for _ in range(NUM_REQUESTS):
        task = asyncio.create_task(bus.request(subject, b"x", timeout_s=5))
        given_up = GivingUp(task)
        loop.call_later(round_trip_s * chance.uniform(0.0, 1.2), given_up)
        await asyncio.wait({task})
        if given_up.in_time:
            num_cancelled += 1
            assert task.cancelled()
    assert num_cancelled > NUM_REQUESTS // 20


async def test_cancelled_publish_ends_while_nats_does_not_read(own_nats_server: Server) -> None:
    bus = await Bus.connect(own_nats_server.url, name="test")
    own_nats_server.pause()
    try:
        task = asyncio.create_task(bus.publish("test.large", bytes(7_000_000)))
        _, waiting = await asyncio.wait({task}, timeout=0.2)
        assert waiting
        task.cancel()
        await asyncio.wait({task}, timeout=30)
        assert task.cancelled()
    finally:
        own_nats_server.resume()
        await bus.close(2)

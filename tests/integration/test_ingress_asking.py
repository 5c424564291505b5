"""Ingress asks replicas on a real NATS: one that hangs or is gone costs a question a moment."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
from tests.integration.scheduler_service import eventually
from tests.patience import PATIENCE_S
from tests.servers import Server

from sub100_ingress.asking import Answer, Asker
from sub100_ingress.lateness import Lateness
from sub100_ingress.replicas import Replicas
from sub100_proto import codec, subjects
from sub100_proto.fleet import ServiceStatus
from sub100_shared.bus import Bus, Incoming, NoResponders, ReplyTimeout
from sub100_shared.clock import monotonic_ms

NEVER_S = 0.6
"""For questions that nobody answers."""
SOON_MS = 200.0
"""More than a busy machine keeps the other one waiting for."""


class Replica:
    """Answers with its name while it may, and then at last; has its own connection, as a process has."""

    def __init__(self, name: str, bus: Bus, subject: str) -> None:
        self.name = name
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.bus = bus
        self.subject = subject

    async def start(self) -> None:
        for subject in (self.subject, subjects.of_replica(self.subject, self.name)):
            await self.bus.serve(subject, self._on_question, queue="q")

    async def _on_question(self, msg: Incoming) -> bytes:
        self.asked.append(msg.data.decode())
        await self.may_answer.wait()
        return self.name.encode()


class World:
    """Two replicas, whom an asker knows."""

    def __init__(self, bus: Bus, subject: str, first: Replica, second: Replica) -> None:
        self.replicas = Replicas(monotonic_ms)
        self.lateness = Lateness()
        self.go_on()
        self.abandoned: list[str] = []
        self.asker = Asker(bus, self.replicas, subject, monotonic_ms, self.lateness, self.abandon)
        self.first = first
        self.second = second

    async def abandon(self, name: str) -> None:
        self.abandoned.append(name)

    def hang(self, *replicas: Replica) -> None:
        """From now on they are late at once, and it is told."""
        self.lateness.after_ms = SOON_MS
        for replica in replicas:
            replica.may_answer.clear()

    def go_on(self, *replicas: Replica) -> None:
        """They answer, and nobody is late, however busy the machine is."""
        self.lateness.after_ms = PATIENCE_S * 1e3
        for replica in replicas:
            replica.may_answer.set()

    def know(self, *replicas: Replica) -> None:
        """They say that they are ready; the first is asked first."""
        for replica in replicas:
            status = ServiceStatus(
                service="scheduler", instance=replica.name, state="ready", is_addressable=True
            )
            self.replicas.on_status(Incoming("status", codec.encode(status), "", {}))

    async def ask(self, timeout_s: float = PATIENCE_S) -> str:
        answer: Answer = await self.asker.ask(str.encode, timeout_s=timeout_s)
        return answer.data.decode()


@pytest.fixture(name="world")
async def _world(nats_server: Server, bus: Bus, region: str) -> AsyncIterator[World]:
    subject = subjects.scheduler_place(region)
    made = [Replica(name, await Bus.connect(nats_server.url, name=name), subject) for name in ("a", "b")]
    for replica in made:
        await replica.start()
    world = World(bus, subject, *made)
    await world.asker.start()
    world.know(*made)
    yield world
    for replica in made:
        replica.may_answer.set()
        await replica.bus.close(2)


async def test_question_is_one_message_to_one_replica_while_all_answer(world: World) -> None:
    answers = [await world.ask() for _ in range(20)]
    assert answers == [name for name, _ in zip(itertools.cycle("ab"), answers, strict=False)]
    asked = world.first.asked + world.second.asked
    assert len(set(asked)) == len(asked) == 20
    assert world.abandoned == []


async def test_second_answers_when_the_first_hangs_who_is_then_passed_by(world: World) -> None:
    world.hang(world.first)
    assert [await world.ask() for _ in range(10)] == ["b"] * 10
    assert world.abandoned == world.first.asked
    assert len(world.abandoned) == 1
    assert len(world.second.asked) == 10


async def test_late_answer_is_not_used_and_ends_the_passing_by(world: World) -> None:
    world.hang(world.first)
    assert await world.ask() == "b"
    world.go_on(world.first)
    await eventually(lambda: world.replicas.choose_prompt(["b"]) == "a")
    assert {await world.ask() for _ in range(4)} == {"a", "b"}
    assert len(world.abandoned) == 1


async def test_first_answers_after_all_when_the_second_hangs_too(world: World) -> None:
    world.hang(world.first, world.second)
    asking = asyncio.create_task(world.ask())
    await eventually(lambda: bool(world.second.asked))
    world.first.may_answer.set()
    assert await asking == "a"
    assert world.abandoned == world.second.asked


async def test_gone_replica_costs_no_wait_and_leaves_nothing(world: World) -> None:
    await world.first.bus.stop_receiving()
    assert [await world.ask() for _ in range(4)] == ["b"] * 4
    assert world.abandoned == []
    assert world.first.asked == []


async def test_whoever_is_there_answers_when_nobody_is_known(world: World, bus: Bus, region: str) -> None:
    stranger = World(bus, subjects.scheduler_place(region), world.first, world.second)
    await stranger.asker.start()
    assert await stranger.ask() in {"a", "b"}


async def test_whoever_is_there_answers_when_all_that_are_known_are_gone(world: World) -> None:
    gone = Replica("gone", world.first.bus, "none")
    for name in ("a", "b"):
        world.replicas.on_unheard(name)
    world.know(gone)
    assert await world.ask() in {"a", "b"}


async def test_question_fails_at_once_when_nobody_is_there(world: World) -> None:
    for replica in (world.first, world.second):
        await replica.bus.stop_receiving()
    with pytest.raises(NoResponders):
        await world.ask()
    assert world.abandoned == []


async def test_question_ends_in_time_and_leaves_nothing_when_nobody_answers(world: World) -> None:
    world.hang(world.first, world.second)
    with pytest.raises(ReplyTimeout):
        await world.ask(NEVER_S)
    await eventually(lambda: bool(world.first.asked))
    assert set(world.abandoned) >= {*world.first.asked, *world.second.asked}


async def test_all_that_was_asked_is_left_when_the_asker_is_cancelled(world: World) -> None:
    world.hang(world.first, world.second)
    asking = asyncio.create_task(world.ask())
    await eventually(lambda: bool(world.second.asked))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert set(world.abandoned) == {*world.first.asked, *world.second.asked}


async def test_answer_that_comes_while_its_asker_is_cancelled_is_left_too(
    world: World, bus: Bus, region: str
) -> None:
    class Hasty(Asker):
        def _on_answer(self, msg: Incoming) -> None:
            super()._on_answer(msg)
            asking.cancel()

    subject = subjects.scheduler_place(region)
    hasty = Hasty(bus, world.replicas, subject, monotonic_ms, world.lateness, world.abandon)
    await hasty.start()
    asking = asyncio.create_task(hasty.ask(str.encode, timeout_s=PATIENCE_S))
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert world.abandoned == world.first.asked
    assert len(world.abandoned) == 1

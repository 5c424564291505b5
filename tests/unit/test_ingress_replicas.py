"""Whom ingress asks: in turn, past whoever is late, gone or silent. On a clock of its own."""

import pytest

from sub100_ingress.replicas import ANY, SILENT_MS, Replicas
from sub100_proto import codec
from sub100_proto.fleet import ServiceStatus, State
from sub100_shared.bus import Incoming

INTERVAL_MS = 1_000.0


class World:
    """Replicas that tell their state, and ingress's view of them."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.view = Replicas(lambda: self.now_ms)

    def say(self, name: str, state: State = "ready", *, is_addressable: bool = True) -> None:
        status = ServiceStatus(service="scheduler", instance=name, state=state, is_addressable=is_addressable)
        self.view.on_status(Incoming("status", codec.encode(status), "", {}))

    def choices(self, num: int) -> list[str | None]:
        return [self.view.choose() for _ in range(num)]


@pytest.fixture(name="world")
def _world() -> World:
    world = World()
    world.say("a")
    world.say("b")
    return world


def test_any_of_the_group_is_asked_while_nobody_is_known() -> None:
    assert World().choices(2) == [ANY, ANY]


def test_replicas_are_asked_in_turn(world: World) -> None:
    assert world.choices(4) == ["a", "b", "a", "b"]


def test_replica_that_is_late_is_passed_by_until_it_answers(world: World) -> None:
    world.view.on_late("a")
    world.view.on_late("a")
    assert world.choices(3) == ["b", "b", "b"]
    assert world.view.num_lost == {"late": 1, "gone": 0, "silent": 0}
    world.view.on_answer("a")
    assert set(world.choices(2)) == {"a", "b"}


def test_replica_that_is_late_is_asked_again_after_it_has_told_its_state(world: World) -> None:
    world.view.on_late("a")
    world.now_ms += INTERVAL_MS
    world.say("a")
    assert set(world.choices(2)) == {"a", "b"}


def test_second_is_asked_who_is_not_late_himself(world: World) -> None:
    first = world.view.choose()
    assert first == "a"
    assert world.view.choose_prompt(["a"]) == "b"
    assert world.view.choose_prompt(["a", "b"]) is None
    world.view.on_late("b")
    assert world.view.choose_prompt(["a"]) is None


def test_last_heard_is_asked_when_all_are_late(world: World) -> None:
    world.view.on_late("a")
    world.view.on_late("b")
    world.now_ms += 10
    world.view.on_answer("b")
    world.view.on_late("b")
    assert world.choices(2) == ["b", "b"]
    assert world.view.choose(["b"]) == "a"


def test_replica_that_is_gone_is_not_asked_until_it_says_that_it_is_back(world: World) -> None:
    world.view.on_unheard("a")
    assert world.view.num_lost == {"late": 0, "gone": 1, "silent": 0}
    world.view.on_answer("a")  # to a question from before
    assert world.choices(2) == ["b", "b"]
    world.say("a")
    assert set(world.choices(2)) == {"a", "b"}


def test_any_of_the_group_is_asked_when_all_are_gone_and_only_once(world: World) -> None:
    for name in ("a", "b"):
        world.view.on_unheard(name)
    assert world.view.choose(["a", "b"]) == ANY
    assert world.view.choose(["a", "b", ANY]) is None


def test_nobody_is_left_to_ask_while_a_late_one_is_waited_for(world: World) -> None:
    world.view.on_late("a")
    world.view.on_unheard("b")
    assert world.view.choose(["a", "b"]) is None


@pytest.mark.parametrize("state", ["starting", "draining", "stopped"])
def test_replica_that_does_not_say_ready_is_not_asked(world: World, state: State) -> None:
    world.say("a", state)
    assert world.choices(2) == ["b", "b"]


def test_replica_of_an_older_version_is_asked_as_one_of_the_group() -> None:
    world = World()
    world.say("a", is_addressable=False)
    assert world.choices(2) == [ANY, ANY]


def test_silent_replica_is_forgotten_before_a_request_pays_for_it(world: World) -> None:
    while world.now_ms <= SILENT_MS:
        world.now_ms += INTERVAL_MS
        world.say("b")
    assert world.choices(2) == ["b", "b"]
    assert world.view.num_lost == {"late": 0, "gone": 0, "silent": 1}


def test_any_of_the_group_is_asked_when_all_are_silent(world: World) -> None:
    world.now_ms += SILENT_MS + 1
    assert world.choices(2) == [ANY, ANY]

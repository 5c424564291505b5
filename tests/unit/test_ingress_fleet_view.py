from typing import Any

import pytest

from sub100_ingress.fleet_view import FleetView, heartbeat_of
from sub100_proto import codec
from sub100_proto.fleet import Heartbeat, Load
from sub100_proto.subjects import Role
from sub100_shared.bus import Incoming


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


def beat(worker: str, role: Role, *, running: int = 0, waiting: int = 0, **fields: Any) -> Heartbeat:
    return Heartbeat(
        worker_id=worker,
        role=role,
        epoch=1,
        layout="l",
        block_size=32,
        num_blocks=64,
        max_model_len=4096,
        max_num_seqs=4,
        max_chunk_tokens=2048,
        load=Load(num_running=running, num_waiting=waiting),
        **{"state": "ready", "model": "m", **fields},
    )


def view(*beats: Heartbeat) -> FleetView:
    made = FleetView(Clock())
    for each in beats:
        made.on_heartbeat(each)
    return made


def test_heartbeat_that_cannot_be_read_is_none() -> None:
    told = beat("p", "prefill")
    assert heartbeat_of(Incoming("s", codec.encode(told), "", {})) == told
    assert heartbeat_of(Incoming("s", b"junk", "", {})) is None


@pytest.mark.parametrize(
    ("beats", "headroom", "quiet"),
    [
        ([], True, True),
        ([beat("p", "prefill"), beat("d", "decode")], True, True),
        ([beat("p", "prefill", running=1), beat("d", "decode", running=3)], True, False),
        ([beat("p", "prefill", waiting=1), beat("d", "decode")], False, False),
        ([beat("p", "prefill"), beat("d", "decode", running=4)], False, False),
        ([beat("p", "prefill", waiting=1), beat("p2", "prefill"), beat("d", "decode")], True, False),
        ([beat("p", "prefill"), beat("p2", "prefill", waiting=9, state="draining")], True, True),
    ],
)
def test_view_tells_room_and_quiet(beats: list[Heartbeat], headroom: bool, quiet: bool) -> None:
    seen = view(*beats)
    assert (seen.has_headroom(), seen.is_quiet()) == (headroom, quiet)


def test_worker_that_stops_beating_is_forgotten() -> None:
    clock = Clock()
    seen = FleetView(clock)
    seen.on_heartbeat(beat("p", "prefill", waiting=1))
    assert not seen.has_headroom()
    clock.now_ms = 2001
    assert seen.has_headroom()


def test_weights_are_those_of_the_models_ready_workers() -> None:
    seen = view(
        beat("p", "prefill", revision="a"),
        beat("d", "decode", revision="a"),
        beat("new", "decode", revision="b", state="starting"),
        beat("else", "decode", revision="c", model="another"),
    )
    assert seen.weights("m") == {"a"}
    assert seen.weights("another") == {"c"}
    assert seen.weights("unheard of") == frozenset()


def test_weights_change_with_the_workers_and_stay_while_there_are_none() -> None:
    seen = view(beat("p", "prefill", revision="a"), beat("q", "prefill", revision="b"))
    assert seen.weights("m") == {"a", "b"}
    seen.on_heartbeat(beat("p", "prefill", revision="a", state="draining"))
    assert seen.weights("m") == {"b"}
    seen.on_heartbeat(beat("q", "prefill", revision="b", state="draining"))
    assert seen.weights("m") == {"b"}

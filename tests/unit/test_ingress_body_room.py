"""How many bytes of bodies are held at once."""

import contextlib

import pytest

from sub100_ingress.body_room import BodyRoom
from sub100_shared.errors import Refused


def refused(room: BodyRoom, tenant: str, num_bytes: int) -> str:
    """The code with which a body of this size is refused; empty if there is room."""
    try:
        with room.hold(tenant) as take:
            take(num_bytes)
    except Refused as error:
        return error.code
    return ""


def test_room_holds_a_fourth_for_each_tenant_and_no_more_than_all() -> None:
    room = BodyRoom(400, 50)
    with contextlib.ExitStack() as held:
        for tenant in "abcd":
            take = held.enter_context(room.hold(tenant))
            take(60)
            with pytest.raises(Refused) as error:
                take(41)
            assert error.value.code == "tenant_concurrency_exceeded"
            take(40)
        assert refused(room, "e", 1) == "queue_full"
        assert refused(room, "a", 1) == "tenant_concurrency_exceeded"
        assert room.num_bytes == 400
    assert room.num_bytes == 0
    assert refused(room, "a", 100) == ""


def test_room_is_given_back_after_an_error() -> None:
    room = BodyRoom(400, 50)
    for _ in range(9):
        with contextlib.suppress(ZeroDivisionError), room.hold("a") as take:
            take(100)
            raise ZeroDivisionError
    assert room.num_bytes == 0


def test_room_always_holds_one_body_of_the_largest_size() -> None:
    room = BodyRoom(10, 100)
    assert refused(room, "a", 100) == ""
    assert refused(room, "a", 101) == "tenant_concurrency_exceeded"

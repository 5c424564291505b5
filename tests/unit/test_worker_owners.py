"""Whose ingress is gone, by its status messages."""

from sub100_engine.worker.owners import LEASE_S, MAX_OWNERS, Owners

INTERVAL_S = 0.5
LEASE_MS = LEASE_S * 1e3


class Lab:
    """Owners on a clock that the test moves."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.owners = Owners(lambda: self.ms, INTERVAL_S)

    def after(self, ms: float, *, heard: str = "") -> list[str]:
        """Time passes with a look every half second, as in life; who was found gone."""
        end, gone = self.ms + ms, list[str]()
        while self.ms < end:
            self.ms = min(end, self.ms + INTERVAL_S * 1e3)
            if heard:
                self.owners.on_status(heard, "ready")
            gone += self.owners.take_gone()
        return gone


def test_owner_is_gone_once_when_its_lease_has_ended() -> None:
    lab = Lab()
    lab.owners.on_status("a", "ready")
    lab.owners.on_status("b", "ready")
    assert lab.after(LEASE_MS, heard="b") == []
    assert lab.after(1_000, heard="b") == ["a"]
    assert lab.after(10 * LEASE_MS, heard="b") == []


def test_owner_that_says_that_it_stopped_is_gone_at_once_unless_it_is_back() -> None:
    lab = Lab()
    for owner in ("a", "b"):
        lab.owners.on_status(owner, "draining")
        lab.owners.on_status(owner, "stopped")
    lab.owners.on_status("b", "starting")
    assert lab.owners.take_gone() == ["a"]
    assert lab.owners.take_gone() == []


def test_owner_is_not_gone_while_nobody_could_be_heard() -> None:
    lab = Lab()
    lab.owners.on_status("a", "ready")
    lab.ms += 10 * LEASE_MS  # this process stood still
    assert lab.owners.take_gone() == []
    assert lab.after(LEASE_MS - 500) == []
    lab.owners.excuse()  # the bus is back
    assert lab.after(LEASE_MS) == []
    assert lab.after(1_000) == ["a"]


def test_owner_that_comes_back_has_a_new_lease() -> None:
    lab = Lab()
    lab.owners.on_status("a", "ready")
    assert lab.after(LEASE_MS + 1_000) == ["a"]
    lab.owners.on_status("a", "ready")
    assert lab.after(LEASE_MS) == []
    assert lab.after(1_000) == ["a"]


def test_owners_are_bounded() -> None:
    lab = Lab()
    for number in range(MAX_OWNERS + 5):
        lab.owners.on_status(f"o{number}", "ready")
    lab.owners.on_status("o0", "ready")
    assert len(lab.after(2 * LEASE_MS)) == MAX_OWNERS

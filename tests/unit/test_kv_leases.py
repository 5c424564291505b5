"""Pinned blocks: who may read them, until when, and that they are told free exactly once."""

import pytest

from sub100_engine.vllm.leases import Ended, Lease, LeaseOver, Leases


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def leases(clock: Clock) -> Leases:
    leases = Leases(30.0, clock)
    leases.pin("key", "request", b"prompt", (3, 1, 2))
    return leases


def outcome_of(leases: Leases, key: str) -> str:
    with pytest.raises(LeaseOver) as over:
        leases.open(key)
    return over.value.outcome


def test_lease_names_the_blocks_in_order(leases: Leases) -> None:
    lease = leases.open("key")
    with leases.reading(lease) as block_ids:
        assert block_ids == (3, 1, 2)


def test_unknown_key_fails_at_once(leases: Leases) -> None:
    assert outcome_of(leases, "another") == ""


def test_pulled_key_is_told_free_once_and_remembered(leases: Leases) -> None:
    assert leases.end("key", "pulled") is True
    assert leases.end("key", "released") is False
    assert leases.take_ended() == [Ended("key", "request", "pulled", 3)]
    assert leases.take_ended() == []
    assert outcome_of(leases, "key") == "pulled"


def test_lease_ends_when_its_time_is_up(leases: Leases, clock: Clock) -> None:
    clock.now_s += 29.9
    assert leases.take_ended() == []
    clock.now_s += 0.1
    assert leases.take_ended() == [Ended("key", "request", "expired", 3)]
    assert outcome_of(leases, "key") == "expired"


def test_expired_key_is_refused_before_anybody_swept(leases: Leases, clock: Clock) -> None:
    clock.now_s += 30.0
    assert outcome_of(leases, "key") == "expired"
    assert leases.take_ended() == [Ended("key", "request", "expired", 3)]


def test_blocks_stay_while_they_are_read_though_the_lease_ended(leases: Leases, clock: Clock) -> None:
    lease = leases.open("key")
    with leases.reading(lease):
        clock.now_s += 31.0
        assert leases.take_ended() == []
    assert leases.take_ended() == [Ended("key", "request", "expired", 3)]
    with pytest.raises(LeaseOver), leases.reading(lease):
        pass


def test_blocks_stay_until_the_last_reader_is_done(leases: Leases) -> None:
    lease = leases.open("key")
    with leases.reading(lease):
        with leases.reading(lease):
            leases.end("key", "pulled")
        assert leases.take_ended() == []
    assert leases.take_ended() == [Ended("key", "request", "pulled", 3)]


def test_discarded_lease_is_not_told_free(leases: Leases) -> None:
    leases.end("key", "discarded")
    assert leases.take_ended() == []
    assert outcome_of(leases, "key") == "discarded"


def test_release_that_overtakes_its_lease_ends_it_at_once(leases: Leases) -> None:
    leases.end("early", "released")
    leases.pin("early", "other", b"", (7,))
    assert leases.take_ended() == [Ended("early", "other", "released", 1)]


def test_remaining_time_never_is_negative(leases: Leases, clock: Clock) -> None:
    lease: Lease = leases.open("key")
    assert leases.remaining_s(lease) == 30.0
    clock.now_s += 40.0
    assert leases.remaining_s(lease) == 0.0

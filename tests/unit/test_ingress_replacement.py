"""What a lost attempt means for its request."""

from typing import Any

import pytest

from sub100_ingress.attempts import AttemptLost, Reached
from sub100_ingress.replacement import Replacement, Then, error_of, is_to_avoid, puller_at_fault
from sub100_proto.placement import WorkerRef
from sub100_shared.errors import ClientError, Evicted, Refused

MAX_ATTEMPTS = 3


def lost(worker: str = "w1", code: str = "worker_lost", **facts: Any) -> AttemptLost:
    return AttemptLost(WorkerRef(worker_id=worker, epoch=1), code, **{"elsewhere": True, **facts})


def nobody(worker: str) -> AttemptLost:
    return lost(worker, reached=Reached.NOBODY)


def after(policy: Replacement, loss: AttemptLost, *, begun: bool = False, fruitful: bool = False) -> Then:
    return policy.after(loss, has_begun=begun, is_fruitful=fruitful)


def test_replacement_ends_after_as_many_failures_in_a_row_as_are_allowed() -> None:
    policy = Replacement(MAX_ATTEMPTS)
    assert [after(policy, lost()) for _ in range(3)] == [Then.AT_ONCE, Then.AT_ONCE, Then.THE_END]


def test_replacement_counts_anew_after_an_attempt_that_brought_tokens() -> None:
    policy = Replacement(MAX_ATTEMPTS)
    for _ in range(10):
        assert after(policy, lost(), begun=True) is Then.AT_ONCE
        assert after(policy, lost(), begun=True, fruitful=True) is Then.AT_ONCE


@pytest.mark.parametrize("begun", [False, True])
def test_replacement_meets_each_worker_that_is_gone_once_and_for_nothing(begun: bool) -> None:
    policy = Replacement(MAX_ATTEMPTS)
    gone = [nobody(f"w{number}") for number in range(20)]
    assert {after(policy, loss, begun=begun) for loss in gone} == {Then.AT_ONCE}
    assert [after(policy, lost(), begun=begun) for _ in range(3)][-1] is Then.THE_END


def test_replacement_of_a_worker_that_is_gone_again_and_again_ends_or_pauses() -> None:
    fresh, begun = Replacement(MAX_ATTEMPTS), Replacement(MAX_ATTEMPTS)
    assert [after(fresh, nobody("w1")) for _ in range(4)][-1] is Then.THE_END
    assert [after(begun, nobody("w1"), begun=True) for _ in range(40)][1:] == [Then.AFTER_A_PAUSE] * 39


def test_replacement_pauses_for_a_busy_worker_only_when_the_answer_has_begun() -> None:
    busy = lost(code="queue_full", reached=Reached.A_REFUSAL)
    fresh, begun = Replacement(MAX_ATTEMPTS), Replacement(MAX_ATTEMPTS)
    assert [after(fresh, busy) for _ in range(3)] == [Then.AT_ONCE, Then.AT_ONCE, Then.THE_END]
    assert [after(begun, busy, begun=True) for _ in range(40)] == [Then.AFTER_A_PAUSE] * 40


@pytest.mark.parametrize("code", ["invalid_grammar", "slow_client", "context_length_exceeded"])
def test_replacement_is_none_for_what_is_the_clients_fault(code: str) -> None:
    assert after(Replacement(MAX_ATTEMPTS), lost(code=code, elsewhere=False), begun=True) is Then.THE_END


def test_replacement_is_none_where_no_other_worker_may_go_on() -> None:
    assert after(Replacement(MAX_ATTEMPTS), lost(code="internal_error", elsewhere=False)) is Then.THE_END


@pytest.mark.parametrize(
    ("code", "is_at_fault"),
    [
        ("worker_lost", True),
        ("queue_full", True),
        ("kv_expired", False),
        ("kv_load_failed", False),
        ("attempt_unknown", False),
    ],
)
def test_worker_is_avoided_only_for_its_own_faults(code: str, is_at_fault: bool) -> None:
    assert is_to_avoid(lost(code=code)) is is_at_fault


def test_puller_is_at_fault_only_when_it_has_tried() -> None:
    assert puller_at_fault(lost("d1", code="kv_load_failed")) == "d1"
    assert puller_at_fault(lost("d1", code="kv_expired")) == ""


def test_error_of_a_loss_names_the_field_that_asked_for_the_grammar() -> None:
    error = error_of(lost(code="invalid_grammar", elsewhere=False, reason="bad regex"), "response_format")
    assert isinstance(error, ClientError)
    assert (error.code, error.param, error.message) == (
        "invalid_grammar",
        "response_format",
        "response_format: bad regex",
    )


def test_error_of_a_loss_says_whether_anything_was_done() -> None:
    assert isinstance(error_of(nobody("w1"), None), Refused)
    assert isinstance(error_of(lost(code="queue_full", reached=Reached.A_REFUSAL), None), Refused)
    assert isinstance(error_of(lost(), None), Evicted)

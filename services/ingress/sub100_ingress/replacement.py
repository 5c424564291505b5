"""What a lost attempt means for its request: another place at once, after a pause, or an error. Pure.

Three kinds of loss. *Nobody was there*: several workers may be gone at once (their machine is), so each is
met once and costs nothing but that. *Not taken*: nothing was done; a stream that has begun waits for whoever
takes it, a request that has not is told to try again. *Failed*: work is lost, and ``max_attempts`` in a row
that brought no token end the answer.
"""

import enum
from typing import Final

from sub100_proto.placement import WorkerRef
from sub100_shared.errors import CLIENT_CODES, ClientError, Evicted, Refused, Sub100Error

from .attempts import AttemptLost, Reached

_KV_GONE: Final = frozenset({"kv_load_failed", "kv_expired"})


class Then(enum.Enum):
    """What follows a loss."""

    AT_ONCE = enum.auto()
    AFTER_A_PAUSE = enum.auto()
    THE_END = enum.auto()


class Replacement:
    """Of one answer: it counts what was lost in a row."""

    def __init__(self, max_attempts: int) -> None:
        self._max_attempts = max_attempts
        self._num_fruitless = 0
        self._gone: set[WorkerRef] = set()

    def after(self, lost: AttemptLost, *, has_begun: bool, is_fruitful: bool) -> Then:
        """``has_begun``: the client has something of the answer; ``is_fruitful``: of this attempt, too."""
        if lost.code in CLIENT_CODES:
            return Then.THE_END
        if lost.reached is Reached.NOBODY and lost.worker not in self._gone:
            self._gone.add(lost.worker)
            return Then.AT_ONCE
        if lost.is_refusal and lost.elsewhere and has_begun:
            return Then.AFTER_A_PAUSE
        self._num_fruitless = 0 if is_fruitful else self._num_fruitless + 1
        may_go_on = lost.elsewhere and self._num_fruitless < self._max_attempts
        return Then.AT_ONCE if may_go_on else Then.THE_END


def is_to_avoid(lost: AttemptLost) -> bool:
    """Whether the worker is at fault: not where the KV was lost, nor where the job was on its way."""
    return lost.code not in _KV_GONE and lost.code != "attempt_unknown"


def is_kv_gone(lost: AttemptLost) -> bool:
    return lost.code in _KV_GONE


def puller_at_fault(lost: AttemptLost) -> str:
    """Who could not load the KV; empty where nobody tried."""
    return lost.worker.worker_id if lost.code == "kv_load_failed" else ""


def error_of(lost: AttemptLost, structured_param: str | None) -> Sub100Error:
    """What the client is told. ``structured_param`` is the field that asked for a grammar, if one did."""
    if lost.code == "slow_client":
        return ClientError(lost.code, "the client reads too slowly")
    if lost.code in CLIENT_CODES:  # what only a worker could find wrong with the request
        param = structured_param if lost.code == "invalid_grammar" else None
        reason = lost.reason or "the engine refuses the request"
        return ClientError(lost.code, f"{param}: {reason}" if param else reason, param=param)
    if lost.is_refusal:
        return not_taken(lost)
    return Evicted(lost.code, f"the worker was lost ({lost.code})")


def not_taken(lost: AttemptLost) -> Refused:
    return Refused(lost.code, "no worker has taken the job: nothing was done, try again")

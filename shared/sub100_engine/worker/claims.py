"""Whether a worker takes a job: the last arbiter, pure."""

from collections import OrderedDict
from typing import Final

import msgspec

_MAX_EARLY_ABORTS: Final = 4096


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What may be in a worker at once, running ones included; counted in requests and in prompt tokens."""

    max_jobs: int
    max_tokens: int


class Claims:
    """Jobs in the worker, by attempt. ``refusal`` first, then ``take``, and ``end`` once."""

    def __init__(self, limits: Limits, epoch: int) -> None:
        self._limits = limits
        self._tokens_by_attempt: dict[str, int] = {}
        self._num_tokens = 0
        self._early_aborts: OrderedDict[str, None] = OrderedDict()
        self.epoch = epoch
        self.is_draining = False

    def __len__(self) -> int:
        return len(self._tokens_by_attempt)

    def __contains__(self, attempt: str) -> bool:
        return attempt in self._tokens_by_attempt

    def attempts(self) -> list[str]:
        return list(self._tokens_by_attempt)

    def refusal(self, attempt: str, epoch: int, num_tokens: int) -> str:
        """Why the job is not taken (a code of shared.errors); empty to take it.

        One job is always taken by an empty worker, however long, so that the token bound starves nobody.
        """
        if self.is_draining:
            return "draining"
        if epoch != self.epoch:
            return "stale_epoch"
        if attempt in self._tokens_by_attempt:
            return "duplicate_attempt"
        if len(self) >= self._limits.max_jobs:
            return "queue_full"
        if self._num_tokens and self._num_tokens + num_tokens > self._limits.max_tokens:
            return "queue_full"
        return ""

    def take(self, attempt: str, num_tokens: int) -> bool:
        """Count the job; False if its abort came first: it must not run."""
        if attempt in self._early_aborts:
            del self._early_aborts[attempt]
            return False
        self._tokens_by_attempt[attempt] = num_tokens
        self._num_tokens += num_tokens
        return True

    def end(self, attempt: str) -> bool:
        """Give the job's place back; False if it had none (any more)."""
        num_tokens = self._tokens_by_attempt.pop(attempt, None)
        if num_tokens is None:
            return False
        self._num_tokens -= num_tokens
        return True

    def remember_abort(self, attempt: str) -> None:
        """An abort without a job: it may have overtaken it. The last few thousand are remembered."""
        self._early_aborts[attempt] = None
        while len(self._early_aborts) > _MAX_EARLY_ABORTS:
            self._early_aborts.popitem(last=False)

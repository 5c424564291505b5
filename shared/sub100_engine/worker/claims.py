"""Whether a worker takes a job: the last arbiter, pure.

The book counts what the heartbeat tells and the scheduler's policy reads: jobs until they end, and a
prompt's tokens until its first token is there. A running stream queues nothing: how many of them fit is the
engine's to say, by its batch and its KV.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from sub100_proto.fleet import Limits

_MAX_EARLY_ABORTS: Final = 4096


class Claims:
    """Jobs in the worker, by attempt. ``refusal`` first, then ``take``, ``answered`` at the first token, and
    ``end`` once."""

    def __init__(self, limits: Limits, epoch: int) -> None:
        self._limits = limits
        self._queued_tokens_by_attempt: dict[str, int] = {}
        self._early_aborts: OrderedDict[str, None] = OrderedDict()
        self.num_queued_tokens = 0
        self.epoch = epoch
        self.is_draining = False

    def __len__(self) -> int:
        return len(self._queued_tokens_by_attempt)

    def __contains__(self, attempt: str) -> bool:
        return attempt in self._queued_tokens_by_attempt

    def attempts(self) -> list[str]:
        return list(self._queued_tokens_by_attempt)

    @property
    def queued_tokens_by_attempt(self) -> Mapping[str, int]:
        """Of each job; 0 for one that runs."""
        return self._queued_tokens_by_attempt

    def refusal(self, attempt: str, epoch: int, num_tokens: int) -> str:
        """Why the job is not taken (a code of shared.errors); empty to take it. ``num_tokens`` are to be
        computed: none where the job brings its KV."""
        if self.is_draining:
            return "draining"
        if epoch != self.epoch:
            return "stale_epoch"
        if attempt in self:
            return "duplicate_attempt"
        if self._limits.is_full(len(self), self.num_queued_tokens, num_tokens):
            return "queue_full"
        return ""

    def take(self, attempt: str, num_tokens: int) -> bool:
        """Count the job; False if its abort came first: it must not run."""
        if attempt in self._early_aborts:
            del self._early_aborts[attempt]
            return False
        self._queued_tokens_by_attempt[attempt] = num_tokens
        self.num_queued_tokens += num_tokens
        return True

    def answered(self, attempt: str) -> None:
        """Its first token is there: from now on the job runs. Idempotent."""
        if attempt in self:
            self.num_queued_tokens -= self._queued_tokens_by_attempt[attempt]
            self._queued_tokens_by_attempt[attempt] = 0

    def end(self, attempt: str) -> bool:
        """Give the job's place back; False if it had none (any more)."""
        num_tokens = self._queued_tokens_by_attempt.pop(attempt, None)
        if num_tokens is None:
            return False
        self.num_queued_tokens -= num_tokens
        return True

    def remember_abort(self, attempt: str) -> None:
        """An abort without a job: it may have overtaken it. The last few thousand are remembered."""
        self._early_aborts[attempt] = None
        while len(self._early_aborts) > _MAX_EARLY_ABORTS:
            self._early_aborts.popitem(last=False)

"""Which KV blocks are pinned for which key, until when, and why they were let go.

A lease ends once: ``pulled``, ``expired``, ``released`` (nobody wants it), ``unneeded`` (its decode worker
found all of it in its own cache) or ``discarded`` (its request ended without a hand-over). Keys that ended
are remembered as tombstones for a while, so that a late puller is told at once. Blocks are reported free
exactly once and never while a thread reads them: a reader that is overtaken by the end finishes its copy, and
its next ``reading`` raises.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

Outcome = Literal["pulled", "expired", "released", "unneeded", "discarded"]

_MAX_TOMBSTONES: Final = 4096


class LeaseOver(LookupError):
    """The key names nothing that could be read: it ended (``outcome``) or never was (``outcome`` empty)."""

    def __init__(self, outcome: Outcome | Literal[""]) -> None:
        super().__init__(f"KV is gone: {outcome or 'unknown key'}")
        self.outcome = outcome


@dataclass
class Lease:
    """``owner`` is the engine's request whose blocks these are; ``prompt`` fingerprints its tokens."""

    key: str
    owner: str
    prompt: bytes
    block_ids: tuple[int, ...]
    ends_at_s: float
    num_readers: int = 0
    outcome: Outcome | Literal[""] = ""


@dataclass(frozen=True)
class Ended:
    """A lease whose blocks may be used again."""

    key: str
    owner: str
    outcome: Outcome
    num_blocks: int


@dataclass
class _State:
    live: dict[str, Lease] = field(default_factory=dict)
    tombstones: OrderedDict[str, Outcome] = field(default_factory=OrderedDict)
    ended: list[Ended] = field(default_factory=list)


class Leases:
    """Thread-safe. ``clock`` gives monotonic seconds. ``on_ended`` is called when ``take_ended`` has
    something to give, unless it is time alone that brought it about."""

    def __init__(
        self, lease_s: float, clock: Callable[[], float], on_ended: Callable[[], None] = lambda: None
    ) -> None:
        self.lease_s = lease_s
        self._clock = clock
        self._on_ended = on_ended
        self._lock = threading.Lock()
        self._state = _State()

    def pin(self, key: str, owner: str, prompt: bytes, block_ids: tuple[int, ...]) -> None:
        """Start a lease; one that was released before (the client left early) ends at once."""
        with self._lock:
            lease = Lease(key, owner, prompt, block_ids, self._clock() + self.lease_s)
            self._state.live[key] = lease
            outcome = self._state.tombstones.get(key)
            if outcome is not None:
                self._end(lease, outcome)

    def open(self, key: str) -> Lease:
        """The lease of a key; raises LeaseOver."""
        with self._lock:
            lease = self._state.live.get(key)
            if lease is not None and self._clock() >= lease.ends_at_s:
                self._end(lease, "expired")
                lease = None
            if lease is None:
                raise LeaseOver(self._state.tombstones.get(key, ""))
            return lease

    def remaining_s(self, lease: Lease) -> float:
        return max(0.0, lease.ends_at_s - self._clock())

    @contextmanager
    def reading(self, lease: Lease) -> Iterator[tuple[int, ...]]:
        """The lease's blocks, which stay pinned inside the ``with``; raises LeaseOver."""
        with self._lock:
            if lease.outcome:
                raise LeaseOver(lease.outcome)
            lease.num_readers += 1
        try:
            yield lease.block_ids
        finally:
            with self._lock:
                lease.num_readers -= 1
                if lease.outcome and not lease.num_readers:
                    self._free(lease)

    def end(self, key: str, outcome: Outcome) -> bool:
        """Let go of a key; False if it is not held (any more). A release is remembered even then."""
        with self._lock:
            lease = self._state.live.get(key)
            if lease is None:
                if outcome in ("released", "unneeded"):
                    self._bury(key, outcome)
                return False
            self._end(lease, outcome)
            return True

    def take_ended(self) -> list[Ended]:
        """Leases that ended since the last call, those whose time is up included. Discarded ones are not
        among them: the engine frees those blocks itself."""
        with self._lock:
            now = self._clock()
            for lease in [lease for lease in self._state.live.values() if now >= lease.ends_at_s]:
                self._end(lease, "expired")
            ended, self._state.ended = self._state.ended, []
            return ended

    def __len__(self) -> int:
        with self._lock:
            return len(self._state.live)

    def _end(self, lease: Lease, outcome: Outcome) -> None:
        del self._state.live[lease.key]
        lease.outcome = outcome
        self._bury(lease.key, outcome)
        if not lease.num_readers:
            self._free(lease)

    def _bury(self, key: str, outcome: Outcome) -> None:
        self._state.tombstones.setdefault(key, outcome)
        if len(self._state.tombstones) > _MAX_TOMBSTONES:
            self._state.tombstones.popitem(last=False)

    def _free(self, lease: Lease) -> None:
        if lease.outcome and lease.outcome != "discarded":
            self._state.ended.append(Ended(lease.key, lease.owner, lease.outcome, len(lease.block_ids)))
            self._on_ended()

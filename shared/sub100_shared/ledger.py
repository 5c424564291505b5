"""The TTFT budget ledger of one request: total, allotments, what each hop spent, and who is to blame.

Kept at ingress on ingress's own monotonic clock. A hop is an interval from *sent* to *answered*; of it
the callee reports its own time, and what is left is the bus. Hops may overlap (a look-up beside
scheduling), so the account is taken over the **critical path**: from the first content byte backwards,
the hop that ended last before the current point, then on from that hop's start. Gaps are ingress's own.
The segments of the path therefore sum to the TTFT exactly; hops beside it are *hidden*.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from sub100_proto.budget import Budget

from .clock import Clock
from .semconv import HOP_CACHE, HOP_INGRESS, HOP_NETWORK, HOP_PREFILL, HOP_SCHEDULE

DEFAULT_TOTAL_MS: Final = 100.0
DEFAULT_SPLIT: Final[Mapping[str, float]] = {
    HOP_NETWORK: 0.20,
    HOP_INGRESS: 0.05,
    HOP_CACHE: 0.10,
    HOP_SCHEDULE: 0.05,
    HOP_PREFILL: 0.60,
}
"""Shares of the total. The reference budget is network 20, edge and ingress 5, prefill 40 and 20 until the
first token is out (one hop here: prefill emits the token), the rest slack given to cache and schedule."""

_TRANSIT_MS: Final = 0.2
"""Expected one-way transit of the bus, taken off what remains when a budget is sent."""


def split_of(text: str) -> Mapping[str, float]:
    """The default split with what ``text`` changes of it: ``"prefill=0.5,cache=0.2"``.

    Raises ValueError for a hop that is none, a share outside 0..1, or shares that exceed the whole.
    """
    return changed_split(dict(_share(entry) for entry in text.split(",") if entry.strip()))


def changed_split(shares: Mapping[str, float]) -> Mapping[str, float]:
    """As ``split_of``, of shares that are numbers already."""
    for name, share in shares.items():
        if name not in DEFAULT_SPLIT:
            raise ValueError(f"no hop {name!r} (hops: {', '.join(DEFAULT_SPLIT)})")
        if not 0 <= share <= 1:
            raise ValueError(f"the share of {name} must be from 0 to 1")
    split = {**DEFAULT_SPLIT, **shares}
    if sum(split.values()) > 1 + 1e-9:
        raise ValueError(f"the shares sum to {sum(split.values()):g}, more than the whole budget")
    return split


def _share(entry: str) -> tuple[str, float]:
    name, _, share = entry.partition("=")
    try:
        return name.strip(), float(share)
    except ValueError:
        raise ValueError(f"{entry.strip()!r} is not hop=share") from None


class Hop(msgspec.Struct, kw_only=True):
    """One interval on ingress's clock, in milliseconds since arrival."""

    name: str
    allotted_ms: float
    start_ms: float
    end_ms: float | None = None
    own_ms: float | None = None
    is_unused: bool = False
    """Nothing waited for its result, whenever it ended: never on the critical path."""

    @property
    def spent_ms(self) -> float:
        """Sent to answered; 0 while open."""
        return 0.0 if self.end_ms is None else self.end_ms - self.start_ms

    @property
    def bus_ms(self) -> float:
        """What the callee does not account for; 0 if it reported nothing."""
        return 0.0 if self.own_ms is None else max(0.0, self.spent_ms - self.own_ms)

    @property
    def overrun_ms(self) -> float:
        return max(0.0, self.spent_ms - self.allotted_ms)


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the critical path."""

    name: str
    start_ms: float
    duration_ms: float
    allotted_ms: float
    hop: Hop | None = None
    """None for ingress's own time between hops."""


class Ledger:
    """Opens at arrival, closes at the first content byte. ``network_ms`` was spent before arrival."""

    def __init__(
        self,
        clock: Clock,
        *,
        total_ms: float = DEFAULT_TOTAL_MS,
        split: Mapping[str, float] = DEFAULT_SPLIT,
        network_ms: float = 0.0,
        arrived_at_ms: float | None = None,
    ) -> None:
        self._clock = clock
        self._split = split
        self._arrived_ms = clock() if arrived_at_ms is None else arrived_at_ms
        self.total_ms = total_ms
        self.network_ms = network_ms
        self.hops: list[Hop] = []
        self.ttft_ms: float | None = None
        """Arrival to first content byte; None until then, and for ever if no content came."""

    def elapsed_ms(self) -> float:
        """Since arrival."""
        return self._clock() - self._arrived_ms

    def remaining_ms(self) -> float:
        """Of the total; negative when late."""
        return self.total_ms - self.network_ms - self.elapsed_ms()

    def allotted_ms(self, hop: str) -> float:
        return self.total_ms * self._split.get(hop, 0.0)

    def open(self, name: str) -> Hop:
        """Start an interval at this moment."""
        hop = Hop(name=name, allotted_ms=self.allotted_ms(name), start_ms=self.elapsed_ms())
        self.hops.append(hop)
        return hop

    def close(self, hop: Hop, own_ms: float | None = None) -> None:
        """End an interval; ``own_ms`` is the callee's own time, cut to the interval."""
        if hop.end_ms is None:
            hop.end_ms = self.elapsed_ms()
            if own_ms is not None:
                hop.own_ms = min(max(0.0, own_ms), hop.spent_ms)

    def budget_for(self, hop: Hop) -> Budget:
        """What the receiver of this hop's message may spend."""
        return Budget(
            total_ms=self.total_ms,
            remaining_ms=self.remaining_ms() - _TRANSIT_MS,
            allotted_ms=hop.allotted_ms,
        )

    def first_content_byte(self) -> None:
        """Close the account; only the first call counts."""
        if self.ttft_ms is None:
            self.ttft_ms = self.elapsed_ms()

    def critical_path(self) -> list[Segment]:
        """Segments in time order that sum to the TTFT (to the time so far while it is open)."""
        at = self.elapsed_ms() if self.ttft_ms is None else self.ttft_ms
        closed = [(hop.end_ms, hop) for hop in self.hops if hop.end_ms is not None]
        closed.sort(key=lambda pair: pair[0], reverse=True)
        path: list[Segment] = []
        for end_ms, hop in closed:
            if end_ms > at or hop.spent_ms <= 0 or hop.is_unused:
                continue
            if at > end_ms:
                path.append(self._own(end_ms, at))
            path.append(
                Segment(
                    name=hop.name,
                    start_ms=hop.start_ms,
                    duration_ms=hop.spent_ms,
                    allotted_ms=hop.allotted_ms,
                    hop=hop,
                )
            )
            at = hop.start_ms
        if at > 0:
            path.append(self._own(0.0, at))
        path.reverse()
        return path

    def blame(self, path: Sequence[Segment] | None = None) -> str:
        """The critical hop with the largest overrun if the budget was missed; empty if it was met.

        Ingress's own segments count as one hop. Without any overrun the longest hop is blamed. ``path`` is
        the critical path, of whoever has it already.
        """
        spent: dict[str, float] = {HOP_NETWORK: self.network_ms} if self.network_ms else {}
        spent |= _spent_by_hop(self.critical_path() if path is None else path)
        if sum(spent.values()) <= self.total_ms or not spent:
            return ""
        overrun = {name: ms - self.allotted_ms(name) for name, ms in spent.items()}
        worst = max(overrun, key=overrun.__getitem__)
        return worst if overrun[worst] > 0 else max(spent, key=spent.__getitem__)

    def _own(self, start_ms: float, end_ms: float) -> Segment:
        return Segment(
            name=HOP_INGRESS,
            start_ms=start_ms,
            duration_ms=end_ms - start_ms,
            allotted_ms=self.allotted_ms(HOP_INGRESS),
        )


def server_timing(ledger: Ledger) -> str:
    """The ``Server-Timing`` header (W3C): the critical path's hops, in milliseconds."""
    spent = _spent_by_hop(ledger.critical_path())
    total = sum(spent.values())
    return ", ".join([*(f"{name};dur={ms:.2f}" for name, ms in spent.items()), f"ttft;dur={total:.2f}"])


def _spent_by_hop(path: Iterable[Segment]) -> dict[str, float]:
    spent: dict[str, float] = {}
    for segment in path:
        spent[segment.name] = spent.get(segment.name, 0.0) + segment.duration_ms
    return spent

"""Spans -> waterfall: a tree in display order, on a ruler that the budget sets. Pure.

Times are milliseconds from the moment the client sent its request: the start of the anchor (the request's
root span) less the network time before it. Spans of other processes are moved where their clock contradicts
their parent's (see clocks): an offset may be negative, a width never is.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from sub100_shared import semconv

from . import clocks, hops
from .spans import Span
from .summary import RequestSummary, summarise

FIRST_TOKEN_SHARE: Final = 72.0
"""Per cent of the width that belongs to the time up to the first token when more follows."""

_MAX_TICKS: Final = 6
_MIN_RULER_MS: Final = 0.001


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One span. ``is_orphan``: it names a parent that is not among the spans (not exported, or lost).

    ``account`` is set for ingress's hops; ``hop`` for what hangs below one, too. ``is_hidden``: a hop that
    the first token did not wait for, beside others; ``is_after``: one that began when it was out. ``attempt``
    numbers hops of one name where there are several. ``shift_ms``: by how much its clock was corrected.
    """

    span: Span
    depth: int
    offset_ms: float
    duration_ms: float
    is_orphan: bool = False
    account: hops.Hop | None = None
    hop: str = ""
    is_hidden: bool = False
    is_after: bool = False
    attempt: int = 0
    shift_ms: float = 0.0

    @property
    def is_critical(self) -> bool:
        return self.account is not None and self.account.is_critical

    @property
    def worker(self) -> str:
        """The worker that a hop went to. A scheduler's span names the one that it chose: not this."""
        return self.account.worker if self.account is not None else ""

    @property
    def own_ms(self) -> tuple[float, float]:
        """Start and width of the callee's own time inside a hop: the bus's is split before and after it."""
        if self.account is None:
            return self.offset_ms, self.duration_ms
        return self.offset_ms + self.account.bus_ms / 2, self.account.spent_ms - self.account.bus_ms


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the critical path: a hop, or ingress between hops, or the network before."""

    hop: str
    start_ms: float
    end_ms: float


class Ruler(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds -> per cent of the width.

    ``[0, first_ms]`` (the larger of budget and TTFT) is linear on the first FIRST_TOKEN_SHARE; what follows,
    up to ``total_ms``, is compressed into the rest. If nothing follows, the first part has it all.
    """

    first_ms: float
    total_ms: float

    @property
    def split(self) -> float:
        return FIRST_TOKEN_SHARE if self.total_ms > self.first_ms else 100.0

    def position(self, ms: float) -> float:
        """Clamped to 0..100: a skewed clock must not move the ruler."""
        if ms <= self.first_ms:
            return max(0.0, ms) / self.first_ms * self.split
        later = min(1.0, (ms - self.first_ms) / (self.total_ms - self.first_ms)) if self.split < 100 else 0.0
        return self.split + later * (100.0 - self.split)

    def bar(self, start_ms: float, length_ms: float) -> tuple[float, float]:
        """Left edge and width."""
        left = self.position(start_ms)
        return left, max(0.0, self.position(start_ms + length_ms) - left)

    def ticks(self) -> list[float]:
        """Round values in ``[0, first_ms]``, at most _MAX_TICKS + 1."""
        step = _round_step(self.first_ms / _MAX_TICKS)
        return [index * step for index in range(int(self.first_ms / step + 1e-9) + 1)]


class Waterfall(msgspec.Struct, frozen=True, kw_only=True):
    """``request`` is None for a trace in which no request's root span has arrived."""

    trace_id: str
    request: RequestSummary | None
    rows: list[Row]
    path: list[Segment]
    ruler: Ruler

    @property
    def max_shift_ms(self) -> float:
        """The largest correction of a clock, by amount."""
        return max((row.shift_ms for row in self.rows), key=abs, default=0.0)


def build(spans: Sequence[Span], request_span_id: str = "") -> Waterfall:
    """Arrange the spans of one trace; with ``request_span_id`` only what that request caused.

    ``spans`` must not be empty. Every span appears exactly once, also where parents are missing or point
    in a circle.
    """
    placed = list(_walk(spans))
    shifts = clocks.shifts([span for span, _, _ in placed])
    if request_span_id:
        placed = _subtree(placed, request_span_id) or placed
    requests = [(span, found) for span, _, _ in placed if (found := summarise(span)) is not None]
    anchor, request = requests[0] if requests else (placed[0][0], None)
    network_ms = request.network_ms if request is not None else 0.0
    origin_ns = anchor.start_ns + shifts[anchor.span_id] - int(network_ms * 1e6)
    rows = list(_rows(placed, shifts, origin_ns, request))
    return Waterfall(
        trace_id=anchor.trace_id,
        request=request,
        rows=rows,
        path=_path(rows, request),
        ruler=_ruler(rows, request),
    )


_Placed = tuple[Span, int, bool]


def _walk(spans: Sequence[Span]) -> Iterator[_Placed]:
    """Depth first, siblings by start. Roots first, then orphans, then what is left of circles."""
    by_id = {span.span_id: span for span in sorted(spans, key=lambda span: (span.start_ns, span.span_id))}
    children: dict[str, list[Span]] = {}
    for span in by_id.values():
        children.setdefault(span.parent_id, []).append(span)

    def is_orphan(span: Span) -> bool:
        """A request's root may have a parent of the client's that is never exported to us."""
        return bool(span.parent_id) and summarise(span) is None

    tops = [span for span in by_id.values() if span.parent_id not in by_id]
    tops.sort(key=lambda span: (is_orphan(span), span.start_ns))
    seen: set[str] = set()
    for top in (*tops, *by_id.values()):
        waiting = [(top, 0)]
        while waiting:
            span, depth = waiting.pop()
            if span.span_id in seen:
                continue
            seen.add(span.span_id)
            yield span, depth, depth == 0 and is_orphan(span)
            waiting.extend((child, depth + 1) for child in reversed(children.get(span.span_id, ())))


def _subtree(placed: Sequence[_Placed], span_id: str) -> list[_Placed]:
    """The span and what lies under it, the span itself at depth 0."""
    found: list[_Placed] = []
    for span, depth, is_orphan in placed:
        if span.span_id == span_id:
            base = depth
            found.append((span, 0, is_orphan))
        elif found and depth > base:
            found.append((span, depth - base, is_orphan))
        elif found:
            break
    return found


def _rows(
    placed: Sequence[_Placed], shifts: dict[str, int], origin_ns: int, request: RequestSummary | None
) -> Iterator[Row]:
    accounts = {span.span_id: hops.read(span) for span, _, _ in placed}
    names = [account.name for account in accounts.values() if account is not None]
    seen: dict[str, int] = {}
    hop_of: dict[str, str] = {}
    for span, depth, is_orphan in placed:
        account = accounts[span.span_id]
        offset_ms = (span.start_ns + shifts[span.span_id] - origin_ns) / 1e6
        hop = account.name if account is not None else hop_of.get(span.parent_id, "")
        hop_of[span.span_id] = hop
        is_beside = account is not None and not account.is_critical
        spent_ms = request.spent_ms if request is not None else None
        is_after = is_beside and spent_ms is not None and offset_ms >= spent_ms
        if account is not None:
            seen[hop] = seen.get(hop, 0) + 1
        yield Row(
            span=span,
            depth=depth,
            offset_ms=offset_ms,
            duration_ms=span.duration_ms,
            is_orphan=is_orphan,
            account=account,
            hop=hop,
            is_hidden=is_beside and not is_after,
            is_after=is_after,
            attempt=seen[hop] if account is not None and names.count(hop) > 1 else 0,
            shift_ms=shifts[span.span_id] / 1e6,
        )


def _path(rows: Sequence[Row], request: RequestSummary | None) -> list[Segment]:
    """Pieces in order from 0 to network + TTFT, none negative, no gap; empty if no content came."""
    if request is None or request.spent_ms is None:
        return []
    end_ms = request.spent_ms
    pieces: list[Segment] = []
    at_ms = request.network_ms
    if at_ms:
        pieces.append(Segment(hop=semconv.HOP_NETWORK, start_ms=0.0, end_ms=at_ms))
    critical = [(row, row.account) for row in rows if row.account is not None and row.is_critical]
    for row, account in sorted(critical, key=lambda pair: pair[0].offset_ms):
        start_ms = min(max(row.offset_ms, at_ms), end_ms)
        stop_ms = min(max(row.offset_ms + account.spent_ms, start_ms), end_ms)
        if start_ms > at_ms:
            pieces.append(Segment(hop=semconv.HOP_INGRESS, start_ms=at_ms, end_ms=start_ms))
        pieces.append(Segment(hop=row.hop, start_ms=start_ms, end_ms=stop_ms))
        at_ms = stop_ms
    if at_ms < end_ms:
        pieces.append(Segment(hop=semconv.HOP_INGRESS, start_ms=at_ms, end_ms=end_ms))
    return pieces


def _ruler(rows: Sequence[Row], request: RequestSummary | None) -> Ruler:
    end_ms = max(row.offset_ms + row.duration_ms for row in rows)
    first_ms = max(request.budget_ms or 0.0, request.spent_ms or 0.0) if request is not None else 0.0
    if first_ms < _MIN_RULER_MS:
        first_ms = max(end_ms, _MIN_RULER_MS)
    return Ruler(first_ms=first_ms, total_ms=max(first_ms, end_ms))


def _round_step(at_least: float) -> float:
    """The smallest 1, 2 or 5 times a power of ten that is not below ``at_least``."""
    power = 1.0
    while power > at_least:
        power /= 10
    while power * 10 < at_least:
        power *= 10
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= at_least * (1 - 1e-9))

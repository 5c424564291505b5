"""Spans -> waterfall: a tree in display order, on a ruler that the budget sets. Pure.

Times are milliseconds from the start of the anchor, the request's root span. Clocks of processes differ
and are not corrected: an offset may be negative, a width never is.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from sub100_shared import semconv

from .spans import Span, number, text
from .summary import RequestSummary, summarise

FIRST_TOKEN_SHARE: Final = 72.0
"""Per cent of the width that belongs to the time up to the first token when more follows."""

_MAX_TICKS: Final = 6
_MIN_RULER_MS: Final = 0.001


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One span. ``is_orphan``: it names a parent that is not among the spans (not exported, or lost)."""

    span: Span
    depth: int
    offset_ms: float
    duration_ms: float
    is_orphan: bool
    is_critical: bool
    hop: str
    allotted_ms: float | None
    spent_ms: float | None
    overrun_ms: float | None


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

    def bar(self, row: Row) -> tuple[float, float]:
        """Left edge and width of a row's bar."""
        left = self.position(row.offset_ms)
        return left, max(0.0, self.position(row.offset_ms + row.duration_ms) - left)

    def ticks(self) -> list[float]:
        """Round values in ``[0, first_ms]``, at most _MAX_TICKS + 1."""
        step = _round_step(self.first_ms / _MAX_TICKS)
        return [index * step for index in range(int(self.first_ms / step + 1e-9) + 1)]


class Waterfall(msgspec.Struct, frozen=True, kw_only=True):
    """``request`` is None for a trace in which no request's root span has arrived."""

    trace_id: str
    request: RequestSummary | None
    rows: list[Row]
    ruler: Ruler


def build(spans: Sequence[Span], request_span_id: str = "") -> Waterfall:
    """Arrange the spans of one trace; with ``request_span_id`` only what that request caused.

    ``spans`` must not be empty. Every span appears exactly once, also where parents are missing or point
    in a circle.
    """
    placed = list(_walk(spans))
    if request_span_id:
        placed = _subtree(placed, request_span_id) or placed
    requests = [(span, found) for span, _, _ in placed if (found := summarise(span)) is not None]
    anchor, request = requests[0] if requests else (placed[0][0], None)
    rows = [_row(span, depth, is_orphan, anchor.start_ns) for span, depth, is_orphan in placed]
    return Waterfall(trace_id=anchor.trace_id, request=request, rows=rows, ruler=_ruler(rows, request))


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


def _row(span: Span, depth: int, is_orphan: bool, origin_ns: int) -> Row:
    attributes = span.attributes
    return Row(
        span=span,
        depth=depth,
        offset_ms=(span.start_ns - origin_ns) / 1e6,
        duration_ms=span.duration_ms,
        is_orphan=is_orphan,
        is_critical=attributes.get(semconv.CRITICAL) is True,
        hop=text(attributes, semconv.HOP),
        allotted_ms=number(attributes, semconv.ALLOTTED_MS),
        spent_ms=number(attributes, semconv.SPENT_MS),
        overrun_ms=number(attributes, semconv.OVERRUN_MS),
    )


def _ruler(rows: Sequence[Row], request: RequestSummary | None) -> Ruler:
    end_ms = max(row.offset_ms + row.duration_ms for row in rows)
    first_ms = max(request.budget_ms or 0.0, request.ttft_ms or 0.0) if request is not None else 0.0
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

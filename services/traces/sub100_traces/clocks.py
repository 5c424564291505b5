"""Where a span belongs when clocks of processes differ. Pure.

The parent's process saw its child begin after it had asked: a child of another process that begins before its
parent, or after its end, is told by another clock. It is moved into the middle of its parent (what is left
over is then the same on the way out and back, as for the bus), with all that hangs below it. Durations are
never touched.
"""

from collections.abc import Mapping, Sequence

from .spans import Span


def shifts(ordered: Sequence[Span]) -> dict[str, int]:
    """Nanoseconds to add to each span's times, by span id; ``ordered`` has parents before children."""
    by_id: dict[str, Span] = {}
    found: dict[str, int] = {}
    for span in ordered:
        parent = by_id.get(span.parent_id)
        shift_ns = found[parent.span_id] if parent is not None else 0
        if parent is not None and _is_foreign(span, parent):
            shift_ns = _aligned(span, parent, found)
        by_id[span.span_id] = span
        found[span.span_id] = shift_ns
    return found


def _is_foreign(span: Span, parent: Span) -> bool:
    return (span.service, span.instance) != (parent.service, parent.instance)


def _aligned(span: Span, parent: Span, found: Mapping[str, int]) -> int:
    begin_ns = parent.start_ns + found[parent.span_id]
    length_ns = max(0, parent.end_ns - parent.start_ns)
    if begin_ns <= span.start_ns <= begin_ns + length_ns:
        return 0
    spare_ns = max(0, length_ns - max(0, span.end_ns - span.start_ns))
    return begin_ns + spare_ns // 2 - span.start_ns

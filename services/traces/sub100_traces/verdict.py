"""The answer to "which hop spent my 100 ms?", in one sentence. Pure."""

from collections.abc import Sequence
from typing import Final

from sub100_shared import semconv

from .spans import text
from .summary import RequestSummary
from .waterfall import Row, Waterfall

_PHASES: Final = {
    semconv.ENGINE_QUEUE: "queue",
    semconv.ENGINE_COMPUTE: "compute",
    semconv.KV_TRANSFER: "KV transfer",
}
_MIN_SHARE: Final = 0.05
"""A part below this share of its hop explains nothing."""


def sentence(shown: Waterfall) -> str:
    """Without a full stop, as plain text; empty for a trace without a request."""
    request = shown.request
    if request is None:
        return ""
    if request.error:
        return f"failed with {request.error} after {ms(request.duration_ms)}"
    if request.spent_ms is None:
        return f"no content came in {ms(request.duration_ms)}"
    first = _first_token(request)
    return f"{explain(shown, request.blame)}; {first}" if request.blame else first


def explain(shown: Waterfall, hop: str) -> str:
    """What ``hop`` took of its allotment, and on what."""
    segments = [piece for piece in shown.path if piece.hop == hop]
    rows = [row for row in shown.rows if row.is_critical and row.hop == hop]
    spent_ms = sum(piece.end_ms - piece.start_ms for piece in segments)
    allotted_ms = max(
        (row.account.allotted_ms or 0.0 for row in rows if row.account is not None), default=0.0
    )
    text_ = f"{hop} took {ms(spent_ms)}"
    if allotted_ms:
        text_ += f" of its {allotted_ms:g}"
    reasons = _reasons(shown, rows, spent_ms)
    if len(rows) > 1:
        reasons.insert(0, f"{len(rows)} attempts")
    workers = list(dict.fromkeys(row.worker for row in rows if row.worker))
    where = f" on worker {', then '.join(workers)}" if workers else ""
    return f"{text_}: {', '.join(reasons)}{where}" if reasons else f"{text_}{where}"


def _reasons(shown: Waterfall, rows: Sequence[Row], spent_ms: float) -> list[str]:
    """The parts of these hops, largest first: the engine's phases and the bus."""
    parts: dict[str, float] = {}
    for row in rows:
        if row.account is not None:
            parts["bus"] = parts.get("bus", 0.0) + row.account.bus_ms
    under = {row.span.span_id for row in rows}
    for row in shown.rows:
        if row.span.parent_id in under:
            under.add(row.span.span_id)
            if label := _PHASES.get(row.span.name):
                parts[label] = parts.get(label, 0.0) + row.duration_ms
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return [f"{name} {ms(part_ms)}" for name, part_ms in ordered if part_ms >= spent_ms * _MIN_SHARE][:3]


def notes(shown: Waterfall) -> list[str]:
    """What else somebody should know before drawing conclusions."""
    found: list[str] = []
    if shown.request is not None and shown.request.num_attempts > 1 and not shown.request.blame:
        found.append(f"{shown.request.num_attempts} attempts")
    cancelled = any(
        row.depth == 0 and row.span.attributes.get(semconv.CANCELLED) is True for row in shown.rows
    )
    if cancelled:
        found.append("the client left before the end")
    if shown.max_shift_ms:
        found.append(f"clocks of processes differ by up to {ms(abs(shown.max_shift_ms))}: corrected here")
    if any(row.is_orphan for row in shown.rows):
        found.append("some parent spans are missing")
    return found


def ms(value: float) -> str:
    """As short as it can be said: ``0.42 ms``, ``8.3 ms``, ``61 ms``, ``12.4 s``."""
    if value >= 10_000:
        return f"{value / 1000:.1f} s"
    digits = 2 if value < 1 else 1 if value < 10 else 0
    return f"{value:.{digits}f} ms"


def finish(shown: Waterfall) -> str:
    """How the answer ended, as the root span tells it."""
    for row in shown.rows:
        if row.depth == 0:
            reasons = row.span.attributes.get(semconv.FINISH_REASONS)
            if isinstance(reasons, list):
                return ", ".join(str(reason) for reason in reasons[:4])
            return text(row.span.attributes, semconv.FINISH_REASONS)
    return ""


def _first_token(request: RequestSummary) -> str:
    spent_ms, budget_ms = request.spent_ms or 0.0, request.budget_ms
    after = f"first token after {ms(spent_ms)}"
    if budget_ms is None:
        return after
    if spent_ms > budget_ms:
        return f"{after}, {ms(spent_ms - budget_ms)} over its {budget_ms:g}"
    return f"{after} of {budget_ms:g}"

"""The end of an exchange: its spans, its metrics, its log line. Once, whatever happened."""

import logging
from collections.abc import Sequence
from typing import Final

from sub100_shared import semconv
from sub100_shared.ledger import Segment
from sub100_shared.telemetry import fail, is_sampled, keep

from .exchange import Exchange
from .request_metrics import CANCELLED, RequestMetrics

_log = logging.getLogger(__name__)

CLIENT_CLOSED_STATUS: Final = 499
"""Of a request whose client left before its answer began."""


def close_exchange(ex: Exchange, status: int, metrics: RequestMetrics) -> None:
    """Close the books. ``status`` is what the client got (499: it left before an answer)."""
    ledger = ex.ledger
    path = ledger.critical_path()
    blame = ledger.blame(path) if ledger.ttft_ms is not None else ""
    _close_spans(ex, status, path, blame)
    metrics.record(ex, path, blame)
    _log.info(
        "request",
        extra={
            "request_id": ex.request_id,
            "tenant": ex.tenant.name,
            "status": status,
            "code": ex.code,
            "tier": ex.tier,
            "ttft_ms": None if ledger.ttft_ms is None else round(ledger.ttft_ms, 2),
            "total_ms": round(ledger.elapsed_ms(), 2),
            "blame": blame,
            "num_prompt_tokens": ex.num_prompt_tokens,
            "num_cached_tokens": ex.num_cached_tokens,
            "num_transferred_tokens": ex.num_transferred_tokens,
            "num_completion_tokens": ex.num_completion_tokens,
            "num_attempts": ex.num_attempts,
            "cache_scope": ex.key.scope.hex() if ex.key is not None else "",
            "model_revision": ex.key.revision if ex.key is not None else "",
        },
    )


def _close_spans(ex: Exchange, status: int, path: Sequence[Segment], blame: str) -> None:
    """End the spans that ingress has of the request. What was not sampled is exported all the same if it
    failed or missed its budget: somebody will ask."""
    if not ex.span.is_recording():
        return
    spans = [ex.span, *(span for span, _, _ in ex.hop_spans)]
    if not is_sampled(ex.span):
        if not (blame or (ex.code and ex.code != CANCELLED)):
            return
        for span in spans:
            keep(span)
    ledger = ex.ledger
    critical = {id(segment.hop) for segment in path if segment.hop is not None}
    for span, hop, end_ns in ex.hop_spans:
        span.set_attributes(
            {
                semconv.HOP: hop.name,
                semconv.ALLOTTED_MS: round(hop.allotted_ms, 3),
                semconv.SPENT_MS: round(hop.spent_ms, 3),
                semconv.OVERRUN_MS: round(hop.overrun_ms, 3),
                semconv.BUS_MS: round(hop.bus_ms, 3),
                semconv.CRITICAL: id(hop) in critical,
            }
        )
        span.end(end_ns)
    ex.span.set_attributes(
        {
            semconv.TIER: ex.tier,
            semconv.BLAME: blame,
            semconv.INPUT_TOKENS: ex.num_prompt_tokens,
            semconv.OUTPUT_TOKENS: ex.num_completion_tokens,
            semconv.CACHED_TOKENS: ex.num_cached_tokens,
            semconv.ATTEMPTS: ex.num_attempts,
            semconv.HTTP_STATUS: status,
        }
    )
    if ledger.ttft_ms is not None:
        ex.span.set_attribute(semconv.TTFT_MS, round(ledger.ttft_ms, 3))
    if ex.finish_reason:
        ex.span.set_attribute(semconv.FINISH_REASONS, [ex.told_reason or ex.finish_reason])
    if ex.code == CANCELLED:
        ex.span.set_attribute(semconv.CANCELLED, True)
    elif ex.code:
        fail(ex.span, ex.code)
    ex.span.end()

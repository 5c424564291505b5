"""What one exchange leaves in the metrics."""

from typing import Any

import pytest
from opentelemetry.trace import INVALID_SPAN

from sub100_ingress.exchange import Exchange
from sub100_ingress.keys import Tenant
from sub100_ingress.openai_request import parse_chat, parse_completion
from sub100_ingress.request_metrics import RequestMetrics, outcome
from sub100_shared import semconv
from sub100_shared.errors import CLIENT_CODES, EVICTED_CODES, REFUSED_CODES
from sub100_shared.ledger import Ledger
from sub100_shared.metrics import Metrics

STREAM = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"secret words"}]}'
BODY = b'{"model":"m","messages":[{"role":"user","content":"secret words"}]}'
MODEL = {"gen_ai_operation_name": "chat", "gen_ai_provider_name": "sub100", "gen_ai_request_model": "m"}


class Now:
    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms


class Books:
    """Runs exchanges by a script and reads what they left."""

    def __init__(self, *, with_tenants: bool = True) -> None:
        self.now = Now()
        self._metrics = Metrics()
        self._requests = RequestMetrics(self._metrics, model="m", with_tenants=with_tenants)

    def exchange(self, body: bytes = STREAM, *, total_ms: float = 100.0, **fields: Any) -> Exchange:
        ledger = Ledger(self.now, total_ms=total_ms)
        return Exchange(
            request_id="req-1",
            tenant=Tenant(name="acme"),
            request=parse_chat(body),
            ledger=ledger,
            span=INVALID_SPAN,
            **fields,
        )

    def hop(self, ex: Exchange, name: str, ms: float, own_ms: float | None = None) -> None:
        hop = ex.ledger.open(name)
        self.now.ms += ms
        ex.ledger.close(hop, own_ms)

    def close(self, ex: Exchange) -> None:
        blame = ex.ledger.blame() if ex.ledger.ttft_ms is not None else ""
        self._requests.record(ex, ex.ledger.critical_path(), blame)

    def refused(self, code: str) -> None:
        self._requests.refused(code)

    def value(self, series: str, **labels: str) -> float | None:
        """Of one series with exactly these labels; None if there is none."""
        for family in self._metrics.families():
            for sample in family.samples:
                if sample.name == series and sample.labels == labels:
                    return float(sample.value)
        return None

    def text(self) -> str:
        self._metrics.read_states()
        return self._metrics.render().decode()


@pytest.fixture
def books() -> Books:
    return Books()


def _answered(books: Books, **fields: Any) -> Exchange:
    """A warm answer: 2 ms cache, 1 ms schedule, 20 ms prefill, first byte at 24 ms, last at 124 ms."""
    ex = books.exchange(
        tier=semconv.TIER_WARM,
        num_prompt_tokens=100,
        num_cached_tokens=64,
        num_completion_tokens=11,
        num_attempts=1,
        cache_outcome="absent",
        **fields,
    )
    books.hop(ex, semconv.HOP_CACHE, 2.0, own_ms=0.5)
    books.hop(ex, semconv.HOP_SCHEDULE, 1.0, own_ms=0.25)
    ex.placed_at_ms, ex.predicted_ttft_ms = 3.0, 15.0
    books.hop(ex, semconv.HOP_PREFILL, 20.0, own_ms=18.0)
    books.now.ms += 1.0
    ex.ledger.first_content_byte()
    books.hop(ex, semconv.HOP_DECODE, 100.0)
    return ex


def test_answer_is_counted_with_its_first_token_duration_and_usage(books: Books) -> None:
    books.close(_answered(books))
    ttft, tpot = "gen_ai_server_time_to_first_token_seconds", "gen_ai_server_time_per_output_token_seconds"
    tier = {"sub100_tier": "warm", "gen_ai_request_stream": "true"}

    assert books.value(f"{ttft}_sum", **MODEL, **tier) == pytest.approx(0.024)
    assert books.value(f"{ttft}_bucket", **MODEL, **tier, le="0.02") == 0
    assert books.value(f"{ttft}_bucket", **MODEL, **tier, le="0.04") == 1
    assert books.value(f"{tpot}_sum", **MODEL) == pytest.approx(0.010)
    assert books.value("gen_ai_server_request_duration_seconds_sum", **MODEL, error_type="") == pytest.approx(
        0.124
    )
    for kind, count in (("input", 100), ("output", 11)):
        assert books.value("gen_ai_client_token_usage_sum", **MODEL, gen_ai_token_type=kind) == count
        assert (
            books.value("sub100_tenant_tokens_total", sub100_tenant="acme", gen_ai_token_type=kind) == count
        )
    ended = {"sub100_outcome": "ok", "error_type": "", "sub100_tier": "warm"}
    assert books.value("sub100_request_ended_total", **ended) == 1
    assert books.value("sub100_prompt_tokens_total", sub100_source="cached") == 64
    assert books.value("sub100_prompt_tokens_total", sub100_source="computed") == 36


def test_hops_are_recorded_up_to_the_first_byte_and_decode_is_not_one_of_them(books: Books) -> None:
    books.close(_answered(books))

    def spent(hop: str) -> float | None:
        return books.value("sub100_hop_spent_seconds_sum", sub100_hop=hop, sub100_critical="true")

    assert spent("cache") == pytest.approx(0.002)
    assert spent("schedule") == pytest.approx(0.001)
    assert spent("prefill") == pytest.approx(0.020)
    assert spent("ingress") == pytest.approx(0.001)
    assert spent("decode") is None
    assert books.value("sub100_hop_bus_seconds_sum", sub100_hop="prefill") == pytest.approx(0.002)
    assert books.value("sub100_hop_allotted_seconds_total", sub100_hop="prefill") == pytest.approx(0.060)
    assert books.value("sub100_hop_overruns_total", sub100_hop="prefill") is None


def test_hop_beside_the_critical_path_is_recorded_as_such(books: Books) -> None:
    ex = books.exchange()
    cache = ex.ledger.open(semconv.HOP_CACHE)
    schedule = ex.ledger.open(semconv.HOP_SCHEDULE)
    books.now.ms += 2
    ex.ledger.close(cache)
    books.now.ms += 3
    ex.ledger.close(schedule)
    ex.ledger.first_content_byte()
    books.close(ex)

    spent = "sub100_hop_spent_seconds_sum"
    assert books.value(spent, sub100_hop="cache", sub100_critical="false") == pytest.approx(0.002)
    assert books.value(spent, sub100_hop="schedule", sub100_critical="true") == pytest.approx(0.005)


def test_miss_is_counted_under_the_hop_to_blame(books: Books) -> None:
    ex = books.exchange(tier=semconv.TIER_COLD, num_attempts=1)
    books.hop(ex, semconv.HOP_PREFILL, 130.0)
    ex.ledger.first_content_byte()
    books.close(ex)
    judged = {"sub100_tier": "cold", "gen_ai_request_stream": "true"}

    assert (
        books.value("sub100_budget_judged_total", sub100_verdict="missed", sub100_hop="prefill", **judged)
        == 1
    )
    assert books.value("sub100_budget_judged_total", sub100_verdict="kept", sub100_hop="", **judged) is None
    assert books.value("sub100_hop_overrun_seconds_total", sub100_hop="prefill") == pytest.approx(0.070)
    assert books.value("sub100_hop_overruns_total", sub100_hop="prefill") == 1
    assert books.value("sub100_tenant_budget_missed_total", sub100_tenant="acme") == 1


def test_request_without_content_leaves_no_first_token_sample(books: Books) -> None:
    """Field case O04."""
    ex = books.exchange(code="no_capacity")
    books.hop(ex, semconv.HOP_SCHEDULE, 4.0)
    books.close(ex)

    assert "gen_ai_server_time_to_first_token_seconds_count{" not in books.text()
    assert "sub100_budget_judged_total{" not in books.text()
    assert (
        books.value(
            "sub100_request_ended_total",
            sub100_outcome="refused",
            error_type="no_capacity",
            sub100_tier="none",
        )
        == 1
    )
    duration = "gen_ai_server_request_duration_seconds_count"
    assert books.value(duration, **MODEL, error_type="no_capacity") == 1


def test_hit_is_labelled_apart_and_has_no_time_per_token(books: Books) -> None:
    """Field case O04."""
    ex = books.exchange(tier=semconv.TIER_EXACT, num_prompt_tokens=9, num_completion_tokens=5)
    ex.cache_outcome = "exact"
    books.hop(ex, semconv.HOP_CACHE, 1.0)
    ex.ledger.first_content_byte()
    books.close(ex)
    ttft = "gen_ai_server_time_to_first_token_seconds_count"

    assert books.value(ttft, **MODEL, sub100_tier="cache_exact", gen_ai_request_stream="true") == 1
    assert books.value("gen_ai_server_time_per_output_token_seconds_count", **MODEL) is None
    assert books.value("sub100_cache_asked_total", sub100_cache_outcome="exact") == 1
    assert "sub100_prompt_tokens_total{" not in books.text()


def test_body_without_streaming_is_labelled_apart(books: Books) -> None:
    ex = books.exchange(BODY, tier=semconv.TIER_COLD, num_completion_tokens=9)
    ex.ledger.first_content_byte()
    books.now.ms += 50
    books.close(ex)
    ttft = "gen_ai_server_time_to_first_token_seconds_count"

    assert books.value(ttft, **MODEL, sub100_tier="cold", gen_ai_request_stream="false") == 1
    assert books.value("gen_ai_server_time_per_output_token_seconds_count", **MODEL) is None


def test_completion_has_its_own_operation(books: Books) -> None:
    ex = books.exchange()
    ex.request = parse_completion(b'{"model":"m","prompt":"x"}')
    books.close(ex)
    labels = {**MODEL, "gen_ai_operation_name": "text_completion", "error_type": ""}

    assert books.value("gen_ai_server_request_duration_seconds_count", **labels) == 1


def test_prediction_error_is_promised_minus_taken(books: Books) -> None:
    """15 ms promised at 3 ms, the first byte at 24 ms: 6 ms too hopeful."""
    books.close(_answered(books))

    assert books.value("sub100_prediction_error_seconds_bucket", le="-0.01") == 0
    assert books.value("sub100_prediction_error_seconds_bucket", le="-0.005") == 1


def test_prediction_of_a_replaced_request_is_not_judged(books: Books) -> None:
    ex = _answered(books, losses=["worker_lost"])
    ex.num_attempts = 2
    books.close(ex)

    assert books.value("sub100_prediction_error_seconds_count") == 0
    assert books.value("sub100_request_replaced_total") == 1
    assert books.value("sub100_attempt_lost_total", error_type="worker_lost") == 1


def test_refusal_at_the_door_is_counted(books: Books) -> None:
    books.refused("invalid_api_key")
    labels = {"sub100_outcome": "client_error", "error_type": "invalid_api_key", "sub100_tier": "none"}

    assert books.value("sub100_request_ended_total", **labels) == 1


def test_tenants_are_named_nowhere_when_switched_off() -> None:
    books = Books(with_tenants=False)
    books.close(_answered(books))

    assert "acme" not in books.text()
    assert "sub100_tenant_" not in books.text()


def test_prompt_and_request_id_are_nowhere(books: Books) -> None:
    books.close(_answered(books))

    assert "secret" not in books.text()
    assert "req-1" not in books.text()


def test_outcome_of_every_code_is_known() -> None:
    for code in (*CLIENT_CODES, *REFUSED_CODES, *EVICTED_CODES):
        assert outcome(code)[1] == code
    assert outcome("rate_limit_exceeded")[0] == "limited"
    assert outcome("no_capacity")[0] == "refused"
    assert outcome("worker_lost")[0] == "failed"
    assert outcome("slow_client")[0] == "client_error"
    assert outcome("a worker's own word") == ("failed", "other")

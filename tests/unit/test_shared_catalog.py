"""The list of metrics and spans: what must hold of every entry."""

import re
from collections import Counter

from sub100_shared import catalog, semconv
from sub100_shared.catalog import METRICS, SPANS

SERVICES = {"ingress", "cache", "scheduler", "prefill", "decode", "traces"}
UNBOUNDED = {semconv.REQUEST_ID, semconv.WORKER}
UNITS = {"s", "By", "1"}


def test_metric_names_are_ours_or_the_conventions() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"(sub100|gen_ai)(\.[a-z][a-z0-9_]*){2,3}", metric.name), metric.name


def test_metric_names_are_unique_in_both_spellings() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    series = Counter(name for metric in METRICS for name in metric.series_names)
    assert [name for name, times in series.items() if times > 1] == []


def test_metrics_have_units_meanings_and_known_emitters() -> None:
    for metric in METRICS:
        assert metric.unit in UNITS or re.fullmatch(r"\{[a-z]+\}", metric.unit), metric
        assert metric.meaning.endswith("."), metric
        assert set(metric.emitted_by) <= SERVICES, metric


def test_labels_never_name_a_request_or_a_worker() -> None:
    for metric in METRICS:
        assert not UNBOUNDED & set(metric.labels), metric
        assert (semconv.TENANT in metric.labels) == metric.name.startswith("sub100.tenant."), metric


def test_histograms_have_rising_buckets_and_nothing_else_has() -> None:
    for metric in METRICS:
        assert bool(metric.buckets) == (metric.kind == "histogram"), metric
        assert list(metric.buckets) == sorted(set(metric.buckets)), metric


def test_genai_buckets_are_the_conventions() -> None:
    """OpenTelemetry, Semantic conventions for generative AI metrics."""
    assert catalog.TIME_TO_FIRST_TOKEN.buckets == (
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    )
    assert catalog.TIME_PER_OUTPUT_TOKEN.buckets == (
        *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
    )
    assert catalog.REQUEST_DURATION.buckets == (
        *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
    )
    assert catalog.TOKEN_USAGE.buckets[:4] == (1, 4, 16, 64)
    assert catalog.TOKEN_USAGE.buckets[-1] == 67108864


def test_span_names_hold_no_ids_and_have_a_meaning() -> None:
    for name, meaning in SPANS.items():
        assert re.fullmatch(r"[a-z_]+(\.[a-z]+)?", name), name
        assert meaning.endswith("."), name

"""Instruments, states and what a scrape shows of them."""

import pytest

from sub100_shared.metric import Metric, counter, gauge, histogram
from sub100_shared.metrics import MAX_LABEL_SETS, OVERFLOW, Metrics

PULLS = counter("sub100.kv.pulls", "{pull}", "Pulls.", "sub100.role", "error.type")
MOVED = counter("sub100.kv.io", "By", "Bytes.")
WAIT = histogram("sub100.job.wait", "s", "Wait.", buckets=(0.1, 1.0))
ERROR = histogram("sub100.guess.error", "s", "Error.", buckets=(-1.0, 0.0, 1.0))
USAGE = gauge("sub100.kv.usage", "1", "Usage.", "sub100.pool")


def _lines(metrics: Metrics) -> list[str]:
    metrics.read_states()
    return [line for line in metrics.render().decode().splitlines() if line.startswith("sub100_")]


def test_counter_sums_by_label_values() -> None:
    metrics = Metrics()
    pulls = metrics.counter(PULLS)
    pulls.add(1, "decode", "")
    pulls.add(2, "decode", "")
    pulls.add(5, "decode", "kv_expired")

    assert _lines(metrics) == [
        'sub100_kv_pulls_total{error_type="",sub100_role="decode"} 3.0',
        'sub100_kv_pulls_total{error_type="kv_expired",sub100_role="decode"} 5.0',
    ]


def test_counter_without_labels_shows_zero_before_its_first_event() -> None:
    metrics = Metrics()
    metrics.counter(MOVED)

    assert _lines(metrics) == ["sub100_kv_io_bytes_total 0.0"]


def test_histogram_counts_a_value_on_an_edge_below_it() -> None:
    metrics = Metrics()
    wait = metrics.histogram(WAIT)
    for value in (0.1, 0.11, 1.0, 7.0):
        wait.record(value)

    assert _lines(metrics) == [
        'sub100_job_wait_seconds_bucket{le="0.1"} 1.0',
        'sub100_job_wait_seconds_bucket{le="1.0"} 3.0',
        'sub100_job_wait_seconds_bucket{le="+Inf"} 4.0',
        "sub100_job_wait_seconds_count 4.0",
        "sub100_job_wait_seconds_sum 8.21",
    ]


def test_series_names_are_those_that_are_rendered() -> None:
    for metric in (WAIT, ERROR):
        metrics = Metrics()
        metrics.histogram(metric).record(0.5)
        shown = {line.partition("{")[0].partition(" ")[0] for line in _lines(metrics)}

        assert shown == set(metric.series_names)


def test_label_values_beyond_the_bound_share_one_series() -> None:
    metrics = Metrics()
    pulls = metrics.counter(PULLS)
    for i in range(MAX_LABEL_SETS + 50):
        pulls.add(1, "decode", f"code-{i}")
    pulls.add(1, "decode", "code-0")
    lines = _lines(metrics)

    assert len(lines) == MAX_LABEL_SETS + 1
    assert f'sub100_kv_pulls_total{{error_type="{OVERFLOW}",sub100_role="{OVERFLOW}"}} 50.0' in lines
    assert 'sub100_kv_pulls_total{error_type="code-0",sub100_role="decode"} 2.0' in lines


def test_state_is_read_at_each_look() -> None:
    metrics = Metrics()
    usage: dict[tuple[str, ...], float] = {("a",): 0.25}
    metrics.observe(USAGE, lambda: usage)
    first = _lines(metrics)
    usage = {("b",): 0.5}

    assert first == ['sub100_kv_usage_ratio{sub100_pool="a"} 0.25']
    assert _lines(metrics) == ['sub100_kv_usage_ratio{sub100_pool="b"} 0.5']


def test_state_that_cannot_be_read_costs_only_itself() -> None:
    metrics = Metrics()

    def fails() -> float:
        raise RuntimeError("gone")

    metrics.observe(USAGE, fails)
    metrics.observe(gauge("sub100.job.open", "{job}", "Jobs."), lambda: 3)

    assert _lines(metrics) == ["sub100_job_open 3.0"]


def test_state_is_refused_twice() -> None:
    metrics = Metrics()
    metrics.observe(USAGE, dict)
    with pytest.raises(AssertionError):
        metrics.observe(USAGE, dict)


def test_label_values_are_escaped() -> None:
    metrics = Metrics()
    metrics.counter(PULLS).add(1, 'a"b\n', "\\")

    assert _lines(metrics) == ['sub100_kv_pulls_total{error_type="\\\\",sub100_role="a\\"b\\n"} 1.0']


def test_resource_is_shown_as_target_info() -> None:
    text = Metrics({"service.name": "sub100-cache", "cloud.region": "eu"}).render().decode()

    assert 'target_info{cloud_region="eu",service_name="sub100-cache"} 1.0' in text


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        (MOVED, "sub100_kv_io_bytes"),
        (USAGE, "sub100_kv_usage_ratio"),
        (PULLS, "sub100_kv_pulls"),
        (
            counter("sub100.share.sum", "1", "A counter of ratios has no unit in its name."),
            "sub100_share_sum",
        ),
        (gauge("sub100.up.seconds", "s", "The unit is not said twice."), "sub100_up_seconds"),
    ],
)
def test_prometheus_name_follows_opentelemetrys_rules(metric: Metric, name: str) -> None:
    assert metric.prometheus_name == name

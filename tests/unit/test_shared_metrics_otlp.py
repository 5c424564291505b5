"""What leaves over OTLP, read back from the exporter's own bytes."""

from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData

from sub100_shared import catalog
from sub100_shared.metrics import Metrics
from sub100_shared.metrics_otlp import DEFAULT_INTERVAL_S, MetricsExport, exporter_of, interval_s


class Collector(MetricExporter):
    """Takes exports as a collector gets them: encoded."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.requests: list[Any] = []
        self._fails = fails

    def export(self, metrics_data: MetricsData, timeout_millis: float = 0, **_: Any) -> MetricExportResult:
        if self._fails:
            raise ConnectionError("nobody listens")
        self.requests.append(encode_metrics(metrics_data))
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_: Any) -> None: ...

    def metric(self, name: str) -> Any:
        found = [
            metric
            for resource in self.requests[-1].resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        assert len(found) == 1, name
        return found[0]


def _attributes(point: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in point.attributes}


async def _export(metrics: Metrics) -> Collector:
    collector = Collector()
    await MetricsExport(metrics, collector, 60).export()
    return collector


async def test_counter_leaves_under_its_own_name_with_attributes() -> None:
    metrics = Metrics({"service.name": "sub100-ingress"})
    metrics.counter(catalog.REQUESTS_ENDED).add(2, "ok", "", "warm")
    collector = await _export(metrics)
    metric = collector.metric("sub100.request.ended")
    point = metric.sum.data_points[0]

    assert metric.unit == "{request}"
    assert metric.sum.is_monotonic
    assert point.as_double == 2
    assert _attributes(point) == {"sub100.outcome": "ok", "sub100.tier": "warm"}
    assert 0 < point.start_time_unix_nano <= point.time_unix_nano
    resource = collector.requests[-1].resource_metrics[0].resource
    assert {"service.name": "sub100-ingress"}.items() <= _attributes(resource).items()


async def test_histogram_leaves_with_counts_per_bucket() -> None:
    metrics = Metrics()
    pause = metrics.histogram(catalog.GC_PAUSE)
    for value in (0.0002, 0.0007, 0.0008, 5.0):
        pause.record(value, "2")
    point = (await _export(metrics)).metric("sub100.gc.pause").histogram.data_points[0]

    assert list(point.explicit_bounds) == list(catalog.GC_PAUSE.buckets)
    assert list(point.bucket_counts) == [1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert point.count == 4
    assert point.sum == pytest.approx(5.0017)
    assert not point.HasField("min")
    assert _attributes(point) == {"sub100.generation": "2"}


async def test_histogram_of_negative_values_leaves_without_a_sum() -> None:
    metrics = Metrics()
    metrics.histogram(catalog.PREDICTION_ERROR).record(-0.03)
    point = (await _export(metrics)).metric("sub100.prediction.error").histogram.data_points[0]

    assert point.count == 1
    assert not point.HasField("sum")
    assert point.bucket_counts[4] == 1  # (-0.05, -0.02]


async def test_state_leaves_as_it_is_at_the_export() -> None:
    metrics = Metrics()
    metrics.observe(catalog.POOL_KV_USAGE, lambda: {("decode", "a"): 0.5, ("decode", "b"): 0.75})
    points = (await _export(metrics)).metric("sub100.pool.kv.usage").gauge.data_points

    assert {_attributes(point)["sub100.pool"]: point.as_double for point in points} == {"a": 0.5, "b": 0.75}


async def test_export_that_fails_costs_itself_only() -> None:
    export = MetricsExport(Metrics(), Collector(fails=True), 60)
    await export.export()
    export.close()


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_METRICS_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"},
    ],
)
def test_nothing_leaves_unless_asked_for(environ: dict[str, str]) -> None:
    assert exporter_of(environ) is None


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"])
def test_endpoint_turns_export_on(name: str) -> None:
    exporter = exporter_of({name: "http://127.0.0.1:9/v1/metrics"})
    assert exporter is not None
    exporter.shutdown()


@pytest.mark.parametrize(
    ("value", "expected"),
    [("15000", 15.0), ("x", DEFAULT_INTERVAL_S), ("0", DEFAULT_INTERVAL_S), ("-1", 60.0)],
)
def test_interval_is_the_standards(value: str, expected: float) -> None:
    assert interval_s({"OTEL_METRIC_EXPORT_INTERVAL": value}) == expected
    assert interval_s({}) == DEFAULT_INTERVAL_S

"""Metrics out over OTLP: the only importer of OpenTelemetry's metrics SDK.

The standard variables decide: an endpoint (``OTEL_EXPORTER_OTLP_ENDPOINT`` or ``..._METRICS_ENDPOINT``) turns
it on, ``OTEL_METRICS_EXPORTER=none`` or ``OTEL_SDK_DISABLED=true`` off, ``OTEL_METRIC_EXPORT_INTERVAL`` (ms)
says how often. Values are cumulative since the process began.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as ExportedMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from .catalog import METRICS
from .metric import Metric
from .metrics import Family, Metrics

_log = logging.getLogger(__name__)

DEFAULT_INTERVAL_S: Final = 60.0
_BY_PROMETHEUS_NAME: Final = {metric.prometheus_name: metric for metric in METRICS}
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


def exporter_of(environ: Mapping[str, str]) -> MetricExporter | None:
    """What the standard variables ask for; None: nothing leaves."""
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    if not any(environ.get(name) for name in endpoints):
        return None
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if environ.get("OTEL_METRICS_EXPORTER", "otlp").lower() != "otlp":
        return None
    return OTLPMetricExporter()


def interval_s(environ: Mapping[str, str]) -> float:
    """The export interval; a value that is no positive number is the default, as the standard asks."""
    try:
        interval_ms = float(environ.get("OTEL_METRIC_EXPORT_INTERVAL", ""))
    except ValueError:
        return DEFAULT_INTERVAL_S
    return interval_ms / 1e3 if interval_ms > 0 else DEFAULT_INTERVAL_S


class MetricsExport:
    """Sends everything each interval, and once more at the end."""

    def __init__(self, metrics: Metrics, exporter: MetricExporter, interval_s: float) -> None:
        self._metrics = metrics
        self._exporter = exporter
        self._interval_s = interval_s
        self._resource = Resource.create(metrics.resource)
        self._start_ns = time.time_ns()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.export()

    async def export(self) -> None:
        """Send what there is now; a failure costs this export only. Bounded by the exporter's timeout."""
        self._metrics.read_states()
        try:
            await asyncio.to_thread(self._send)
        except Exception:
            _log.exception("metrics not exported")

    def close(self) -> None:
        """Idempotent; blocks."""
        self._exporter.shutdown()

    def _send(self) -> None:
        self._exporter.export(self._data(self._metrics.families(), time.time_ns()))

    def _data(self, families: Iterable[Family], now_ns: int) -> MetricsData:
        metrics = [
            exported
            for family in families
            if (exported := _exported(family, self._start_ns, now_ns)) is not None
        ]
        scope = ScopeMetrics(InstrumentationScope("sub100"), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])


def _exported(family: Family, start_ns: int, now_ns: int) -> ExportedMetric | None:
    """The family under its OpenTelemetry name, unit and attributes; None for what is not in the catalogue
    (the process's own series: a collector's host metrics have those)."""
    metric = _BY_PROMETHEUS_NAME.get(family.name)
    if metric is None:
        return None
    data: Gauge | Sum | Histogram
    if metric.kind == "histogram":
        data = Histogram(_histogram_points(metric, family, start_ns, now_ns), _CUMULATIVE)
    else:
        points = [
            NumberDataPoint(_attributes(metric, sample.labels), start_ns, now_ns, sample.value)
            for sample in family.samples
        ]
        data = Gauge(points) if metric.kind == "gauge" else Sum(points, _CUMULATIVE, is_monotonic=True)
    return ExportedMetric(metric.name, metric.meaning, metric.unit, data)


def _histogram_points(metric: Metric, family: Family, start_ns: int, now_ns: int) -> list[HistogramDataPoint]:
    """One point per set of label values; Prometheus' buckets are cumulative, OTLP's are not. There is no sum
    where values may be negative."""
    groups: dict[tuple[tuple[str, str], ...], dict[str, list[float]]] = {}
    for sample in family.samples:
        key = tuple(item for item in sample.labels.items() if item[0] != "le")
        groups.setdefault(key, {}).setdefault(sample.name.rpartition("_")[2], []).append(sample.value)
    return [
        HistogramDataPoint(
            _attributes(metric, dict(key)),
            start_ns,
            now_ns,
            count=int(series["count"][0]),
            sum=series.get("sum", [None])[0],  # type: ignore[arg-type]  # None: left out
            bucket_counts=[
                int(up_to - below)
                for below, up_to in zip([0.0, *series["bucket"]], series["bucket"], strict=False)
            ],
            explicit_bounds=metric.buckets,
            min=None,  # type: ignore[arg-type]  # not known, left out
            max=None,  # type: ignore[arg-type]
        )
        for key, series in groups.items()
    ]


def _attributes(metric: Metric, labels: Mapping[str, str]) -> dict[str, str]:
    """An empty label is no attribute."""
    names = dict(zip(metric.prometheus_labels, metric.labels, strict=True))
    return {names[name]: value for name, value in labels.items() if value}

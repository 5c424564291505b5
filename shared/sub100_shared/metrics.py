"""Metrics of one process: the only importer of the Prometheus client.

Recording costs a dictionary look-up and an addition, under a microsecond; OpenTelemetry's SDK takes eight
(ADR 20), so it only carries the numbers away (``metrics_otlp``). What is a state rather than an event is
read by a callback when somebody looks.

Record and read on the event loop only; ``render`` may run in a thread, after ``read_states``.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric as _Family
from prometheus_client.registry import Collector, CollectorRegistry

from .metric import Metric

_log = logging.getLogger(__name__)

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
MAX_LABEL_SETS: Final = 1_000
OVERFLOW: Final = "other"
"""Every label's value of what came after the first MAX_LABEL_SETS of a metric: memory stays bounded."""

Family = _Family
"""A metric with all its values, as the Prometheus client has them."""

Labels = tuple[str, ...]
"""Values in the order of the metric's labels."""

State = float | Mapping[Labels, float]
ReadState = Callable[[], State]

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


Child = TypeVar("Child", prometheus_client.Counter, prometheus_client.Histogram)


class _Children(Generic[Child]):
    """The client's series by label values: looking them up here costs a tenth of its own look-up."""

    __slots__ = ("_children", "_overflow", "_parent")

    def __init__(self, parent: Child, num_labels: int) -> None:
        self._parent: Any = parent  # its ``labels`` has no types
        self._overflow = (OVERFLOW,) * num_labels
        self._children: dict[Labels, Child] = {} if num_labels else {(): parent}

    def _new(self, labels: Labels) -> Child:
        if len(self._children) >= MAX_LABEL_SETS:
            labels = self._overflow
        child: Child = self._parent.labels(*labels)
        self._children[labels] = child
        return child


class Counter(_Children[prometheus_client.Counter]):
    """Only rises."""

    __slots__ = ()

    def add(self, value: float, *labels: str) -> None:
        """``value`` is not negative; ``labels`` in the order of the metric's."""
        (self._children.get(labels) or self._new(labels)).inc(value)


class Histogram(_Children[prometheus_client.Histogram]):
    """Counts values by the metric's bucket edges."""

    __slots__ = ()

    def record(self, value: float, *labels: str) -> None:
        """``labels`` in the order of the metric's."""
        (self._children.get(labels) or self._new(labels)).observe(value)


class Metrics:
    """The instruments of one process. Each metric of the catalogue is made once."""

    def __init__(self, resource: Mapping[str, str] | None = None) -> None:
        """``resource`` says who emits: it is exported as ``target_info``."""
        self.resource = dict(resource or {})
        self._registry = CollectorRegistry()
        self._states = _States()
        self._registry.register(self._states)
        self._registry.register(_TargetInfo(self.resource))
        prometheus_client.ProcessCollector(registry=self._registry)

    def counter(self, metric: Metric) -> Counter:
        assert metric.kind == "counter"
        parent = prometheus_client.Counter(
            metric.prometheus_name, metric.meaning, metric.prometheus_labels, registry=self._registry
        )
        return Counter(parent, len(metric.labels))

    def histogram(self, metric: Metric) -> Histogram:
        assert metric.kind == "histogram"
        parent = prometheus_client.Histogram(
            metric.prometheus_name,
            metric.meaning,
            metric.prometheus_labels,
            registry=self._registry,
            buckets=metric.buckets,
        )
        return Histogram(parent, len(metric.labels))

    def observe(self, metric: Metric, read: ReadState) -> None:
        """``read`` is called on the event loop at each look: a number, or one per set of label values."""
        assert metric.kind in ("gauge", "counter")
        self._states.add(metric, read)

    def read_states(self) -> None:
        """Call every callback; on the event loop, before ``render`` or ``families``."""
        self._states.read()

    def render(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self._registry)

    def families(self) -> Iterable[Family]:
        """All values, by metric."""
        return self._registry.collect()


class _States(Collector):
    """Gauges and counters that are read rather than kept."""

    def __init__(self) -> None:
        self._readers: list[tuple[Metric, ReadState]] = []
        self._families: list[Family] = []

    def add(self, metric: Metric, read: ReadState) -> None:
        assert all(metric != known for known, _ in self._readers), metric.name
        self._readers.append((metric, read))

    def read(self) -> None:
        families: list[Family] = []
        for metric, read in self._readers:
            family_type = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
            family = family_type(metric.prometheus_name, metric.meaning, labels=metric.prometheus_labels)
            try:
                state = read()
            except Exception:
                _log.exception("metric not read", extra={"metric": metric.name})
                continue
            values = state if isinstance(state, Mapping) else {(): state}
            for labels, value in values.items():
                family.add_metric(labels, value)
            families.append(family)
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


class _TargetInfo(Collector):
    """OpenTelemetry's resource as Prometheus knows it."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        self._resource = {name.replace(".", "_"): value for name, value in resource.items()}

    def collect(self) -> Iterable[Family]:
        if self._resource:
            yield InfoMetricFamily("target", "Who emits these metrics.", self._resource)

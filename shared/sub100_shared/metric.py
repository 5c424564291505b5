"""What a metric is: the record that ``catalog`` is a list of.

Names and units are OpenTelemetry's; the Prometheus name follows from them by OpenTelemetry's rules (dots
become underscores, the unit is spelled out at the end, a counter ends in ``_total``).
"""

from typing import Final, Literal

import msgspec

Kind = Literal["counter", "gauge", "histogram"]

_UNITS: Final = {"s": "seconds", "By": "bytes", "1": "ratio"}
"""Units in braces, such as ``{request}``, are annotations and not part of a name."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """``labels`` are attribute names, all of them with a bounded set of values. ``emitted_by``: the services
    that have it; empty for all. ``rare``: what must happen before it has a value, for those that an ordinary
    run does not emit."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    emitted_by: tuple[str, ...] = ()
    rare: str = ""

    @property
    def prometheus_name(self) -> str:
        """Without the suffixes ``_total``, ``_bucket``, ``_sum`` and ``_count`` of its series."""
        stem = self.name.replace(".", "_")
        unit = _UNITS.get(self.unit, "")
        if self.unit == "1" and self.kind != "gauge":
            unit = ""
        return f"{stem}_{unit}" if unit and not stem.endswith(f"_{unit}") else stem

    @property
    def series_names(self) -> tuple[str, ...]:
        """The names that a query may use. A histogram of values that may be negative has no sum."""
        name = self.prometheus_name
        match self.kind:
            case "counter":
                return (f"{name}_total",)
            case "gauge":
                return (name,)
            case "histogram":
                sums = (f"{name}_sum",) if self.buckets[0] >= 0 else ()
                return (f"{name}_bucket", f"{name}_count", *sums)

    @property
    def prometheus_labels(self) -> tuple[str, ...]:
        return tuple(label.replace(".", "_") for label in self.labels)


def counter(name: str, unit: str, meaning: str, *labels: str, by: str = "", rare: str = "") -> Metric:
    """``by``: the emitting services, separated by spaces."""
    return Metric(
        name=name, kind="counter", unit=unit, meaning=meaning, labels=labels, emitted_by=_split(by), rare=rare
    )


def gauge(name: str, unit: str, meaning: str, *labels: str, by: str = "", rare: str = "") -> Metric:
    return Metric(
        name=name, kind="gauge", unit=unit, meaning=meaning, labels=labels, emitted_by=_split(by), rare=rare
    )


def histogram(
    name: str,
    unit: str,
    meaning: str,
    *labels: str,
    buckets: tuple[float, ...],
    by: str = "",
    rare: str = "",
) -> Metric:
    return Metric(
        name=name,
        kind="histogram",
        unit=unit,
        meaning=meaning,
        labels=labels,
        buckets=buckets,
        emitted_by=_split(by),
        rare=rare,
    )


def _split(services: str) -> tuple[str, ...]:
    return tuple(services.split())

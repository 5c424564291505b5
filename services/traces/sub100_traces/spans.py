"""A span as this service keeps it. Plain data: no OTLP, no SQL, no HTML."""

import math
from typing import Any

import msgspec

Attributes = dict[str, Any]
"""JSON values only: text, numbers, booleans, None, and lists and maps of them."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened at one moment of a span, e.g. an exception."""

    name: str
    time_ns: int
    attributes: Attributes


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Ids are lower-case hex; ``parent_id`` is empty for a root. Times are unix nanoseconds on the clock
    of the process that made the span: between processes they are skewed, and ``end_ns`` may even lie
    before ``start_ns`` where a clock was set back."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str = ""
    service: str = ""
    instance: str = ""
    start_ns: int
    end_ns: int
    is_error: bool = False
    status: str = ""
    attributes: Attributes = {}
    events: list[Event] = []

    @property
    def duration_ms(self) -> float:
        """Never negative."""
        return max(0, self.end_ns - self.start_ns) / 1e6


def number(attributes: Attributes, name: str) -> float | None:
    """A finite number, or None: attributes come from other programs and may hold anything."""
    value = attributes.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def text(attributes: Attributes, name: str) -> str:
    """The value as text; empty if it is missing or not a scalar."""
    value = attributes.get(name)
    return str(value) if isinstance(value, str | int | float) else ""

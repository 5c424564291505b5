"""Rows -> HTML. Everything from a span is escaped; drawing is SVG, so that no inline style is needed."""

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import jinja2
import msgspec

from .intake import IntakeStats
from .summary import RequestSummary
from .waterfall import Waterfall

MAX_INDENT = 12
"""Deeper rows are not indented further: the name column is narrow on a phone."""


class Pages:
    """Templates, compiled once."""

    def __init__(self) -> None:
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("sub100_traces"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters.update(ms=ms, clock=clock, iso=iso, shown=shown)
        self.stylesheet = resources.files("sub100_traces").joinpath("static/style.css").read_bytes()

    def listing(self, requests: Sequence[RequestSummary], stats: IntakeStats, num_traces: int) -> str:
        return self._render("list.html", requests=requests, stats=stats, num_traces=num_traces)

    def waterfall(self, waterfall: Waterfall) -> str:
        return self._render("waterfall.html", waterfall=waterfall, max_indent=MAX_INDENT)

    def missing(self, what: str) -> str:
        return self._render("missing.html", what=what)

    def _render(self, name: str, **values: Any) -> str:
        return self._templates.get_template(name).render(**values)


def ms(value: float | None) -> str:
    """Milliseconds for people: ``0.42 ms``, ``83.1 ms``, ``12.40 s``; a dash for what is not known."""
    if value is None:
        return "-"
    if abs(value) >= 10_000:
        return f"{value / 1000:.2f} s"
    return f"{value:.2f} ms" if abs(value) < 10 else f"{value:.1f} ms"


def iso(time_ns: int) -> str:
    """UTC, ISO 8601 to the millisecond; empty for a time that no calendar holds."""
    try:
        moment = datetime.fromtimestamp(time_ns // 10**9, UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns // 10**6 % 1000:03d}Z"


def clock(time_ns: int) -> str:
    """The time of day of ``iso``."""
    return iso(time_ns)[11:-1]


def shown(value: object) -> str:
    """An attribute's value as one text."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()

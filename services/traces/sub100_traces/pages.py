"""Rows -> HTML. Everything from a span is escaped; drawing is SVG, so that no inline style is needed."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import Any, Final

import jinja2
import msgspec

from . import charts, verdict
from .hops import ORDER
from .intake import IntakeStats
from .store import Filter, Fleet, FleetFilter, Page
from .store.filters import STATUSES
from .store.fleet import RANGES
from .summary import RequestSummary
from .waterfall import Waterfall

MAX_INDENT: Final = 8
"""Deeper rows are not indented further: the name column is narrow on a phone."""
MAX_ROWS: Final = 1000
"""A waterfall with more ends in a link to all of them."""
RULER_SHARE: Final = 1.5
"""The bars of the list end at this multiple of the budget."""
_STATIC: Final = {"style.css": "text/css", "page.js": "text/javascript"}


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
        self._templates.filters.update(
            ms=ms,
            short=verdict.ms,
            clock=clock,
            iso=iso,
            shown=shown,
            hue=hue,
            pct=pct,
            step=charts.moment_name,
        )
        self._templates.globals.update(order=ORDER)
        directory = resources.files("sub100_traces").joinpath("static")
        self.static = {name: (directory.joinpath(name).read_bytes(), kind) for name, kind in _STATIC.items()}

    def listing(
        self,
        page: Page,
        wanted: Filter,
        facets: Mapping[str, Sequence[str]],
        stats: IntakeStats,
        kept: tuple[int, int],
    ) -> str:
        return self._render(
            "list.html",
            page=page,
            wanted=wanted,
            facets=facets,
            statuses=STATUSES,
            stats=stats,
            num_traces=kept[0],
            num_requests=kept[1],
            bar=bar,
        )

    def rows(self, page: Page) -> str:
        return self._render("rows.html", page=page, bar=bar)

    def waterfall(self, shown_: Waterfall) -> str:
        return self._render(
            "waterfall.html",
            waterfall=shown_,
            sentence=verdict.sentence(shown_),
            notes=verdict.notes(shown_),
            finish=verdict.finish(shown_),
            max_indent=MAX_INDENT,
            max_rows=MAX_ROWS,
        )

    def fleet(
        self,
        shown_: Fleet,
        wanted: FleetFilter,
        facets: Mapping[str, Sequence[str]],
        slowest: Sequence[RequestSummary],
    ) -> str:
        return self._render(
            "fleet.html",
            fleet=shown_,
            wanted=wanted,
            facets=facets,
            ranges=list(RANGES),
            slowest=slowest,
            ttft=charts.lines(shown_),
            blame=charts.stacks(shown_),
            hops=charts.hop_rows(shown_),
            bar=bar,
        )

    def login(self, *, is_wrong: bool) -> str:
        return self._render("login.html", is_wrong=is_wrong)

    def missing(self, what: str) -> str:
        return self._render("missing.html", what=what)

    def _render(self, name: str, **values: Any) -> str:
        return self._templates.get_template(name).render(**values)


def bar(request: RequestSummary) -> list[tuple[str, float, float]]:
    """The path of a request on the list's ruler: hop, left edge and width in per cent."""
    budget_ms = request.budget_ms or 100.0
    pieces: list[tuple[str, float, float]] = []
    at = 0.0
    for hop, spent_ms in request.hops or [("", request.spent_ms or 0.0)]:
        end = min(100.0, at + spent_ms / budget_ms / RULER_SHARE * 100.0)
        if end > at:
            pieces.append((hop, at, end - at))
        at = end
    return pieces


def hue(hop: str) -> str:
    """The class that colours a hop, the same on every page."""
    return f"h-{hop}" if hop in ORDER else "h-other"


def pct(value: float) -> str:
    return f"{value:.3f}%"


def ms(value: float | None) -> str:
    """Milliseconds for tables: ``0.42 ms``, ``83.1 ms``, ``12.40 s``; a dash for what is not known."""
    if value is None or not math.isfinite(value):
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

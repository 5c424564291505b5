"""Which requests a page wants: read from a URL's query, written back into links, turned into SQL.

Values are only ever bound, never spliced; texts are cut, so that a query's cost does not depend on its
length.
"""

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlencode

import msgspec

from ..summary import MAX_LABEL_CHARS

MAX_TEXT_CHARS: Final = MAX_LABEL_CHARS
FAILED: Final = "failed"
STATUSES: Final = ("2xx", "4xx", "5xx", FAILED)
_FACETS: Final = ("tenant", "region", "tier", "blame")


class InvalidFilter(ValueError):
    """A parameter has a value that it cannot have."""

    def __init__(self, parameter: str, wanted: str) -> None:
        super().__init__(f"{parameter} is {wanted}")
        self.parameter = parameter


class Filter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Empty means any. ``status`` is a number, a class (``5xx``) or ``failed``; ``late`` keeps what missed
    its budget; ``q`` is a part of a request id or the beginning of a trace id; ``before`` is a cursor: the
    ``seq`` of the last line of the page before."""

    tenant: str = ""
    region: str = ""
    tier: str = ""
    blame: str = ""
    worker: str = ""
    status: str = ""
    late: bool = False
    q: str = ""
    before: int = 0

    @property
    def is_narrow(self) -> bool:
        """Some requests may be left out."""
        return msgspec.structs.replace(self, before=0) != Filter()

    def query(self, **changes: object) -> str:
        """The URL's query, without a question mark; ``changes`` replace fields."""
        changed = msgspec.structs.replace(self, **changes)
        pairs = {name: getattr(changed, name) for name in Filter.__struct_fields__ if getattr(changed, name)}
        return urlencode({name: "1" if value is True else value for name, value in pairs.items()})

    def where(self) -> tuple[str, list[object]]:
        """A condition on ``requests`` and what is bound to it."""
        terms: list[str] = []
        values: list[object] = []

        def term(sql: str, *bound: object) -> None:
            terms.append(sql)
            values.extend(bound)

        for name in _FACETS:
            if wanted := getattr(self, name):
                term(f"requests.{name} = ?", wanted)
        if self.late:
            term("requests.is_late = 1")
        if self.worker:
            term("requests.seq IN (SELECT request_seq FROM request_workers WHERE worker = ?)", self.worker)
        match self.status:
            case "":
                pass
            case "failed":
                term("requests.error != ''")
            case status if status.endswith("xx"):
                term("requests.status BETWEEN ? AND ?", int(status[0]) * 100, int(status[0]) * 100 + 99)
            case status:
                term("requests.status = ?", int(status))
        if self.q:
            self._search(term)
        if self.before:
            term("requests.seq < ?", self.before)
        return " AND ".join(terms), values

    def _search(self, term: Callable[..., None]) -> None:
        """A union of two index scans: with OR, SQLite would look at every trace for every request."""
        low = self.q.lower()
        if not set(low) <= set("0123456789abcdef"):
            term("instr(requests.request_id, ?) > 0", self.q)
            return
        term(
            "requests.seq IN (SELECT seq FROM requests WHERE instr(request_id, ?) > 0 "
            "UNION ALL SELECT requests.seq FROM traces JOIN requests ON requests.trace_seq = traces.seq "
            "WHERE traces.trace_id >= ? AND traces.trace_id < ?)",
            self.q,
            low,
            low + "g",
        )


def parse(query: Mapping[str, str]) -> Filter:
    """Unknown parameters are left alone; raises InvalidFilter."""
    values: dict[str, object] = {
        name: query.get(name, "").strip()[:MAX_TEXT_CHARS] for name in (*_FACETS, "worker", "q")
    }
    status = query.get("status", "")
    is_class = len(status) == 3 and status[0] in "12345" and (status[1:] == "xx" or _is_number(status))
    if status and status != FAILED and not is_class:
        raise InvalidFilter("status", "a number, 1xx to 5xx, or failed")
    late = query.get("late", "")
    if late not in ("", "0", "1"):
        raise InvalidFilter("late", "0 or 1")
    before = query.get("before", "") or "0"
    if not (_is_number(before) and len(before) <= 18):
        raise InvalidFilter("before", "a cursor out of this page's links")
    return Filter(**values, status=status, late=late == "1", before=int(before))  # type: ignore[arg-type]


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdecimal()

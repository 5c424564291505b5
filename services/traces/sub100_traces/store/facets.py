"""The values that filters offer: bounded sets, whatever the spans claim.

First come, first kept: a flood of made-up names neither grows the file nor drives known names out. What is
not among them is found by search and by URL, and counts as OTHER in the rollups.
"""

import sqlite3
from typing import Final

MAX_VALUES: Final = {"tenant": 512, "region": 64, "tier": 16, "blame": 32, "worker": 512}
OTHER: Final = "other"
TOUCH_S: Final = 60
"""A value that is seen again is marked at most this often."""

_ADD: Final = "INSERT INTO facets VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET seen_s = excluded.seen_s"


class Facets:
    """Belongs to the writing thread; ``seen`` must run inside its transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._seen_s: dict[str, dict[str, int]] = {kind: {} for kind in MAX_VALUES}
        for kind, value, seen_s in database.execute("SELECT kind, value, seen_s FROM facets"):
            self._seen_s[kind][value] = seen_s

    def seen(self, database: sqlite3.Connection, kind: str, value: str, now_s: int) -> None:
        values = self._seen_s[kind]
        if value in values:
            if now_s < values[value] + TOUCH_S:
                return
        elif len(values) >= MAX_VALUES[kind]:
            return
        values[value] = now_s
        database.execute(_ADD, (kind, value, now_s))

    def known(self, kind: str, value: str) -> str:
        """The value itself, or OTHER."""
        return value if not value or value in self._seen_s[kind] else OTHER

    def workers(self) -> list[str]:
        """All that rollups may name."""
        return ["", OTHER, *self._seen_s["worker"]]

    def forget(self, database: sqlite3.Connection, cutoff_s: float) -> None:
        """Drop what was last seen before ``cutoff_s``."""
        database.execute("DELETE FROM facets WHERE seen_s < ?", (cutoff_s,))
        for kind, values in self._seen_s.items():
            self._seen_s[kind] = {value: at_s for value, at_s in values.items() if at_s >= cutoff_s}

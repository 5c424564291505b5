"""The request's ``Cache-Control`` header (RFC 9111, section 5.2.1): what a client allows our cache to do.

``no-store``: neither read nor write. ``no-cache``: do not read. ``max-age=N``: older answers are misses.
Everything else is ignored, as the RFC has it for directives that a cache does not know. Where directives
conflict or a value cannot be read the most restrictive reading holds: of several ages the least, and an
unreadable one is 0. A comma in a quoted value is not looked for: it can only make the reading stricter.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

_MAX_AGE_S: Final = 2**31
"""Greater values mean this one (RFC 9111, section 1.2.2)."""


class CacheControl(Struct, frozen=True, kw_only=True):
    """``max_age_s`` None: any age; 0: nothing may be read."""

    may_read: bool = True
    may_write: bool = True
    max_age_s: float | None = None


NO_LIMITS: Final = CacheControl()


def parse(values: Iterable[str]) -> CacheControl:
    """The meaning of all Cache-Control headers of a request; never raises."""
    no_store = no_cache = False
    max_age_s: int | None = None
    for value in values:
        for directive in value.split(","):
            name, _, argument = directive.partition("=")
            match name.strip().lower():
                case "no-store":
                    no_store = True
                case "no-cache":
                    no_cache = True
                case "max-age":
                    age_s = _seconds(argument.strip().strip('"'))
                    max_age_s = age_s if max_age_s is None else min(max_age_s, age_s)
    if not (no_store or no_cache or max_age_s is not None):
        return NO_LIMITS
    return CacheControl(
        may_read=not (no_store or no_cache or max_age_s == 0), may_write=not no_store, max_age_s=max_age_s
    )


def _seconds(argument: str) -> int:
    if not (argument.isascii() and argument.isdigit()):
        return 0
    return min(int(argument), _MAX_AGE_S) if len(argument) < 20 else _MAX_AGE_S

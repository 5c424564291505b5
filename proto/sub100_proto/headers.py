"""NATS headers. Everything else travels in the payload.

Values are ASCII: one byte outside it costs a receiver *all* headers of the message, so a value that
comes from a client is percent-encoded (``encode``) before it is set.
"""

from typing import Final
from urllib.parse import quote, unquote

TRACEPARENT: Final = "traceparent"
"""W3C trace context of the sending span, on every message that belongs to a request."""

TRACESTATE: Final = "tracestate"

STATUS: Final = "Status"
"""Set by the NATS server; ``503`` on a claim subject means that no worker listens."""

NO_RESPONDERS: Final = "503"

_SAFE = " !#$%&'()*+,-./:;<=>?@[]^_`{|}~".replace("%", "")


def encode(value: str, limit: int = 512) -> str:
    """Percent-encode anything that is not printable ASCII; cut to ``limit`` bytes."""
    return quote(value, safe=_SAFE)[:limit]


def decode(value: str) -> str:
    return unquote(value)

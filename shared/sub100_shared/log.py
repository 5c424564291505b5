"""Logs: one JSON object a line - an event and its fields. Never prompt text, never a key."""

import logging
import sys
import time
from typing import Any, Final

import msgspec

_RESERVED: Final = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__) | {
    "message",
    "asctime",
}
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


class JsonLines(logging.Formatter):
    """``extra=`` fields become fields of the object; control characters cannot forge a line."""

    def __init__(self, service: str, instance: str) -> None:
        super().__init__()
        self._base = {"service": service, "instance": instance}

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            **self._base,
            "event": record.getMessage(),
        }
        line.update({key: value for key, value in record.__dict__.items() if key not in _RESERVED})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encode(line).decode()


def configure(service: str, instance: str, level: str) -> None:
    """Send all logging of the process to stderr as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(service, instance))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for chatty in ("nats", "httpx", "urllib3", "opentelemetry", "uvicorn"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))

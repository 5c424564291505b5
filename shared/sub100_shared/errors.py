"""Errors that cross the bus or reach a client.

::

    Sub100Error
    +-- ClientError          the request is wrong; never retried           4xx
    +-- Refused              never dispatched, a retry is safe             429 / 503
    +-- Evicted              dispatched, then lost; retryable while no token has left   502 / 504

``code`` is API: stable, snake_case, used on the wire and in the ``code`` field of OpenAI's error
object. Messages are for people and may change. ``http_status`` maps codes in one place.
"""

from typing import Final

CLIENT_CODES: Final = {
    "invalid_http": 400,
    "invalid_json": 400,
    "invalid_type": 400,
    "invalid_value": 400,
    "invalid_grammar": 400,
    "missing_required_parameter": 400,
    "unsupported_parameter": 400,
    "unsupported_value": 400,
    "context_length_exceeded": 400,
    "invalid_api_key": 401,
    "model_not_found": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "head_timeout": 408,
    "body_timeout": 408,
    "slow_client": 408,
    "request_too_large": 413,
    "headers_too_large": 431,
}
REFUSED_CODES: Final = {
    "rate_limit_exceeded": 429,
    "tenant_concurrency_exceeded": 429,
    "budget_unattainable": 429,
    "no_capacity": 503,
    "queue_full": 503,
    "draining": 503,
    "attempt_unknown": 503,
    "stale_epoch": 503,
    "misplaced": 503,
    "duplicate_attempt": 503,
    "bus_unavailable": 503,
    "scheduler_unavailable": 503,
    "cache_unavailable": 503,
}
EVICTED_CODES: Final = {
    "worker_lost": 502,
    "engine_error": 502,
    "kv_load_failed": 502,
    "kv_expired": 502,
    "internal_error": 500,
    "deadline_exceeded": 504,
}
_STATUS: Final = {**CLIENT_CODES, **REFUSED_CODES, **EVICTED_CODES}

RETRYABLE_ELSEWHERE: Final = frozenset(
    {
        "attempt_unknown",
        "draining",
        "duplicate_attempt",
        "engine_error",
        "kv_expired",
        "kv_load_failed",
        "misplaced",
        "queue_full",
        "stale_epoch",
        "worker_lost",
    }
)
"""Codes of a worker after which ingress asks for another placement."""


def http_status(code: str) -> int:
    """The HTTP status of a code; 500 for one that is not ours."""
    return _STATUS.get(code, 500)


class Sub100Error(Exception):
    """``code`` is API; ``param`` names the request field at fault, if any."""

    def __init__(self, code: str, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param

    @property
    def status(self) -> int:
        return http_status(self.code)


class ClientError(Sub100Error):
    """The request is wrong as it stands. Nothing was dispatched."""


class Refused(Sub100Error):
    """The request is right but was not taken. Nothing was dispatched; retry after ``retry_after_s``."""

    def __init__(self, code: str, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(code, message)
        self.retry_after_s = retry_after_s


class Evicted(Sub100Error):
    """The request was dispatched and then lost; tokens may have left already."""

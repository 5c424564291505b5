"""Errors in OpenAI's shape."""

from typing import Final

import msgspec

from sub100_shared.errors import Sub100Error

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}
_encode: Final = msgspec.json.Encoder().encode


def error_body(error: Sub100Error, request_id: str) -> bytes:
    """``{"error": {message, type, param, code}, "request_id": ...}``."""
    return _encode({"error": _fields(error), "request_id": request_id})


def _fields(error: Sub100Error) -> dict[str, str | None]:
    return {
        "message": error.message,
        "type": _TYPES.get(error.status, "server_error"),
        "param": error.param,
        "code": error.code,
    }

"""Errors in OpenAI's shape."""

from typing import Final

import msgspec

from sub100_shared.errors import Sub100Error

_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ErrorObject(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorObject
    request_id: str


def error_type(status: int) -> str:
    """OpenAI's ``type`` of an HTTP status."""
    return _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")


def error_body(error: Sub100Error, request_id: str) -> bytes:
    """``{"error": {message, type, param, code}, "request_id"}``; the same object ends a broken stream."""
    found = ErrorObject(
        message=error.message, type=error_type(error.status), param=error.param, code=error.code
    )
    return msgspec.json.encode(ErrorBody(error=found, request_id=request_id))

"""JSON from strangers: refused within milliseconds when its *shape* is hostile, decoded otherwise.

Depth, number of strings (keys included), number of elements and length of numbers are bounded by a few
passes over the bytes, before any parser recurses; what fails does not move with the Python version.
"""

import re
from typing import Any, Final

import msgspec

from sub100_shared.errors import ClientError

MAX_DEPTH: Final = 64
MAX_STRINGS: Final = 200_000
MAX_ELEMENTS: Final = 2**20
MAX_DIGITS: Final = 400

_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_BOMB: Final = b"[" * (MAX_DEPTH + 1)
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER: Final = b"0" * MAX_DIGITS
_HUGE_EXPONENT: Final = re.compile(rb"[eE]\+?[0-9]{3}")

_HALF_A_PAIR: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
"""A surrogate without its other half: JSON has it, Unicode text has not."""

_decode: Final = msgspec.json.Decoder().decode


def load(body: bytes) -> dict[str, Any]:
    """The object that ``body`` is; raises ClientError ``invalid_json`` for anything else.

    Repeated keys are refused anywhere in the body: two readers could disagree on which one holds.
    """
    num_keys = scan(body)
    try:
        value = _decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        if half := _HALF_A_PAIR.search(body.replace(b"\\\\", b"")):
            raise _invalid(f"a string holds half a surrogate pair: {half[0].decode()}") from error
        raise _invalid(f"the body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise _invalid("the body must be a JSON object")
    if _count_keys(value) != num_keys:
        raise _invalid("the body repeats a key within one object")
    return value


def scan(body: bytes) -> int:
    """Bound the shape of ``body`` and return its number of object keys; raises ClientError.

    Valid JSON within the bounds passes; what is not JSON may pass and is the decoder's to refuse.
    """
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > 2 * MAX_STRINGS:
        raise _invalid(f"the body holds more than {MAX_STRINGS} keys and strings")
    outside = b"".join(unescaped.split(b'"')[::2])  # all that is not inside a string
    if outside.count(b",") > MAX_ELEMENTS:
        raise _invalid(f"the body holds more than {MAX_ELEMENTS} values")
    _check_depth(outside)
    _check_numbers(outside)
    return outside.count(b":")


def _check_depth(outside: bytes) -> None:
    """Peel innermost pairs of brackets; what is left after MAX_DEPTH rounds is deeper than that."""
    num_open = outside.count(b"[") + outside.count(b"{")
    if num_open <= MAX_DEPTH:
        return
    if num_open > MAX_ELEMENTS:
        raise _invalid(f"the body holds more than {MAX_ELEMENTS} values")
    brackets = outside.translate(_ONE_KIND, _NO_BRACKETS)
    if _BOMB in brackets:
        raise _too_deep()
    for _ in range(MAX_DEPTH):
        peeled = brackets.replace(b"[]", b"")
        if len(peeled) == len(brackets):  # empty, or brackets that do not match
            return
        brackets = peeled
    if brackets:
        raise _too_deep()


def _check_numbers(outside: bytes) -> None:
    if _LONG_NUMBER in outside.translate(_DIGITS):
        raise _invalid("a number is out of range")
    if (b"e" in outside or b"E" in outside) and _HUGE_EXPONENT.search(outside):
        raise _invalid("a number is out of range")


def _count_keys(root: dict[str, Any]) -> int:
    num_keys = 0
    stack: list[Any] = [root]
    while stack:
        value = stack.pop()
        if type(value) is dict:
            num_keys += len(value)
            stack.extend(value.values())
        elif type(value) is list:
            kinds = set(map(type, value))
            if dict in kinds or list in kinds:
                stack.extend(value)
    return num_keys


def _too_deep() -> ClientError:
    return _invalid(f"the body is nested deeper than {MAX_DEPTH} levels")


def _invalid(message: str) -> ClientError:
    return ClientError("invalid_json", message)

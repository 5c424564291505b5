"""Answers of a given shape: OpenAI's ``response_format``, and vLLM's ``structured_outputs`` and ``guided_*``.

What is wrong with a shape is said at the door, with the field's name, before anything is dispatched; what
only an engine can find (an expression that does not compile) comes back from the worker. Sizes are bounded,
so that compiling one costs milliseconds, or a few seconds at the bounds (3 s for a string of 1,000 characters
on one thread of a CPU), and neighbours without a shape nothing.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sub100_proto.sampling import Structured
from sub100_shared.errors import ClientError

from . import json_schema, repetition

MAX_GRAMMAR_CHARS: Final = 16_384
MAX_CHOICES: Final = 512
MAX_CHOICE_CHARS: Final = 1024

_GUIDED: Final = ("json", "regex", "choice", "grammar")
_KNOWN: Final = (*_GUIDED, "json_object")


def read(body: Mapping[str, Any]) -> tuple[Structured | None, str]:
    """The shape asked for and the field that asks for it; raises ClientError."""
    found = [
        each
        for each in (_response_format(body), _structured_outputs(body), *(_guided(body, k) for k in _GUIDED))
        if each is not None
    ]
    if len(found) > 1:
        at = found[1][1]
        raise _invalid(at, f"{found[0][1]} and {at} both say what the answer must look like: send one")
    return found[0] if found else (None, "")


def _response_format(body: Mapping[str, Any]) -> tuple[Structured, str] | None:
    at = "response_format"
    value = body.get(at)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ClientError("invalid_type", f"{at} must be an object", param=at)
    kind = value.get("type")
    if kind != "json_schema" and not {"schema", "json_schema"}.isdisjoint(value):
        raise _invalid(at, f"{at} has a schema and a type that takes none; the type is json_schema")
    match kind:
        case "text":
            return None
        case "json_object":
            return Structured(kind="json_object"), at
        case "json_schema":
            return _openai_schema(value.get("json_schema"), f"{at}.json_schema")
        case str():
            raise _invalid(f"{at}.type", f"{at}.type must be text, json_object or json_schema")
        case _:
            raise ClientError("missing_required_parameter", f"missing: {at}.type", param=f"{at}.type")


def _openai_schema(value: Any, at: str) -> tuple[Structured, str]:
    if not isinstance(value, Mapping):
        raise ClientError("missing_required_parameter", f"missing: {at}", param=at)
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise ClientError("missing_required_parameter", f"missing: {at}.name", param=f"{at}.name")
    if value.get("schema") is None:
        raise ClientError("missing_required_parameter", f"missing: {at}.schema", param=f"{at}.schema")
    return _schema(value["schema"], f"{at}.schema")


def _structured_outputs(body: Mapping[str, Any]) -> tuple[Structured, str] | None:
    at = "structured_outputs"
    value = body.get(at)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ClientError("invalid_type", f"{at} must be an object", param=at)
    given = [name for name in _KNOWN if value.get(name) is not None]
    if len(given) != 1:
        raise _invalid(at, f"{at} takes exactly one of {', '.join(_KNOWN)}")
    return _of(given[0], value[given[0]], f"{at}.{given[0]}")


def _guided(body: Mapping[str, Any], kind: str) -> tuple[Structured, str] | None:
    value = body.get(f"guided_{kind}")
    return None if value is None else _of(kind, value, f"guided_{kind}")


def _of(kind: str, value: Any, at: str) -> tuple[Structured, str]:
    match kind:
        case "json":
            return _schema(value, at)
        case "json_object":
            if value is not True:
                raise _invalid(at, f"{at} must be true")
            return Structured(kind="json_object"), at
        case "regex":
            return Structured(kind="regex", spec=_text(value, at, json_schema.MAX_PATTERN_CHARS)), at
        case "choice":
            return Structured(kind="choice", spec=_choices(value, at)), at
        case _:
            return Structured(kind="grammar", spec=_text(value, at, MAX_GRAMMAR_CHARS)), at


def _schema(value: Any, at: str) -> tuple[Structured, str]:
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise _invalid(at, f"{at} is not JSON") from error
    return Structured(kind="json_schema", spec=json_schema.checked(value, at)), at


def _text(value: Any, at: str, limit: int) -> str:
    if not isinstance(value, str):
        raise ClientError("invalid_type", f"{at} must be a string", param=at)
    if not value.strip() or len(value) > limit or "\0" in value:
        raise _invalid(at, f"{at} must have 1 to {limit} characters and no NUL")
    if repetition.weight(value) > repetition.MAX_WEIGHT:
        raise _invalid(at, f"{at} repeats itself too often")
    return value


def _choices(value: Any, at: str) -> str:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ClientError("invalid_type", f"{at} must be a list of strings", param=at)
    if not 1 <= len(value) <= MAX_CHOICES:
        raise _invalid(at, f"{at} takes 1 to {MAX_CHOICES} strings")
    if not all(0 < len(each) <= MAX_CHOICE_CHARS for each in value):
        raise _invalid(at, f"{at}: a string must have 1 to {MAX_CHOICE_CHARS} characters")
    return msgspec.json.encode(value).decode()


def _invalid(at: str, message: str) -> ClientError:
    return ClientError("invalid_value", message, param=at)

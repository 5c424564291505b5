"""What a forced call must look like, as a JSON schema that the engine's grammar holds the model to.

A named function's call is its arguments alone. Where the model chooses, it writes a list of
``{"name": ..., "arguments": ...}``: vLLM's way, but for the second key, which is the one that models know
from their own formats.
"""

from typing import Any, Final

import msgspec

from sub100_proto.sampling import Structured
from sub100_shared.errors import ClientError

from . import json_schema
from .tools import Function, ToolUse

MAX_CALLS: Final = 16
"""Of one answer that must call: a weak model's list would never end by itself."""

_DATA: Final = frozenset({"const", "enum", "default", "examples"})


def forced(use: ToolUse) -> Structured | None:
    """The shape of the whole answer; None where the model may write what it likes. Raises ClientError."""
    if not use.is_forced:
        return None
    schemas = {
        function.name: _arguments(function, f"tools[{i}].function.parameters")
        for i, function in enumerate(use.functions)
        if use.choice == "required" or function.name == use.name
    }
    schema = schemas[use.name] if use.choice == "named" else _listed(schemas, use.is_parallel)
    return Structured(kind="json_schema", spec=json_schema.checked(schema, "tools"))


def _arguments(function: Function, at: str) -> dict[str, Any]:
    parameters: dict[str, Any] = msgspec.json.decode(function.parameters)
    if parameters.setdefault("type", "object") != "object":
        raise ClientError("invalid_value", f"{at}: arguments are an object", param=at)
    json_schema.checked(parameters, at)
    return parameters


def _listed(schemas: dict[str, dict[str, Any]], is_parallel: bool) -> dict[str, Any]:
    return {
        "type": "array",
        "minItems": 1,
        "maxItems": MAX_CALLS if is_parallel else 1,
        "items": {"anyOf": [_call(name) for name in schemas]},
        "$defs": {name: _rebased(schema, f"#/$defs/{name}") for name, schema in schemas.items()},
    }


def _call(name: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": {"$ref": f"#/$defs/{name}"}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _rebased(value: Any, base: str) -> Any:
    """The schema with its own references leading to where it now lies."""
    if isinstance(value, list):
        return [_rebased(each, base) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: _moved(key, each, base) for key, each in value.items()}


def _moved(key: str, value: Any, base: str) -> Any:
    if key == "$ref" and isinstance(value, str):
        return base + value[1:]
    if key in json_schema.BY_NAME and isinstance(value, dict):
        return {name: _rebased(each, base) for name, each in value.items()}
    return value if key in _DATA else _rebased(value, base)

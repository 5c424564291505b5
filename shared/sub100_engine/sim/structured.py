"""An answer of the shape that was asked for: the plainest instance of a JSON schema, the first choice.

Enough to carry structured answers through the system; regular expressions and grammars, which would need
a model's engine, are refused as that engine refuses what it cannot compile.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sub100_proto.sampling import Structured

_MAX_DEPTH: Final = 64


class NoInstance(ValueError):
    """The shape cannot be met here."""


def example(structured: Structured) -> str:
    """Text of the shape; raises NoInstance."""
    match structured.kind:
        case "json_object":
            return '{"answer": "yes", "number": 7}'
        case "json_schema":
            schema = _decoded(structured.spec)
            return msgspec.json.encode(_instance(schema, schema, 0)).decode()
        case "choice":
            choices = _decoded(structured.spec)
            if not isinstance(choices, list) or not choices:
                raise NoInstance("no choice is given")
            return str(choices[0])
        case _:
            raise NoInstance(f"the simulated engine knows no {structured.kind}")


def _decoded(spec: str) -> Any:
    try:
        return msgspec.json.decode(spec)
    except msgspec.MsgspecError as error:
        raise NoInstance(f"not JSON: {error}") from error


def _instance(schema: Any, root: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise NoInstance("the schema has no finite instance")
    if schema is True or schema == {}:
        return "yes"
    if not isinstance(schema, Mapping):
        raise NoInstance("a schema is an object")
    if "$ref" in schema:
        return _instance(_resolved(schema["$ref"], root), root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for keyword in ("anyOf", "oneOf", "allOf"):
        if schema.get(keyword):
            return _instance(schema[keyword][-1], root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return _of_type(kind[0] if isinstance(kind, list) else kind, schema, root, depth)


def _of_type(kind: str, schema: Mapping[str, Any], root: Any, depth: int) -> Any:
    match kind:
        case "object":
            properties = schema.get("properties", {})
            names = [name for name in properties if name in schema.get("required", ())]
            return {name: _instance(properties[name], root, depth + 1) for name in names}
        case "array":
            items = schema.get("items", True)
            return [_instance(items, root, depth + 1) for _ in range(schema.get("minItems", 0))]
        case "string":
            return "yes".ljust(schema.get("minLength", 0), "s")[: schema.get("maxLength")]
        case "integer" | "number":
            return max(7, schema.get("minimum", 7)) if schema.get("maximum", 7) >= 7 else schema["maximum"]
        case "boolean":
            return True
        case "null":
            return None
        case _:
            raise NoInstance(f"no such type: {kind}")


def _resolved(reference: str, root: Any) -> Any:
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part:
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    if found is None:
        raise NoInstance(f"{reference} leads nowhere")
    return found

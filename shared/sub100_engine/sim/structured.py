"""An answer of the shape that was asked for: the plainest instance of a JSON schema, the first choice.

Enough to carry structured answers through the system; regular expressions and grammars, which would need
a model's engine, are refused as that engine refuses what it cannot compile.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sub100_proto.sampling import Structured

MAX_CHARS: Final = 65_536
"""Of an instance: a schema of a few bytes can ask for any number of items within items."""
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
            try:
                instance = _Instance(schema).of(schema)
            except (TypeError, AttributeError, LookupError) as error:
                raise NoInstance("a keyword has a value of the wrong type") from error
            return msgspec.json.encode(instance).decode()
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


class _Instance:
    """Builds the instance of one schema, of at most MAX_CHARS."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = MAX_CHARS

    def of(self, schema: Any, depth: int = 0) -> Any:
        if depth > _MAX_DEPTH:
            raise NoInstance("the schema has no finite instance")
        if schema is True or schema == {}:
            return self._kept("yes")
        if not isinstance(schema, Mapping):
            raise NoInstance("a schema is an object")
        if "$ref" in schema:
            return self.of(_resolved(schema["$ref"], self._root), depth + 1)
        if "const" in schema:
            return self._kept(schema["const"])
        if "enum" in schema:
            return self._kept(schema["enum"][0])
        for keyword in ("anyOf", "oneOf", "allOf"):
            if schema.get(keyword):
                return self.of(schema[keyword][-1], depth + 1)
        kind = schema.get("type", "object" if "properties" in schema else "string")
        return self._of_type(kind[0] if isinstance(kind, list) else kind, schema, depth)

    def _of_type(self, kind: str, schema: Mapping[str, Any], depth: int) -> Any:
        match kind:
            case "object":
                self._take(2)
                properties = schema.get("properties", {})
                names = [name for name in properties if name in schema.get("required", ())]
                return {self._kept(name): self.of(properties[name], depth + 1) for name in names}
            case "array":
                self._take(2)
                items = schema.get("items", True)
                return [self.of(items, depth + 1) for _ in range(schema.get("minItems", 0))]
            case "string":
                self._take(schema.get("minLength", 0))
                return self._kept("yes".ljust(schema.get("minLength", 0), "s")[: schema.get("maxLength")])
            case "integer" | "number":
                least = max(7, schema.get("minimum", 7))
                return self._kept(least if schema.get("maximum", 7) >= 7 else schema["maximum"])
            case "boolean":
                return self._kept(True)
            case "null":
                return self._kept(None)
            case _:
                raise NoInstance(f"no such type: {kind}")

    def _kept(self, value: Any) -> Any:
        self._take(len(msgspec.json.encode(value)))
        return value

    def _take(self, num_chars: int) -> None:
        self._left -= num_chars
        if self._left < 0:
            raise NoInstance(f"the least that the schema asks for has more than {MAX_CHARS} characters")


def _resolved(reference: str, root: Any) -> Any:
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part:
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    if found is None:
        raise NoInstance(f"{reference} leads nowhere")
    return found

"""JSON schemas from strangers, checked and bounded before an engine compiles them.

Checked is what makes a schema hopeless whatever the engine: types that are none, references that lead
nowhere or round in a circle without a value between them. Keywords that an engine does not know are the
engine's to refuse.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from sub100_shared.errors import ClientError

from . import repetition

MAX_BYTES: Final = 65_536
MAX_DEPTH: Final = 24
"""Objects and lists within one another; a property's own schema is two deeper."""
MAX_ENUM: Final = 2000
MAX_PROPERTIES: Final = 500
MAX_CHARS: Final = 1024
"""Of all strings whose length is bounded: each may be that long in so many ways, which an engine lists."""
MAX_PATTERN_CHARS: Final = 4096
"""Of one regular expression."""
MAX_COUNT: Final = 10_000
"""Of ``minItems``, ``maxLength`` and their kind: a grammar repeats itself that often."""
MAX_LEAST_CHARS: Final = 262_144
"""Of the shortest answer: lists within lists multiply, and no limit of tokens would ever let one end."""

_TYPES: Final = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})
_COUNTS: Final = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
BY_NAME: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords under which names, not keywords, have schemas."""
_LISTED: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE: Final = (
    "items",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
)
_WITHOUT_A_VALUE: Final = ("anyOf", "oneOf", "allOf")
_NOTHING: Final = object()
_MAX_FOLLOWED: Final = 100


def bounded(schema: Mapping[str, Any], at: str) -> str:
    """The schema as compact JSON, its order kept, if it is small enough to be shown to a model; raises
    ClientError naming ``at``."""
    spec = msgspec.json.encode(schema)
    if len(spec) > MAX_BYTES:
        raise _invalid(at, f"the schema has {len(spec)} bytes of {MAX_BYTES} allowed")
    _check_depth(schema, at)
    return spec.decode()


def checked(schema: Any, at: str) -> str:
    """As ``bounded``, for a schema that an engine is to compile."""
    if not isinstance(schema, dict):
        raise ClientError("invalid_type", f"{at} must be an object", param=at)
    if not schema:
        raise _invalid(at, "the schema is empty; response_format json_object asks for any object")
    spec = bounded(schema, at)
    parts = list(_parts(schema, at))
    for part in parts:
        _check_part(part, at)
    _check_weight(parts, at)
    if _has_circle(parts, schema, at):
        raise _invalid(at, "the schema refers to itself without a value between")
    if _Least(schema, at).chars(schema) > MAX_LEAST_CHARS:
        raise _invalid(at, f"the shortest answer has more than {MAX_LEAST_CHARS} characters")
    return spec


def _check_depth(schema: Any, at: str) -> None:
    level = [schema]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for value in level
            for child in (value.values() if isinstance(value, dict) else value)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise _invalid(at, f"the schema is nested deeper than {MAX_DEPTH} levels")


def _parts(schema: Mapping[str, Any], at: str) -> Iterator[Mapping[str, Any]]:
    """Every schema within the schema, itself first, once each; what a reference leads to is one, wherever
    it lies."""
    pending: list[Any] = [schema]
    seen: set[int] = set()
    while pending:
        part = pending.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if "$ref" in part:
            pending.append(_resolved(part["$ref"], schema, at))
        pending.extend(part[key] for key in _SINGLE if key in part)
        for key in _LISTED:
            pending.extend(part[key] if isinstance(part.get(key), list) else ())
        for key in BY_NAME:
            pending.extend(part[key].values() if isinstance(part.get(key), dict) else ())


def _check_part(part: Mapping[str, Any], at: str) -> None:
    kinds = part.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list) or not all(isinstance(kind, str) and kind in _TYPES for kind in kinds):
        raise _invalid(at, "the schema has a type that is none of JSON's")
    for key in (*BY_NAME, *_LISTED):
        if key in part and not isinstance(part[key], dict if key in BY_NAME else list):
            raise _invalid(at, f"the schema has a {key} of the wrong type")
    for key in _COUNTS:
        count = part.get(key, 0)
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_COUNT:
            raise _invalid(at, f"{key} must be from 0 to {MAX_COUNT}")
    values = part.get("enum", [None])
    if not isinstance(values, list) or not 1 <= len(values) <= MAX_ENUM:
        raise _invalid(at, f"enum takes 1 to {MAX_ENUM} values")


def _check_weight(parts: list[Mapping[str, Any]], at: str) -> None:
    """What an engine must spell out, over the whole schema."""
    if sum(len(part.get("properties", ())) for part in parts) > MAX_PROPERTIES:
        raise _invalid(at, f"the schema has more than {MAX_PROPERTIES} properties")
    if sum(max(part.get("minLength", 0), part.get("maxLength", 0)) for part in parts) > MAX_CHARS:
        raise _invalid(at, f"the lengths of the schema's strings add up to more than {MAX_CHARS}")
    patterns = [part["pattern"] for part in parts if isinstance(part.get("pattern"), str)]
    patterns += [pattern for part in parts for pattern in part.get("patternProperties", ())]
    if any(len(pattern) > MAX_PATTERN_CHARS for pattern in patterns):
        raise _invalid(at, f"a pattern in the schema has more than {MAX_PATTERN_CHARS} characters")
    if sum(map(repetition.weight, patterns)) > repetition.MAX_WEIGHT:
        raise _invalid(at, "the schema's patterns repeat themselves too often")


def _has_circle(parts: list[Mapping[str, Any]], root: Mapping[str, Any], at: str) -> bool:
    """Whether following references and alternatives alone ever comes back. Depth first, each part once."""
    done: set[int] = set()
    for part in parts:
        path: list[tuple[int, Iterator[Any]]] = []
        above: set[int] = set()
        following: Any = part
        while True:
            if isinstance(following, dict):
                if id(following) in above:
                    return True
                if id(following) not in done:
                    above.add(id(following))
                    path.append((id(following), _same_value(following, root, at)))
            if not path:
                break
            key, rest = path[-1]
            following = next(rest, _NOTHING)
            if following is _NOTHING:
                path.pop()
                above.discard(key)
                done.add(key)
    return False


def _same_value(part: Mapping[str, Any], root: Mapping[str, Any], at: str) -> Iterator[Any]:
    """The schemas that a value of ``part`` must meet, too, at the same place."""
    if "$ref" in part:
        yield _resolved(part["$ref"], root, at)
    for key in _WITHOUT_A_VALUE:
        alternatives = part.get(key)
        if isinstance(alternatives, list):
            yield from alternatives


class _Least:
    """How many characters a value has at least: a lower bound, each schema looked at once.

    What goes round in a circle or leads very far counts nothing.
    """

    def __init__(self, root: Mapping[str, Any], at: str) -> None:
        self._root = root
        self._at = at
        self._known: dict[int, int] = {}

    def chars(self, part: Any, depth: int = 0) -> int:
        if not isinstance(part, dict) or depth > _MAX_FOLLOWED:
            return 0
        if id(part) not in self._known:
            self._known[id(part)] = 0
            self._known[id(part)] = self._chars(part, depth + 1)
        return self._known[id(part)]

    def _chars(self, part: Mapping[str, Any], depth: int) -> int:
        if "$ref" in part:
            return self.chars(_resolved(part["$ref"], self._root, self._at), depth)
        if "const" in part:
            return len(msgspec.json.encode(part["const"]))
        if "enum" in part:
            return min(len(msgspec.json.encode(value)) for value in part["enum"])
        for key in ("anyOf", "oneOf"):
            if part.get(key):
                return min(self.chars(each, depth) for each in part[key])
        if part.get("allOf"):
            return max(self.chars(each, depth) for each in part["allOf"])
        kinds = part.get("type", "")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        return min((self._of_type(kind, part, depth) for kind in kinds), default=0)

    def _of_type(self, kind: str, part: Mapping[str, Any], depth: int) -> int:
        match kind:
            case "string":
                return 2 + int(part.get("minLength", 0))
            case "array":
                num_items: int = part.get("minItems", 0)
                num_others = max(0, num_items - len(part.get("prefixItems", ())))
                return 2 + num_others * (1 + self.chars(part.get("items"), depth))
            case "object":
                required = part.get("required")
                names = (
                    {name for name in required if isinstance(name, str)} if isinstance(required, list) else ()
                )
                properties = part.get("properties", {})
                given = [name for name in names if name in properties]
                return 2 + sum(len(name) + 3 + self.chars(properties[name], depth) for name in given)
            case _:
                return 1


def _resolved(reference: Any, root: Mapping[str, Any], at: str) -> Any:
    """References lead within the schema only; nothing is fetched."""
    if not isinstance(reference, str) or not f"{reference}/".startswith("#/"):
        raise _invalid(at, "a $ref must lead to a place within the schema (#/...)")
    found: Any = root
    for name in reference[1:].split("/")[1:]:
        key = name.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        raise _invalid(at, "a $ref leads nowhere")
    return found


def _invalid(at: str, message: str) -> ClientError:
    return ClientError("invalid_value", f"{at}: {message}", param=at)

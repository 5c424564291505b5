import json
import time
from typing import Any

import pytest

from sub100_ingress import json_schema, repetition, structured
from sub100_ingress.openai_request import parse_chat
from sub100_proto.sampling import Structured
from sub100_shared.errors import ClientError

OBJECT = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}}


def openai(schema: Any, **fields: Any) -> dict[str, Any]:
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, **fields}}
    }


def refused(body: dict[str, Any]) -> ClientError:
    with pytest.raises(ClientError) as caught:
        structured.read(body)
    return caught.value


SHAPES: list[tuple[dict[str, Any], Structured | None, str]] = [
    ({}, None, ""),
    ({"response_format": None}, None, ""),
    ({"response_format": {"type": "text"}}, None, ""),
    ({"response_format": {"type": "json_object"}}, Structured(kind="json_object"), "response_format"),
    (
        {"structured_outputs": {"json_object": True}},
        Structured(kind="json_object"),
        "structured_outputs.json_object",
    ),
    ({"guided_regex": "[0-9]+"}, Structured(kind="regex", spec="[0-9]+"), "guided_regex"),
    ({"guided_choice": ["a", "b"]}, Structured(kind="choice", spec='["a","b"]'), "guided_choice"),
    (
        {"structured_outputs": {"grammar": 'root ::= "a"'}},
        Structured(kind="grammar", spec='root ::= "a"'),
        "structured_outputs.grammar",
    ),
]


@pytest.mark.parametrize(("body", "shape", "param"), SHAPES, ids=lambda value: str(value)[:40])
def test_shape_is_read_with_the_field_that_asks_for_it(
    body: dict[str, Any], shape: Structured | None, param: str
) -> None:
    assert structured.read(body) == (shape, param)


def test_schema_keeps_the_order_of_its_properties() -> None:
    for body in (openai(OBJECT, strict=True), {"guided_json": OBJECT}, {"guided_json": json.dumps(OBJECT)}):
        shape, _ = structured.read(body)
        assert shape is not None
        assert shape.kind == "json_schema"
        assert list(json.loads(shape.spec)["properties"]) == ["b", "a"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"response_format": False}, "response_format"),
    ({"response_format": {}}, "response_format.type"),
    ({"response_format": {"type": "not-a-type"}}, "response_format.type"),
    ({"response_format": {"type": "text", "schema": {}}}, "response_format"),
    ({"response_format": {"type": "json_object", "json_schema": {}}}, "response_format"),
    ({"response_format": {"type": "json_schema", "schema": OBJECT}}, "response_format.json_schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": OBJECT}}},
        "response_format.json_schema.name",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
        "response_format.json_schema.schema",
    ),
    (openai({}), "response_format.json_schema.schema"),
    (openai([]), "response_format.json_schema.schema"),
    (openai({"type": "banana"}), "response_format.json_schema.schema"),
    (openai({"type": ["string", 5]}), "response_format.json_schema.schema"),
    (openai({"properties": []}), "response_format.json_schema.schema"),
    (openai({"anyOf": {}}), "response_format.json_schema.schema"),
    (openai({"enum": []}), "response_format.json_schema.schema"),
    (openai({"type": "array", "maxItems": 10**9}), "response_format.json_schema.schema"),
    (openai({"type": "string", "minLength": -1}), "response_format.json_schema.schema"),
    (openai({"type": "string", "maxLength": 2000}), "response_format.json_schema.schema"),
    (openai({"properties": {f"p{i}": {} for i in range(501)}}), "response_format.json_schema.schema"),
    (
        openai({"properties": {f"p{i}": {"type": "string", "maxLength": 100} for i in range(11)}}),
        "response_format.json_schema.schema",
    ),
    (openai({"type": "string", "pattern": "((a{100}){100}){100}"}), "response_format.json_schema.schema"),
    (openai({"type": "string", "pattern": "a" * 5000}), "response_format.json_schema.schema"),
    (openai({"patternProperties": {"a" * 5000: {}}}), "response_format.json_schema.schema"),
    ({"guided_regex": ".{1000}.{1000}"}, "guided_regex"),
    ({"guided_regex": "a{99999999999999999999}"}, "guided_regex"),
    ({"guided_grammar": 'root ::= ("a"{100}){100}'}, "guided_grammar"),
    (openai({"$ref": "#"}), "response_format.json_schema.schema"),
    (openai({"anyOf": [{"type": "null"}, {"$ref": "#"}]}), "response_format.json_schema.schema"),
    (
        openai({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "type": "object"}),
        "response_format.json_schema.schema",
    ),
    (
        openai(
            {
                "properties": {"a": {"$ref": "#/x/big"}},
                "x": {"big": {"properties": {f"p{i}": {"maxLength": 1000} for i in range(60)}}},
            }
        ),
        "response_format.json_schema.schema",
    ),
    (
        openai({"anyOf": [{"$ref": "#/const/y"}, {"type": "null"}], "const": {"y": {"maxItems": 10**9}}}),
        "response_format.json_schema.schema",
    ),
    (
        openai({"$ref": "#/x", "x": {"anyOf": [{"$ref": "#/y"}]}, "y": {"maxItems": 10**9}}),
        "response_format.json_schema.schema",
    ),
    (openai({"$ref": "#x/$defs/a", "$defs": {"a": {}}}), "response_format.json_schema.schema"),
    (openai({"$ref": "#/$defs/none"}), "response_format.json_schema.schema"),
    (openai({"$ref": "http://127.0.0.1/schema"}), "response_format.json_schema.schema"),
    ({"structured_outputs": {}}, "structured_outputs"),
    ({"structured_outputs": {"json": ""}}, "structured_outputs.json"),
    ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
    ({"guided_choice": []}, "guided_choice"),
    ({"guided_choice": [""]}, "guided_choice"),
    ({"guided_choice": ["x"] * 513}, "guided_choice"),
    ({"guided_json": {}}, "guided_json"),
    ({"guided_regex": ""}, "guided_regex"),
    ({"guided_regex": "a\0"}, "guided_regex"),
    ({"guided_regex": "a" * 5000}, "guided_regex"),
    ({"guided_grammar": 5}, "guided_grammar"),
    ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
]


@pytest.mark.parametrize(("body", "param"), WRONG, ids=lambda value: str(value)[-50:])
def test_hopeless_shape_is_refused_by_name(body: dict[str, Any], param: str) -> None:
    """A12."""
    error = refused(body)
    assert error.param == param
    assert error.status == 400
    assert len(error.message) < 200


def test_recursion_through_a_value_is_a_schema() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"anyOf": [{"$ref": "#"}]}}}
    assert structured.read(openai(tree))[0] is not None
    linked = {"$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"}
    assert structured.read(openai(linked))[0] is not None


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("abc", 1),
        ("[0-9]{3}-[0-9]{4}", 7),
        (r"(\w+\s){200}", 200),
        ("([0-9]{3}){4}(abc){5}", 60),
        ("a{2,}b{,9}", 11),
        ("{}", 1),
        ("a{ 2 , 7 }", 7),
        ("a{ 3 }b{ , 4 }", 7),
        ("{" * 9, 1),
        ("{2 3}", 1),
    ],
)
def test_weight_adds_counts_and_multiplies_those_of_groups(expression: str, expected: int) -> None:
    assert repetition.weight(expression) == expected


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def test_depth_and_size_of_a_schema_are_bounded() -> None:
    assert json_schema.checked(nested(json_schema.MAX_DEPTH - 1), "at")
    for schema in (nested(json_schema.MAX_DEPTH), {"description": "x" * json_schema.MAX_BYTES}):
        with pytest.raises(ClientError):
            json_schema.checked(schema, "at")


def lists(depth: int, num_items: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "boolean"}
    for _ in range(depth):
        schema = {"type": "array", "minItems": num_items, "items": schema}
    return schema


LONG = [
    lists(3, 10_000),
    {
        "$ref": "#/$defs/d0",
        "$defs": {f"d{i}": lists(1, 100) | {"items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(8)}
        | {"d8": {"type": "null"}},
    },
    {"type": "array", "minItems": 1000, "items": {"const": "x" * 1000}},
    {
        "type": ["object", "array"],
        "properties": {"a": lists(2, 1000)},
        "required": ["a"],
        "minItems": 1000,
        "items": {"enum": ["y" * 400, "x" * 300]},
    },
]
SHORT = [
    lists(1, 10_000),
    lists(2, 200),
    {"anyOf": [lists(3, 10_000), {"type": "null"}]},
    {"type": ["array", "null"], "minItems": 10_000, "items": lists(2, 1000)},
    {"type": "object", "properties": {"a": lists(3, 10_000)}},
    {"type": "array", "minItems": 9, "prefixItems": [{}] * 9, "items": lists(2, 300)},
    {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
]


@pytest.mark.parametrize("schema", LONG, ids=lambda value: str(value)[:50])
def test_schema_without_a_short_answer_is_refused(schema: dict[str, Any]) -> None:
    assert "shortest answer" in refused(openai(schema)).message


@pytest.mark.parametrize("schema", SHORT, ids=lambda value: str(value)[:50])
def test_schema_with_a_short_answer_is_accepted(schema: dict[str, Any]) -> None:
    assert structured.read(openai(schema))[0] is not None


def test_schema_made_of_references_is_checked_in_no_time() -> None:
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(1500)}
    wide = {
        "anyOf": [{"$ref": "#/$defs/d0"} for _ in range(800)],
        "$defs": {**chain, "d1500": {"type": "null"}},
    }
    began = time.thread_time()
    assert json_schema.checked(wide, "at")
    assert time.thread_time() - began < 0.5


@pytest.mark.parametrize(("param", "value"), [("min_tokens", 3), ("ignore_eos", True)])
def test_going_on_behind_its_end_contradicts_a_shape(param: str, value: object) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 9, param: value}
    with pytest.raises(ClientError) as caught:
        parse_chat(json.dumps(body | {"response_format": {"type": "json_object"}}).encode())
    assert caught.value.param == param

"""What a request says of tools: read, bounded, and made a shape where a call is forced."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.ingress_model import byte_level_model

from sub100_ingress.openai_request import GenerationRequest, parse_chat
from sub100_ingress.template import ChatTemplate
from sub100_ingress.tool_support import ToolSupport, support_of
from sub100_ingress.tool_text import CLOSE
from sub100_ingress.tools import NO_PARAMETERS, Function, ToolUse
from sub100_shared.errors import ClientError

USER = {"role": "user", "content": "hi"}
CITY = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/City"}},
    "$defs": {"City": {"type": "string"}},
}
NAMED_F = {"type": "function", "function": {"name": "f"}}
DEEP: dict[str, Any] = {"type": "object"}
for _ in range(13):
    DEEP = {"type": "object", "properties": {"a": DEEP}}


def tool(name: str = "f", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


def chat(**fields: Any) -> GenerationRequest:
    return parse_chat(json.dumps({"model": "m", "messages": [USER], **fields}).encode())


def use_of(**fields: Any) -> ToolUse:
    use = chat(**fields).tools
    assert use is not None
    return use


def shape_of(**fields: Any) -> Any:
    request = chat(**fields)
    assert request.sampling.structured is not None
    assert (request.sampling.structured.kind, request.structured_param) == ("json_schema", "tools")
    return json.loads(request.sampling.structured.spec)


def refusal(**fields: Any) -> ClientError:
    with pytest.raises(ClientError) as refused:
        chat(**fields)
    assert refused.value.status == 400
    assert len(refused.value.message) < 400
    return refused.value


def test_tools_keep_name_description_and_parameters() -> None:
    given = [tool(description="Looks.", parameters=CITY, strict=True), tool("g", parameters=None)]
    assert use_of(tools=given) == ToolUse(
        functions=(
            Function(name="f", description="Looks.", parameters=msgspec.json.encode(CITY).decode()),
            Function(name="g", description=None, parameters=NO_PARAMETERS),
        )
    )
    assert chat(tools=given).sampling.structured is None


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ("auto", "", True)),
        ("auto", ("auto", "", True)),
        ("none", ("none", "", True)),
        ("required", ("required", "", True)),
        (NAMED_F, ("named", "f", False)),
    ],
)
def test_choice_is_auto_where_nothing_is_said(choice: Any, expected: tuple[str, str, bool]) -> None:
    use = use_of(tools=[tool()], tool_choice=choice)
    assert (use.choice, use.name, use.is_parallel) == expected
    assert chat(tools=[tool()], tool_choice=choice).calling == (None if choice == "none" else use)


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"tools": "x"}, "invalid_type", "tools"),
    ({"tools": [1]}, "invalid_type", "tools[0]"),
    ({"tools": [{"type": "function"}]}, "missing_required_parameter", "tools[0].function"),
    ({"tools": [{"type": "custom", "custom": {}}]}, "invalid_value", "tools[0].type"),
    (
        {"tools": [{"type": "function", "function": {}}]},
        "missing_required_parameter",
        "tools[0].function.name",
    ),
    ({"tools": [tool("a b")]}, "invalid_value", "tools[0].function.name"),
    ({"tools": [tool("a" * 65)]}, "invalid_value", "tools[0].function.name"),
    ({"tools": [tool(), tool()]}, "invalid_value", "tools[1].function.name"),
    ({"tools": [tool(f"f{i}") for i in range(129)]}, "invalid_value", "tools"),
    ({"tools": [tool(description="x" * 40_000)]}, "invalid_value", "tools[0].function.description"),
    ({"tools": [tool(parameters=[])]}, "invalid_type", "tools[0].function.parameters"),
    ({"tools": [tool(parameters=DEEP)]}, "invalid_value", "tools[0].function.parameters"),
    ({"tools": [tool(parameters={"x": "x" * 70_000})]}, "invalid_value", "tools[0].function.parameters"),
    ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
    ({"tool_choice": NAMED_F}, "invalid_value", "tool_choice"),
    ({"tools": [], "tool_choice": "required"}, "invalid_value", "tool_choice"),
    ({"tools": [tool()], "tool_choice": "any"}, "invalid_value", "tool_choice"),
    ({"tools": [tool()], "tool_choice": 1}, "invalid_type", "tool_choice"),
    ({"tools": [tool("g")], "tool_choice": NAMED_F}, "invalid_value", "tool_choice.function.name"),
    ({"tools": [tool()], "tool_choice": {"type": "allowed_tools"}}, "invalid_value", "tool_choice.type"),
    ({"tools": [tool()], "parallel_tool_calls": 1}, "invalid_type", "parallel_tool_calls"),
    ({"tools": [tool()], "logprobs": True}, "unsupported_value", "logprobs"),
    (
        {"tools": [tool()], "response_format": {"type": "json_object"}},
        "unsupported_value",
        "response_format",
    ),
    ({"tools": [tool()], "guided_regex": "x"}, "unsupported_value", "guided_regex"),
    ({"tools": [tool()], "tool_choice": "required", "min_tokens": 2}, "invalid_value", "min_tokens"),
    (
        {"tools": [tool(), tool("g", parameters={"type": "string"})], "tool_choice": "required"},
        "invalid_value",
        "tools[1].function.parameters",
    ),
    (
        {"tools": [tool(parameters={"type": "nothing"})], "tool_choice": NAMED_F},
        "invalid_value",
        "tools[0].function.parameters",
    ),
]


@pytest.mark.parametrize(("fields", "code", "param"), WRONG, ids=lambda value: str(value)[:50])
def test_wrong_tools_are_refused_by_name(fields: dict[str, Any], code: str, param: str) -> None:
    error = refusal(**fields)
    assert (error.code, error.param) == (code, param)


def test_what_only_a_call_contradicts_passes_where_none_is_made() -> None:
    request = chat(tools=[tool()], tool_choice="none", logprobs=True, response_format={"type": "json_object"})
    assert request.sampling.logprobs == 0
    assert request.structured_param == "response_format"


def test_parameters_that_are_only_shown_need_not_compile() -> None:
    odd = {"type": "object", "properties": {"text": {"type": "string", "maxLength": 100_000}}}
    assert use_of(tools=[tool(parameters=odd)])
    assert (
        refusal(tools=[tool(parameters=odd)], tool_choice="required").param == "tools[0].function.parameters"
    )


def test_named_call_has_the_shape_of_its_arguments() -> None:
    fields = {"tools": [tool("g"), tool(parameters={"properties": {"a": {"type": "integer"}}})]}
    shape = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert shape_of(**fields, tool_choice=NAMED_F) == shape


def test_required_call_has_the_shape_of_a_list_of_calls_of_any_function() -> None:
    shape = shape_of(tools=[tool(parameters=CITY), tool("g")], tool_choice="required")
    assert (shape["type"], shape["minItems"], shape["maxItems"]) == ("array", 1, 16)
    calls = shape["items"]["anyOf"]
    assert [call["properties"]["name"] for call in calls] == [{"const": "f"}, {"const": "g"}]
    assert [call["properties"]["arguments"] for call in calls] == [
        {"$ref": "#/$defs/f"},
        {"$ref": "#/$defs/g"},
    ]
    assert shape["$defs"]["f"]["properties"]["city"] == {"$ref": "#/$defs/f/$defs/City"}
    assert shape_of(tools=[tool()], tool_choice="required", parallel_tool_calls=False)["maxItems"] == 1


def test_reference_below_a_parameter_named_like_a_keyword_is_one() -> None:
    parameters = {
        "type": "object",
        "properties": {"default": {"$ref": "#/$defs/Day"}, "$ref": {"$ref": "#/$defs/Day"}},
        "$defs": {"Day": {"enum": ["today", "tomorrow"]}},
    }
    shape = shape_of(tools=[tool(parameters=parameters)], tool_choice="required")
    day = {"$ref": "#/$defs/f/$defs/Day"}
    assert shape["$defs"]["f"]["properties"] == {"default": day, "$ref": day}


def test_reference_that_is_data_or_a_name_stays_as_it_is() -> None:
    parameters = {
        "type": "object",
        "properties": {"$ref": {"type": "string"}, "x": {"enum": [{"$ref": "#/y"}]}},
    }
    shape = shape_of(tools=[tool(parameters=parameters)], tool_choice="required")
    assert shape["$defs"]["f"] == parameters


HERMES = "{% if tools %}{{ tools }}<tool_call>{arguments}{% endif %}"


@pytest.mark.parametrize(
    ("template", "form", "expected"),
    [
        ("{{ messages }}", "auto", (False, "")),
        (HERMES, "auto", (True, "hermes")),
        (HERMES, "none", (True, "")),
        ("{{ tools }}[TOOL_CALLS]{{ arguments }}", "auto", (True, "")),
        ("{{ tools }}[TOOL_CALLS]", "hermes", (True, "hermes")),
        (HERMES + "<function=f>", "auto", (True, "")),
    ],
)
def test_support_is_told_by_the_template_unless_the_operator_says_so(
    template: str, form: Any, expected: tuple[bool, str]
) -> None:
    support = support_of(template, form)
    assert (support.is_shown, support.form) == expected


@pytest.mark.parametrize("template", ["{{ messages }}", "{{ tools }}"])
def test_model_that_cannot_decide_to_call_is_only_forced_to(template: str) -> None:
    support = support_of(template, "auto")
    with pytest.raises(ClientError) as refused:
        support.admitted(chat(tools=[tool()]))
    assert (refused.value.code, refused.value.param) == ("unsupported_value", "tools")
    for choice in ("none", "required", NAMED_F):
        request = chat(tools=[tool()], tool_choice=choice)
        assert support.admitted(request) == request
    assert support.admitted(chat()) == chat()


def test_single_call_ends_the_answer() -> None:
    support = ToolSupport(is_shown=True, form="hermes")
    one = support.admitted(chat(tools=[tool()], parallel_tool_calls=False, stop="x"))
    assert one.stops == ("x", CLOSE)
    more = support.admitted(chat(tools=[tool()]))
    assert more.stops == ()
    assert more.tools is not None
    assert more.tools.form == "hermes"


def test_template_shows_functions_as_models_know_them(tmp_path: Path) -> None:
    model = byte_level_model(tmp_path, template="{% for t in tools %}{{ t | tojson }}{% endfor %}")
    functions = use_of(tools=[tool(description="<é>", parameters=CITY), tool("g")]).functions
    rendered = ChatTemplate(model).render(chat().messages or (), functions)
    shown = [
        {"name": "f", "description": "<é>", "parameters": CITY},
        {"name": "g", "parameters": {"type": "object", "properties": {}}},
    ]
    expected = [{"type": "function", "function": each} for each in shown]
    assert rendered == "".join(json.dumps(each, ensure_ascii=False) for each in expected)

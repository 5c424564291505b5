"""The functions that a client offers: OpenAI's ``tools``, ``tool_choice`` and ``parallel_tool_calls``.

Everything that the model may be shown is bounded here; what an engine compiles (a call that is forced) is
checked like any other shape, see ``tool_shapes``.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from sub100_shared.errors import ClientError

from . import json_schema

MAX_FUNCTIONS: Final = 128
MAX_DESCRIPTION_CHARS: Final = 32_768

NO_PARAMETERS: Final = '{"type":"object","properties":{}}'

_Name = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]


class Function(Struct, frozen=True, kw_only=True):
    """``parameters`` is a JSON schema as compact JSON, its order kept: the model reads it in that order."""

    name: str
    description: str | None = None
    parameters: str = NO_PARAMETERS


class ToolUse(Struct, frozen=True, kw_only=True):
    """``none``: the model sees the functions and calls none. ``auto``: it decides, and writes a call in its
    own ``form`` (see ``tool_support``). ``required``: it calls at least one. ``named``: it calls ``name``.
    """

    functions: tuple[Function, ...]
    choice: Literal["none", "auto", "required", "named"] = "auto"
    name: str = ""
    is_parallel: bool = True
    form: Literal["", "hermes"] = ""

    @property
    def is_forced(self) -> bool:
        return self.choice in ("required", "named")


class _FunctionBody(Struct, frozen=True):
    name: _Name
    description: Annotated[str, Meta(max_length=MAX_DESCRIPTION_CHARS)] | None = None
    parameters: dict[str, Any] | None = None


class ToolBody(Struct, frozen=True):
    """An entry of ``tools``. Its other fields are ignored; ``strict`` holds for every call that is forced."""

    type: Literal["function"]
    function: _FunctionBody


class _NameBody(Struct, frozen=True):
    name: str


class NamedChoice(Struct, frozen=True):
    type: Literal["function"]
    function: _NameBody


ToolsBody = Annotated[list[ToolBody], Meta(max_length=MAX_FUNCTIONS)]
ChoiceBody = Literal["none", "auto", "required"] | NamedChoice


def read(tools: list[ToolBody] | None, choice: ChoiceBody | None, is_parallel: bool | None) -> ToolUse | None:
    """None where nothing is offered; raises ClientError."""
    if not tools:
        if choice in (None, "none", "auto"):
            return None
        raise ClientError("invalid_value", "tool_choice needs tools to choose from", param="tool_choice")
    functions = tuple(_function(tool.function, f"tools[{i}].function") for i, tool in enumerate(tools))
    names = [function.name for function in functions]
    for i, name in enumerate(names):
        if name in names[:i]:
            at = f"tools[{i}].function.name"
            raise ClientError("invalid_value", f"{at}: there is a {name} already", param=at)
    if not isinstance(choice, NamedChoice):
        return ToolUse(functions=functions, choice=choice or "auto", is_parallel=is_parallel is not False)
    if choice.function.name not in names:
        at = "tool_choice.function.name"
        raise ClientError("invalid_value", f"{at}: tools has no such function", param=at)
    return ToolUse(functions=functions, choice="named", name=choice.function.name, is_parallel=False)


def template_tool(function: Function) -> dict[str, Any]:
    """A function as chat templates expect it."""
    shown: dict[str, Any] = {"name": function.name}
    if function.description is not None:
        shown["description"] = function.description
    shown["parameters"] = msgspec.json.decode(function.parameters)
    return {"type": "function", "function": shown}


def _function(body: _FunctionBody, at: str) -> Function:
    shown = json_schema.bounded(body.parameters, f"{at}.parameters") if body.parameters else NO_PARAMETERS
    return Function(name=body.name, description=body.description, parameters=shown)

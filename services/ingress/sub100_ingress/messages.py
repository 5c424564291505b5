"""Chat messages: as clients write them, and as everything behind the parser sees them."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from sub100_shared.errors import ClientError

from . import json_body

Role = Literal["system", "user", "assistant", "tool"]

PART_SEPARATOR: Final = "\n"
MAX_CALLS: Final = 128
"""Of one turn."""

_Id = Annotated[str, Meta(min_length=1, max_length=256)]


class ToolCall(Struct, frozen=True, kw_only=True):
    """A call that an earlier assistant turn made. ``arguments`` is the text that the model wrote: JSON,
    unless it was cut."""

    id: str
    name: str
    arguments: str


class ChatMessage(Struct, frozen=True, kw_only=True):
    """One turn. ``developer`` has become ``system``; content is its text parts, in order."""

    role: Role
    parts: tuple[str, ...] = ()
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """The parts joined as other OpenAI-compatible servers join them: by a newline."""
        return PART_SEPARATOR.join(self.parts)


class TextPart(Struct, frozen=True, tag="text", tag_field="type"):
    text: str


class RefusalPart(Struct, frozen=True, tag="refusal", tag_field="type"):
    refusal: str


class ImagePart(Struct, frozen=True, tag="image_url", tag_field="type"):
    """Refused, never fetched."""


class AudioPart(Struct, frozen=True, tag="input_audio", tag_field="type"):
    """Refused."""


class FilePart(Struct, frozen=True, tag="file", tag_field="type"):
    """Refused."""


class FunctionBody(Struct, frozen=True):
    name: _Id
    arguments: str = "{}"


class ToolCallBody(Struct, frozen=True):
    id: _Id
    function: FunctionBody
    type: Literal["function"] = "function"


class MessageBody(Struct, frozen=True):
    """A message in a request; unknown fields (id, agent, traceId ...) are ignored."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart | RefusalPart | ImagePart | AudioPart | FilePart] | None = None
    name: Annotated[str, Meta(max_length=256)] | None = None
    tool_calls: Annotated[list[ToolCallBody], Meta(max_length=MAX_CALLS)] | None = None
    tool_call_id: _Id | None = None


def conversation(bodies: Sequence[MessageBody]) -> tuple[ChatMessage, ...]:
    """The checked messages of a request; raises ClientError. Each result is of a call that an earlier turn
    made."""
    found = tuple(from_body(body, f"messages[{i}]") for i, body in enumerate(bodies))
    called: set[str] = set()
    for i, message in enumerate(found):
        called.update(call.id for call in message.tool_calls)
        if message.role == "tool" and message.tool_call_id not in called:
            at = f"messages[{i}].tool_call_id"
            if message.tool_call_id is None:
                raise ClientError("missing_required_parameter", f"missing: {at}", param=at)
            raise ClientError("invalid_value", f"{at}: no earlier message has a call of this id", param=at)
    return found


def from_body(body: MessageBody, at: str) -> ChatMessage:
    """The checked message; ``at`` is its path in the request. Raises ClientError."""
    if not body.content and body.role not in ("assistant", "tool") and not isinstance(body.content, str):
        raise ClientError(
            "missing_required_parameter",
            f"{at}.content: a {body.role} message needs content",
            param=f"{at}.content",
        )
    calls = body.tool_calls or []
    if calls and body.role != "assistant":
        raise ClientError(
            "invalid_value", f"{at}.tool_calls: only assistant messages call tools", param=f"{at}.tool_calls"
        )
    return ChatMessage(
        role="system" if body.role == "developer" else body.role,
        parts=_parts(body.content, f"{at}.content"),
        name=body.name,
        tool_calls=tuple(_tool_call(call, f"{at}.tool_calls[{i}]") for i, call in enumerate(calls)),
        tool_call_id=body.tool_call_id,
    )


def _parts(
    content: str | list[TextPart | RefusalPart | ImagePart | AudioPart | FilePart] | None, at: str
) -> tuple[str, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (content,)
    texts: list[str] = []
    for i, part in enumerate(content):
        match part:
            case TextPart(text=text):
                texts.append(text)
            case RefusalPart(refusal=refusal):
                texts.append(refusal)
            case _:
                kind = type(part).__struct_config__.tag
                raise ClientError(
                    "unsupported_value", f"{at}[{i}]: {kind} parts are not supported", param=f"{at}[{i}].type"
                )
    return tuple(texts)


def _tool_call(call: ToolCallBody, at: str) -> ToolCall:
    arguments = call.function.arguments
    try:
        json_body.scan(arguments.encode())
    except ClientError as error:
        param = f"{at}.function.arguments"
        raise ClientError("invalid_value", f"{param}: {error.message}", param=param) from error
    return ToolCall(id=call.id, name=call.function.name, arguments=arguments)


def template_view(message: ChatMessage, *, with_tool_calls: bool) -> dict[str, Any]:
    """The message as chat templates expect it.

    A template that knows no tool calls gets them as text, so that no turn is lost in silence.
    """
    view: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.name is not None:
        view["name"] = message.name
    if message.tool_call_id is not None:
        view["tool_call_id"] = message.tool_call_id
    if not message.tool_calls:
        return view
    functions = [{"name": call.name, "arguments": _arguments(call)} for call in message.tool_calls]
    if with_tool_calls:
        view["tool_calls"] = [
            {"id": call.id, "type": "function", "function": function}
            for call, function in zip(message.tool_calls, functions, strict=True)
        ]
        return view
    written = [
        f"<tool_call>\n{msgspec.json.encode(function).decode()}\n</tool_call>" for function in functions
    ]
    view["content"] = "\n".join(filter(None, [message.text, *written]))
    return view


def _arguments(call: ToolCall) -> Any:
    """Parsed, as templates want them; text that is no JSON (a call that was cut) stays text."""
    try:
        return msgspec.json.decode(call.arguments)
    except (msgspec.MsgspecError, RecursionError):
        return call.arguments

"""Chat messages: what clients send, and what templates and cache keys see of it."""

from typing import Any, Final

import msgspec

from sub100_shared.errors import ClientError

ROLES: Final = ("system", "developer", "user", "assistant", "tool")


class Part(msgspec.Struct, frozen=True, gc=False):
    """A content part; only text is served."""

    type: str
    text: str | None = None


class FunctionCall(msgspec.Struct, frozen=True):
    name: str
    arguments: str = ""


class ToolCall(msgspec.Struct, frozen=True):
    """A call in the history; it is shown to the template, not executed."""

    function: FunctionCall
    id: str = ""
    type: str = "function"


class MessageBody(msgspec.Struct, frozen=True):
    """A message as it arrives; unknown fields (id, agent, ...) are ignored."""

    role: str
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class Message(msgspec.Struct, frozen=True):
    """A valid message. ``parts`` keeps the borders between text parts: they count for the cache key.
    ``role`` is never ``developer``: that is a system message by another name."""

    role: str
    parts: tuple[str, ...]
    name: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def for_template(self) -> dict[str, Any]:
        """The mapping that Hugging Face templates expect; content is text, never null."""
        shown: dict[str, Any] = {"role": self.role, "content": self.text}
        if self.name:
            shown["name"] = self.name
        if self.tool_calls:
            shown["tool_calls"] = [msgspec.to_builtins(call) for call in self.tool_calls]
        if self.tool_call_id:
            shown["tool_call_id"] = self.tool_call_id
        return shown


def check_messages(bodies: list[MessageBody]) -> tuple[Message, ...]:
    """Validate; raises ClientError naming the message, and the part, at fault."""
    if not bodies:
        raise ClientError("invalid_value", "messages must not be empty", param="messages")
    return tuple(_check(body, f"messages[{index}]") for index, body in enumerate(bodies))


def _check(body: MessageBody, at: str) -> Message:
    if body.role not in ROLES:
        raise ClientError("invalid_value", f"{at}.role must be one of {', '.join(ROLES)}", param=f"{at}.role")
    return Message(
        role="system" if body.role == "developer" else body.role,
        parts=_parts(body, at),
        name=body.name or "",
        tool_calls=tuple(body.tool_calls or ()),
        tool_call_id=body.tool_call_id or "",
    )


def _parts(body: MessageBody, at: str) -> tuple[str, ...]:
    content = body.content
    if isinstance(content, str):
        return (content,)
    if content is None or not content:
        if body.role == "assistant":
            return ("",)
        raise ClientError("invalid_value", f"{at}.content must not be empty", param=f"{at}.content")
    for index, part in enumerate(content):
        where = f"{at}.content[{index}]"
        if part.type != "text":
            raise ClientError(
                "unsupported_value",
                f"{where}.type: only text parts are served, nothing is fetched",
                param=f"{where}.type",
            )
        if part.text is None:
            raise ClientError("missing_required_parameter", f"{where}.text is missing", param=f"{where}.text")
    return tuple(part.text or "" for part in content)

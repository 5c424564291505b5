"""A whole answer with its calls: what all that was told of it adds up to."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from .tool_text import OPEN, CallArguments, CallBegun, CallLost, reader
from .tools import ToolUse

TOOL_CALLS: Final = "tool_calls"


class Call(Struct, frozen=True):
    name: str
    arguments: str


class ToolMessage(Struct, frozen=True, kw_only=True):
    """``num_lost`` calls turned out to be none: their text is content. ``finish_reason`` is OpenAI's."""

    content: str
    calls: tuple[Call, ...]
    num_lost: int
    finish_reason: str

    @property
    def is_clean(self) -> bool:
        """Whether the model made no slip in a call."""
        return not self.num_lost and OPEN not in self.content


def read_message(use: ToolUse, pieces: Iterable[str], finish_reason: str) -> ToolMessage:
    """The message that a model's whole text is; ``finish_reason`` is why the text ended.

    In pieces as they came: however a text is made, no piece is read more than a few times."""
    content: list[str] = []
    names: dict[int, str] = {}
    arguments: dict[int, list[str]] = {}
    num_lost = 0
    text_reader = reader(use)
    said = [told for piece in pieces for told in text_reader.push(piece)]
    for told in (*said, *text_reader.finish(is_cut=finish_reason == "length")):
        match told:
            case CallBegun(index=index, name=name):
                names[index] = name
                arguments[index] = []
            case CallArguments(index=index, text=piece):
                arguments[index].append(piece)
            case CallLost(index=index, text=written):
                del names[index]
                num_lost += 1
                content.append(written)
            case _:
                content.append(told)
    calls = tuple(Call(name, "".join(arguments[index])) for index, name in names.items())
    return ToolMessage(
        content="".join(content),
        calls=calls,
        num_lost=num_lost,
        finish_reason=TOOL_CALLS if calls and finish_reason == "stop" else finish_reason,
    )

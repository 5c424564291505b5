"""Calls in a model's text, told as it arrives: what may still become one is held back, like a stop string.

Nothing of the text is lost: what looked like a call and was none (no JSON, a function that nobody offered) is
content. Borders of the pieces change nothing, so that a call may begin on one worker and end on another.
"""

from collections.abc import Callable, Collection
from typing import Final, Protocol

from msgspec import Struct

from .call_text import CallText, is_object
from .stops import open_start
from .tools import ToolUse

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"
MARKS: Final = (OPEN, CLOSE)
"""Text, though they are special tokens of some models."""
_BLANKS: Final = " \t\r\n"
_MAX_BLANKS: Final = 64
"""Held back before a call; of a longer run the beginning is content."""


class CallBegun(Struct, frozen=True):
    """``index`` counts an answer's calls from 0."""

    index: int
    name: str


class CallArguments(Struct, frozen=True):
    """The next piece of a call's arguments."""

    index: int
    text: str


class CallLost(Struct, frozen=True):
    """What was told of the call was none: a model's slip in its arguments. ``text`` is all that it wrote."""

    index: int
    text: str


Told = str | CallBegun | CallArguments | CallLost
"""A str is content."""


class ToolText(Protocol):
    """Reads one answer."""

    def push(self, text: str) -> list[Told]: ...

    def finish(self, *, is_cut: bool) -> list[Told]:
        """What was held back. An unfinished call is lost, unless the answer ``is_cut``: by the limit of its
        tokens, and the client is told so."""
        ...


def reader(use: ToolUse) -> ToolText:
    """Of an answer to a request that may call; ``use`` has been through ``tool_support``."""
    if use.choice == "named":
        return NamedCall(use.name)
    names = frozenset(function.name for function in use.functions)
    return ListedCalls(names) if use.choice == "required" else HermesCalls(names)


class NamedCall:
    """All of the text is the arguments of one call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._read: list[str] = []

    def push(self, text: str) -> list[Told]:
        if not text:
            return []
        begun: list[Told] = [] if self._read else [CallBegun(0, self._name)]
        self._read.append(text)
        return [*begun, CallArguments(0, text)]

    def finish(self, *, is_cut: bool) -> list[Told]:
        text = "".join(self._read)
        is_lost = bool(text) and not is_cut and not is_object(text)
        return [CallLost(0, text)] if is_lost else []


class _Calls:
    """What the forms with several calls share. A step reads some of the text and returns what it left."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._before = ""
        """What led to the call that is being read."""
        self._call: CallText | None = None
        self._num_calls = 0
        self._told: list[Told] = []
        self._step: Callable[[str], str] = self._between

    def push(self, text: str) -> list[Told]:
        while text:
            text = self._step(text)
        told, self._told = self._told, []
        return told

    def finish(self, *, is_cut: bool) -> list[Told]:
        call = self._call
        if call is None:
            self._end()
        elif not call.name:
            self._say(self._before + call.text)
        elif not (call.is_complete or is_cut):
            self._told.append(CallLost(self._num_calls - 1, self._before + call.text))
        return self.push("")

    def _between(self, text: str) -> str:
        """Outside calls."""
        raise NotImplementedError

    def _behind(self, text: str) -> str:
        """Right behind a call."""
        raise NotImplementedError

    def _end(self) -> None:
        """Tell what is held back outside calls."""

    def _say(self, text: str) -> None:
        self._told.append(text)

    def _begin(self, text: str) -> str:
        self._call = CallText(self._names)
        self._step = self._within
        return text

    def _within(self, text: str) -> str:
        call = self._call
        assert call is not None
        was_told = bool(call.name)
        arguments = call.push(text)
        if call.name and not was_told:
            self._told.append(CallBegun(self._num_calls, call.name))
            self._num_calls += 1
        if arguments:
            self._told.append(CallArguments(self._num_calls - 1, arguments))
        if not call.is_over:
            return ""
        self._call = None
        self._step = self._behind if call.name else self._between
        if not call.name:
            self._say(self._before + call.text)
        elif not call.is_complete:
            self._told.append(CallLost(self._num_calls - 1, self._before + call.text))
        return call.rest


class ListedCalls(_Calls):
    """A JSON list of calls and nothing else: what the grammar of a call that is required lets through."""

    def _between(self, text: str) -> str:
        text = text.lstrip("[,]" + _BLANKS)
        if text.startswith("{"):
            return self._begin(text)
        if text:
            self._say(text)
        return ""

    _behind = _between


class HermesCalls(_Calls):
    """``<tool_call>{...}</tool_call>`` among text: the form of Hermes, Qwen 2.5, Qwen 3 and others.

    Blanks around calls are theirs, not content. The last closing mark may be missing.
    """

    def __init__(self, names: Collection[str]) -> None:
        super().__init__(names)
        self._held = ""
        self._is_fresh = False

    def _between(self, text: str) -> str:
        text = self._held + text
        self._held = ""
        start = text.find(OPEN)
        if start >= 0:
            end = _end_of_content(text, start)
            self._say(text[:end])
            self._before = text[end:start] + OPEN
            return self._begin(text[start + len(OPEN) :])
        end = _end_of_content(text, open_start(text, OPEN))
        self._held = text[end:]
        self._say(text[:end])
        return ""

    def _behind(self, text: str) -> str:
        rest = (self._held + text).lstrip(_BLANKS)
        if rest != CLOSE and CLOSE.startswith(rest):  # not all of it yet
            self._held = rest
            return ""
        self._held = ""
        self._is_fresh = True
        self._step = self._between
        return rest.removeprefix(CLOSE)

    def _end(self) -> None:
        held, self._held = self._held, ""
        if self._step == self._between:
            self._say(held)

    def _say(self, text: str) -> None:
        if self._is_fresh:
            text = text.lstrip(_BLANKS)
        if text:
            self._is_fresh = False
            super()._say(text)


def _end_of_content(text: str, end: int) -> int:
    """Where blanks begin that may lead to a call at ``end``."""
    return max(len(text[:end].rstrip(_BLANKS)), end - _MAX_BLANKS)

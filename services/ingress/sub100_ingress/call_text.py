"""One call in a model's text, ``{"name": ..., "arguments": {...}}``, told as it arrives.

The name is told as soon as the arguments begin, the arguments from then on. Where the keys come in another
order, or more of them, nothing is told before the object has ended. Borders of the pieces change nothing.
"""

import re
from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec

_HEAD: Final = re.compile(
    r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\{)', re.DOTALL
)
_MAX_HEAD_CHARS: Final = 512
"""Whose name has not come by then is read at its end."""
_SIGNIFICANT: Final = re.compile(r'\\.|\\\Z|["{}\[\]<]', re.DOTALL)
_BLANKS: Final = " \t\r\n"


class CallText:
    """Reads one call of a function among ``names``; ``push`` until it ``is_over``.

    ``name`` is empty until it is told. A call with all its arguments ``is_complete``, whatever follows: a
    missing last bracket, the commonest slip, does not undo it. ``text`` is what has been read of it, and
    ``rest`` what came behind it, or from where on it was none.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._read: list[str] = []
        self._num_read = 0
        self._arguments: list[str] = []
        self._end = _ObjectEnd()
        self._step: Callable[[str], str] = self._head
        self.name = ""
        self.is_over = False
        self.is_complete = False
        self.rest = ""

    @property
    def text(self) -> str:
        return "".join(self._read)

    def push(self, text: str) -> str:
        """The arguments that can be told now."""
        return self._step(text)

    def _head(self, text: str) -> str:
        self._keep(text)
        if self._num_read - len(text) <= _MAX_HEAD_CHARS:
            known = self.text
            match = _HEAD.match(known)
            if match is not None and match.end() <= _MAX_HEAD_CHARS:
                return self._begin(known, match)
            if known.lstrip(_BLANKS)[:1] not in ("", "{"):
                self._read = []
                return self._over(known)
        end = self._end.find(text)
        if end < 0:
            return ""
        self._read[-1] = text[:end]
        return self._over(text[end:], self._whole())

    def _whole(self) -> str:
        """The arguments of a call whose keys came in another order."""
        call = _decoded(self.text)
        if not isinstance(call, dict):
            return ""
        name, arguments = call.get("name"), call.get("arguments", {})
        if not (isinstance(name, str) and name in self._names and isinstance(arguments, dict)):
            return ""
        self.name = name
        self.is_complete = True
        return msgspec.json.encode(arguments).decode()

    def _begin(self, known: str, match: re.Match[str]) -> str:
        name = _decoded(match[1])
        self._read = [known[: match.end()]]
        if name not in self._names:  # nobody offered it
            return self._over(known[match.end() :])
        self.name = name
        self._end = _ObjectEnd()
        self._step = self._more
        return self._more(known[match.end() :])

    def _more(self, text: str) -> str:
        end = self._end.find(text)
        told = text if end < 0 else text[:end]
        self._keep(told)
        self._arguments.append(told)
        if end < 0:
            return told
        if self._end.is_broken:
            return self._over(text[end:], told)
        self.is_complete = is_object("".join(self._arguments))
        self._step = self._tail
        return told + self._tail(text[end:])

    def _tail(self, text: str) -> str:
        """The call's own last bracket, if it comes next."""
        rest = text.lstrip(_BLANKS)
        if not rest:
            self._keep(text)
            return ""
        if rest[0] != "}":
            return self._over(text)
        rest = rest[1:]
        self._keep(text.removesuffix(rest))
        return self._over(rest)

    def _keep(self, text: str) -> None:
        self._read.append(text)
        self._num_read += len(text)

    def _over(self, rest: str, told: str = "") -> str:
        self.is_over = True
        self.rest = rest
        return told


class _ObjectEnd:
    """Finds where a JSON object ends that begins with the first text.

    A ``<`` or a backslash outside a string is no JSON: markup behind an object that was never closed is not
    taken into it.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._skips = False
        self.is_broken = False

    def find(self, text: str) -> int:
        """Just behind the last bracket, or where the object breaks; -1 while it goes on."""
        start = 1 if self._skips and text else 0
        self._skips = self._skips and not text
        for match in _SIGNIFICANT.finditer(text, start):
            char = match[0]
            if self._in_string:
                self._in_string = char != '"'
                self._skips = char == "\\"  # the piece ends within an escape
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    return match.end()
            else:
                self.is_broken = True
                return match.start()
        return -1


def is_object(text: str) -> bool:
    return isinstance(_decoded(text), dict)


def _decoded(text: str) -> Any:
    """None for what is no JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None

"""The server-sent events of one answer."""

import secrets
from collections.abc import Sequence
from typing import assert_never

from .chunks import ChatChunks, ChunkWriter
from .exchange import Exchange
from .text import ScoredToken
from .tool_message import TOOL_CALLS
from .tool_text import CallArguments, CallBegun, CallLost, Told, reader
from .tools import ToolUse


class Events:
    """A plain answer's. The role goes before the first."""

    def __init__(self, ex: Exchange, writer: ChunkWriter) -> None:
        self._ex = ex
        self._writer = writer
        self._has_role = False

    def text(self, text: str, scored: Sequence[ScoredToken]) -> bytes:
        """May be empty, while nothing can be told."""
        data = self._writer.delta(text, scored)
        return data if self._has_role else self._first(data)

    def final(self) -> bytes:
        return self._last(self._ex.finish_reason)

    def _first(self, data: bytes) -> bytes:
        """The role and the first content: the ledger closes here."""
        self._has_role = True
        self._ex.ledger.first_content_byte()
        return self._writer.role() + data

    def _last(self, finish_reason: str) -> bytes:
        role = b"" if self._has_role else self._writer.role()
        return role + self._writer.final(finish_reason)


class CallingEvents(Events):
    """An answer's that may call functions: its text is read for calls on its way out.

    Calls get their ids here, so that an answer which is told twice (from the cache, or to several readers)
    is two answers."""

    _writer: ChatChunks

    def __init__(self, ex: Exchange, writer: ChatChunks, use: ToolUse) -> None:
        super().__init__(ex, writer)
        self._reader = reader(use)
        self._num_calls = 0
        self._num_lost = 0

    def text(self, text: str, scored: Sequence[ScoredToken]) -> bytes:
        return self._told(self._reader.push(text))

    def final(self) -> bytes:
        reason = self._ex.finish_reason
        data = self._told(self._reader.finish(is_cut=reason == "length"))
        if reason == "stop" and self._num_calls and not self._num_lost:
            reason = TOOL_CALLS
        self._ex.told_reason = reason
        return data + self._last(reason)

    def _told(self, told: Sequence[Told]) -> bytes:
        data = b"".join(map(self._event, told))
        return self._first(data) if data and not self._has_role else data

    def _event(self, told: Told) -> bytes:
        match told:
            case str():
                return self._writer.delta(told)
            case CallBegun(index=index, name=name):
                self._num_calls += 1
                return self._writer.call(index, new_call_id(), name)
            case CallArguments(index=index, text=text):
                return self._writer.arguments(index, text)
            case CallLost():  # what was told cannot be taken back; the finish reason says that it is none
                self._num_lost += 1
                return b""
            case _:
                assert_never(told)


def events_of(ex: Exchange, writer: ChunkWriter) -> Events:
    use = ex.request.calling
    if use is None:
        return Events(ex, writer)
    assert isinstance(writer, ChatChunks)
    return CallingEvents(ex, writer, use)


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"

"""Answers in OpenAI's shape: prepared server-sent events, and the single body.

What repeats over the chunks of a request is encoded once; a delta encodes its text alone.
"""

import copy
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final, Self

import msgspec

from sub100_shared.errors import Sub100Error

from . import logprobs
from .errors_http import error_body
from .text import ScoredToken

DONE: Final = b"data: [DONE]\n\n"
KEEP_ALIVE: Final = b": keep-alive\n\n"

_encode: Final = msgspec.json.Encoder().encode


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What is billed. ``cached_tokens`` of the prompt came out of a prefix cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    def encode(self) -> bytes:
        return _encode(
            {
                "prompt_tokens": self.prompt_tokens,
                "completion_tokens": self.completion_tokens,
                "total_tokens": self.prompt_tokens + self.completion_tokens,
                "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            }
        )


class ChunkWriter:
    """One answer's events, in this order: ``role``, any ``delta``, one ``final``, ``usage`` if asked, DONE.
    Each of several answers to one prompt (``at``) has its own role, deltas and final.

    The id holds the request's id for whoever searches, and a random part: clients may repeat request
    ids, and a cached answer served twice is two answers. With ``include_usage`` every chunk but the
    usage chunk has ``usage: null``.
    """

    ID_PREFIX: ClassVar[str]
    CHUNK_OBJECT: ClassVar[str]
    BODY_OBJECT: ClassVar[str]
    BEFORE_TEXT: ClassVar[bytes]
    """A delta's choice from after its index up to its text ..."""
    AFTER_TEXT: ClassVar[bytes]
    """... and from there on, up to its log probabilities."""
    AFTER_LOGPROBS: ClassVar[bytes] = b',"finish_reason":null}'

    def __init__(
        self, *, request_id: str, model: str, include_usage: bool = False, created: int | None = None
    ) -> None:
        self._identity = {
            "id": f"{self.ID_PREFIX}-{request_id}-{secrets.token_hex(4)}",
            "created": int(time.time()) if created is None else created,
            "model": model,
        }
        self._start = b"data: " + self._head(self.CHUNK_OBJECT)
        self._end = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._after_logprobs = self.AFTER_LOGPROBS + self._end
        self._after = self.AFTER_TEXT + b"null" + self._after_logprobs
        self._index = 0
        self._before = self._before_text()

    def at(self, index: int) -> Self:
        """The writer of another answer to the same prompt."""
        other = copy.copy(self)
        other._index = index
        other._before = other._before_text()
        return other

    def role(self) -> bytes:
        """The chunk that opens a stream; empty where the route has none."""
        return b""

    def delta(self, text: str, scored: Sequence[ScoredToken] = ()) -> bytes:
        """A piece of text, with the log probabilities of its tokens if there are any."""
        if not scored:
            return self._before + _encode(text) + self._after
        shown = _encode(self._logprobs(scored))
        return self._before + _encode(text) + self.AFTER_TEXT + shown + self._after_logprobs

    def final(self, finish_reason: str) -> bytes:
        """The one chunk that has a finish reason, and no text."""
        return self._start + _encode(self._final_choice(finish_reason)) + self._end

    def usage(self, usage: Usage, sub100: bytes = b"") -> bytes:
        """The chunk after the final one, without choices. ``sub100``: the JSON object of that name."""
        return self._start + b'],"usage":' + usage.encode() + _member("sub100", sub100) + b"}\n\n"

    def whole(
        self,
        text: str,
        finish_reason: str,
        scored: Sequence[ScoredToken] | None = None,
        calls: Sequence[tuple[str, str, str]] = (),
    ) -> bytes:
        """One whole answer; ``scored`` is None where log probabilities were not asked for. ``calls``: id,
        name and arguments of each, in a chat."""
        choice = self._whole_choice(text, finish_reason)
        if calls:
            choice["message"]["content"] = text or None
            choice["message"]["tool_calls"] = [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for call_id, name, arguments in calls
            ]
        if scored is not None:
            choice["logprobs"] = self._logprobs(scored)
        return _encode(choice)

    def body(self, answers: Iterable[bytes], usage: Usage, **members: bytes) -> bytes:
        """Everything, not streamed; ``answers`` come from ``whole``. ``members`` are JSON, or empty."""
        end = b"".join(_member(name, value) for name, value in members.items())
        return self._head(self.BODY_OBJECT) + b",".join(answers) + b'],"usage":' + usage.encode() + end + b"}"

    def _before_text(self) -> bytes:
        return self._start + b'{"index":%d,' % self._index + self.BEFORE_TEXT

    def _head(self, kind: str) -> bytes:
        """The object up to the inside of its list of choices."""
        return _encode({"object": kind, **self._identity})[:-1] + b',"choices":['

    def _logprobs(self, scored: Sequence[ScoredToken]) -> dict[str, Any]:
        raise NotImplementedError

    def _final_choice(self, finish_reason: str) -> dict[str, Any]:
        raise NotImplementedError

    def _whole_choice(self, text: str, finish_reason: str) -> dict[str, Any]:
        raise NotImplementedError


class ChatChunks(ChunkWriter):
    """``/v1/chat/completions``. There is no ``tool_calls`` key without calls: an empty list reads as one to
    SDKs."""

    ID_PREFIX = "chatcmpl"
    CHUNK_OBJECT = "chat.completion.chunk"
    BODY_OBJECT = "chat.completion"
    BEFORE_TEXT = b'"delta":{"content":'
    AFTER_TEXT = b'},"logprobs":'

    def role(self) -> bytes:
        choice = {
            "index": self._index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        return self._start + _encode(choice) + self._end

    def call(self, index: int, call_id: str, name: str) -> bytes:
        """The beginning of the answer's call of that index; ``arguments`` follow."""
        function = {"name": name, "arguments": ""}
        return self._call_delta({"index": index, "id": call_id, "type": "function", "function": function})

    def arguments(self, index: int, text: str) -> bytes:
        return self._call_delta({"index": index, "function": {"arguments": text}})

    def _call_delta(self, call: dict[str, Any]) -> bytes:
        choice = {
            "index": self._index,
            "delta": {"tool_calls": [call]},
            "logprobs": None,
            "finish_reason": None,
        }
        return self._start + _encode(choice) + self._end

    def _logprobs(self, scored: Sequence[ScoredToken]) -> dict[str, Any]:
        return logprobs.chat(scored)

    def _final_choice(self, finish_reason: str) -> dict[str, Any]:
        return {"index": self._index, "delta": {}, "logprobs": None, "finish_reason": finish_reason}

    def _whole_choice(self, text: str, finish_reason: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": self._index, "message": message, "logprobs": None, "finish_reason": finish_reason}


class CompletionChunks(ChunkWriter):
    """``/v1/completions``: the same object streamed and not, no role."""

    ID_PREFIX = "cmpl"
    CHUNK_OBJECT = "text_completion"
    BODY_OBJECT = "text_completion"
    BEFORE_TEXT = b'"text":'
    AFTER_TEXT = b',"logprobs":'

    def _logprobs(self, scored: Sequence[ScoredToken]) -> dict[str, Any]:
        return logprobs.completion(scored)

    def _final_choice(self, finish_reason: str) -> dict[str, Any]:
        return {"index": self._index, "text": "", "logprobs": None, "finish_reason": finish_reason}

    def _whole_choice(self, text: str, finish_reason: str) -> dict[str, Any]:
        return {"index": self._index, "text": text, "logprobs": None, "finish_reason": finish_reason}


def _member(name: str, value: bytes) -> bytes:
    return b',"%s":%s' % (name.encode(), value) if value else b""


def error_event(error: Sub100Error, request_id: str) -> bytes:
    """The last event of a stream that broke: an error object, no finish reason, no DONE."""
    return b"data: " + error_body(error, request_id) + b"\n\n"

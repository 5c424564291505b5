"""Bytes of OpenAI's responses, encoded by hand: per delta only the text goes through an encoder."""

import time
from typing import Final, Protocol

import msgspec

from sub100_shared.errors import Sub100Error

from .errors_http import error_body

DONE: Final = b"data: [DONE]\n\n"
KEEP_ALIVE: Final = b": keep-alive\n\n"

_json: Final = msgspec.json.Encoder().encode


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """``cached_tokens`` of the prompt came from a prefix cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    def as_dict(self) -> dict[str, object]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


class ChunkWriter(Protocol):
    """One response's encoder. Streaming: ``role`` once, ``delta`` per piece, ``final`` once, ``usage`` if
    asked for. Otherwise: ``body`` once."""

    def role(self) -> bytes: ...

    def delta(self, text: str) -> bytes: ...

    def final(self, finish_reason: str) -> bytes: ...

    def usage(self, usage: Usage) -> bytes: ...

    def body(self, text: str, finish_reason: str, usage: Usage) -> bytes: ...


class _Writer:
    """The frame that both endpoints share; subclasses give the object names and the choices."""

    _prefix: str
    _stream_object: str
    _body_object: str

    def __init__(self, *, request_id: str, model: str, include_usage: bool) -> None:
        self._id = f"{self._prefix}{request_id}"
        self._model = model
        self._created = int(time.time())
        self._head = self._frame(self._stream_object)
        self._tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"

    def _frame(self, kind: str) -> bytes:
        return b'{"id":%b,"object":"%b","created":%d,"model":%b,"choices":' % (
            _json(self._id),
            kind.encode(),
            self._created,
            _json(self._model),
        )

    def _event(self, choices: bytes) -> bytes:
        return b"data: " + self._head + choices + self._tail

    def usage(self, usage: Usage) -> bytes:
        return b"data: " + self._head + b'[],"usage":' + _json(usage.as_dict()) + b"}\n\n"

    def _whole(self, choices: bytes, usage: Usage) -> bytes:
        return self._frame(self._body_object) + choices + b',"usage":' + _json(usage.as_dict()) + b"}"


class ChatChunks(_Writer):
    """``chat.completion.chunk`` and ``chat.completion``."""

    _prefix = "chatcmpl-"
    _stream_object = "chat.completion.chunk"
    _body_object = "chat.completion"

    def role(self) -> bytes:
        return self._event(
            b'[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        )

    def delta(self, text: str) -> bytes:
        return self._event(
            b'[{"index":0,"delta":{"content":' + _json(text) + b'},"logprobs":null,"finish_reason":null}]'
        )

    def final(self, finish_reason: str) -> bytes:
        return self._event(
            b'[{"index":0,"delta":{},"logprobs":null,"finish_reason":' + _json(finish_reason) + b"}]"
        )

    def body(self, text: str, finish_reason: str, usage: Usage) -> bytes:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
        return self._whole(_json([choice]), usage)


class CompletionChunks(_Writer):
    """``text_completion``."""

    _prefix = "cmpl-"
    _stream_object = "text_completion"
    _body_object = "text_completion"

    def role(self) -> bytes:
        return b""

    def delta(self, text: str) -> bytes:
        return self._event(b'[{"index":0,"text":' + _json(text) + b',"logprobs":null,"finish_reason":null}]')

    def final(self, finish_reason: str) -> bytes:
        return self._event(
            b'[{"index":0,"text":"","logprobs":null,"finish_reason":' + _json(finish_reason) + b"}]"
        )

    def body(self, text: str, finish_reason: str, usage: Usage) -> bytes:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
        return self._whole(_json([choice]), usage)


def error_event(error: Sub100Error, request_id: str) -> bytes:
    """An error inside a stream that has begun: the last event, without ``[DONE]``."""
    return b"data: " + error_body(error, request_id) + b"\n\n"

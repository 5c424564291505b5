"""OpenAI's requests, checked and reduced to what a generation needs.

``parse_chat`` and ``parse_completion`` are strict where OpenAI is strict and raise ClientError naming
the field. Everything that is not in these Structs is left behind here: nothing of a client's body is
forwarded as it came.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from sub100_proto.sampling import MAX_SEED, Sampling
from sub100_shared.errors import ClientError

from . import json_body, messages, unsupported
from .messages import ChatMessage, MessageBody
from .wire_errors import client_error

COMPLETION_MAX_TOKENS: Final = 16
"""What ``/v1/completions`` generates when the client does not say (OpenAI's default)."""

MAX_STOPS: Final = 4
MAX_STOP_CHARS: Final = 1024

_UNRESOLVED: Final = 0

_Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]
_Stop = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]
_TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class GenerationRequest(Struct, frozen=True, kw_only=True):
    """``messages`` is None for a completion, whose ``prompt`` is text or token ids.

    ``sampling.max_tokens`` is not resolved: ``max_tokens`` is what the client said (None: nothing).
    """

    kind: Literal["chat", "completion"]
    model: str
    sampling: Sampling
    messages: tuple[ChatMessage, ...] | None = None
    prompt: str | tuple[int, ...] = ""
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False

    def resolve_max_tokens(self, num_prompt_tokens: int, max_model_len: int) -> int:
        """How many tokens may be generated, at least 1; raises ClientError when they do not fit.

        An explicit limit must fit beside the prompt, as with OpenAI; without one a chat may fill the
        context and a completion gets OpenAI's default of 16.
        """
        param = "prompt" if self.messages is None else "messages"
        if num_prompt_tokens < 1:
            raise ClientError("invalid_value", f"{param}: the prompt is empty", param=param)
        room = max_model_len - num_prompt_tokens
        if room < (self.max_tokens or 1):
            asked = f" and {self.max_tokens} for the answer" if self.max_tokens else ""
            raise ClientError(
                "context_length_exceeded",
                f"the model's context is {max_model_len} tokens; the prompt has {num_prompt_tokens}{asked}",
                param=param,
            )
        resolved = self.max_tokens or (
            min(COMPLETION_MAX_TOKENS, room) if self.kind == "completion" else room
        )
        if self.sampling.min_tokens > resolved:
            raise ClientError(
                "invalid_value", f"min_tokens is more than the {resolved} tokens allowed", param="min_tokens"
            )
        return resolved

    def engine_sampling(self, max_tokens: int) -> Sampling:
        """What the engine gets; ``max_tokens`` comes from ``resolve_max_tokens``."""
        return msgspec.structs.replace(self.sampling, max_tokens=max_tokens)


class _StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class _Body(Struct, frozen=True, kw_only=True):
    """What both routes share; null means the default, as with OpenAI."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    max_tokens: _Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    seed: Annotated[int, Meta(ge=-MAX_SEED - 1, le=MAX_SEED)] | None = None
    stop: _Stop | Annotated[list[_Stop], Meta(max_length=MAX_STOPS)] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: Annotated[int, Meta(ge=1)] | None = None
    # vLLM's additions
    top_k: Annotated[int, Meta(ge=-1, le=2**20)] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    ignore_eos: bool | None = None
    stop_token_ids: Annotated[list[_TokenId], Meta(max_length=64)] | None = None


class _ChatBody(_Body, frozen=True, kw_only=True):
    messages: Annotated[list[MessageBody], Meta(min_length=1)]
    max_completion_tokens: _Count | None = None


class _CompletionBody(_Body, frozen=True, kw_only=True):
    prompt: str | list[Any]


T = TypeVar("T", bound=_Body)


def parse_chat(body: bytes) -> GenerationRequest:
    """The request of ``/v1/chat/completions``; raises ClientError."""
    chat = _read(body, _ChatBody, unsupported.refuse_chat)
    if (
        None not in (chat.max_tokens, chat.max_completion_tokens)
        and chat.max_tokens != chat.max_completion_tokens
    ):
        raise ClientError(
            "invalid_value", "max_tokens and max_completion_tokens differ: send one", param="max_tokens"
        )
    return _generation(
        chat,
        kind="chat",
        messages=tuple(messages.from_body(each, f"messages[{i}]") for i, each in enumerate(chat.messages)),
        max_tokens=chat.max_completion_tokens or chat.max_tokens,
    )


def parse_completion(body: bytes) -> GenerationRequest:
    """The request of ``/v1/completions``; raises ClientError."""
    completion = _read(body, _CompletionBody, unsupported.refuse_completion)
    return _generation(
        completion, kind="completion", prompt=_prompt(completion.prompt), max_tokens=completion.max_tokens
    )


def _read(body: bytes, body_type: type[T], refuse: Callable[[dict[str, Any]], None]) -> T:
    raw = json_body.load(body)
    try:
        parsed = msgspec.convert(raw, body_type)
    except msgspec.ValidationError as error:
        raise client_error(error) from error
    refuse(raw)
    if parsed.stream_options is not None and not parsed.stream:
        raise ClientError(
            "invalid_value", "stream_options is allowed with stream only", param="stream_options"
        )
    return parsed


def _generation(body: _Body, **own: Any) -> GenerationRequest:
    stop = body.stop or ()
    options = body.stream_options
    return GenerationRequest(
        model=body.model,
        sampling=_sampling(body),
        stops=(stop,) if isinstance(stop, str) else tuple(dict.fromkeys(stop)),
        stream=bool(body.stream),
        include_usage=options is not None and bool(options.include_usage),
        **own,
    )


def _sampling(body: _Body) -> Sampling:
    given = {name: getattr(body, name) for name in _SAMPLING_FIELDS}
    set_fields = {name: value for name, value in given.items() if value is not None}
    if body.stop_token_ids:
        set_fields["stop_token_ids"] = tuple(body.stop_token_ids)
    if body.top_k is not None:
        set_fields["top_k"] = max(body.top_k, 0)  # -1 is vLLM's "off"
    return Sampling(max_tokens=_UNRESOLVED, **set_fields)


_SAMPLING_FIELDS: Final = (
    "min_tokens",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "ignore_eos",
)


def _prompt(value: str | list[Any]) -> str | tuple[int, ...]:
    """One prompt: text, token ids, or a list of exactly one of them."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if not value:
        raise ClientError("invalid_value", "prompt must not be empty", param="prompt")
    if isinstance(value, str):
        return value
    kinds = set(map(type, value))
    if kinds <= {str} or kinds <= {list}:
        raise ClientError("unsupported_value", "several prompts are not supported yet", param="prompt")
    if kinds != {int}:
        raise ClientError("invalid_type", "prompt must be text or a list of token ids", param="prompt")
    return tuple(value)

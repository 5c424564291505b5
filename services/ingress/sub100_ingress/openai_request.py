"""OpenAI's requests, checked and reduced to what a generation needs.

``parse_chat`` and ``parse_completion`` are strict where OpenAI is strict and raise ClientError naming
the field. Everything that is not in these Structs is left behind here: nothing of a client's body is
forwarded as it came.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from sub100_proto.sampling import MAX_LOGPROBS, MAX_SEED, Sampling, Structured
from sub100_shared.errors import ClientError

from . import json_body, messages, structured, tool_shapes, tools, unsupported
from .messages import ChatMessage, MessageBody
from .tools import ChoiceBody, ToolsBody, ToolUse
from .wire_errors import client_error

COMPLETION_MAX_TOKENS: Final = 16
"""What ``/v1/completions`` generates when the client does not say (OpenAI's default)."""

MAX_STOPS: Final = 4
MAX_STOP_CHARS: Final = 1024
MAX_CHOICES: Final = 16
MAX_BIASES: Final = 300
MAX_BAD_WORDS: Final = 64
MAX_BAD_WORD_CHARS: Final = 256
MAX_ALLOWED_TOKENS: Final = 4096

_UNRESOLVED: Final = 0

_Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]
_Stop = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]
_TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_NumTop = Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)]
_Bias = Annotated[float, Meta(ge=-100, le=100)]
_BadWord = Annotated[str, Meta(min_length=1, max_length=MAX_BAD_WORD_CHARS)]


class GenerationRequest(Struct, frozen=True, kw_only=True):
    """``messages`` is None for a completion, whose ``prompt`` is text or token ids.

    ``sampling.max_tokens`` is not resolved: ``max_tokens`` is what the client said (None: nothing). ``n``
    answers are asked for; ``echo`` puts the prompt before each. ``prompt_top``: as many alternatives to each
    prompt token are shown (None: no scores). ``bad_words`` are not tokenised yet.
    ``structured_param`` is the field that asks for a shape, to be named if no engine can have it. ``tools``
    are the functions that the model is offered, if any.
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
    n: int = 1
    echo: bool = False
    prompt_top: int | None = None
    bad_words: tuple[str, ...] = ()
    structured_param: str = ""
    tools: ToolUse | None = None

    @property
    def is_decode_alone(self) -> bool:
        """Whether one worker must do all of it: the hand-over is for one answer, and scores no prompt."""
        return self.n > 1 or self.sampling.prompt_logprobs is not None

    @property
    def calling(self) -> ToolUse | None:
        """The tools, where the answer may call them."""
        return None if self.tools is None or self.tools.choice == "none" else self.tools

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

    def engine_sampling(self, max_tokens: int, bad_words: tuple[tuple[int, ...], ...] = ()) -> Sampling:
        """What the engine gets; ``max_tokens`` comes from ``resolve_max_tokens``."""
        return msgspec.structs.replace(self.sampling, max_tokens=max_tokens, bad_words=bad_words)


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
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    logit_bias: Annotated[dict[int, _Bias], Meta(max_length=MAX_BIASES)] | None = None
    # vLLM's additions
    top_k: Annotated[int, Meta(ge=-1, le=2**20)] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    ignore_eos: bool | None = None
    stop_token_ids: Annotated[list[_TokenId], Meta(max_length=64)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    bad_words: Annotated[list[_BadWord], Meta(max_length=MAX_BAD_WORDS)] | None = None
    allowed_token_ids: Annotated[list[_TokenId], Meta(min_length=1, max_length=MAX_ALLOWED_TOKENS)] | None = (
        None
    )
    prompt_logprobs: _NumTop | None = None


class _ChatBody(_Body, frozen=True, kw_only=True):
    messages: Annotated[list[MessageBody], Meta(min_length=1)]
    max_completion_tokens: _Count | None = None
    logprobs: bool | None = None
    top_logprobs: _NumTop | None = None
    tools: ToolsBody | None = None
    tool_choice: ChoiceBody | None = None
    parallel_tool_calls: bool | None = None


class _CompletionBody(_Body, frozen=True, kw_only=True):
    prompt: str | list[Any]
    logprobs: _NumTop | None = None
    echo: bool | None = None


T = TypeVar("T", bound=_Body)
_Shape = tuple[Structured | None, str]


def parse_chat(body: bytes) -> GenerationRequest:
    """The request of ``/v1/chat/completions``; raises ClientError."""
    chat, shape = _read(body, _ChatBody, unsupported.refuse_chat)
    if chat.top_logprobs and not chat.logprobs:
        raise ClientError("invalid_value", "top_logprobs needs logprobs: true", param="top_logprobs")
    if (
        None not in (chat.max_tokens, chat.max_completion_tokens)
        and chat.max_tokens != chat.max_completion_tokens
    ):
        raise ClientError(
            "invalid_value", "max_tokens and max_completion_tokens differ: send one", param="max_tokens"
        )
    use = tools.read(chat.tools, chat.tool_choice, chat.parallel_tool_calls)
    if use is not None and use.choice != "none":
        shape = _shape_of_calls(chat, use, shape)
    return _generation(
        chat,
        shape,
        num_top=(chat.top_logprobs or 0) if chat.logprobs else None,
        kind="chat",
        messages=messages.conversation(chat.messages),
        max_tokens=chat.max_completion_tokens or chat.max_tokens,
        tools=use,
    )


def parse_completion(body: bytes) -> GenerationRequest:
    """The request of ``/v1/completions``; raises ClientError."""
    completion, shape = _read(body, _CompletionBody, unsupported.refuse_completion)
    return _generation(
        completion,
        shape,
        num_top=completion.logprobs,
        kind="completion",
        prompt=_prompt(completion.prompt),
        max_tokens=completion.max_tokens,
        echo=bool(completion.echo),
    )


def _read(body: bytes, body_type: type[T], refuse: Callable[[dict[str, Any]], None]) -> tuple[T, _Shape]:
    raw = json_body.load(body)
    try:
        # keys are strings in JSON: token ids, in ``logit_bias``
        parsed = msgspec.convert(raw, body_type, str_keys=True)
    except msgspec.ValidationError as error:
        raise client_error(error) from error
    refuse(raw)
    if parsed.stream_options is not None and not parsed.stream:
        raise ClientError(
            "invalid_value", "stream_options is allowed with stream only", param="stream_options"
        )
    if parsed.prompt_logprobs is not None and parsed.stream:
        raise ClientError(
            "invalid_value", "prompt_logprobs are not available with stream", param="prompt_logprobs"
        )
    shape = structured.read(raw)
    if shape[0] is not None:
        _let_end(parsed, f"{shape[1]}, which knows its end")
    return parsed, shape


def _let_end(body: _Body, what: str) -> None:
    """An answer of a shape is over when the shape is: what is made to go on is of none."""
    for param in ("min_tokens", "ignore_eos"):
        if getattr(body, param):
            raise ClientError("invalid_value", f"{param} contradicts {what}", param=param)


def _shape_of_calls(chat: _ChatBody, use: ToolUse, shape: _Shape) -> _Shape:
    """The shape of an answer that may call; raises ClientError for what contradicts calls."""
    if chat.logprobs:
        raise ClientError(
            "unsupported_value", "logprobs are not available where tools may be called", param="logprobs"
        )
    if shape[0] is not None:
        raise ClientError(
            "unsupported_value",
            f"{shape[1]} leaves no room for a call: send it with tool_choice none",
            param=shape[1],
        )
    forced = tool_shapes.forced(use)
    if forced is not None:
        _let_end(chat, "tool_choice: a call knows its end")
    return forced, "tools" if forced is not None else ""


def _generation(
    body: _Body, shape: _Shape, *, num_top: int | None, echo: bool = False, **own: Any
) -> GenerationRequest:
    stop = body.stop or ()
    options = body.stream_options
    prompt_top = body.prompt_logprobs
    if echo and num_top is not None:  # the echoed prompt is scored like the answer
        prompt_top = max(num_top, prompt_top or 0)
    return GenerationRequest(
        model=body.model,
        sampling=msgspec.structs.replace(
            _sampling(body), logprobs=num_top, prompt_logprobs=prompt_top, structured=shape[0]
        ),
        stops=(stop,) if isinstance(stop, str) else tuple(dict.fromkeys(stop)),
        stream=bool(body.stream),
        include_usage=options is not None and bool(options.include_usage),
        n=body.n or 1,
        echo=echo,
        prompt_top=body.prompt_logprobs,
        bad_words=tuple(dict.fromkeys(body.bad_words or ())),
        structured_param=shape[1],
        **own,
    )


def _sampling(body: _Body) -> Sampling:
    given = {name: getattr(body, name) for name in _SAMPLING_FIELDS}
    set_fields = {name: value for name, value in given.items() if value is not None}
    if body.stop_token_ids:
        set_fields["stop_token_ids"] = tuple(body.stop_token_ids)
    if body.allowed_token_ids:
        set_fields["allowed_token_ids"] = tuple(body.allowed_token_ids)
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
    "min_p",
    "logit_bias",
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

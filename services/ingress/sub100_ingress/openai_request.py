"""OpenAI-style requests: bytes in, a valid GenerationRequest out, or a ClientError naming the field.

Rules: a field that we do not know is ignored; one that we know and do not serve yet is refused when it asks
for something, never ignored; values are checked before any work. Nothing that is internal to the fleet
can be set from here.
"""

import re
from typing import Any, Final, Literal

import msgspec

from sub100_proto.sampling import MAX_SEED, Sampling
from sub100_shared.errors import ClientError

from .messages import Message, MessageBody, check_messages

MAX_OUTPUT_TOKENS: Final = 2**20
_MAX_STOPS: Final = 4
_MAX_STOP_CHARS: Final = 512
_DEFAULT_COMPLETION_TOKENS: Final = 16


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class _Body(msgspec.Struct, kw_only=True):
    """Fields of both endpoints. Those typed Any are refused by ``_refuse_unserved`` or ignored there."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    # extensions that vLLM's clients use
    top_k: int | None = None
    min_tokens: int | None = None
    repetition_penalty: float | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = None
    # known, not served yet
    n: Any = None
    best_of: Any = None
    logprobs: Any = None
    top_logprobs: Any = None
    prompt_logprobs: Any = None
    logit_bias: Any = None
    echo: Any = None
    suffix: Any = None
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    modalities: Any = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None


class _ChatBody(_Body, kw_only=True):
    messages: list[MessageBody]
    max_completion_tokens: int | None = None


class _CompletionBody(_Body, kw_only=True):
    prompt: str | list[Any]


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What both endpoints come down to: exactly one of ``messages`` and ``prompt`` is set.

    ``sampling.max_tokens`` is 0 until ``resolve_max_tokens``: the default depends on the prompt.
    """

    model: str
    messages: tuple[Message, ...] | None
    prompt: str | tuple[int, ...] | None
    sampling: Sampling
    max_tokens: int | None
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool

    def resolve_max_tokens(self, num_prompt_tokens: int, max_model_len: int) -> int:
        """Output tokens to make; raises ClientError if prompt, or prompt and answer, exceed the context."""
        room = max_model_len - num_prompt_tokens
        param = "messages" if self.messages is not None else "prompt"
        if num_prompt_tokens == 0:
            raise ClientError("invalid_value", f"{param} must not be empty", param=param)
        if room < 1 or (self.max_tokens or 1) > room:
            asked = "" if room < 1 else f" and {self.max_tokens} for the answer"
            raise ClientError(
                "context_length_exceeded",
                f"this model's context is {max_model_len} tokens, but the request needs "
                f"{num_prompt_tokens} for the {param}{asked}",
                param=param,
            )
        default = room if self.messages is not None else min(_DEFAULT_COMPLETION_TOKENS, room)
        return self.max_tokens or default

    def engine_sampling(self, max_tokens: int) -> Sampling:
        """The sampling that jobs carry."""
        return msgspec.structs.replace(
            self.sampling, max_tokens=max_tokens, min_tokens=min(self.sampling.min_tokens, max_tokens)
        )


_decode_chat: Final = msgspec.json.Decoder(_ChatBody).decode
_decode_completion: Final = msgspec.json.Decoder(_CompletionBody).decode


def parse_chat(body: bytes) -> GenerationRequest:
    """``POST /v1/chat/completions``."""
    fields = _decode(_decode_chat, body)
    limit = fields.max_completion_tokens
    _check_range(limit, "max_completion_tokens", 1, MAX_OUTPUT_TOKENS)
    if limit is None:
        limit = fields.max_tokens
    return _request(fields, check_messages(fields.messages), None, limit)


def parse_completion(body: bytes) -> GenerationRequest:
    """``POST /v1/completions``."""
    fields = _decode(_decode_completion, body)
    return _request(fields, None, _one_prompt(fields.prompt), fields.max_tokens)


def _decode(decode: Any, body: bytes) -> Any:
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ClientError("invalid_json", f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise ClientError("invalid_json", "the body is nested too deeply") from None


def _request(
    fields: _Body,
    messages: tuple[Message, ...] | None,
    prompt: str | tuple[int, ...] | None,
    max_tokens: int | None,
) -> GenerationRequest:
    _refuse_unserved(fields)
    _check_range(fields.max_tokens, "max_tokens", 1, MAX_OUTPUT_TOKENS)
    options = fields.stream_options
    if options is not None and not fields.stream:
        raise ClientError(
            "invalid_value", "stream_options is only allowed when stream is true", param="stream_options"
        )
    return GenerationRequest(
        model=fields.model,
        messages=messages,
        prompt=prompt,
        sampling=_sampling(fields),
        max_tokens=max_tokens,
        stops=_stops(fields.stop),
        stream=bool(fields.stream),
        include_usage=bool(options is not None and options.include_usage),
    )


def _sampling(fields: _Body) -> Sampling:
    _check_range(fields.temperature, "temperature", 0.0, 2.0)
    _check_range(fields.top_p, "top_p", 0.0, 1.0)
    if fields.top_p == 0.0:
        raise ClientError("invalid_value", "top_p must be greater than 0", param="top_p")
    _check_range(fields.presence_penalty, "presence_penalty", -2.0, 2.0)
    _check_range(fields.frequency_penalty, "frequency_penalty", -2.0, 2.0)
    _check_range(fields.repetition_penalty, "repetition_penalty", 0.01, 10.0)
    _check_range(fields.seed, "seed", -MAX_SEED - 1, MAX_SEED)
    _check_range(fields.top_k, "top_k", -1, 2**31 - 1)
    _check_range(fields.min_tokens, "min_tokens", 0, MAX_OUTPUT_TOKENS)
    ids = fields.stop_token_ids or []
    if len(ids) > 16 or not all(0 <= token < 2**31 for token in ids):
        raise ClientError("invalid_value", "stop_token_ids: at most 16 token ids", param="stop_token_ids")
    return Sampling(
        max_tokens=0,
        min_tokens=fields.min_tokens or 0,
        temperature=1.0 if fields.temperature is None else fields.temperature,
        top_p=1.0 if fields.top_p is None else fields.top_p,
        top_k=max(0, fields.top_k or 0),
        presence_penalty=fields.presence_penalty or 0.0,
        frequency_penalty=fields.frequency_penalty or 0.0,
        repetition_penalty=1.0 if fields.repetition_penalty is None else fields.repetition_penalty,
        seed=fields.seed,
        stop_token_ids=tuple(ids),
        ignore_eos=bool(fields.ignore_eos),
    )


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > _MAX_STOPS:
        raise ClientError("invalid_value", f"at most {_MAX_STOPS} stop strings are allowed", param="stop")
    if any(not text or len(text) > _MAX_STOP_CHARS for text in stops):
        raise ClientError(
            "invalid_value", f"a stop string must have 1 to {_MAX_STOP_CHARS} characters", param="stop"
        )
    return stops


def _one_prompt(prompt: str | list[Any]) -> str | tuple[int, ...]:
    """A string, a list of token ids, or a list that holds exactly one of these."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise ClientError("unsupported_value", "several prompts are not served yet", param="prompt")
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    if not all(type(token) is int for token in prompt):
        raise ClientError("invalid_type", "prompt must be text or token ids", param="prompt")
    return tuple(prompt)


def _check_range(value: float | None, name: str, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        raise ClientError("invalid_value", f"{name} must be between {low} and {high}", param=name)


_PLAIN: Final[dict[str, tuple[Any, ...]]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "prompt_logprobs": (None,),
    "logit_bias": (None, {}),
    "echo": (None, False),
    "suffix": (None, ""),
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}),
    "structured_outputs": (None,),
    "guided_json": (None,),
    "guided_regex": (None,),
    "guided_choice": (None,),
    "guided_grammar": (None,),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "prediction": (None,),
    "web_search_options": (None,),
}
"""Values that ask for nothing; any other is refused."""


def _refuse_unserved(fields: _Body) -> None:
    for name, plain in _PLAIN.items():
        value = getattr(fields, name)
        if value is None:
            continue
        if not any(value == ok and type(value) is type(ok) for ok in plain):
            raise ClientError("unsupported_parameter", f"{name} is not served yet", param=name)


_AT: Final = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING: Final = re.compile(r"missing required field `(\w+)`")


def _invalid(message: str) -> ClientError:
    """msgspec's ``... - at `$.messages[0].role``` in OpenAI's terms."""
    found = _AT.match(message)
    what, path = (found["what"], found["path"] or "") if found else (message, "")
    param = path.removeprefix("$").removeprefix(".").replace("[...]", "[]")
    code: Literal["missing_required_parameter", "invalid_type"] = "invalid_type"
    if missing := _MISSING.search(what):
        param = f"{param}.{missing[1]}" if param else missing[1]
        code = "missing_required_parameter"
    return ClientError(code, f"{param}: {what}" if param else what, param=param or None)

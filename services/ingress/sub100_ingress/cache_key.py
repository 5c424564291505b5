"""The exact cache key: everything that changes the answer, and nothing else.

Two requests share a key only if tenant, model and its revision, every message (roles, names, part
borders, tool calls) and every sampling field are equal. ``stream``, ``stream_options`` and ``user``
change only the wrapping and are left out. The last user turn is normalised: Unicode NFC, surrounding white
space off, runs of white space become one blank. Case stays: it may matter.
"""

import unicodedata
from hashlib import sha256
from typing import Final

import msgspec

from .keys import CachePolicy
from .messages import Message
from .openai_request import GenerationRequest

_VERSION: Final = "exact.1"
_encode: Final = msgspec.msgpack.Encoder().encode


def is_cacheable(request: GenerationRequest, policy: CachePolicy) -> bool:
    """``deterministic``: only temperature 0 (an omitted temperature is 1); ``all``: whatever is asked
    again in the same words may get the same answer."""
    return policy == "all" or (policy == "deterministic" and request.sampling.temperature == 0.0)


def digest(request: GenerationRequest, tenant: str, model_revision: str) -> bytes:
    """32 bytes, from a canonical encoding: lengths are explicit, so no two field values can run together."""
    sampling = request.sampling
    return sha256(
        _encode(
            (
                _VERSION,
                tenant,
                request.model,
                model_revision,
                None if request.messages is None else _messages(request.messages),
                normalise(request.prompt) if isinstance(request.prompt, str) else request.prompt,
                request.max_tokens,
                request.stops,
                (
                    sampling.min_tokens,
                    float(sampling.temperature),
                    float(sampling.top_p),
                    sampling.top_k,
                    float(sampling.presence_penalty),
                    float(sampling.frequency_penalty),
                    float(sampling.repetition_penalty),
                    sampling.seed,
                    sampling.stop_token_ids,
                    sampling.ignore_eos,
                ),
            )
        )
    ).digest()


def normalise(text: str) -> str:
    """NFC, stripped, white space collapsed."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def _messages(messages: tuple[Message, ...]) -> list[tuple[object, ...]]:
    last = len(messages) - 1
    return [
        (
            message.role,
            [normalise(part) for part in message.parts]
            if index == last and message.role == "user"
            else message.parts,
            message.name,
            [
                (call.id, call.type, call.function.name, call.function.arguments)
                for call in message.tool_calls
            ],
            message.tool_call_id,
        )
        for index, message in enumerate(messages)
    ]

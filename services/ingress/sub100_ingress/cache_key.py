"""What makes two requests the same question: the exact tier's key, and whether to ask at all."""

import unicodedata
from hashlib import sha256
from typing import Final

import msgspec

from .keys import CachePolicy
from .messages import ChatMessage
from .openai_request import GenerationRequest

_VERSION: Final = 1
"""Raise it when the meaning of a key changes; old entries are then never found again."""

_DELIVERY_FIELDS: Final = frozenset({"stream", "include_usage"})
"""Fields that change how an answer is delivered, not what it says."""

_encode: Final = msgspec.msgpack.Encoder().encode


def digest(request: GenerationRequest, tenant: str, model_revision: str) -> bytes:
    """32 bytes over everything that changes the answer: tenant, model and revision, every message with its
    part borders, every sampling field at its effective value, limits and stop strings.

    Fields are taken from the Structs by name, so that a field added later is in the key unless it is
    listed in _DELIVERY_FIELDS. The last user turn is normalised (``normalise``); earlier turns and
    completion prompts, where a blank at the end steers the model, are not.
    """
    fields = {
        name: getattr(request, name) for name in request.__struct_fields__ if name not in _DELIVERY_FIELDS
    }
    sampling = request.sampling
    fields["sampling"] = {name: getattr(sampling, name) for name in sampling.__struct_fields__}
    if request.messages is not None:
        fields["messages"] = _normalised_tail(request.messages)
    return sha256(_encode([_VERSION, tenant, model_revision, fields])).digest()


def is_cacheable(request: GenerationRequest, policy: CachePolicy) -> bool:
    """Whether the tenant's policy lets this request be answered from, and kept in, the cache.

    An omitted temperature is 1, so such a request is not deterministic.
    """
    return policy == "all" or (policy == "deterministic" and request.sampling.temperature == 0)


def normalise(text: str) -> str:
    """NFC, line ends as ``\\n``, no blanks around. Case and inner blanks stay: they carry meaning."""
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n").strip())


def _normalised_tail(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    last = messages[-1]
    if last.role != "user":
        return messages
    parts = tuple(normalise(part) for part in last.parts)
    return (*messages[:-1], msgspec.structs.replace(last, parts=parts))

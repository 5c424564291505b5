"""What makes two requests the same question: digest, scope, question; and whether to ask at all.

The *question* is the text of the last user turn (its last part, if it has several). The *scope* is a hash
of everything else that makes the answer. The *digest* covers both and is the exact tier's key.

Rules of normalisation, for the question alone: Unicode NFC; ``\\r\\n`` is ``\\n``; white space at both ends
goes. Case, inner blanks, punctuation and look-alike characters stay: they carry meaning. Everything in the
scope is taken as it is, blanks and the borders between parts included, and so are the prompts of
completions, where a blank at the end steers the model.
"""

from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec.structs import FieldInfo

from sub100_shared.nfc import nfc

from .keys import Tenant
from .material import may_be_material
from .messages import ChatMessage
from .openai_request import GenerationRequest

_VERSION: Final = 2
"""Raise it when the meaning of a key changes; old entries are then never found again."""

MAX_QUESTION_CHARS: Final = 2_000
"""Longer ones are texts, which no encoder takes in whole: not worth their bytes on the bus."""

_DELIVERY_FIELDS: Final = frozenset({"stream", "include_usage"})
"""Fields that change how an answer is delivered, not what it says."""

_PLAIN_FIELDS: Final = _DELIVERY_FIELDS | {
    "kind",
    "model",
    "sampling",
    "messages",
    "prompt",
    "max_tokens",
    "stops",
    "bad_words",
    "structured_param",
    "tools",
}
"""Fields that may have any value while the answer stays one text. Every other field, those of later
versions too, must have its default."""

_encode: Final = msgspec.msgpack.Encoder().encode


class CacheKey(msgspec.Struct, frozen=True, kw_only=True):
    """``question`` is empty when the semantic tier must not be asked: the tenant does not want it, there is
    no question, a very long one, one that may be material, or the answer has a shape or tools beside it.
    Hashes have 32 bytes; ``revision`` is covered by both."""

    digest: bytes
    scope: bytes
    question: str
    revision: str


def cache_key(
    request: GenerationRequest, tenant: Tenant, model_revision: str, shown_time: str = ""
) -> CacheKey:
    """The key under a tenant and a model revision. ``shown_time`` is what the template shows of the present
    moment in prompts of chats: yesterday's answer is to another prompt.

    Fields are taken from the Structs by name, so that a field added later is in the scope unless it is
    listed in _DELIVERY_FIELDS. An omitted field counts as its effective value: no temperature is 1, not 0.
    """
    fields = {
        name: getattr(request, name) for name in request.__struct_fields__ if name not in _DELIVERY_FIELDS
    }
    sampling = request.sampling
    fields["sampling"] = {name: getattr(sampling, name) for name in sampling.__struct_fields__}
    question = ""
    if request.messages is not None:
        fields["messages"], question = _split_tail(request.messages)
        if shown_time:
            fields["shown_time"] = shown_time
    scope = sha256(_encode([_VERSION, tenant.name, model_revision, fields])).digest()
    digest = sha256(scope + question.encode()).digest()
    is_semantic = (
        tenant.semantic
        and request.messages is not None
        and sampling.structured is None
        and request.tools is None
        and 0 < len(question) <= MAX_QUESTION_CHARS
        and not may_be_material(request.messages, question)
    )
    return CacheKey(
        digest=digest,
        scope=scope,
        question=question if is_semantic else "",
        revision=model_revision,
    )


def is_cacheable(request: GenerationRequest, tenant: Tenant) -> bool:
    """Whether the tenant's policy lets this request be answered from, and kept in, the cache.

    An omitted temperature is 1, so such a request is not deterministic. Only one text is kept: one choice,
    no probabilities. Text in a shape that was asked for (JSON, a grammar) is text; so are calls, which are
    read from it whenever it is told.
    """
    policy = tenant.cache
    if policy == "off" or (policy == "deterministic" and request.sampling.temperature != 0):
        return False
    if request.tools is not None and not tenant.cache_tools:
        return False
    if request.sampling.logprobs is not None or request.sampling.prompt_logprobs is not None:
        return False
    return all(getattr(request, field.name) == _default(field) for field in _OTHER_FIELDS)


def normalise(text: str) -> str:
    """NFC, line ends as ``\\n``, no blanks around. Case and inner blanks stay: they carry meaning."""
    return nfc(text.replace("\r\n", "\n").strip())


def _split_tail(messages: tuple[ChatMessage, ...]) -> tuple[tuple[ChatMessage, ...], str]:
    """The conversation without its question, and the question (empty: the last turn asks none)."""
    last = messages[-1]
    if last.role != "user" or not last.parts:
        return messages, ""
    without = msgspec.structs.replace(last, parts=(*last.parts[:-1], ""))
    return (*messages[:-1], without), normalise(last.parts[-1])


def _default(field: FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


_OTHER_FIELDS: Final = tuple(
    field for field in msgspec.structs.fields(GenerationRequest) if field.name not in _PLAIN_FIELDS
)

"""The bytes of what is kept: keys, and values as msgpack.

``sub100:cache:v2:<tenant>:<digest>`` is an answer or an alias of one; ``sub100:cache:vec:v1:<embedder>:
<tenant>:<digest>`` is the vector of an answer's question. Each lives as long as its answer.
"""

import hashlib
from typing import Final

import msgspec

from sub100_proto.cache import CachedAnswer

DIGEST_BYTES: Final = 32
_PREFIX: Final = "sub100:cache:v2:"
_VECTOR_PREFIX: Final = "sub100:cache:vec:v1:"
"""A version rises when the value changes in a way that old readers would misread."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="entry"):
    """An answer with what it answers: ``tenant`` and ``digest`` repeat the key, so that a value that lies
    under another's key is not believed. Times are unix seconds."""

    tenant: str
    digest: bytes
    stored_at_s: float
    expires_at_s: float
    answer: CachedAnswer
    scope: bytes = b""
    question: str = ""
    revision: str = ""
    generation: bytes = b""


class Alias(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="alias"):
    """Another question of the same scope with the same answer as the entry of ``target``."""

    tenant: str
    digest: bytes
    target: bytes
    scope: bytes = b""
    revision: str = ""
    generation: bytes = b""


Kept = Entry | Alias

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Kept).decode


class UnreadableEntry(Exception):
    """The value is not one of ours; it holds user text, so nothing of it is repeated here."""


def entry_key(tenant: str, digest: bytes) -> str:
    """Unique per tenant and digest: the digest has a fixed length, so a tenant's name cannot run into it.

    Raises ValueError for a digest of another length."""
    return f"{_PREFIX}{_tail(tenant, digest)}"


def vector_prefix(embedder: str, dimension: int) -> str:
    """Of the vectors that may be compared with each other."""
    return f"{_VECTOR_PREFIX}{embedder}-{dimension}:"


def vector_key(embedder: str, dimension: int, tenant: str, digest: bytes) -> str:
    return f"{vector_prefix(embedder, dimension)}{_tail(tenant, digest)}"


def digest_of(key: str) -> bytes:
    """The digest at the end of a key; raises ValueError."""
    digest = bytes.fromhex(key.rpartition(":")[2])
    if len(digest) != DIGEST_BYTES:
        raise ValueError("no digest at the end of the key")
    return digest


def partition(tenant: str, scope: bytes) -> str:
    """Hexadecimal, so that no tenant's name can mean anything in a query. Raises ValueError for a scope of
    another length than a digest's: a shorter one could run into the tenant's name."""
    if len(scope) != DIGEST_BYTES:
        raise ValueError(f"a scope has {DIGEST_BYTES} bytes, not {len(scope)}")
    return hashlib.sha256(scope + tenant.encode()).hexdigest()


def encode_entry(kept: Kept) -> bytes:
    return _encode(kept)


def decode_entry(value: bytes, tenant: str, digest: bytes) -> Kept:
    """Raises UnreadableEntry, also for what was written for another key."""
    try:
        kept = _decode(value)
    except (msgspec.MsgspecError, ValueError):
        raise UnreadableEntry from None
    if kept.tenant != tenant or kept.digest != digest:
        raise UnreadableEntry
    return kept


def _tail(tenant: str, digest: bytes) -> str:
    if len(digest) != DIGEST_BYTES:
        raise ValueError(f"a digest has {DIGEST_BYTES} bytes, not {len(digest)}")
    return f"{tenant}:{digest.hex()}"

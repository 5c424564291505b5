"""The bytes of what is kept: keys, and values as msgpack, answers and aliases under a seal.

``sub100:cache:v4:{<tenant>}:<digest>`` is an answer, or under a question's ``alias_digest`` an alias of
one; ``sub100:cache:vec:v2:<embedder>:{<tenant>}:<digest>`` is the vector of an answer's question and lives
as long as the answer, and so does ``sub100:cache:wording:v1:{<tenant>}:<wording_digest>``, the digest (in
hexadecimal) of the last answer to a question of that wording. What is known of a tenant,
``sub100:cache:<record>:v1:{<tenant>}``, outlives them; no key is without an end. In braces, so that all keys
of one tenant lie in one slot of a Redis Cluster: a write touches several of them at once.
"""

import hashlib
from typing import Any, Final

import msgspec

from sub100_proto.cache import CachedAnswer

from .seal import Seal

DIGEST_BYTES: Final = 32
_ALL: Final = "sub100:cache:"
_PREFIX: Final = "sub100:cache:v4:"
_VECTOR_PREFIX: Final = "sub100:cache:vec:v2:"
_WORDING_PREFIX: Final = "sub100:cache:wording:v1:"
_GENERATIONS_PREFIX: Final = "sub100:cache:generations:v1:"
_EXPIRY_PREFIX: Final = "sub100:cache:expiry:v1:"
_SIZES_PREFIX: Final = "sub100:cache:sizes:v1:"
_COUNTS_PREFIX: Final = "sub100:cache:counts:v1:"
"""A version rises when the value changes in a way that old readers would misread."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="entry"):
    """An answer with what it answers: ``tenant`` and ``digest`` repeat the key, so that a value that lies
    under another's key is not believed. ``generation`` is the number under which it may be read (see
    ``generations``). Times are unix seconds."""

    tenant: str
    digest: bytes
    stored_at_s: float
    expires_at_s: float
    answer: CachedAnswer
    scope: bytes = b""
    question: str = ""
    revision: str = ""
    generation: int = 0


class Alias(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="alias"):
    """Another question of the same scope has the same answer as the one whose digest is ``target``, as long
    as there is one. ``digest`` is the other question's ``alias_digest``: beside an answer of its own."""

    tenant: str
    digest: bytes
    target: bytes
    scope: bytes = b""
    revision: str = ""
    generation: int = 0


Kept = Entry | Alias

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Kept).decode


class UnreadableEntry(Exception):
    """The value is not one of ours; it holds user text, so nothing of it is repeated here."""


def entry_prefix(tenant: str) -> str:
    """What all of a tenant's entries begin with."""
    return f"{_PREFIX}{{{tenant}}}:"


def entry_key(tenant: str, digest: bytes) -> str:
    """Unique per tenant and digest: the digest has a fixed length, so a tenant's name cannot run into it.

    Raises ValueError for a digest of another length."""
    return f"{entry_prefix(tenant)}{_hex(digest)}"


def alias_digest(digest: bytes) -> bytes:
    """Under which a question's alias lies; raises ValueError for a digest of another length."""
    return hashlib.sha256(b"alias:" + _sized(digest)).digest()


def wording_digest(scope: bytes, wording: str) -> bytes:
    """Of what is compared of a question, in its scope. Raises ValueError for a scope of another length."""
    return hashlib.sha256(b"wording:" + _sized_scope(scope) + wording.encode()).digest()


def wording_key(tenant: str, digest: bytes) -> str:
    return f"{_WORDING_PREFIX}{{{tenant}}}:{_hex(digest)}"


def is_wording(key: str) -> bool:
    return key.startswith(_WORDING_PREFIX)


def is_vector(key: str) -> bool:
    return key.startswith(_VECTOR_PREFIX)


def vector_space(embedder: str, dimension: int) -> str:
    """Names the vectors that may be compared with each other."""
    return f"{embedder}-{dimension}"


def vector_prefix(space: str) -> str:
    return f"{_VECTOR_PREFIX}{space}:"


def vector_key(space: str, tenant: str, digest: bytes) -> str:
    return f"{vector_prefix(space)}{{{tenant}}}:{_hex(digest)}"


def tenant_pattern(tenant: str) -> str:
    """For SCAN: the keys of all entries, aliases and vectors of a tenant."""
    escaped = "".join(f"\\{each}" if each in "*?[]\\^" else each for each in tenant)
    return f"{_ALL}*{{{escaped}}}:*"


def generations_key(tenant: str) -> str:
    return f"{_GENERATIONS_PREFIX}{{{tenant}}}"


def generations_pattern() -> str:
    """For SCAN: the keys of all tenants' generations."""
    return f"{_GENERATIONS_PREFIX}*"


def ledger_keys(tenant: str) -> list[str]:
    """Of what a tenant has stored: by its end, and by its size."""
    return [f"{_EXPIRY_PREFIX}{{{tenant}}}", f"{_SIZES_PREFIX}{{{tenant}}}"]


def ledger_names(tenant: str) -> list[str]:
    """Of which a script makes the keys of entries, vectors and wordings: their beginnings, and the tenant's
    tag."""
    return [entry_prefix(tenant), _VECTOR_PREFIX, _WORDING_PREFIX, f"{{{tenant}}}:"]


def counts_key(tenant: str) -> str:
    return f"{_COUNTS_PREFIX}{{{tenant}}}"


def digest_of(key: str) -> bytes:
    """The digest at the end of a key; raises ValueError."""
    digest = bytes.fromhex(key.rpartition(":")[2])
    if len(digest) != DIGEST_BYTES:
        raise ValueError("no digest at the end of the key")
    return digest


def target_of(value: Any) -> bytes:
    """The digest that a wording's value is; empty for what is none."""
    try:
        digest = bytes.fromhex(value.decode()) if isinstance(value, bytes) else b""
    except ValueError:
        return b""
    return digest if len(digest) == DIGEST_BYTES else b""


def partition(tenant: str, scope: bytes) -> str:
    """Hexadecimal, so that no tenant's name can mean anything in a query. Raises ValueError for a scope of
    another length than a digest's: a shorter one could run into the tenant's name."""
    return hashlib.sha256(_sized_scope(scope) + tenant.encode()).hexdigest()


def encode_entry(kept: Kept, seal: Seal) -> bytes:
    return seal.closed(_encode(kept), kept.tenant, kept.digest)


def decode_entry(sealed: bytes, tenant: str, digest: bytes, seal: Seal) -> Kept:
    """Raises UnreadableEntry, also for what was written for another key, or changed since."""
    value = seal.opened(sealed, tenant, digest)
    if value is None:
        raise UnreadableEntry
    try:
        kept = _decode(value)
    except (msgspec.MsgspecError, ValueError):
        raise UnreadableEntry from None
    if kept.tenant != tenant or kept.digest != digest or not _is_sized(kept):
        raise UnreadableEntry
    return kept


def _is_sized(kept: Kept) -> bool:
    """A scope is a hash, or none; so is a target."""
    target = kept.target if isinstance(kept, Alias) else kept.digest
    return len(kept.scope) in (0, DIGEST_BYTES) and len(target) == DIGEST_BYTES


def _sized_scope(scope: bytes) -> bytes:
    if len(scope) != DIGEST_BYTES:
        raise ValueError(f"a scope has {DIGEST_BYTES} bytes, not {len(scope)}")
    return scope


def _hex(digest: bytes) -> str:
    return _sized(digest).hex()


def _sized(digest: bytes) -> bytes:
    if len(digest) != DIGEST_BYTES:
        raise ValueError(f"a digest has {DIGEST_BYTES} bytes, not {len(digest)}")
    return digest

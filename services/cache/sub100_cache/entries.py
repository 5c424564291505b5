"""The bytes of one cache entry: its key, and its value as msgpack of (stored at, answer)."""

from typing import Final

import msgspec

from sub100_proto.cache import CachedAnswer

DIGEST_BYTES: Final = 32
_PREFIX: Final = "sub100:cache:v1:"
"""The version rises when the value changes in a way that old readers would misread."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[float, CachedAnswer]).decode


class UnreadableEntry(Exception):
    """The value is not one of ours; it holds user text, so nothing of it is repeated here."""


def entry_key(tenant: str, digest: bytes) -> str:
    """Unique per tenant and digest: the digest has a fixed length, so a tenant's name cannot run into it.

    Raises ValueError for a digest of another length."""
    if len(digest) != DIGEST_BYTES:
        raise ValueError(f"a digest has {DIGEST_BYTES} bytes, not {len(digest)}")
    return f"{_PREFIX}{tenant}:{digest.hex()}"


def encode_entry(stored_at_s: float, answer: CachedAnswer) -> bytes:
    """``stored_at_s`` is unix time."""
    return _encode((stored_at_s, answer))


def decode_entry(value: bytes) -> tuple[float, CachedAnswer]:
    """Raises UnreadableEntry."""
    try:
        return _decode(value)
    except msgspec.MsgspecError:
        raise UnreadableEntry from None

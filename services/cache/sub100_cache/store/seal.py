"""The seal of a stored value: whoever can write to Redis, or a bit that flipped there, makes no answer.

A sealed value is the MAC, then the value. The MAC is keyed BLAKE2b (RFC 7693, 2.9) of 16 bytes, over the
digest, the tenant's name behind its length, and the value: a value that was copied to another tenant's key or
under another digest fails too. It does not tell an old value from a new one of the same key; the generation
does. Without a secret it is a checksum: it finds damage, not a forger.
"""

import hmac
from hashlib import blake2b
from typing import Final

from sub100_shared.secret import derive

SEAL_BYTES: Final = 16
_PERSON: Final = b"sub100 cache"
_PURPOSE: Final = "cache-entries"


class Seal:
    """Of all replicas of a region alike: what was sealed with another secret is damaged."""

    def __init__(self, secret: bytes = b"") -> None:
        """``secret``: the deployment's; empty for a checksum."""
        key = derive(secret, _PURPOSE) if secret else b""
        self._mac = blake2b(key=key, digest_size=SEAL_BYTES, person=_PERSON)

    def closed(self, value: bytes, tenant: str, digest: bytes) -> bytes:
        """``value`` with its seal; ``digest`` has a fixed length."""
        return self._of(value, tenant, digest) + value

    def opened(self, sealed: bytes, tenant: str, digest: bytes) -> memoryview | None:
        """The value; None if it is not what was sealed for this tenant and digest."""
        view = memoryview(sealed)
        value = view[SEAL_BYTES:]
        is_whole = hmac.compare_digest(view[:SEAL_BYTES], self._of(value, tenant, digest))
        return value if is_whole else None

    def _of(self, value: bytes | memoryview, tenant: str, digest: bytes) -> bytes:
        mac, name = self._mac.copy(), tenant.encode()
        mac.update(digest + len(name).to_bytes(4, "big") + name)
        mac.update(value)
        return mac.digest()

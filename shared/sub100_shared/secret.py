"""Keys derived from the deployment secret, one per purpose, so that none can stand in for another."""

import hmac
from hashlib import sha256


def derive(secret: bytes, purpose: str) -> bytes:
    """A 32-byte key for ``purpose``: HMAC-SHA256(secret, purpose)."""
    return hmac.new(secret, purpose.encode(), sha256).digest()


def cache_salt(secret: bytes, tenant: str) -> str:
    """The salt of a tenant's prefix-cache chains; unguessable, so that no client can probe another's."""
    return hmac.new(derive(secret, "prefix-cache-salt"), tenant.encode(), sha256).hexdigest()[:32]

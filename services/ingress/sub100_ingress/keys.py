"""Keys at the door: a file of hashes maps keys to tenants. No header names a tenant.

The file is a JSON list of ``{"hash": <SHA-256 of the key, hex>, "tenant": ..., "cache": ..., ...}``.
Keys are random and long, so a fast hash is enough; looking up the hash compares no secret byte by byte.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

import msgspec

from sub100_shared.errors import ClientError

CachePolicy = Literal["off", "deterministic", "all"]
_TENANT: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_MAX_KEY_BYTES: Final = 512


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """``cache``: off, deterministic (temperature 0 only) or all (equal requests get equal answers).
    ``budget_ms`` 0 means the fleet's default."""

    name: str
    cache: CachePolicy = "off"
    budget_ms: float = 0.0
    max_concurrency: int = 256


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hash: str
    tenant: str
    cache: CachePolicy = "off"
    budget_ms: float = 0.0
    max_concurrency: int = 256


class KeyRing:
    """Hash of a key -> its tenant."""

    def __init__(self, tenants: dict[bytes, Tenant]) -> None:
        self._tenants = tenants

    @classmethod
    def load(cls, path: Path) -> "KeyRing":
        """Raises ValueError with one line that names the entry at fault; OSError if unreadable."""
        try:
            entries = msgspec.json.decode(path.read_bytes(), type=list[_Entry])
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path}: {error}") from error
        tenants: dict[bytes, Tenant] = {}
        for index, entry in enumerate(entries):
            if not _HASH.fullmatch(entry.hash):
                raise ValueError(f"{path}: entry {index}: hash is not 64 hexadecimal digits")
            if not _TENANT.fullmatch(entry.tenant):
                raise ValueError(f"{path}: entry {index}: tenant must match {_TENANT.pattern}")
            if entry.max_concurrency < 1 or entry.budget_ms < 0:
                raise ValueError(f"{path}: entry {index}: limits must be positive")
            if (digest := bytes.fromhex(entry.hash)) in tenants:
                raise ValueError(f"{path}: entry {index}: this hash stands there twice")
            tenants[digest] = Tenant(
                name=entry.tenant,
                cache=entry.cache,
                budget_ms=entry.budget_ms,
                max_concurrency=entry.max_concurrency,
            )
        return cls(tenants)

    def authenticate(self, authorizations: Sequence[bytes]) -> Tenant:
        """The tenant of the one ``Authorization: Bearer <key>`` header; raises ClientError (401)."""
        if not authorizations:
            raise _refused("no API key: send it as 'Authorization: Bearer <key>'")
        if len(authorizations) > 1:
            raise _refused("more than one Authorization header")
        scheme, _, key = authorizations[0].partition(b" ")
        key = key.strip()
        if scheme.lower() != b"bearer" or not 0 < len(key) <= _MAX_KEY_BYTES:
            raise _refused("the Authorization header is not 'Bearer <key>'")
        tenant = self._tenants.get(sha256(key).digest())
        if tenant is None:
            raise _refused("incorrect API key")
        return tenant


def _refused(message: str) -> ClientError:
    return ClientError("invalid_api_key", message)

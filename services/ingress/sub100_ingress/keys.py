"""API keys and the tenants behind them. Keys are known by their SHA-256 only."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from sub100_shared.errors import ClientError
from sub100_shared.ledger import changed_split

CachePolicy = Literal["off", "deterministic", "all"]
"""``deterministic``: answers of temperature 0 only; ``all``: the tenant accepts frozen samples."""

MIN_THRESHOLD: Final = 0.8
"""Below it encoders call everything similar; a tenant's threshold may not be lower."""

_MAX_HEADER_BYTES: Final = 1024


class Tenant(Struct, frozen=True, kw_only=True):
    """Who asks. ``budget_ms`` None: the deployment's; so ``ttl_s``, ``allotments`` (hops' shares of the
    budget), and ``threshold`` 0.

    ``semantic``: similar questions may be answered too, above ``threshold`` (a cosine). ``shadow``: hits
    are computed and compared with the model's answers, never served. ``judge``: near hits that were
    refused are settled afterwards by the fleet's own model. ``cache_tools``: answers beside tools are kept
    too, calls included.
    """

    name: str
    cache: CachePolicy = "off"
    semantic: bool = False
    threshold: float = 0.0
    shadow: bool = False
    judge: bool = False
    cache_tools: bool = False
    ttl_s: int | None = None
    budget_ms: float | None = None
    allotments: Mapping[str, float] | None = None
    max_concurrency: int = 256


class _Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hash: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    tenant: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
    cache: CachePolicy = "off"
    semantic: bool = False
    threshold: Annotated[float, Meta(ge=MIN_THRESHOLD, le=1)] | None = None
    shadow: bool = False
    judge: bool = False
    cache_tools: bool = False
    ttl_s: Annotated[int, Meta(ge=1)] | None = None
    budget_ms: Annotated[float, Meta(gt=0)] | None = None
    allotments: dict[str, float] | None = None
    max_concurrency: Annotated[int, Meta(ge=1)] = 256

    def settings(self) -> Tenant:
        """Raises ValueError for settings that contradict each other."""
        if self.cache == "off" and (self.semantic or self.shadow or self.judge or self.cache_tools):
            raise ValueError("semantic, shadow, judge and cache_tools need a cache that is not off")
        if not self.semantic and (self.judge or self.threshold is not None):
            raise ValueError("threshold and judge need semantic")
        return Tenant(
            name=self.tenant,
            cache=self.cache,
            semantic=self.semantic,
            threshold=self.threshold or 0.0,
            shadow=self.shadow,
            judge=self.judge,
            cache_tools=self.cache_tools,
            ttl_s=self.ttl_s,
            budget_ms=self.budget_ms,
            allotments=None if self.allotments is None else changed_split(self.allotments),
            max_concurrency=self.max_concurrency,
        )


class KeyRing:
    """The keys of one file: a JSON list of ``{"hash", "tenant"}`` with any of the settings of Tenant.

    Look-up is by hash, so its time says nothing about a key.
    """

    def __init__(self, path: Path, tenants: dict[bytes, Tenant], version: tuple[int, int]) -> None:
        self._path = path
        self._tenants = tenants
        self._version = version

    @classmethod
    def load(cls, path: Path) -> "KeyRing":
        """Read the file; raises ValueError naming the entry at fault, or OSError."""
        version = _version(path)
        return cls(path, _read(path), version)

    def reload(self) -> bool:
        """Read the file again if it changed; True if it did. On ValueError or OSError the old keys stay."""
        version = _version(self._path)
        if version == self._version:
            return False
        self._tenants = _read(self._path)
        self._version = version
        return True

    def authenticate(self, authorizations: list[bytes]) -> Tenant:
        """The tenant of a request's Authorization headers; raises ClientError ``invalid_api_key``.

        Exactly one header, of the scheme Bearer (in any case, RFC 9110), with a known key.
        """
        if not authorizations:
            raise _refused("no API key: send Authorization: Bearer <key>")
        if len(authorizations) > 1:
            raise _refused("more than one Authorization header")
        scheme, _, key = authorizations[0].strip().partition(b" ")
        key = key.strip()
        if scheme.lower() != b"bearer" or not key or len(key) > _MAX_HEADER_BYTES:
            raise _refused("send Authorization: Bearer <key>")
        tenant = self._tenants.get(sha256(key).digest())
        if tenant is None:
            raise _refused("unknown API key")
        return tenant


def _read(path: Path) -> dict[bytes, Tenant]:
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=list[_Entry])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error
    if not entries:
        raise ValueError(f"{path}: holds no keys")
    tenants: dict[bytes, Tenant] = {}
    by_name: dict[str, Tenant] = {}
    for i, entry in enumerate(entries):
        try:
            tenant = entry.settings()
        except ValueError as error:
            raise ValueError(f"{path}: entry {i}: {error}") from error
        digest = bytes.fromhex(entry.hash)
        if digest in tenants:
            raise ValueError(f"{path}: entry {i} repeats an earlier hash")
        if by_name.setdefault(tenant.name, tenant) != tenant:
            raise ValueError(f"{path}: entry {i} gives tenant {tenant.name} other settings than before")
        tenants[digest] = tenant
    return tenants


def _version(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


def _refused(message: str) -> ClientError:
    return ClientError("invalid_api_key", message)

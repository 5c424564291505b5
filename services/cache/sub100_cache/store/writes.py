"""What enters: an answer with the vector of its question, and aliases. Each write is one transaction."""

import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec
from redis.exceptions import ResponseError

from sub100_proto.cache import CacheAlias, CacheFill

from .commands import WRITE_TIMEOUT_S, Commands
from .entries import Alias, Entry, encode_entry, entry_key, partition, vector_key
from .exact import ExactTier
from .vectors import PARTITION_FIELD, VECTOR_FIELD

_log = logging.getLogger(__name__)

WallClock = Callable[[], float]
"""Unix time in seconds: an entry's age spans processes and restarts."""

_MIN_LEFT_S: Final = 1.0


class QuestionVector(msgspec.Struct, frozen=True):
    embedder: str
    dimension: int
    vector: bytes


class Writes:
    """All methods raise StoreUnavailable, and ValueError for a digest or scope of the wrong length."""

    def __init__(self, commands: Commands, exact: ExactTier, wall_clock: WallClock) -> None:
        self._commands = commands
        self._exact = exact
        self._wall_clock = wall_clock

    async def fill(self, fill: CacheFill, vector: QuestionVector | None, *, ttl_s: int, limit: int) -> bool:
        """Store for ``ttl_s`` from now, replacing what is there; False if it has more than ``limit`` bytes
        or Redis refuses to write. With ``vector``, the semantic tier finds it too."""
        now_s = self._wall_clock()
        key = entry_key(fill.tenant, fill.digest)
        value = encode_entry(
            Entry(
                tenant=fill.tenant,
                digest=fill.digest,
                stored_at_s=now_s,
                expires_at_s=now_s + ttl_s,
                answer=fill.answer,
                scope=fill.scope,
                question=fill.question,
                revision=fill.revision,
                generation=fill.generation,
            )
        )
        if len(value) > limit:
            return False
        pipe = self._commands.client.pipeline(transaction=True)
        pipe.set(key, value, ex=ttl_s)
        if vector is not None:
            at = vector_key(vector.embedder, vector.dimension, fill.tenant, fill.digest)
            fields: dict[Any, Any] = {
                PARTITION_FIELD: partition(fill.tenant, fill.scope),
                VECTOR_FIELD: vector.vector,
            }
            pipe.hset(at, mapping=fields)
            pipe.expire(at, ttl_s)
        try:
            await self._commands.run(pipe.execute(), WRITE_TIMEOUT_S)
        except ResponseError as error:  # out of memory, read-only replica
            _log.warning("fill refused by Redis", extra={"error": type(error).__name__})
            return False
        return True

    async def alias(self, alias: CacheAlias) -> bool:
        """Make ``alias.digest`` an exact hit on the entry of ``alias.target`` for as long as that lives.

        False if there is no such entry in the alias's scope. An answer of its own is never replaced.
        Raises UnreadableEntry for a target that is deleted for it."""
        target = await self._exact.get(alias.tenant, alias.target, WRITE_TIMEOUT_S)
        if target is None or target.scope != alias.scope or target.digest == alias.digest:
            return False
        left_s = target.expires_at_s - self._wall_clock()
        if left_s < _MIN_LEFT_S:
            return False
        value = encode_entry(
            Alias(
                tenant=alias.tenant,
                digest=alias.digest,
                target=target.digest,
                scope=alias.scope,
                revision=alias.revision,
                generation=alias.generation,
            )
        )
        command = self._commands.client.set(
            entry_key(alias.tenant, alias.digest), value, px=int(left_s * 1e3), nx=True
        )
        try:
            return bool(await self._commands.run(command, WRITE_TIMEOUT_S))
        except ResponseError as error:
            _log.warning("alias refused by Redis", extra={"error": type(error).__name__})
            return False

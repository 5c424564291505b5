"""What enters: an answer with the vector of its question, and aliases. Each write is one script."""

import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec
from redis.exceptions import ResponseError

from sub100_proto.cache import CacheAlias, CacheFill, CacheReplica

from . import scripts
from .commands import WRITE_TIMEOUT_S, Commands
from .entries import (
    Alias,
    Entry,
    Kept,
    alias_digest,
    encode_entry,
    entry_key,
    generations_key,
    ledger_keys,
    ledger_names,
    partition,
    vector_key,
    wording_key,
)
from .exact import ExactTier
from .generations import Generations, Question, unpack
from .ledger import Quota, warn
from .log_place import Place
from .seal import Seal
from .vectors import PARTITION_FIELD, VECTOR_FIELD

_log = logging.getLogger(__name__)

WallClock = Callable[[], float]
"""Unix time in seconds: an entry's age spans processes and restarts."""

_STORED: Final = b"stored"


class QuestionVector(msgspec.Struct, frozen=True):
    """``space`` names the vectors that it may be compared with; ``wording``, a ``wording_digest``, is what
    was embedded."""

    space: str
    vector: bytes
    wording: bytes = b""


class Writes:
    """All methods raise StoreUnavailable, and ValueError for a digest or scope of the wrong length. Nothing
    is written without the generation of a look-up, nor under one that an invalidation has overtaken."""

    def __init__(
        self,
        commands: Commands,
        exact: ExactTier,
        generations: Generations,
        seal: Seal,
        quotas: Callable[[str], Quota],
        wall_clock: WallClock,
    ) -> None:
        self._commands = commands
        self._generations = generations
        self._seal = seal
        self._quotas = quotas
        self._exact = exact
        self._wall_clock = wall_clock
        self._write = commands.client.register_script(scripts.WRITE)

    async def fill(self, fill: CacheFill, vector: QuestionVector | None, *, ttl_s: int, limit: int) -> bool:
        """Store for ``ttl_s`` from now, replacing what is there; False if it has more than ``limit`` bytes,
        was overtaken, or Redis refuses to write. With ``vector``, the semantic tier finds it too. What is
        nearest to its end makes room where the tenant's quota is used up."""
        token = unpack(fill.generation)
        if token is None:
            return False
        entry = _entry(fill, token.number, self._wall_clock(), ttl_s)
        return await self._put(entry, ttl_s, limit=limit, vector=vector)

    async def replica(
        self,
        replica: CacheReplica,
        vector: QuestionVector | None,
        *,
        ttl_s: float,
        limit: int,
        own_place: Place,
    ) -> bool:
        """Store another region's answer, unless it was overtaken by an invalidation that this region knows
        of, or this region has an answer itself. ``own_place`` is what it has read of the log."""
        fill = replica.fill
        token = unpack(fill.generation)
        if token is None:
            return False
        question = Question(fill.tenant, fill.scope, fill.revision)
        number = await self._generations.admit(question, token.place, own_place)
        if not number:
            return False
        if await self._exact.own(question, fill.digest, WRITE_TIMEOUT_S) is not None:
            return False
        stored_at_s = min(replica.stored_unix_s, self._wall_clock())
        return await self._put(_entry(fill, number, stored_at_s, ttl_s), ttl_s, limit=limit, vector=vector)

    async def alias(self, alias: CacheAlias, *, ttl_s: float) -> bool:
        """For ``ttl_s`` from now let ``alias.digest``, where it has no answer of its own, be an exact hit on
        that of ``alias.target`` whenever there is one.

        False if there is none in the alias's scope now, or the alias was overtaken."""
        token = unpack(alias.generation)
        return token is not None and await self._alias(alias, token.number, ttl_s)

    async def alias_replica(self, alias: CacheAlias, *, ttl_s: float, own_place: Place) -> bool:
        """As ``alias``, for one that another region found; False too if it was overtaken by an invalidation
        that this region knows of. ``own_place`` is what it has read of the log."""
        token = unpack(alias.generation)
        if token is None:
            return False
        question = Question(alias.tenant, alias.scope, alias.revision)
        number = await self._generations.admit(question, token.place, own_place)
        return bool(number) and await self._alias(alias, number, ttl_s)

    async def _alias(self, alias: CacheAlias, number: int, ttl_s: float) -> bool:
        question = Question(alias.tenant, alias.scope, alias.revision)
        target = await self._exact.own(question, alias.target, WRITE_TIMEOUT_S)
        if target is None or target.scope != alias.scope or target.digest == alias.digest:
            return False
        kept = Alias(
            tenant=alias.tenant,
            digest=alias_digest(alias.digest),
            target=target.digest,
            scope=alias.scope,
            revision=alias.revision,
            generation=number,
        )
        return await self._put(kept, ttl_s)

    async def _put(
        self, kept: Kept, ttl_s: float, *, limit: int | None = None, vector: QuestionVector | None = None
    ) -> bool:
        value = encode_entry(kept, self._seal)
        if limit is not None and len(value) > limit:
            return False
        tenant, digest = kept.tenant, kept.digest
        targets = Question(tenant, kept.scope, kept.revision).targets()
        keys = [*ledger_keys(tenant), generations_key(tenant), entry_key(tenant, digest)]
        fields: list[Any] = []
        if vector is not None:
            keys.append(vector_key(vector.space, tenant, digest))
            fields = [PARTITION_FIELD, partition(tenant, kept.scope), VECTOR_FIELD, vector.vector]
            if vector.wording:
                keys.append(wording_key(tenant, vector.wording))
        num_bytes = len(value) + (len(vector.vector) if vector is not None else 0)
        quota = self._quotas(tenant)
        args: list[Any] = [
            *ledger_names(tenant),
            *(kept.generation, value, int(ttl_s * 1e3), digest.hex(), num_bytes),
            *((vector.space, vector.wording.hex()) if vector is not None else ("", "")),
            *(quota.max_entries, quota.max_bytes, self._generations.record_ttl_ms),
            *(len(targets), *targets, *fields),
        ]
        try:
            outcome, was_spoiled = await self._commands.run(
                self._write(keys=keys, args=args), WRITE_TIMEOUT_S
            )
        except ResponseError as error:  # out of memory, read-only replica
            _log.warning("write refused by Redis", extra={"error": type(error).__name__})
            return False
        if was_spoiled:
            warn(tenant)
        return bool(outcome == _STORED)


def _entry(fill: CacheFill, number: int, stored_at_s: float, ttl_s: float) -> Entry:
    return Entry(
        tenant=fill.tenant,
        digest=fill.digest,
        stored_at_s=stored_at_s,
        expires_at_s=stored_at_s + ttl_s,
        answer=fill.answer,
        scope=fill.scope,
        question=fill.question,
        revision=fill.revision,
        generation=number,
    )

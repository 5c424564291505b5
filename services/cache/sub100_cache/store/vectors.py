"""The vector index: the nearest questions within one partition.

FLAT with a TAG filter: exact, and quicker under a filter than HNSW at the sizes of a cache. Only the vectors
of the partition are compared (ADHOC_BF): Redis's own choice took up to half as long again. The index is
made anew whenever Redis has lost it, and Redis then fills it from the vectors that are still there.
"""

import logging
from typing import Any, Final

import msgspec
from redis.commands.search import AsyncSearch
from redis.commands.search.field import TagField, VectorField
from redis.commands.search.index_definition import IndexDefinition, IndexType
from redis.exceptions import ResponseError

from .commands import WRITE_TIMEOUT_S, Commands, StoreUnavailable
from .entries import DIGEST_BYTES, digest_of, partition, vector_key, vector_prefix, vector_space
from .parts import Parts

_log = logging.getLogger(__name__)

PARTITION_FIELD: Final = "p"
VECTOR_FIELD: Final = "v"
_DISTANCE: Final = "d"
_ANY_DIGEST: Final = bytes(DIGEST_BYTES)
_INDEX_PREFIX: Final = "sub100:cache:index:v2:"


class Neighbour(msgspec.Struct, frozen=True):
    """``similarity`` is the cosine."""

    digest: bytes
    similarity: float


class VectorIndex:
    """One index for each embedder: vectors of another model lie under other keys and are never compared."""

    def __init__(self, commands: Commands, embedder: str, dimension: int) -> None:
        self._commands = commands
        self._dimension = dimension
        self.space = vector_space(embedder, dimension)
        self._prefix = vector_prefix(self.space)
        self._name = f"{_INDEX_PREFIX}{self.space}"
        self._parts = Parts(commands, self._name)
        nearest = f"KNN %d @{VECTOR_FIELD} $vector HYBRID_POLICY ADHOC_BF AS {_DISTANCE}"
        self._query = f"(@{PARTITION_FIELD}:{{%s}})=>[{nearest}]"
        self.problem = "not made yet"
        """Why no search is possible; empty when one is."""

    @property
    def is_away(self) -> bool:
        """Redis cannot be asked: nothing that is computed now could be stored."""
        return self._commands.breaker.is_open

    async def nearest(
        self, tenant: str, scope: bytes, vector: bytes, num: int, timeout_s: float
    ) -> list[Neighbour]:
        """At most ``num``, nearest first. Raises StoreUnavailable, and ValueError for a bad scope."""
        index = self._parts.of(vector_key(self.space, tenant, _ANY_DIGEST)) if not self.problem else None
        if index is None:
            self.problem = self.problem or "index lost"
            raise StoreUnavailable(self.problem)
        query = self._query % (partition(tenant, scope), num)
        command = ("FT.SEARCH", index.index_name, query, "SORTBY", _DISTANCE, "RETURN", 1, _DISTANCE)
        limits = ("LIMIT", 0, num, "TIMEOUT", max(1, int(timeout_s * 1e3)))
        given = ("PARAMS", 2, "vector", vector, "DIALECT", 2)
        try:
            found: Any = await self._parts.ask(index, (*command, *limits, *given), timeout_s)
        except ResponseError as error:
            # The index is gone (a restart, FLUSHALL) or the query engine is: ``ensure`` finds out which.
            self.problem = "index lost"
            raise StoreUnavailable(self.problem) from error
        return [
            Neighbour(digest_of(document[b"id"].decode()), 1.0 - float(distance))
            for document in found[b"results"]
            # None: it expired during the search
            if (distance := (document.get(b"extra_attributes") or {}).get(_DISTANCE.encode())) is not None
        ]

    async def ensure(self) -> None:
        """Make the index where it is not there; never raises: ``problem`` says how it went."""
        try:
            first, *others = await self._parts.refresh()
            await self._make(first)
            if others and await self._parts.is_spread(first, others[0]):
                self._parts.share(first)
            else:
                for part in others:
                    await self._make(part)
        except StoreUnavailable:
            return
        except ResponseError:
            self.problem = "no vector search"
            return
        self.problem = ""

    async def _make(self, index: AsyncSearch) -> None:
        """Raises StoreUnavailable, and ResponseError where there is no query engine."""
        fields = [
            TagField(PARTITION_FIELD),
            VectorField(
                VECTOR_FIELD,
                "FLAT",
                {"TYPE": "FLOAT32", "DIM": self._dimension, "DISTANCE_METRIC": "COSINE"},
            ),
        ]
        definition = IndexDefinition(prefix=[self._prefix], index_type=IndexType.HASH)  # type: ignore[no-untyped-call]
        told = "found"
        try:
            await self._commands.run(index.create_index(fields, definition=definition), WRITE_TIMEOUT_S)
            told = "made"
        except ResponseError as error:
            if "already exists" not in str(error).lower():
                raise
        _log.info(
            "vector index %s: vectors of any other embedder are not used",
            told,
            extra={"index": index.index_name},
        )

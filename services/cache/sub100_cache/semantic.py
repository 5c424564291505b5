"""The semantic tier: the nearest question of the same scope that the guard lets pass.

What is embedded is the wording, so whoever has the same wording is nearest: for most paraphrases that the
guard lets pass (five of six of the labelled ones) neither an embedder nor a search is needed.
"""

import msgspec

from sub100_proto.cache import CacheFill, CacheLookup, NearMiss
from sub100_shared.clock import Clock

from .embedders.api import EmbedderUnavailable
from .embedders.bounded import BoundedEmbedder
from .guard import Reading, read, refusal
from .store.entries import Entry, wording_digest
from .store.exact import ExactTier
from .store.generations import Question
from .store.vectors import Neighbour, VectorIndex
from .store.writes import QuestionVector

FILL_TIMEOUT_S = 1.0
MIN_FIND_MS = 2.0
"""With less left there is no time for an embedder, a search and the entries."""


class SemanticFound(msgspec.Struct, frozen=True):
    """``entry`` may answer. Without it, ``near`` is the nearest neighbour that the guard refused."""

    entry: Entry | None = None
    similarity: float = 0.0
    near: NearMiss | None = None


class SemanticTier:
    def __init__(
        self,
        embedder: BoundedEmbedder,
        index: VectorIndex,
        exact: ExactTier,
        clock: Clock,
        *,
        threshold: float,
        num_neighbours: int,
        max_question_chars: int,
    ) -> None:
        self.embedder = embedder
        self.index = index
        self._exact = exact
        self._clock = clock
        self._threshold = threshold
        self._num_neighbours = num_neighbours
        self._max_question_chars = max_question_chars

    async def find(self, lookup: CacheLookup, deadline_ms: float) -> SemanticFound:
        """Ends by ``deadline_ms`` of the clock. Raises StoreUnavailable, EmbedderUnavailable, and ValueError
        for a scope of the wrong length."""
        if not self._takes(lookup.scope, lookup.question):
            return SemanticFound()
        if self._left_s(deadline_ms) * 1e3 < MIN_FIND_MS:
            return SemanticFound()
        asked = read(lookup.question)
        question = Question(lookup.tenant, lookup.scope, lookup.revision)
        wording = wording_digest(lookup.scope, asked.wording)
        alike = await self._exact.worded(question, wording, self._left_s(deadline_ms))
        if alike is not None and self._may_answer(lookup, asked, alike):
            return SemanticFound(alike, 1.0)
        if self.index.problem:
            return SemanticFound()
        vector = await self.embedder.embed(lookup.tenant, asked.wording, self._left_s(deadline_ms))
        neighbours = await self.index.nearest(
            lookup.tenant, lookup.scope, vector, self._num_neighbours, self._left_s(deadline_ms)
        )
        threshold = lookup.threshold or self._threshold
        near = [neighbour for neighbour in neighbours if neighbour.similarity >= threshold]
        if not near:
            return SemanticFound()
        digests = [neighbour.digest for neighbour in near]
        entries = await self._exact.get_many(question, digests, self._left_s(deadline_ms))
        return self._choose(lookup, asked, near, entries)

    async def vector_of(self, fill: CacheFill) -> QuestionVector | None:
        """The vector to store with an answer; None: it is for the exact tier alone."""
        if self.index.is_away or not self._takes(fill.scope, fill.question):
            return None
        wording = read(fill.question).wording
        try:
            vector = await self.embedder.embed(fill.tenant, wording, FILL_TIMEOUT_S)
        except EmbedderUnavailable:
            return None
        return QuestionVector(self.index.space, vector, wording_digest(fill.scope, wording))

    def problem(self) -> str:
        """Why it finds nothing; empty when it is well."""
        breaker = self.embedder.breaker
        return self.index.problem or (f"embedder: {breaker.reason}" if breaker.is_open else "")

    def _choose(
        self, lookup: CacheLookup, asked: Reading, near: list[Neighbour], entries: list[Entry | None]
    ) -> SemanticFound:
        refused: NearMiss | None = None
        for neighbour, entry in zip(near, entries, strict=True):
            if entry is None or not _is_comparable(lookup, entry):
                continue
            rule = refusal(asked, read(entry.question))
            if not rule:
                return SemanticFound(entry, neighbour.similarity)
            refused = refused or NearMiss(
                digest=neighbour.digest,
                question=entry.question,
                similarity=neighbour.similarity,
                rule=rule,
            )
        return SemanticFound(near=refused)

    @staticmethod
    def _may_answer(lookup: CacheLookup, asked: Reading, entry: Entry) -> bool:
        return _is_comparable(lookup, entry) and not refusal(asked, read(entry.question))

    def _takes(self, scope: bytes, question: str) -> bool:
        return bool(scope) and 0 < len(question) <= self._max_question_chars

    def _left_s(self, deadline_ms: float) -> float:
        return max(0.0, deadline_ms - self._clock()) / 1e3


def _is_comparable(lookup: CacheLookup, entry: Entry) -> bool:
    """What was found has been proposed; the entry itself says whose it is and what it answers."""
    return entry.scope == lookup.scope and bool(entry.question)

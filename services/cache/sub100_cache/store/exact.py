"""The exact tier: what was kept under a digest, if its generation is still the one that holds."""

from typing import Final

import msgspec
from redis.exceptions import ResponseError

from .commands import Commands, StoreUnavailable, TimeLeft
from .entries import Entry, Kept, UnreadableEntry, decode_entry, entry_key, generations_key
from .generations import Generations, Question, Standing, standing_fields, standing_of

_WRONG_TYPE: Final = "WRONGTYPE"


class Found(msgspec.Struct, frozen=True):
    """``entry`` may be read under ``standing``. ``is_damaged``: there was something that could not be read;
    it is deleted."""

    entry: Entry | None
    standing: Standing
    is_damaged: bool = False


class _Got(msgspec.Struct, frozen=True):
    kept: Kept | None
    standing: Standing
    is_damaged: bool = False


class ExactTier:
    """All methods raise StoreUnavailable, and ValueError for a digest or scope of the wrong length. What
    cannot be read is deleted; what an invalidation has overtaken waits for its end."""

    def __init__(self, commands: Commands, generations: Generations) -> None:
        self._commands = commands
        self._generations = generations

    async def get(self, question: Question, digest: bytes, timeout_s: float) -> Found:
        """The entry under ``digest``, or the one that an alias there names, and the question's standing: one
        round trip, two for an alias, one more for each that is of another scope or revision. All of them end
        within ``timeout_s``."""
        left = TimeLeft(timeout_s)
        got = await self._get(question, digest, left)
        if got.kept is None or not await self._may_read(question, got.kept, got.standing, left):
            return Found(None, got.standing, got.is_damaged)
        if isinstance(got.kept, Entry):
            return Found(got.kept, got.standing)
        target = (await self._get(question, got.kept.target, left)).kept
        if (
            isinstance(target, Entry)
            and target.scope == got.kept.scope
            and await self._may_read(question, target, got.standing, left)
        ):
            return Found(target, got.standing)
        await self._commands.delete(entry_key(question.tenant, digest), timeout_s=left.s())
        return Found(None, got.standing)

    async def get_many(
        self, question: Question, digests: list[bytes], timeout_s: float
    ) -> list[Entry | None]:
        """In one round trip; None for what is not there, is an alias, is of another scope or revision, or may
        not be read."""
        left = TimeLeft(timeout_s)
        keys = [entry_key(question.tenant, digest) for digest in digests]
        pipe = self._commands.client.pipeline(transaction=False)
        pipe.execute_command(
            "MGET", *keys
        )  # a cluster's pipeline refuses ``mget``, though all lie in one slot
        pipe.hmget(generations_key(question.tenant), standing_fields(question))
        try:
            values, marks = await self._commands.run(pipe.execute(), timeout_s)
        except ResponseError as error:
            raise StoreUnavailable(type(error).__name__) from error
        standing = standing_of(marks)
        found: list[Entry | None] = []
        for digest, key, value in zip(digests, keys, values, strict=True):
            try:
                kept = None if value is None else decode_entry(value, question.tenant, digest)
            except UnreadableEntry:
                await self._commands.delete(key, timeout_s=left.s())
                kept = None
            is_good = kept is not None and _is_of(question, kept) and standing.allows(kept)
            found.append(kept if isinstance(kept, Entry) and is_good else None)
        return found

    async def _get(self, question: Question, digest: bytes, left: TimeLeft) -> _Got:
        tenant, key = question.tenant, entry_key(question.tenant, digest)
        pipe = self._commands.client.pipeline(transaction=False)
        pipe.get(key)
        pipe.hmget(generations_key(tenant), standing_fields(question))
        value, marks = await self._commands.run(pipe.execute(raise_on_error=False), left.s())
        if isinstance(marks, Exception):  # of a cluster also those of its connections
            raise StoreUnavailable(type(marks).__name__)
        standing = standing_of(marks)
        try:
            if isinstance(value, Exception):
                if not str(value).startswith(_WRONG_TYPE):
                    raise StoreUnavailable(type(value).__name__)
                raise UnreadableEntry
            return _Got(None if value is None else decode_entry(value, tenant, digest), standing)
        except UnreadableEntry:
            await self._commands.delete(key, timeout_s=left.s())
            return _Got(None, standing, is_damaged=True)

    async def _may_read(self, question: Question, kept: Kept, standing: Standing, left: TimeLeft) -> bool:
        """What was kept has the last word on whose it is: where the question names another scope or revision
        (a look-up for the exact tier alone may name none), its own standing is asked for."""
        if not _is_of(question, kept):
            own = Question(question.tenant, kept.scope, kept.revision)
            standing = await self._generations.standing(own, left.s())
        return standing.allows(kept)


def _is_of(question: Question, kept: Kept) -> bool:
    return (kept.scope, kept.revision) == (question.scope, question.revision)

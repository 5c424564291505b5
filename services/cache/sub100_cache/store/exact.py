"""The exact tier: what was kept under a digest, if its generation is still the one that holds."""

import enum
from typing import Any, Final

import msgspec

from .commands import Commands, StoreUnavailable, TimeLeft, is_spoiled
from .entries import (
    Alias,
    Entry,
    Kept,
    UnreadableEntry,
    alias_digest,
    decode_entry,
    entry_key,
    generations_key,
    target_of,
    wording_key,
)
from .generations import Generations, Question, Standing, standing_fields, standing_of
from .seal import Seal


class _Damaged(enum.Enum):
    """What lies there cannot be read."""

    IT_IS = 0


_DAMAGED: Final = _Damaged.IT_IS


class Found(msgspec.Struct, frozen=True):
    """``entry`` may be read under ``standing``. ``is_damaged``: there was something that could not be read;
    it is deleted."""

    entry: Entry | None
    standing: Standing
    is_damaged: bool = False


class ExactTier:
    """All methods raise StoreUnavailable, and ValueError for a digest or scope of the wrong length. What
    cannot be read is deleted; what an invalidation has overtaken waits for its end."""

    def __init__(self, commands: Commands, generations: Generations, seal: Seal) -> None:
        self._commands = commands
        self._seal = seal
        self._generations = generations

    async def get(self, question: Question, digest: bytes, timeout_s: float) -> Found:
        """The entry under ``digest``, else the one that its alias names, and the question's standing: one
        round trip, two for an alias, one more for each that is of another scope or revision. All of them end
        within ``timeout_s``."""
        left = TimeLeft(timeout_s)
        (own, alias), standing = await self._read(question, [digest, alias_digest(digest)], left)
        entry = await self._entry(question, own, standing, left)
        if (
            entry is None
            and isinstance(alias, Alias)
            and await self._may_read(question, alias, standing, left)
        ):
            (target,), _ = await self._read(question, [alias.target], left)
            entry = await self._entry(question, target, standing, left)
            if entry is not None and entry.scope != alias.scope:
                entry = None
        return Found(entry, standing, is_damaged=entry is None and _DAMAGED in (own, alias))

    async def own(self, question: Question, digest: bytes, timeout_s: float) -> Entry | None:
        """As ``get``, without the alias."""
        left = TimeLeft(timeout_s)
        (own,), standing = await self._read(question, [digest], left)
        return await self._entry(question, own, standing, left)

    async def worded(self, question: Question, wording: bytes, timeout_s: float) -> Entry | None:
        """The last answer to a question of this scope with this ``wording_digest``: one round trip, two if
        there is one."""
        left = TimeLeft(timeout_s)
        (found,) = await self._commands.ask([("GET", wording_key(question.tenant, wording))], left.s())
        target = target_of(found)
        return (await self.get_many(question, [target], left.s()))[0] if target else None

    async def get_many(
        self, question: Question, digests: list[bytes], timeout_s: float
    ) -> list[Entry | None]:
        """In one round trip; None for what is not there, is an alias, is of another scope or revision, or may
        not be read."""
        left = TimeLeft(timeout_s)
        keys = [entry_key(question.tenant, digest) for digest in digests]
        values, marks = await self._commands.ask([("MGET", *keys), _marks_of(question)], timeout_s)
        if isinstance(values, Exception):
            raise StoreUnavailable(type(values).__name__)
        standing = standing_of(marks)
        found: list[Entry | None] = []
        for digest, key, value in zip(digests, keys, values, strict=True):
            try:
                kept = None if value is None else decode_entry(value, question.tenant, digest, self._seal)
            except UnreadableEntry:
                await self._commands.delete(key, timeout_s=left.s())
                kept = None
            is_good = kept is not None and _is_of(question, kept) and standing.allows(kept)
            found.append(kept if isinstance(kept, Entry) and is_good else None)
        return found

    async def _read(
        self, question: Question, digests: list[bytes], left: TimeLeft
    ) -> tuple[list[Kept | _Damaged | None], Standing]:
        tenant = question.tenant
        keys = [entry_key(tenant, digest) for digest in digests]
        # Not by MGET, which hides a value of another type.
        commands = [*(("GET", key) for key in keys), _marks_of(question)]
        *values, marks = await self._commands.ask(commands, left.s())
        found = [self._kept(value, tenant, digest) for value, digest in zip(values, digests, strict=True)]
        damaged = [key for key, kept in zip(keys, found, strict=True) if kept is _DAMAGED]
        if damaged:
            await self._commands.delete(*damaged, timeout_s=left.s())
        return found, standing_of(marks)

    async def _entry(
        self, question: Question, kept: Kept | _Damaged | None, standing: Standing, left: TimeLeft
    ) -> Entry | None:
        is_good = isinstance(kept, Entry) and await self._may_read(question, kept, standing, left)
        return kept if isinstance(kept, Entry) and is_good else None

    async def _may_read(self, question: Question, kept: Kept, standing: Standing, left: TimeLeft) -> bool:
        """What was kept has the last word on whose it is: where the question names another scope or revision
        (a look-up for the exact tier alone may name none), its own standing is asked for."""
        if not _is_of(question, kept):
            own = Question(question.tenant, kept.scope, kept.revision)
            standing = await self._generations.standing(own, left.s())
        return standing.allows(kept)

    def _kept(self, value: Any, tenant: str, digest: bytes) -> Kept | _Damaged | None:
        if value is None:
            return None
        if isinstance(value, Exception):
            if not is_spoiled(value):
                raise StoreUnavailable(type(value).__name__)
            return _DAMAGED
        try:
            return decode_entry(value, tenant, digest, self._seal)
        except UnreadableEntry:
            return _DAMAGED


def _marks_of(question: Question) -> tuple[str | bytes, ...]:
    """The command that reads what ``standing_of`` needs."""
    return ("HMGET", generations_key(question.tenant), *standing_fields(question))


def _is_of(question: Question, kept: Kept) -> bool:
    return (kept.scope, kept.revision) == (question.scope, question.revision)

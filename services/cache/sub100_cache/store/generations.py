"""Generations: which entries of a tenant may be read, and which fills may still be written.

A tenant's *record* is a hash that outlives every entry: each write, and each invalidation, gives it the
longest time that an entry may live. It holds marks for *targets*: the whole tenant, one scope, one revision,
one scope under one revision. Of each target:

- ``g``, a number. An invalidation raises it above every number of the record, so that the greatest among the
  targets of a question, its *standing*, changes with each invalidation that concerns it and with no other.
  An entry may be read, and a fill written, under exactly the number that it was asked under.
- ``b``, a unix time: entries stored before it may not be read.
- ``l``, the place in the log of invalidations that last raised it: ``identity:position``.

A record that is gone (nothing was written for so long, or Redis was flushed or restarted) begins anew with a
number made of the time: no number of before comes alive again, and a fill that was asked for under one is
dropped. So does one that cannot be read: of another type, or with a mark that is none. Until then it allows
nothing.
"""

import functools
import logging
import math
import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from redis.exceptions import ResponseError

from . import scripts
from .commands import WRITE_TIMEOUT_S, Commands, StoreUnavailable, TimeLeft, is_spoiled
from .entries import DIGEST_BYTES, Entry, Kept, generations_key, generations_pattern
from .log_place import Place

_log = logging.getLogger(__name__)

MAX_MARKS: Final = 4096
"""Fields of a record. One that grows over it is replaced by a single mark of the whole tenant."""

_NOWHERE: Final = Place()
_MAX_KNOWN: Final = 1024
"""Tenants' scopes that are asked for again and again."""

_MAX_NUMBER: Final = 2**53
"""Above, the scripts could not tell two numbers apart."""

_TOKEN: Final = struct.Struct(">QQQ")


class Question(msgspec.Struct, frozen=True):
    """What a generation is captured for."""

    tenant: str
    scope: bytes = b""
    revision: str = ""

    def target(self) -> bytes:
        """Its narrowest target. Raises ValueError for a scope of the wrong length: it could run into the
        revision."""
        if len(self.scope) not in (0, DIGEST_BYTES):
            raise ValueError(f"a scope has {DIGEST_BYTES} bytes, not {len(self.scope)}")
        kind = ("t", "r", "s", "x")[bool(self.revision) + 2 * bool(self.scope)]
        return kind.encode() + self.scope + self.revision.encode()

    def targets(self) -> list[bytes]:
        """All targets whose invalidation concerns it; raises ValueError as ``target`` does."""
        wider = (
            Question(self.tenant, scope, revision)
            for scope in (b"", self.scope)
            for revision in ("", self.revision)
        )
        return list(dict.fromkeys(each.target() for each in wider))


class Standing(msgspec.Struct, frozen=True):
    """What holds for a question now. ``number`` 0: its tenant has no record, or (``is_spoiled``) none that
    can be read."""

    number: int = 0
    before_s: float = 0.0
    is_spoiled: bool = False

    def allows(self, kept: Kept) -> bool:
        """Whether it may be read; an alias is as old as its target."""
        if kept.generation != self.number or not self.number:
            return False
        return not isinstance(kept, Entry) or kept.stored_at_s >= self.before_s


class Token(msgspec.Struct, frozen=True):
    """A generation as it travels: the number of this store, and the place reached in the log."""

    number: int
    place: Place = _NOWHERE

    def packed(self) -> bytes:
        return _TOKEN.pack(self.number, self.place.identity, self.place.position)


def unpack(generation: bytes) -> Token | None:
    """None for what is no generation: a fill without one is not written."""
    try:
        number, identity, position = _TOKEN.unpack(generation)
    except struct.error:
        return None
    token = Token(number, Place(identity, position))
    return token if token.number else None


@functools.lru_cache(_MAX_KNOWN)
def standing_fields(question: Question) -> tuple[bytes, ...]:
    """The fields of the record that ``standing_of`` reads; raises ValueError for a bad scope."""
    targets = question.targets()
    return (*(b"g" + target for target in targets), *(b"b" + target for target in targets))


def standing_of(values: Sequence[Any] | Exception) -> Standing:
    """Of the values of ``standing_fields``, or of what Redis answered instead; raises StoreUnavailable."""
    if isinstance(values, Exception):
        if not is_spoiled(values):
            raise StoreUnavailable(type(values).__name__)
        return Standing(is_spoiled=True)
    half = len(values) // 2
    if values[0] is None:  # the tenant's own number is there as long as the record is
        return Standing()
    try:
        return Standing(
            max(_number(value) for value in values[:half] if value is not None),
            max((_time_s(value) for value in values[half:] if value is not None), default=0.0),
        )
    except ValueError:
        return Standing(is_spoiled=True)


def _number(value: bytes) -> int:
    number = int(value) if value.isdigit() else 0
    if not 0 < number <= _MAX_NUMBER:
        raise ValueError("no generation")
    return number


def _time_s(value: bytes) -> float:
    time_s = float(value)
    if not math.isfinite(time_s):
        raise ValueError("no time")
    return time_s


class Generations:
    """All methods raise StoreUnavailable, and ValueError for a scope of the wrong length."""

    def __init__(self, commands: Commands, max_ttl_s: float, *, max_marks: int = MAX_MARKS) -> None:
        """``max_ttl_s``: no entry is kept longer, and no record for longer after its last write."""
        self._commands = commands
        self.record_ttl_ms = int(max_ttl_s * 1e3)
        self._max_marks = max_marks
        self._establish = commands.client.register_script(scripts.ESTABLISH)
        self._invalidate = commands.client.register_script(scripts.INVALIDATE)

    async def standing(self, question: Question, timeout_s: float) -> Standing:
        command = self._commands.client.hmget(
            generations_key(question.tenant),
            list(standing_fields(question)),
        )
        try:
            values = await self._commands.run(command, timeout_s)
        except ResponseError as error:
            return standing_of(error)
        return standing_of(values)

    async def establish(self, question: Question, place: Place, timeout_s: float) -> Standing:
        """The standing of a tenant whose record may be missing or spoiled. A new record counts as an
        invalidation of the whole tenant at ``place`` in the log."""
        left = TimeLeft(timeout_s)
        await self._begin(question.tenant, place, left.s())
        standing = await self.standing(question, left.s())
        if standing.is_spoiled:
            await self._begin(question.tenant, place, left.s(), is_spoiled=True)
            standing = await self.standing(question, left.s())
        return standing

    async def invalidate(
        self, question: Question, *, before_s: float = 0.0, place: Place = _NOWHERE, is_replay: bool = False
    ) -> None:
        """Make unreadable what was stored for the question's target: before ``before_s``, or (0) until now,
        with all fills on their way. A replay does nothing if the record knows of ``place``, or of a later one
        in the same log, already."""
        before = repr(before_s) if before_s else ""
        args: list[Any] = [question.target(), before, place.identity, place.position]
        args += ["replay" if is_replay else "", self._max_marks, self.record_ttl_ms]
        command = self._invalidate(keys=[generations_key(question.tenant)], args=args)
        try:
            was_spoiled = await self._commands.run(command, WRITE_TIMEOUT_S)
        except ResponseError as error:
            raise StoreUnavailable(type(error).__name__) from error
        if was_spoiled:
            _warn(question.tenant)

    async def admit(self, question: Question, place: Place, own_place: Place) -> int:
        """The number under which another region's answer may be written here. 0: that region had read the log
        to ``place`` when the answer was asked for, and this one knows of a later invalidation, or of another
        log."""
        if place.identity != own_place.identity:
            return 0
        targets = question.targets()
        fields = [b"l" + target for target in targets]
        standing = await self.establish(question, own_place, WRITE_TIMEOUT_S)
        command = self._commands.client.hmget(generations_key(question.tenant), fields)
        try:
            marks = await self._commands.run(command, WRITE_TIMEOUT_S)
        except ResponseError as error:
            raise StoreUnavailable(type(error).__name__) from error
        try:
            is_current = all(
                _position(mark, place.identity) <= place.position for mark in marks if mark is not None
            )
        except ValueError:
            await self._begin(question.tenant, own_place, WRITE_TIMEOUT_S, is_spoiled=True)
            return 0
        return standing.number if is_current else 0

    async def _begin(self, tenant: str, place: Place, timeout_s: float, *, is_spoiled: bool = False) -> None:
        """A record where there is none, or anew. ``is_spoiled``: a mark was read that is none."""
        args: list[Any] = [_mark(place), self.record_ttl_ms, "anew" if is_spoiled else ""]
        try:
            begun = self._establish(keys=[generations_key(tenant)], args=args)
            was_spoiled = await self._commands.run(begun, timeout_s)
        except ResponseError as error:
            raise StoreUnavailable(type(error).__name__) from error
        if was_spoiled:
            _warn(tenant)

    async def forget_all(self) -> None:
        """Make everything of every tenant unreadable: each record begins anew."""
        try:
            async for keys in self._commands.scan(generations_pattern(), WRITE_TIMEOUT_S):
                if keys:
                    await self._commands.run(self._commands.client.delete(*keys), WRITE_TIMEOUT_S)
        except ResponseError as error:
            raise StoreUnavailable(type(error).__name__) from error


def _warn(tenant: str) -> None:
    _log.warning("unreadable generations begun anew: older answers are not read", extra={"tenant": tenant})


def _mark(place: Place) -> str:
    return f"{place.identity}:{place.position}"


def _position(mark: Any, identity: int) -> int:
    """In the log of this identity; 0 for a mark of another. Raises ValueError for what is no mark."""
    life, _, position = mark.partition(b":")
    if not (life.isdigit() and position.isdigit()):
        raise ValueError("no place in a log")
    return int(position) if life == str(identity).encode() else 0

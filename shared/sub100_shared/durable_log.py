"""A log that all regions share: one JetStream stream, appended to by anybody, read in order by everybody.

A reader keeps its own place, so that the server has nothing to remember of it. Positions count from 1 without
holes, and belong to one life of the stream: ``LogEnds.identity`` changes when it is made anew.
"""

import asyncio
from typing import Final

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

TIMEOUT_S: Final = 2.0
PAGE: Final = 64
"""Messages asked for at once: far regions read a page in one round trip."""


class LogUnavailable(Exception):
    """No connection, no JetStream, or no answer in time."""


class LogEnds(msgspec.Struct, frozen=True):
    """``first`` is ``last + 1`` when nothing is kept. ``identity`` is when the stream was made, in unix
    microseconds."""

    identity: int
    first: int
    last: int


class Record(msgspec.Struct, frozen=True):
    position: int
    subject: str
    data: bytes


class DurableLog:
    """All methods raise LogUnavailable, and end within a few TIMEOUT_S."""

    def __init__(self, client: Client, name: str, subject: str) -> None:
        self._client = client
        self._js = client.jetstream(timeout=TIMEOUT_S)
        self._name = name
        self._subject = subject

    async def ensure(self, *, max_age_s: float, max_bytes: int, num_replicas: int) -> None:
        """Make the stream if it is not there; one that is there keeps its settings."""
        config = StreamConfig(
            name=self._name,
            subjects=[self._subject],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            discard=DiscardPolicy.OLD,
            max_age=max_age_s,
            max_bytes=max_bytes,
            num_replicas=num_replicas,
        )
        try:
            await self.ends()
        except LogUnavailable:
            try:
                await self._js.add_stream(config)
            except _FAILURES as error:
                raise LogUnavailable(_reason(error)) from error

    async def append(self, subject: str, payload: bytes) -> int:
        """The position at which it is kept, known to be on disk."""
        self._demand_connection()
        try:
            ack = await self._js.publish(subject, payload, timeout=TIMEOUT_S, stream=self._name)
        except _FAILURES as error:
            raise LogUnavailable(_reason(error)) from error
        return int(ack.seq)

    async def ends(self) -> LogEnds:
        self._demand_connection()
        try:
            info = await self._js.stream_info(self._name)
        except _FAILURES as error:
            raise LogUnavailable(_reason(error)) from error
        created = int(info.created.timestamp() * 1e6) if info.created is not None else 0
        last = info.state.last_seq
        # An empty stream tells a first of 0 before its first message, and of last + 1 after its last.
        return LogEnds(created, info.state.first_seq or last + 1, last)

    async def read(self, first: int, last: int) -> list[Record]:
        """The records of the positions from ``first`` to ``last``, PAGE of them at most, in order. Those that
        the stream has dropped meanwhile are left out."""
        positions = range(first, min(last, first + PAGE - 1) + 1)
        found = await asyncio.gather(*(self._record(position) for position in positions))
        return [record for record in found if record is not None]

    def _demand_connection(self) -> None:
        """The client would keep what is sent now for a server that may come back."""
        if not self._client.is_connected:
            raise LogUnavailable("no connection to NATS")

    async def _record(self, position: int) -> Record | None:
        try:
            message = await self._js.get_msg(self._name, position)
        except nats.js.errors.NotFoundError:
            return None
        except _FAILURES as error:
            raise LogUnavailable(_reason(error)) from error
        return Record(position, message.subject or "", message.data or b"")


_FAILURES: Final = (nats.errors.Error, OSError, TimeoutError)


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__

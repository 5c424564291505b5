"""Questions to one of the replicas of a service, and to a second one if the first does not answer in time.

::

    ask --> a replica, by name --> answer                                  two messages, as ever
              |-- nobody listens there (at once) --> another replica, or whichever the queue group has
              `-- late (``lateness``) --> a replica that is not; the first answer is taken

Each replica is asked once at most. What was asked and is not waited for any more is given to ``abandon``: its
answer is still listened for, so that a slow replica is known from a lost one, and is not used.
"""

import asyncio
import itertools
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from sub100_proto import subjects
from sub100_shared.bus import Bus, Incoming, NoResponders, ReplyTimeout
from sub100_shared.clock import Clock

from .lateness import Lateness
from .replicas import Replicas

MAX_LATE: Final = 2
"""Replicas that may keep one question waiting before no other is asked: three are at work on it then."""

MAX_LEFT: Final = 1024
"""Asks that nobody waits for and that may be answered yet."""

Encode = Callable[[str], bytes]
"""The payload of an ask, which has a name of its own."""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """``ask`` is the name of the ask that it answers."""

    ask: str
    data: bytes


class _Ask(msgspec.Struct):
    replica: str
    sent_ms: float
    question: "_Question"


class _Question:
    """Mutable; of one caller, who alone waits."""

    __slots__ = ("_waiter", "answer", "asked", "is_unheard", "open")

    def __init__(self) -> None:
        self.asked: list[str] = []
        """The replicas."""
        self.open: dict[str, _Ask] = {}
        """By name, what was sent and may have been heard."""
        self.answer: Answer | None = None
        self.is_unheard = False
        """Some ask has reached nobody, and nothing was done about it yet."""
        self._waiter: asyncio.Future[None] | None = None

    def on_answer(self, answer: Answer) -> None:
        """The first one counts."""
        if self.answer is None:
            self.answer = answer
            self._wake()

    def on_unheard(self, name: str) -> None:
        self.open.pop(name, None)
        self.is_unheard = True
        self._wake()

    async def wait(self, timeout_ms: float) -> None:
        """Until there is news, or until the time is over."""
        if self.answer is not None or self.is_unheard:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(timeout_ms / 1e3, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Asker:
    """Of the questions of one kind: ``subject`` is the queue group's. ``replicas`` may be shared with other
    kinds of question to the same service."""

    def __init__(
        self,
        bus: Bus,
        replicas: Replicas,
        subject: str,
        clock: Clock,
        lateness: Lateness,
        abandon: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._bus = bus
        self._replicas = replicas
        self._subject = subject
        self._clock = clock
        self._abandon = abandon
        self._lateness = lateness
        self._inbox = bus.new_inbox()
        # A restarted process has the same name and starts to count anew.
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count()
        self._open: dict[str, _Ask] = {}
        self._left: OrderedDict[str, _Ask] = OrderedDict()

    async def start(self) -> None:
        """From now on answers are heard."""
        await self._bus.listen(f"{self._inbox}.*", self._on_answer)

    async def ask(self, encode: Encode, *, timeout_s: float, headers: dict[str, str] | None = None) -> Answer:
        """The first answer; raises NoResponders when nobody is there, ReplyTimeout, BusUnavailable,
        PayloadTooLarge. Whatever else was asked has been given to ``abandon`` when it returns or raises."""
        question = _Question()
        until_ms = self._clock() + timeout_s * 1e3
        replica = self._replicas.choose()
        try:
            while True:
                if replica is not None:
                    await self._send(question, replica, encode, headers)
                left_ms = until_ms - self._clock()
                await question.wait(left_ms if replica is None else min(left_ms, self._lateness.after_ms))
                if question.answer is not None:
                    del question.open[question.answer.ask]
                    return question.answer
                if question.is_unheard:
                    question.is_unheard = False
                    replica = self._replicas.choose(question.asked)
                    if replica is None and not question.open:
                        raise NoResponders(self._subject)
                    continue
                for ask in question.open.values():
                    self._replicas.on_late(ask.replica)
                if self._clock() >= until_ms:
                    raise ReplyTimeout(self._subject, timeout_s)
                may_ask = len(question.open) <= MAX_LATE
                replica = self._replicas.choose_prompt(question.asked) if may_ask else None
        finally:
            if question.open:
                await self._leave(question)

    async def _send(
        self, question: _Question, replica: str, encode: Encode, headers: dict[str, str] | None
    ) -> None:
        name = f"{self._prefix}-{next(self._numbers):x}"
        ask = self._open[name] = question.open[name] = _Ask(replica, self._clock(), question)
        question.asked.append(ask.replica)
        await self._bus.publish(
            subjects.of_replica(self._subject, replica),
            encode(name),
            reply=f"{self._inbox}.{name}",
            headers=headers,
        )

    async def _leave(self, question: _Question) -> None:
        """Nobody waits for what is still open. Never raises."""
        names = tuple(question.open)
        for name in names:
            if (ask := self._open.pop(name, None)) is not None:
                self._left[name] = ask
                if len(self._left) > MAX_LEFT:
                    self._left.popitem(last=False)
        if self._abandon is not None:
            for name in names:
                await self._abandon(name)

    def _on_answer(self, msg: Incoming) -> None:
        name = msg.subject.rpartition(".")[2]
        ask = self._open.pop(name, None) or self._left.pop(name, None)
        if ask is None:
            return
        if msg.is_no_responders:
            self._replicas.on_unheard(ask.replica)
            ask.question.on_unheard(name)
        else:
            self._replicas.on_answer(ask.replica)
            self._lateness.learn(self._clock() - ask.sent_ms)
            ask.question.on_answer(Answer(name, msg.data))

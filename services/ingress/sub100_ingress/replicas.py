"""Which replicas of a service there are, and which to ask: those that kept nobody waiting, in turn.

A queue group chooses at random, and goes on choosing a replica that hangs until NATS gives its connection up,
half a minute later. So ingress asks replicas by name. It learns their names from the status message that each
sends once a second anyway; whoever does not answer in time is passed by until it is heard again.
Pure but for the clock.
"""

import logging
from collections.abc import Collection
from typing import Final, Literal

import msgspec

from sub100_proto import codec
from sub100_shared.bus import Incoming
from sub100_shared.clock import Clock

_log = logging.getLogger(__name__)

ANY: Final = ""
"""In place of a name: whichever of the queue group NATS chooses."""

SILENT_MS: Final = 3_500.0
"""Three status messages missed, and a bit for the fourth."""

Reason = Literal["late", "gone", "silent"]


class _Replica(msgspec.Struct):
    heard_ms: float
    is_late: bool = False


class Replicas:
    """Of one service in one region; as many as there are processes that say so."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, _Replica] = {}
        """Who was asked longest ago comes first."""
        self.num_lost: dict[Reason, int] = {"late": 0, "gone": 0, "silent": 0}
        """How often one was found so."""

    def on_status(self, msg: Incoming) -> None:
        """Listener of ``subjects.status_of``."""
        status = codec.decode_status(msg.data)
        name = status.instance
        if status.state != "ready" or not status.is_addressable:
            self._known.pop(name, None)
        elif name in self._known:
            self.on_answer(name)
        else:
            self._known[name] = _Replica(self._clock())
        for name in [name for name, replica in self._known.items() if self._is_silent(replica)]:
            self._lose(name, "silent")

    def choose(self, asked: Collection[str] = ()) -> str | None:
        """Whom to ask when somebody must be: a replica in turn, else of the late ones whoever was heard last,
        else ANY. None: all of them are among ``asked``."""
        if (prompt := self.choose_prompt(asked)) is not None:
            return prompt
        late = [
            (replica.heard_ms, name)
            for name, replica in self._known.items()
            if name not in asked and not self._is_silent(replica)
        ]
        if late:
            return max(late)[1]
        return None if ANY in asked or self._known.keys() & asked else ANY

    def choose_prompt(self, asked: Collection[str] = ()) -> str | None:
        """Whoever is worth being asked beside somebody who is late; None if nobody is."""
        for name, replica in self._known.items():
            if not replica.is_late and name not in asked and not self._is_silent(replica):
                self._known[name] = self._known.pop(name)
                return name
        return None

    def on_answer(self, name: str) -> None:
        """Something was heard of it, however late."""
        replica = self._known.get(name)
        if replica is not None:
            replica.heard_ms = self._clock()
            replica.is_late = False

    def on_late(self, name: str) -> None:
        """It kept somebody waiting for too long."""
        replica = self._known.get(name)
        if replica is not None and not replica.is_late:
            replica.is_late = True
            self.num_lost["late"] += 1
            _log.debug("replica is late", extra={"replica": name})

    def on_unheard(self, name: str) -> None:
        """NATS says that nobody listens: gone, until it says that it is back."""
        if name in self._known:
            self._lose(name, "gone")

    def _lose(self, name: str, reason: Reason) -> None:
        del self._known[name]
        self.num_lost[reason] += 1
        _log.warning("replica lost", extra={"replica": name, "reason": reason})

    def _is_silent(self, replica: _Replica) -> bool:
        return self._clock() - replica.heard_ms > SILENT_MS

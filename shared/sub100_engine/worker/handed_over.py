"""KV that this worker has handed over and whoever is to have it pulled; pure, and bounded.

For an abort that crosses the first token on its way, and for the end of an ingress."""

from collections import OrderedDict
from typing import Final

from sub100_proto.kv import KvHandle

_MAX_REMEMBERED: Final = 4096


class HandedOver:
    """By attempt; the last few thousand. An ingress is known by the subject of its events."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[str, KvHandle]] = OrderedDict()

    def remember(self, attempt: str, events: str, kv: KvHandle) -> None:
        self._kept[attempt] = events, kv
        while len(self._kept) > _MAX_REMEMBERED:
            self._kept.popitem(last=False)

    def take(self, attempt: str) -> KvHandle | None:
        """What the attempt left; forgotten from now on."""
        kept = self._kept.pop(attempt, None)
        return None if kept is None else kept[1]

    def attempts_of(self, events: str) -> list[str]:
        return [attempt for attempt, (owner, _) in self._kept.items() if owner == events]

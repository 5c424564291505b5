"""What every embedder is."""

from typing import Protocol


class EmbedderUnavailable(Exception):
    """No vector: ``reason`` is bounded (``busy``, ``late``, ``failed``, ``status``, ``shape``,
    ``dimension`` ...)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class WrongDimension(EmbedderUnavailable):
    """The vectors have another width than the index: whoever configured them has to say which."""

    def __init__(self, found: int, wanted: int) -> None:
        super().__init__("dimension")
        self.found = found
        self.wanted = wanted

    def __str__(self) -> str:
        return f"the embedder's vectors have {self.found} numbers, not {self.wanted}"


class Embedder(Protocol):
    """``id`` (``[A-Za-z0-9_-]+``) names everything that changes a vector: model, vocabulary, cap on the
    input. Vectors of different ids are never compared. ``dimension`` is their width."""

    @property
    def id(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    async def embed(self, text: str, timeout_s: float) -> bytes:
        """``dimension`` little-endian float32 of length 1. Raises EmbedderUnavailable.

        Never blocks the event loop. Work that has not begun within ``timeout_s`` is not done any more; work
        that has begun may end later. Nothing outlives the implementation's own bound."""
        ...

    async def close(self) -> None:
        """Idempotent."""
        ...

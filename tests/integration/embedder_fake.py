"""An embedder that tests steer: the vectors they name, late or broken when they say so."""

import asyncio
import hashlib
import math
import struct

from sub100_cache.breaker import Breaker
from sub100_cache.embedders.api import EmbedderUnavailable
from sub100_cache.embedders.bounded import SLOW_S, BoundedEmbedder

DIMENSION = 8


def vector_at(degrees: float) -> bytes:
    """Unit vectors in one plane: their cosine is that of the angle between them."""
    angle = math.radians(degrees)
    return struct.pack(f"<{DIMENSION}f", math.cos(angle), math.sin(angle), *[0.0] * (DIMENSION - 2))


class SteeredEmbedder:
    """``angles`` by text; one that is not there gets ``default_degrees`` or its own angle. ``error`` is
    raised if set; while ``gate`` is clear, nothing is answered."""

    def __init__(self, name: str = "steered") -> None:
        self.id = name
        self.dimension = DIMENSION
        self.angles: dict[str, float] = {}
        self.default_degrees: float | None = None
        self.error = ""
        self.gate = asyncio.Event()
        self.gate.set()
        self.num_calls = 0

    async def embed(self, text: str, timeout_s: float) -> bytes:
        self.num_calls += 1
        await self.gate.wait()
        if self.error:
            raise EmbedderUnavailable(self.error)
        own = hashlib.sha256(text.encode()).digest()[0] * 360 / 256
        default = own if self.default_degrees is None else self.default_degrees
        return vector_at(self.angles.get(text, default))

    async def close(self) -> None:
        self.gate.set()


def bounded(embedder: SteeredEmbedder, num_kept: int = 16) -> BoundedEmbedder:
    return BoundedEmbedder(embedder, Breaker(SLOW_S), num_kept)

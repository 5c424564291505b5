"""Any server with OpenAI's ``POST /v1/embeddings``: a GPU model, a provider, another team's service.

Questions leave this process here, so it is used only where an operator names a URL.
"""

import asyncio
import hashlib
from typing import Any, Final

import httpx
import msgspec
import numpy as np

from .api import EmbedderUnavailable, WrongDimension

TIMEOUT_S: Final = 2.0
"""No call outlives it, however long its caller waits."""

MAX_REPLY_BYTES: Final = 2**20


class _Item(msgspec.Struct):
    embedding: list[float]


class _Reply(msgspec.Struct):
    data: list[_Item]


_decode: Final = msgspec.json.Decoder(_Reply).decode


class Endpoint:
    """At most ``max_queued`` calls at once; one more is refused at once."""

    def __init__(self, url: str, model: str, *, dimension: int, key: str, max_queued: int) -> None:
        """``url`` ends where ``/embeddings`` is appended; raises ValueError for one that is none of HTTP."""
        if not url.startswith(("http://", "https://")):
            raise ValueError("the embedder's URL must begin with http:// or https://")
        self.dimension = dimension
        source = hashlib.sha256(msgspec.json.encode((url, model, dimension)))
        self.id = f"endpoint-{source.hexdigest()[:16]}"
        self._url = f"{url.rstrip('/')}/embeddings"
        self._model = model
        self._free = max_queued
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=TIMEOUT_S,
            limits=httpx.Limits(max_connections=max_queued, max_keepalive_connections=max_queued),
            follow_redirects=False,
            trust_env=False,
        )

    async def embed(self, text: str, timeout_s: float) -> bytes:
        if self._free <= 0:
            raise EmbedderUnavailable("busy")
        self._free -= 1
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return self._vector(await self._post({"model": self._model, "input": text}))
        except TimeoutError as error:
            raise EmbedderUnavailable("late") from error
        except httpx.HTTPError as error:
            raise EmbedderUnavailable("failed") from error
        except (msgspec.MsgspecError, ValueError, OverflowError) as error:
            raise EmbedderUnavailable("shape") from error
        finally:
            self._free += 1

    async def close(self) -> None:
        await self._client.aclose()

    async def _post(self, body: dict[str, str]) -> bytes:
        async with self._client.stream("POST", self._url, json=body) as response:
            if response.status_code != httpx.codes.OK:
                raise EmbedderUnavailable("status")
            content = bytearray()
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > MAX_REPLY_BYTES:
                    raise EmbedderUnavailable("shape")
        return bytes(content)

    def _vector(self, content: bytes) -> bytes:
        """Normalised here: not every server does it."""
        items = _decode(content).data
        if len(items) != 1:
            raise EmbedderUnavailable("shape")
        vector: Any = np.array(items[0].embedding, np.float32)
        if len(vector) != self.dimension:
            raise WrongDimension(len(vector), self.dimension)
        length = float(np.linalg.norm(vector))
        if not np.isfinite(length) or length == 0.0:
            raise EmbedderUnavailable("shape")
        unit: bytes = (vector / length).astype("<f4").tobytes()
        return unit

"""The embedder that the configuration names."""

from pathlib import Path

from sub100_shared.config import ConfigError, read_secret

from ..breaker import Breaker
from ..config import KEY_VARIABLE, CacheConfig
from .api import Embedder
from .bounded import SLOW_S, BoundedEmbedder
from .endpoint import Endpoint
from .minilm import MiniLm, find_model

_NUM_KEPT = 1024


def open_embedder(config: CacheConfig) -> BoundedEmbedder | None:
    """None: the exact tier alone. Raises ConfigError."""
    if config.embedder == "none":
        return None
    try:
        embedder = _minilm(config) if config.embedder == "minilm" else _endpoint(config)
    except ValueError as error:
        raise ConfigError(f"SUB100_CACHE_EMBEDDER: {error}") from error
    return BoundedEmbedder(embedder, Breaker(SLOW_S), _NUM_KEPT)


def _minilm(config: CacheConfig) -> Embedder:
    return MiniLm(
        Path(config.embedder_model) if config.embedder_model else find_model(),
        max_pieces=config.max_pieces,
        threads=config.embedder_threads,
        max_queued=config.max_embeddings,
    )


def _endpoint(config: CacheConfig) -> Embedder:
    file = config.embedder_key_file
    return Endpoint(
        config.embedder_url,
        config.embedder_model,
        dimension=config.embedder_dimension,
        key=read_secret(file, KEY_VARIABLE).decode() if file else "",
        max_queued=config.max_embeddings,
    )

"""The parts of the program put together, on a connection and an embedder that the caller opened."""

from sub100_shared.clock import Clock
from sub100_shared.lifecycle import Runtime

from .config import CacheConfig
from .embedders.bounded import BoundedEmbedder
from .guard import WORDING
from .invalidations import Invalidations
from .lookups import Lookups
from .semantic import SemanticTier
from .service import CacheService
from .store.commands import Commands
from .store.exact import ExactTier
from .store.generations import Generations
from .store.sweep import Sweep
from .store.vectors import VectorIndex
from .store.writes import WallClock, Writes


def compose(
    runtime: Runtime,
    config: CacheConfig,
    commands: Commands,
    embedder: BoundedEmbedder | None,
    clock: Clock,
    wall_clock: WallClock,
) -> CacheService:
    """Without ``embedder`` there is the exact tier alone. The service closes what it is given."""
    generations = Generations(commands)
    exact = ExactTier(commands, generations)
    semantic = (
        SemanticTier(
            embedder,
            VectorIndex(commands, f"{embedder.id}-w{WORDING}", embedder.dimension),
            exact,
            clock,
            threshold=config.threshold,
            num_neighbours=config.num_neighbours,
            max_question_chars=config.max_question_chars,
        )
        if embedder is not None
        else None
    )
    lookups = Lookups(exact, generations, semantic, clock, wall_clock)
    invalidations = Invalidations(generations, Sweep(commands, generations))
    writes = Writes(commands, exact, wall_clock)
    return CacheService(runtime, config, commands, lookups, writes, invalidations, semantic, clock)

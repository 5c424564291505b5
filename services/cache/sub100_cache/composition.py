"""The parts of the program put together, on a connection and an embedder that the caller opened."""

from sub100_proto import subjects
from sub100_shared.clock import Clock
from sub100_shared.lifecycle import Runtime

from .config import CacheConfig
from .embedders.bounded import BoundedEmbedder
from .evidence import Evidence
from .fills import Fills
from .follower import LOG_NAME, Follower, LogSettings
from .freshness import Freshness
from .guard import WORDING
from .invalidations import Invalidations
from .lookups import Lookups
from .replication import Replication
from .semantic import SemanticTier
from .service import CacheService
from .store.commands import Commands
from .store.counts import Counts
from .store.exact import ExactTier
from .store.generations import Generations
from .store.ledger import Ledger
from .store.log_place import LogPlace
from .store.seal import Seal
from .store.sweep import Sweep
from .store.vectors import VectorIndex
from .store.writes import WallClock, Writes
from .tenants import Tenants
from .upkeep import Upkeep


def compose(
    runtime: Runtime,
    config: CacheConfig,
    commands: Commands,
    embedder: BoundedEmbedder | None,
    tenants: Tenants,
    clock: Clock,
    wall_clock: WallClock,
) -> CacheService:
    """Without ``embedder`` there is the exact tier alone. The service closes what it is given.
    Raises ConfigError for a deployment secret that is named and cannot be read."""
    common = runtime.common
    seal = Seal(common.secret() if common.secret_file else b"")
    generations = Generations(commands, config.max_ttl_s)
    exact = ExactTier(commands, generations, seal)
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
    ledger, counts = Ledger(commands), Counts(commands, config.max_ttl_s)
    sweep = Sweep(commands, generations, ledger, seal)
    upkeep = Upkeep(
        counts,
        ledger,
        sweep,
        clock,
        counts_interval_s=config.counts_interval_s,
        ledger_interval_s=config.ledger_interval_s,
    )
    has_log = config.log == "jetstream"
    log = runtime.bus.durable_log(LOG_NAME, subjects.cache_log_all()) if has_log else None
    freshness = Freshness(clock, config.max_staleness_s if has_log else None)
    invalidations = Invalidations(generations, sweep, ledger, counts, upkeep, freshness, log, runtime.region)
    follower = (
        Follower(
            log,
            runtime.region,
            freshness,
            generations,
            LogPlace(commands, config.max_ttl_s),
            invalidations,
            clock,
            settings=LogSettings(
                max_age_s=config.log_max_age_s,
                max_bytes=config.log_max_bytes,
                num_replicas=config.log_replicas,
            ),
            max_staleness_s=config.max_staleness_s,
        )
        if log is not None
        else None
    )
    writes = Writes(commands, exact, generations, seal, tenants.quota, wall_clock)
    replication = Replication(
        runtime.bus,
        runtime.region,
        tenants,
        freshness,
        wall_clock,
        max_age_s=config.max_replica_age_s,
    )
    return CacheService(
        runtime,
        config,
        commands,
        Lookups(exact, generations, semantic, freshness, clock, wall_clock),
        Fills(config, writes, semantic, replication, upkeep, wall_clock),
        freshness,
        follower,
        invalidations,
        Evidence(counts, ledger),
        upkeep,
        semantic,
        clock,
    )

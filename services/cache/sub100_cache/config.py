"""``SUB100_CACHE_*``. The Redis address is the shared ``SUB100_REDIS_URL``."""

from typing import Annotated, Final, Literal

import msgspec

Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]

KEY_VARIABLE: Final = "SUB100_CACHE_EMBEDDER_KEY_FILE"


class CacheConfig(msgspec.Struct, frozen=True, kw_only=True):
    """``max_ttl_s`` caps what a fill asks for; an entry larger than ``max_answer_bytes`` is not stored.

    ``max_lookup_ms`` caps the allotment that a request may bring. ``max_lookups`` and ``max_fills`` bound
    what runs at once: over it a look-up is a miss and a fill is dropped. ``max_connections`` bounds the
    Redis commands on the way, those included that nobody waits for any more.

    ``redis_cluster``: the shared Redis URL names a node of a Redis Cluster.

    ``max_tenant_entries`` and ``max_tenant_bytes`` are what each tenant may keep in this region, unless the
    ``tenants_file`` says otherwise (see ``tenants``). Counts are written every ``counts_interval_s``, and
    ledgers compared with what is there every ``ledger_interval_s``.

    ``log``: ``none`` (one region) or ``jetstream`` (all regions share a log of invalidations, kept for
    ``log_max_age_s`` and ``log_max_bytes`` on ``log_replicas`` servers; the one that makes it decides). After
    ``max_staleness_s`` without contact to it every look-up misses. Another region's answer that is older than
    ``max_replica_age_s`` when it arrives is dropped.

    ``embedder``: ``none`` (the exact tier alone), ``minilm`` (in this process: ``embedder_model`` is the
    ONNX file, by default that of the installed package; ``embedder_threads`` compute one question) or
    ``endpoint`` (``embedder_url`` and ``embedder_model`` as OpenAI's API has them, ``embedder_dimension``,
    and a key in ``embedder_key_file`` where one is needed). ``max_embeddings`` may wait or run at once.
    A question longer than ``max_question_chars`` asks the exact tier alone; of a shorter one
    ``max_pieces`` word pieces count. ``threshold`` is the least cosine where a look-up names none; of the
    ``num_neighbours`` nearest questions above it, the first that the guard lets pass answers.
    """

    max_ttl_s: Positive = 86_400
    max_answer_bytes: Positive = 2**20
    max_lookup_ms: Annotated[float, msgspec.Meta(gt=0)] = 50.0
    max_lookups: Positive = 1024
    max_fills: Positive = 256
    max_connections: Positive = 64
    redis_cluster: bool = False
    max_tenant_entries: Positive = 100_000
    max_tenant_bytes: Positive = 128 * 2**20
    tenants_file: str = ""
    counts_interval_s: Seconds = 2.0
    ledger_interval_s: Seconds = 60.0
    log: Literal["none", "jetstream"] = "none"
    log_max_age_s: Seconds = 7 * 86_400.0
    log_max_bytes: Positive = 16 * 2**20
    log_replicas: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    max_staleness_s: Seconds = 10.0
    max_replica_age_s: Seconds = 30.0
    probe_interval_s: Seconds = 0.25
    embedder: Literal["none", "minilm", "endpoint"] = "none"
    embedder_model: str = ""
    embedder_url: str = ""
    embedder_key_file: str = ""
    embedder_dimension: Positive = 384
    embedder_threads: Positive = 1
    max_embeddings: Positive = 32
    max_pieces: Annotated[int, msgspec.Meta(ge=8, le=512)] = 128
    max_question_chars: Positive = 600
    threshold: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.92
    num_neighbours: Annotated[int, msgspec.Meta(ge=1, le=16)] = 4

"""``SUB100_SCHEDULER_*``."""

from typing import Annotated

import msgspec

from .policy import Rules
from .scaling import Targets

Replicas = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A new replica only listens for ``listen_first_s`` before it answers: a view of two heartbeats.

    ``decode_alone_tokens``: a decode worker that holds the beginning of a prompt, and lacks no more than this
    many tokens of it, computes them itself if it is predicted to be quicker than a hand-over
    (``handover_ms`` for the hop and ``transfer_ms_per_token``), and if that holds up its running streams by
    ``max_stall_ms`` at most; 0 always uses the pair. ``max_queue_factor`` bounds the
    requests on a decode worker as a multiple of its batch; what else a worker takes it says itself
    (``fleet.Limits``). ``scale_*`` are the targets of ``scaling``.
    """

    listen_first_s: float = 0.75
    tick_s: float = 0.1
    inflight_ttl_s: float = 60.0
    max_placements: int = 100_000
    max_index_blocks: int = 2_000_000
    max_queue_factor: float = 4.0
    decode_alone_tokens: int = 256
    transfer_ms_per_token: float = 0.01
    handover_ms: float = 1.5
    max_stall_ms: float = 5.0
    dump_timeout_s: float = 2.0
    max_requests: int = 4096
    scale_min: Replicas = 1
    scale_max: Replicas = 64
    scale_down_after_s: float = 300.0
    scale_utilisation: Share = 0.7
    scale_wait_ms: Annotated[float, msgspec.Meta(gt=0)] = 20.0
    scale_occupancy: Share = 0.8
    scale_kv_usage: Share = 0.85

    def rules(self) -> Rules:
        return Rules(
            max_queue_factor=self.max_queue_factor,
            decode_alone_tokens=self.decode_alone_tokens,
            transfer_ms_per_token=self.transfer_ms_per_token,
            handover_ms=self.handover_ms,
            max_stall_ms=self.max_stall_ms,
        )

    def targets(self) -> Targets:
        return Targets(
            utilisation=self.scale_utilisation,
            wait_ms=self.scale_wait_ms,
            occupancy=self.scale_occupancy,
            kv_usage=self.scale_kv_usage,
            min_replicas=self.scale_min,
            max_replicas=self.scale_max,
            down_after_s=self.scale_down_after_s,
        )

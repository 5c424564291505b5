"""``SUB100_SCHEDULER_*``."""

import msgspec

from .policy import Rules


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A new replica only listens for ``listen_first_s`` before it answers: a view of two heartbeats.

    ``decode_alone_tokens``: a decode worker that holds all of a prompt but this many tokens computes the
    rest itself instead of pulling KV; 0 always uses the pair. ``max_queue_tokens`` bounds what may wait on
    one worker, ``max_queue_factor`` the requests on a decode worker as a multiple of its batch.
    """

    listen_first_s: float = 0.75
    tick_s: float = 0.1
    inflight_ttl_s: float = 60.0
    max_placements: int = 100_000
    max_index_blocks: int = 2_000_000
    max_queue_tokens: int = 262_144
    max_queue_factor: float = 4.0
    decode_alone_tokens: int = 0
    transfer_ms_per_token: float = 0.01
    dump_timeout_s: float = 2.0
    max_requests: int = 4096

    def rules(self) -> Rules:
        return Rules(
            max_queue_tokens=self.max_queue_tokens,
            max_queue_factor=self.max_queue_factor,
            decode_alone_tokens=self.decode_alone_tokens,
            transfer_ms_per_token=self.transfer_ms_per_token,
        )

"""What services say about themselves, unasked: heartbeats, KV events, status."""

from typing import Literal

from ._struct import Message
from .subjects import Role

State = Literal["starting", "ready", "draining", "stopped"]


class Load(Message, frozen=True):
    """A worker's load at one moment. ``step`` counts engine steps, and looks of an engine at what waits for
    KV, for room or to be pulled: while there is anything of that kind, it stands still only when the engine
    core hangs, whatever the front process says. ``num_waiting_tokens`` are to be computed: KV that is pulled
    is not among them.

    The rest counts since the engine's start. Speculation: ``num_drafts`` times a sequence had draft tokens
    verified, ``num_drafted_tokens`` of them, of which ``num_accepted_tokens`` were kept and so are among
    ``num_output_tokens``; accepted / drafts is the mean accepted length, output / (output - accepted)
    the steps saved. Prefix cache: ``num_cached_tokens`` of ``num_prompt_tokens`` were found in it.

    ``num_pinned_blocks`` of KV wait for a decode worker at this moment. Stranded, since the start: nobody
    came for ``num_released_blocks``, which were given back because nobody wanted them any more, nor for
    ``num_expired_blocks``, which the end of their lease freed; ``num_pulled_blocks`` were pulled."""

    num_running: int = 0
    num_waiting: int = 0
    num_waiting_tokens: int = 0
    kv_usage: float = 0.0
    step: int = 0
    num_output_tokens: int = 0
    num_drafts: int = 0
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_pinned_blocks: int = 0
    num_released_blocks: int = 0
    num_expired_blocks: int = 0
    num_pulled_blocks: int = 0


class Limits(Message, frozen=True):
    """How much a worker takes: jobs, running ones included, and queued tokens, those of prompts that it has
    to compute and has not answered yet. Worker and scheduler decide by the same rule, ``is_full``."""

    max_jobs: int
    max_queued_tokens: int

    def is_full(self, num_jobs: int, num_queued_tokens: int, num_tokens: int) -> bool:
        """Whether a job that queues ``num_tokens`` finds no room. An empty queue takes any one prompt,
        however long, so that the bound starves nobody."""
        if num_jobs >= self.max_jobs:
            return True
        is_queued = num_tokens > 0 and num_queued_tokens > 0
        return is_queued and num_queued_tokens + num_tokens > self.max_queued_tokens


class Heartbeat(Message, frozen=True, tag="heartbeat"):
    """Registration and liveness in one. ``model``, ``block_size``, ``dtype``, ``connector``, ``hashes``
    (``blocks.FINGERPRINT``), ``revision`` (of the weights), ``tensor_parallel`` (how many engines share each
    layer) and ``layout``, which sums up the rest, must be equal over a pool, or KV could
    not be handed over; an empty or zero one is not known. ``refusal`` is why the scheduler has refused this
    worker, who then says ``starting`` until it is told otherwise (Judged). ``kv_fault`` is why KV is to be
    handed over neither to nor from it for now, though it may compute. ``max_chunk_tokens`` bounds the tokens
    of an engine step, ``speculation`` names method and width. ``kv_seq`` is the last KvEvents.seq. Whoever
    does not say ``answers_pings`` does not know Ping. ``num_jobs`` and ``num_queued_tokens`` stand in the
    worker's book beside its ``limits``; None: it does not tell them."""

    worker_id: str
    role: Role
    epoch: int
    state: State
    model: str
    layout: str
    block_size: int
    num_blocks: int
    max_model_len: int
    max_num_seqs: int
    max_chunk_tokens: int
    load: Load
    kv_seq: int = 0
    interval_s: float = 0.5
    pool: str = "default"
    dtype: str = ""
    connector: str = ""
    hashes: str = ""
    refusal: str = ""
    speculation: str = ""
    revision: str = ""
    tensor_parallel: int = 0
    answers_pings: bool = False
    kv_fault: str = ""
    limits: Limits | None = None
    num_jobs: int = 0
    num_queued_tokens: int = 0


class KvEvents(Message, frozen=True, tag="kv_events"):
    """Changes of a worker's prefix cache, in order: first ``removed``, then ``stored``.

    ``seq`` rises by one per message; a gap means that a dump is needed. Hashes are concatenated
    (``blocks.split``). ``cleared`` empties the cache before both.
    """

    worker_id: str
    epoch: int
    seq: int
    stored: bytes = b""
    removed: bytes = b""
    cleared: bool = False


class KvDump(Message, frozen=True, tag="kv_dump"):
    """All block hashes that the worker holds as of ``seq``."""

    worker_id: str
    epoch: int
    seq: int
    hashes: bytes


class ServiceStatus(Message, frozen=True, tag="service_status"):
    """One process of a service; sent once a second and at each change of state. Whoever does not say
    ``is_addressable`` answers only as one of its queue group (``subjects.of_replica``)."""

    service: str
    instance: str
    state: State
    detail: str = ""
    pid: int = 0
    is_addressable: bool = False

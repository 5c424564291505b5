"""The conversation between ingress and scheduler: a request for workers, and what became of it."""

from typing import Literal

from ._struct import Message
from .budget import Budget
from .subjects import Role


class WorkerRef(Message, frozen=True):
    """One life of one worker: a restarted worker has the same id and a new ``epoch``."""

    worker_id: str
    epoch: int


class PlaceRequest(Message, frozen=True, tag="place_request"):
    """Ask for workers. ``block_hashes`` are the prompt's chain hashes (``blocks.chain``);
    ``num_output_tokens`` > 0 says that the stream is being re-placed; ``avoid`` names workers that
    failed this request already, ``avoid_epochs`` their lives, one for one: a restarted worker may have it.
    ``decode_alone``: no prefill worker (several answers to one prompt, log probabilities of the prompt).
    ``kv_at``: the prefill worker at which the KV of the prompt waits to be pulled; nothing of it is computed.
    ``placement_id`` is what the placement shall be called, so that whoever asks can settle one whose answer
    never came; unique, and empty from old senders: then the scheduler finds a name."""

    request_id: str
    tenant: str
    model: str
    num_prompt_tokens: int
    block_hashes: bytes
    max_tokens: int
    budget: Budget
    num_output_tokens: int = 0
    avoid: tuple[str, ...] = ()
    avoid_epochs: tuple[int, ...] = ()
    decode_alone: bool = False
    placement_id: str = ""
    kv_at: str = ""

    def avoids(self, worker_id: str, epoch: int) -> bool:
        """Whether this life of the worker failed the request; without epochs (old senders), any life."""
        if worker_id not in self.avoid:
            return False
        if len(self.avoid_epochs) != len(self.avoid):
            return True
        return (worker_id, epoch) in zip(self.avoid, self.avoid_epochs, strict=True)


class Placement(Message, frozen=True, tag="placement"):
    """Where the request runs. ``prefill`` is None when the decode worker does both.

    ``cached_tokens_*`` are predictions from the prefix index, ``predicted_ttft_ms`` from now on. ``why``
    says for people why the decode worker computes the prompt itself, or ``pair``.
    """

    placement_id: str
    decode: WorkerRef
    prefill: WorkerRef | None = None
    cached_tokens_prefill: int = 0
    cached_tokens_decode: int = 0
    predicted_ttft_ms: float = 0.0
    spent_ms: float = 0.0
    why: str = ""


class Rejected(Message, frozen=True, tag="rejected"):
    """No placement; nothing was dispatched, a retry is safe. ``code`` is one of shared.errors."""

    code: str
    reason: str
    retry_after_s: float = 1.0
    spent_ms: float = 0.0


class Placed(Message, frozen=True, tag="placed"):
    """A scheduler tells its replicas what it just put in flight: ``num_uncached_tokens`` to compute,
    ``num_queued_tokens`` in the book of the worker that computes them (``fleet.Limits``)."""

    scheduler_id: str
    placement_id: str
    decode: str
    prefill: str | None = None
    num_uncached_tokens: int = 0
    max_tokens: int = 0
    num_queued_tokens: int = 0


class Settled(Message, frozen=True, tag="settled"):
    """A phase of a placement has ended: it frees what the placement holds in flight.

    ``phase``: ``prefill`` (first token seen), ``decode`` (last token seen) or ``all`` (abandoned,
    hit, failed). ``prefill_ms`` is the worker's own prefill time (0: unknown); with
    ``num_computed_tokens`` it teaches the predictor.
    """

    placement_id: str
    phase: Literal["prefill", "decode", "all"]
    worker_id: str = ""
    role: Role | None = None
    ok: bool = True
    prefill_ms: float = 0.0
    num_computed_tokens: int = 0


PlaceReply = Placement | Rejected

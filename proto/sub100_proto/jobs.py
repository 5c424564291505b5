"""The conversation between ingress and one worker: a job, its claim, and control of it."""

from ._struct import Message
from .budget import Budget
from .kv import KvHandle
from .sampling import Sampling


class PrefillJob(Message, frozen=True, tag="prefill_job"):
    """Compute the prompt's KV, make the first token, keep the KV for a decode worker.

    ``attempt`` is the nonce of this try; every event carries it and ingress ignores others.
    ``events`` is the subject of the stream. ``prompt`` is packed u32. ``salt`` separates prefix
    caches. ``epoch`` is the worker's life that was meant; another life answers Busy.
    """

    attempt: str
    request_id: str
    events: str
    model: str
    prompt: bytes
    sampling: Sampling
    budget: Budget
    epoch: int
    salt: str = ""


class DecodeJob(Message, frozen=True, tag="decode_job"):
    """Go on after ``output``, the packed tokens that the client already has (k >= 0 of them).

    With ``kv``, the KV of exactly the prompt is pulled and ``output`` counts as *output* for
    ``max_tokens``, penalties and seed; without it the worker computes prompt and output itself.
    """

    attempt: str
    request_id: str
    events: str
    model: str
    prompt: bytes
    sampling: Sampling
    budget: Budget
    epoch: int
    output: bytes = b""
    kv: KvHandle | None = None
    salt: str = ""


class Accepted(Message, frozen=True, tag="accepted"):
    """The job is the worker's now: a first event follows, or Failed."""

    worker_id: str
    epoch: int


class Busy(Message, frozen=True, tag="busy"):
    """The job was not taken and left no trace. ``code`` is one of shared.errors."""

    worker_id: str
    epoch: int
    code: str


class Abort(Message, frozen=True, tag="abort"):
    """Stop the attempt and free what it holds, handed-over KV that nobody pulled included; unknown
    attempts are remembered for a while, so that an abort that overtakes its job still works."""

    attempt: str


class Resend(Message, frozen=True, tag="resend"):
    """Publish the attempt's tokens from output position ``position`` again (a gap was seen).

    If the worker no longer has them it says so with Failed on ``events``, the subject of the stream.
    """

    attempt: str
    position: int
    events: str = ""


class ReleaseKv(Message, frozen=True, tag="release_kv"):
    """Free KV that was handed over and will not be pulled (the client left in between). ``failed_at``: the
    decode worker that could not load it, if that is why."""

    kv: KvHandle
    failed_at: str = ""


class DumpKv(Message, frozen=True, tag="dump_kv"):
    """Answer with KvDump: the scheduler lost an event or is new."""


class Judged(Message, frozen=True, tag="judged"):
    """A scheduler's word on the registration of one life of a worker. ``refusal`` says in what it differs
    from its pool; empty: it fits, after all."""

    epoch: int
    refusal: str = ""


class Ping(Message, frozen=True, tag="ping"):
    """Answer with Pong at once: ingress has heard nothing of its attempts here for a while."""


class Pong(Message, frozen=True, tag="pong"):
    epoch: int


Job = PrefillJob | DecodeJob
Claim = Accepted | Busy
Control = Abort | Resend | ReleaseKv | DumpKv | Judged | Ping

"""What workers send to ingress while a request runs: one batch per engine step and ingress."""

from ._struct import HotMessage
from .kv import KvHandle


class Timing(HotMessage, frozen=True):
    """A worker's own durations for one attempt, in milliseconds: waiting in its queue, pulling KV,
    computing up to the first token it made."""

    queue_ms: float = 0.0
    transfer_ms: float = 0.0
    compute_ms: float = 0.0


class FirstToken(HotMessage, frozen=True, tag="f"):
    """Prefill is done. ``finish_reason`` is set when the token ends the answer; ``kv`` is then None.

    ``cached_tokens`` of the prompt came from the worker's prefix cache. ``logprobs``: the token's row, if
    the job asked for it.
    """

    attempt: str
    token: int
    cached_tokens: int
    timing: Timing
    kv: KvHandle | None = None
    finish_reason: str = ""
    logprobs: bytes = b""


class Tokens(HotMessage, frozen=True, tag="t"):
    """Output tokens from ``position`` on (0 is the first output token of the answer).

    Every event but the last carries at least one token. ``finish_reason`` non-empty: the last event.
    ``timing`` comes with an attempt's first event. ``logprobs``: a row for each of ``ids``, if the job
    asked for them; ``prompt_logprobs`` a row for each prompt token but the first, with the first event.
    """

    attempt: str
    position: int
    ids: tuple[int, ...]
    finish_reason: str = ""
    timing: Timing | None = None
    cached_tokens: int = 0
    transferred_tokens: int = 0
    logprobs: bytes = b""
    prompt_logprobs: bytes = b""


class Failed(HotMessage, frozen=True, tag="x"):
    """The attempt is over without an answer; the tokens sent so far stand. ``code`` is one of
    shared.errors and tells whether another worker may go on."""

    attempt: str
    code: str
    reason: str = ""


StreamEvent = FirstToken | Tokens | Failed


class StreamBatch(HotMessage, frozen=True):
    """All events of one engine step for one ingress."""

    worker_id: str
    epoch: int
    events: tuple[StreamEvent, ...]

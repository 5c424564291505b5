"""What a worker needs of an engine.

Two implementations, one behaviour suite (``tests/contract/test_engine_behaviour.py``):
``sub100_engine.vllm`` and ``sub100_engine.sim``.

Lifecycle: ``start`` -> (``prefill`` | ``decode`` | ``abort`` | ``load``)* -> ``drain`` -> ``stop``.
``stop`` is idempotent, bounded and safe after a half-failed ``start``.

Invariants
----------
* Submitting never blocks and never raises for an odd request: everything that becomes of an attempt
  is told to its sink, on the event loop, in order, and ends with exactly one *last* output
  (``finish_reason`` non-empty) or one ``error``; after ``abort`` nothing more is told and the
  engine's blocks of the attempt are free within one step (pulled or leased KV excepted).
* A prefill that does not end the answer hands over the KV of exactly the prompt, the partial last
  block included; its one token is output number 0.
* A decode with ``kv`` pulls those blocks and computes no prompt token; ``output`` counts as output.
  If the KV cannot be loaded, foreign or short: ``kv_load_failed`` or ``kv_expired``, never recompute.
* A decode without ``kv`` computes prompt and ``output`` itself (conditional disaggregation,
  re-placement) and then goes on after ``output``.
* With speculation an output may hold several tokens, never one behind the answer's end. Greedy answers
  are those without it, token for token; a seed repeats an answer only without it.
* Whatever counts output counts ``output`` too: limits, penalties, seeds, ``bad_words``, grammars.
* A grammar that cannot be had is ``invalid_grammar``, for that attempt alone.
* ``finish_reason`` is ``stop`` (EOS or a stop token id, which is not among the emitted ids) or
  ``length``.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from sub100_proto.fleet import Load
from sub100_proto.kv import KvHandle
from sub100_proto.sampling import Sampling


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What ``start`` learned. ``layout`` fingerprints all that must agree for a KV hand-over;
    ``speculation`` names method and width (``ngram-4``), empty without. ``revision`` tells weights apart that
    share a name (``revision.revision``), ``tensor_parallel`` is how many engines share each layer."""

    model: str
    layout: str
    block_size: int
    num_blocks: int
    max_model_len: int
    max_num_seqs: int
    max_chunk_tokens: int
    dtype: str = ""
    connector: str = ""
    speculation: str = ""
    revision: str = ""
    tensor_parallel: int = 1
    is_compiled: bool = False


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt as the engine sees it. Token ids are plain lists here (unpacked once)."""

    attempt: str
    prompt: list[int]
    sampling: Sampling
    output: list[int] = msgspec.field(default_factory=list)
    kv: KvHandle | None = None
    salt: str = ""


class Output(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one engine step made for one attempt.

    ``token_ids`` may be empty only on the last output. ``kv`` comes with a prefill's first token.
    Durations (ms) and counts come with the first output: ``queue_ms`` until first scheduled,
    ``transfer_ms`` pulling KV, ``compute_ms`` from scheduled to the first token.
    ``num_drafted`` and ``num_accepted`` draft tokens (0 without speculation) come with the last output.
    ``error`` (a code of shared.errors) ends the attempt without an answer. ``logprobs`` and
    ``prompt_logprobs`` are packed rows (``sub100_proto.logprobs``): one for each of ``token_ids`` if the work
    asks for them, and with the first output one for each prompt token but the first. With ``kv_load_failed``,
    ``transfer_ms`` is how long it was tried.
    """

    attempt: str
    token_ids: list[int] = msgspec.field(default_factory=list)
    finish_reason: str = ""
    kv: KvHandle | None = None
    error: str = ""
    reason: str = ""
    cached_tokens: int = 0
    transferred_tokens: int = 0
    queue_ms: float = 0.0
    transfer_ms: float = 0.0
    compute_ms: float = 0.0
    num_drafted: int = 0
    num_accepted: int = 0
    logprobs: bytes = b""
    prompt_logprobs: bytes = b""

    @property
    def is_last(self) -> bool:
        return bool(self.finish_reason or self.error)


class KvChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the prefix cache in chain hashes (``sub100_proto.blocks``), removed before stored."""

    stored: list[bytes] = msgspec.field(default_factory=list)
    removed: list[bytes] = msgspec.field(default_factory=list)
    cleared: bool = False


Sink = Callable[[Output], None]
"""Called on the event loop; must not block and must not raise."""

KvListener = Callable[[KvChange], None]


class Engine(Protocol):
    """See the module's docstring for the invariants."""

    async def start(self, on_kv: KvListener) -> EngineInfo:
        """Load the model, allocate KV, warm up. Raises EngineStartError with one clear line."""
        ...

    def prefill(self, work: Work, sink: Sink) -> None:
        """Compute the prompt, tell its first token and the handle of its KV."""
        ...

    def decode(self, work: Work, sink: Sink) -> None:
        """Go on after ``work.output`` until the answer ends."""
        ...

    def abort(self, attempt: str) -> None:
        """Free the attempt; unknown or finished attempts are ignored."""
        ...

    def release(self, kv: KvHandle) -> None:
        """Free handed-over KV before it was pulled (the client left in between)."""
        ...

    def load(self) -> Load: ...

    def set_failure_listener(self, on_failure: Callable[[str], None]) -> None:
        """``on_failure(reason)`` is called once if the engine core dies; the worker then exits."""
        ...

    async def drain(self, timeout_s: float) -> bool:
        """Wait until nothing runs; False if the time ran out first."""
        ...

    async def stop(self) -> None:
        """Free everything: processes, sockets, shared memory."""
        ...


class EngineStartError(RuntimeError):
    """The engine cannot start; the message is the one line that an operator needs."""

"""One request from arrival to last byte: what it asks, what it may spend, what became of it."""

from typing import Final

import msgspec

from sub100_proto.placement import WorkerRef
from sub100_proto.sampling import Sampling
from sub100_shared.ledger import Hop, Ledger
from sub100_shared.semconv import TIER_JOINED, TIER_NONE
from sub100_shared.telemetry import Span, unix_ns

from .cache_control import NO_LIMITS, CacheControl
from .cache_key import CacheKey
from .keys import Tenant
from .openai_request import GenerationRequest
from .text import ScoredToken


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """The request as the engines see it. ``packed`` are the token ids (u32), ``block_hashes`` their chain."""

    packed: bytes
    num_tokens: int
    block_hashes: bytes
    salt: str
    sampling: Sampling
    """Complete: the limit resolved, words tokenised."""

    @property
    def max_tokens(self) -> int:
        return self.sampling.max_tokens


class CacheFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache had to do with an answer. ``outcome``: a tier, ``miss``, ``joined`` or ``bypass``."""

    outcome: str
    age_s: float | None = None
    similarity: float | None = None


BYPASS: Final = CacheFacts(outcome="bypass")
MISS: Final = CacheFacts(outcome="miss")
JOINED: Final = CacheFacts(outcome="joined")
"""The answer was being generated for another request already."""


class Exchange(msgspec.Struct, kw_only=True):
    """Mutable, owned by the request's one coroutine."""

    request_id: str
    tenant: Tenant
    request: GenerationRequest
    ledger: Ledger
    span: Span

    hop_spans: list[tuple[Span, Hop, int]] = msgspec.field(default_factory=list)
    """Spans of closed hops and when they ended (unix ns); ended for good with the exchange, when it is
    known which were critical."""

    key: CacheKey | None = None
    """None: neither answered from the cache nor kept in it."""

    cache_control: CacheControl = NO_LIMITS

    output_ids: list[int] = msgspec.field(default_factory=list)
    """All output tokens received, over all attempts; the client may have seen fewer (stop strings)."""

    pieces: list[str] = msgspec.field(default_factory=list)
    """The text deltas delivered."""

    scored: list[ScoredToken] = msgspec.field(default_factory=list)
    """What was delivered with them, where log probabilities are asked for."""

    prompt_logprobs: bytes = b""
    """JSON, where they are asked for."""

    choices: "list[Exchange]" = msgspec.field(default_factory=list)
    """The answers to one prompt, where there are several; empty for one."""

    tier: str = TIER_NONE
    finish_reason: str = ""
    """Why the text ended."""

    told_reason: str = ""
    """What the client was told instead, if anything: an answer that calls has its own reason."""

    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    num_cached_tokens: int = 0
    num_transferred_tokens: int = 0
    num_attempts: int = 0
    losses: list[str] = msgspec.field(default_factory=list)
    """Why attempts before the last were lost, by code."""

    placed_at_ms: float | None = None
    predicted_ttft_ms: float = 0.0
    """Of the first placement: when it came, on the ledger's clock, and what it promised from then on."""

    cache_outcome: str = ""
    """The tier of a hit or why there was none; empty: the cache was not asked."""

    code: str = ""
    """The error's code; empty for an answer. ``cancelled`` when the client left."""

    cache: CacheFacts = BYPASS

    answered_ms: float | None = None
    """When the last byte of a whole answer was handed over, on the ledger's clock: whoever leaves then has
    not cancelled anything."""

    avoid: tuple[WorkerRef, ...] = ()
    """Workers that failed this request already, in whatever generation of it."""

    no_hand_over: bool = False
    """KV of this request could not be loaded: from then on decode computes what it needs itself."""

    def branch(self) -> "Exchange":
        """The same request, ledger and spans, with nothing answered yet: for a generation of its own."""
        return Exchange(
            request_id=self.request_id,
            tenant=self.tenant,
            request=self.request,
            ledger=self.ledger,
            span=self.span,
            hop_spans=self.hop_spans,
            key=self.key,
            cache_control=self.cache_control,
        )

    def start_over(self) -> None:
        """Forget what was generated; nothing of it may have been delivered."""
        self.output_ids = []
        self.pieces = []
        self.finish_reason = ""
        self.num_completion_tokens = self.num_cached_tokens = self.num_transferred_tokens = 0
        self.num_attempts = 0

    def adopt(self, run: "Exchange", *, is_own: bool) -> None:
        """Take over what ``run`` knows of the answer; ``pieces`` is shared and only read here.

        ``is_own``: the run is this request's. Of another's run the work is not counted again: neither
        attempts nor look-up, and the tier says that the answer was joined."""
        self.pieces = run.pieces
        self.tier = run.tier
        self.cache = run.cache
        self.finish_reason = run.finish_reason
        self.num_prompt_tokens = run.num_prompt_tokens
        self.num_completion_tokens = run.num_completion_tokens
        self.num_cached_tokens = run.num_cached_tokens
        if is_own:
            self.num_transferred_tokens = run.num_transferred_tokens
            self.num_attempts = run.num_attempts
            self.losses = run.losses
            self.placed_at_ms = run.placed_at_ms
            self.predicted_ttft_ms = run.predicted_ttft_ms
            self.cache_outcome = run.cache_outcome
        elif run.cache is MISS:
            self.tier = TIER_JOINED
            self.cache = JOINED

    @property
    def has_begun(self) -> bool:
        """Whether the client has something of the response, or a worker of this answer."""
        return bool(self.output_ids) or self.ledger.ttft_ms is not None

    def close_hop(self, hop: Hop, span: Span, own_ms: float | None = None) -> None:
        """End a hop's interval and note its span."""
        self.ledger.close(hop, own_ms)
        self.hop_spans.append((span, hop, unix_ns()))

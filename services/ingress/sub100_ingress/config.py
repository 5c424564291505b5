"""``SUB100_INGRESS_*``."""

from typing import Literal

import msgspec


class IngressConfig(msgspec.Struct, frozen=True, kw_only=True):
    """``model`` is a directory with tokenizer.json; ``served_name`` is what clients call it (default: the
    directory's name). ``allotments`` gives hops other shares of the budget ("prefill=0.5,cache=0.1").
    ``max_bodies_bytes``: of the bodies of all requests in flight, of which one tenant may hold a fourth.
    ``place_timeout_ms``: how long a scheduler may take; ``patience_ms``: how long a request waits for one
    to answer, and a stream that has begun for a place. ``stall_timeout_s``: how long a stream may stand
    still; ``step_timeout_s``: how long a busy engine may make no step (well above its
    longest: a chunk of a long prompt on a CPU may take seconds). ``trust_edge``: an edge alone can reach
    this port, and says what the network took. ``lame_duck_s``: how long a drain goes on taking requests
    while ``/readyz`` says 503 already, so that whoever balances load moves on before any is refused.
    ``tool_form``: how the model writes calls of functions; ``auto`` goes by its chat template.
    Times in seconds unless the name says ms."""

    model: str
    keys_file: str
    served_name: str = ""
    host: str = "127.0.0.1"
    port: int = 8080
    max_model_len: int = 0
    block_size: int = 32
    max_body_bytes: int = 32 * 2**20
    max_bodies_bytes: int = 512 * 2**20
    body_timeout_s: float = 30.0
    max_inflight: int = 1024
    max_buffered_events: int = 4096
    long_prompt_bytes: int = 16_384
    keep_alive_s: float = 15.0
    write_timeout_s: float = 30.0
    first_token_timeout_s: float = 120.0
    stall_timeout_s: float = 20.0
    step_timeout_s: float = 8.0
    claim_timeout_ms: float = 1000.0
    place_timeout_ms: float = 500.0
    max_attempts: int = 3
    patience_ms: float = 5000.0
    cache: bool = True
    cache_ttl_s: int = 3600
    budget_ms: float = 100.0
    allotments: str = ""
    trust_edge: bool = False
    lame_duck_s: float = 0.0
    tool_form: Literal["auto", "none", "hermes"] = "auto"

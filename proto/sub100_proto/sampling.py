"""Sampling as the engines need it; validated at ingress, trusted after it."""

from typing import Final, Literal

from ._struct import Message

MAX_SEED: Final = 2**63 - 1
MAX_LOGPROBS: Final = 20
"""Alternatives a token; engines are started to give that many."""


class Structured(Message, frozen=True):
    """What the answer must look like. ``spec`` is a JSON schema, a regular expression, a JSON list of strings
    or a grammar (EBNF or Lark); empty for ``json_object``."""

    kind: Literal["json_object", "json_schema", "regex", "choice", "grammar"]
    spec: str = ""


class Sampling(Message, frozen=True):
    """One request's sampling parameters. Stop *strings* are absent: ingress alone matches text.

    Defaults are OpenAI's. ``max_tokens`` counts output tokens over all attempts, the first token
    from prefill included. ``seed=None`` samples freely. ``bad_words`` are token sequences (all lists of
    one word's tokenisations), ``logit_bias`` is keyed by token id. ``logprobs`` and ``prompt_logprobs``
    ask for that many alternatives beside each token's own (None: for nothing; see ``logprobs``).
    """

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_p: float = 0.0
    logit_bias: dict[int, float] = {}  # noqa: RUF012  # msgspec copies it for each message
    bad_words: tuple[tuple[int, ...], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    structured: Structured | None = None

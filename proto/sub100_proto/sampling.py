"""Sampling as the engines need it; validated at ingress, trusted after it."""

from typing import Final

from ._struct import Message

MAX_SEED: Final = 2**63 - 1


class Sampling(Message, frozen=True):
    """One request's sampling parameters. Stop *strings* are absent: ingress alone matches text.

    Defaults are OpenAI's. ``max_tokens`` counts output tokens over all attempts, the first token
    from prefill included. ``seed=None`` samples freely.
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

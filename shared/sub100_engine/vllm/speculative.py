"""Our speculation settings as vLLM's, and what vLLM counts of one request."""

from typing import Any

from sub100_engine.settings import Speculation


def speculative_config(speculation: Speculation, max_num_seqs: int) -> dict[str, Any]:
    """vLLM's ``speculative_config``.

    The schedule by batch size says the same for every size; it is there because vLLM fills the first step
    of a request that starts with one token to compute (each of ours, after a hand-over) up to the full
    width with drafts that nobody made, unless the width may vary. They would cost that step k wasted
    positions, in front of the second token that the user waits for, and count as rejected.
    """
    config: dict[str, Any] = {
        "method": speculation.method,
        "num_speculative_tokens": speculation.num_tokens,
        "num_speculative_tokens_per_batch_size": [(1, max_num_seqs, speculation.num_tokens)],
    }
    if speculation.method == "ngram":
        config["prompt_lookup_min"] = speculation.lookup_min
        config["prompt_lookup_max"] = speculation.lookup_max
    else:
        config["model"] = speculation.model
    return config


def counts(completion: Any) -> dict[str, int]:
    """Fields of the last Output; empty without speculation."""
    metrics = completion.spec_decode_metrics
    if metrics is None:
        return {}
    accepted = sum(length * times for length, times in enumerate(metrics.histogram))
    return {"num_drafted": metrics.num_draft_tokens, "num_accepted": accepted}

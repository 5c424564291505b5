"""Mends vLLM's rejection sampler, which decides how many draft tokens are kept. For one version only.

* A step in which nobody has draft tokens goes to the plain sampler: the rejection sampler would be given an
  empty tensor, and with ``top_k`` alone the engine core dies of it.
* On CPUs, ``expand_batch_to_tokens`` writes into a copy and returns memory that nobody has set: draft
  positions are then judged under an arbitrary temperature, ``top_k`` and ``top_p``, those of greedy
  neighbours in the batch included.
"""

from typing import Any

import torch
from vllm.v1.sample import rejection_sampler
from vllm.v1.worker import gpu_model_runner


def install() -> None:
    """Patch this process; the caller has checked the version and calls once."""
    sample = gpu_model_runner.GPUModelRunner._sample
    expand_on_device = rejection_sampler.expand_batch_to_tokens

    def sample_what_was_drafted(self: Any, logits: Any, drafts: Any) -> Any:
        return sample(self, logits, drafts if drafts is not None and any(drafts.num_draft_tokens) else None)

    def expand(
        x: torch.Tensor,
        cu_num_tokens: torch.Tensor,
        num_tokens: int,
        replace_from: int = 0,
        replace_to: int = 0,
    ) -> torch.Tensor:
        if x.device.type != "cpu":
            return expand_on_device(x, cu_num_tokens, num_tokens, replace_from, replace_to)
        return expand_batch_to_tokens(x, cu_num_tokens, replace_from, replace_to)

    gpu_model_runner.GPUModelRunner._sample = sample_what_was_drafted
    rejection_sampler.expand_batch_to_tokens = expand


def expand_batch_to_tokens(
    x: torch.Tensor, cu_num_tokens: torch.Tensor, replace_from: int, replace_to: int
) -> torch.Tensor:
    """``x[i]``, or ``replace_to`` where that is ``replace_from``, once for each draft token of request i;
    ``cu_num_tokens`` are the running totals of those."""
    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    values = torch.where(x == replace_from, torch.full_like(x, replace_to), x)
    return values.repeat_interleave(counts)

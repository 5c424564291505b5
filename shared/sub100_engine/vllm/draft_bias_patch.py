"""``logit_bias`` and ``min_p`` beside speculation, which vLLM 0.32 refuses. For that version only.

vLLM builds neither processor when it speculates, and its rejection sampler knows neither. Both judge a token
by its own row of logits alone, so a draft position is treated like the position after it: the request's own
bias is added before penalties, and ``min_p`` drops what is too unlikely at the request's temperature, both
where the plain sampler does it.
"""

import itertools
import math
from typing import Any, Final

import torch
from vllm import SamplingParams
from vllm.v1.sample import rejection_sampler
from vllm.v1.sample.logits_processor import (
    BUILTIN_LOGITS_PROCESSORS,
    LogitBiasLogitsProcessor,
    LogitsProcessors,
    MinPLogitsProcessor,
    build_logitsprocs,
)
from vllm.v1.worker import gpu_model_runner

_GREEDY: Final = rejection_sampler.GREEDY_TEMPERATURE


def allow() -> None:
    """In the process that takes requests: let them through. Idempotent."""
    SamplingParams._validate_spec_decode = lambda _params, _speculative_config: None


def install() -> None:
    """In the engine core: build the processors, and ask them about drafts; called once, the version
    checked."""
    apply_processors = rejection_sampler.RejectionSampler.apply_logits_processors
    constrain = rejection_sampler.apply_sampling_constraints

    def apply_bias_first(self: Any, logits: torch.Tensor, sampling: Any, drafts: Any) -> torch.Tensor:
        for processor in sampling.logitsprocs.non_argmax_invariant:
            if isinstance(processor, LogitBiasLogitsProcessor):
                add_bias(logits, processor.biases, drafts.num_draft_tokens)
        return apply_processors(self, logits, sampling, drafts)

    def constrain_min_p_first(
        logits: torch.Tensor, cu_num_draft_tokens: torch.Tensor, sampling: Any
    ) -> torch.Tensor:
        for processor in sampling.logitsprocs.argmax_invariant:
            if isinstance(processor, MinPLogitsProcessor) and processor.min_p_count:
                drop_unlikely(logits, processor.min_p.view(-1), sampling.temperature, cu_num_draft_tokens)
        return constrain(logits, cu_num_draft_tokens, sampling)

    rejection_sampler.RejectionSampler.apply_logits_processors = apply_bias_first
    rejection_sampler.apply_sampling_constraints = constrain_min_p_first
    gpu_model_runner.build_logitsprocs = _build_all


def _build_all(
    vllm_config: Any, device: Any, is_pin_memory: bool, is_pooling_model: bool, *custom: Any
) -> Any:
    """vLLM's own, and all of its built-in ones where it speculates."""
    if vllm_config.speculative_config is None or is_pooling_model:
        return build_logitsprocs(vllm_config, device, is_pin_memory, is_pooling_model, *custom)
    return LogitsProcessors(kind(vllm_config, device, is_pin_memory) for kind in BUILTIN_LOGITS_PROCESSORS)


def add_bias(logits: torch.Tensor, biases: dict[int, dict[int, float]], num_drafts: list[int]) -> None:
    """In place. Row by row the logits of the draft positions, request after request; ``biases`` by
    request."""
    ends = list(itertools.accumulate(num_drafts))
    for request, bias in biases.items():
        if request < len(ends) and num_drafts[request]:
            ids = torch.tensor(list(bias), device=logits.device)
            values = torch.tensor(list(bias.values()), dtype=logits.dtype, device=logits.device)
            logits[ends[request] - num_drafts[request] : ends[request], ids] += values


def drop_unlikely(
    logits: torch.Tensor, min_p: torch.Tensor, temperature: torch.Tensor | None, cu_num_drafts: torch.Tensor
) -> None:
    """In place: minus infinity where p < min_p * max p at the request's temperature, that is where the logit
    is below max + temperature * log(min_p). Greedy rows keep their likeliest token and so their answer."""
    if temperature is None:  # all greedy
        return
    counts = torch.diff(cu_num_drafts, prepend=cu_num_drafts.new_zeros(1))
    degrees = torch.where(temperature == _GREEDY, torch.ones_like(temperature), temperature)
    margin = (degrees * min_p.log()).repeat_interleave(counts)  # minus infinity without a min_p
    floor = logits.amax(dim=-1) + margin
    logits.masked_fill_(logits < floor.unsqueeze(-1), -math.inf)

"""Work -> vLLM's request, and what is wrong with work that vLLM must not even see. Pure."""

from typing import Any

import msgspec
from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

from sub100_engine.api import Work
from sub100_proto.sampling import Sampling, Structured

from .orders import RequestParams


def fault(work: Work, max_model_len: int, vocab_size: int) -> tuple[str, str] | None:
    """Code and reason of a request that cannot run; the reason names no token."""
    if not work.prompt:
        return "invalid_value", "the prompt is empty"
    if len(work.prompt) + len(work.output) >= max_model_len:
        return "context_length_exceeded", f"no room for an answer in {max_model_len} tokens"
    if max(work.prompt) >= vocab_size or (work.output and max(work.output) >= vocab_size):
        return "invalid_value", f"a token id is outside the vocabulary of {vocab_size}"
    if min(work.prompt) < 0 or (work.output and min(work.output) < 0):
        return "invalid_value", "a token id is negative"
    if work.kv is not None and work.kv.num_tokens != len(work.prompt):
        return "kv_load_failed", f"KV of {work.kv.num_tokens} tokens for a prompt of {len(work.prompt)}"
    return None


def sampling_params(sampling: Sampling, params: RequestParams, *, max_tokens: int) -> SamplingParams:
    """``max_tokens`` counts the output that ``params`` brings along. Raises ValueError for odd values."""
    made = SamplingParams(
        max_tokens=max_tokens,
        min_tokens=min(sampling.min_tokens, max_tokens),
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        seed=sampling.seed,
        stop_token_ids=list(sampling.stop_token_ids),
        ignore_eos=sampling.ignore_eos,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        skip_clone=True,
        min_p=sampling.min_p,
        logit_bias=sampling.logit_bias or None,
        allowed_token_ids=list(sampling.allowed_token_ids) or None,
        logprobs=sampling.logprobs,
        prompt_logprobs=sampling.prompt_logprobs,
        flat_logprobs=True,
        structured_outputs=_structured(sampling.structured),
        extra_args={"kv_transfer_params": msgspec.to_builtins(params)},
    )
    if sampling.bad_words:  # tokenised at ingress; vLLM would tokenise words
        made._bad_words_token_ids = [list(word) for word in sampling.bad_words]
    return made


def _structured(structured: Structured | None) -> StructuredOutputsParams | None:
    if structured is None:
        return None
    fields: dict[str, Any]
    match structured.kind:
        case "json_object":
            fields = {"json_object": True}
        case "json_schema":
            fields = {"json": structured.spec}
        case "regex":
            fields = {"regex": structured.spec}
        case "choice":
            fields = {"choice": msgspec.json.decode(structured.spec, type=list[str])}
        case "grammar":
            fields = {"grammar": structured.spec}
    return StructuredOutputsParams(**fields)


def ends_after_one_token(work: Work, max_model_len: int) -> bool:
    """Whether prefill's token is the whole answer, so that nothing is to be handed over."""
    return work.sampling.max_tokens <= 1 or len(work.prompt) + 1 >= max_model_len

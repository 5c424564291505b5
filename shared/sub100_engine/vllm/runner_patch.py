"""Lets a request arrive at vLLM's V1 model runner with output tokens that it has already.

vLLM knows requests with output only after a preemption. A handed-over or re-placed answer has k output
tokens before it is first scheduled here; they must count as *output* for penalties, ``min_tokens`` and the
seed. The scheduler's side is plain (``Request.append_output_token_ids``); the runner builds its own state
of a new request and knows nothing of it, so that state's constructor is replaced, for this version only.

One function that vLLM compiles on its first call, however it runs, stays as it is written: the first request
for log probabilities would hold every stream of a CPU engine up for six seconds.

The same place mends seeds under chunked prefill on CPUs: the runner takes back the draw of an unfinished
chunk through the generator's *offset*, which CPU generators refuse, and the engine core would die of it.
"""

from typing import Any, Final

import torch
import vllm
from vllm.platforms import current_platform
from vllm.v1.sample import sampler
from vllm.v1.sample.ops.logprobs import batched_count_greater_than
from vllm.v1.worker import gpu_model_runner

from . import draft_bias_patch, rejection_patch, seeds

SUPPORTED: Final = "0.32."

_outputs: dict[str, list[int]] = {}
_original_state: Final = gpu_model_runner.CachedRequestState


class UnsupportedVllm(RuntimeError):
    """This patch was written for another version; check both places before raising SUPPORTED."""


class AnswerGenerator(torch.Generator):  # type: ignore[misc]
    """A seeded CPU generator that stands after as many draws as its answer has tokens.

    One draw is what vLLM's CPU sampler takes a token (``TopKTopPSampler.forward_cpu``).
    """

    _seed: int
    _answer: list[int]

    def follow(self, seed: int, answer: list[int]) -> "AnswerGenerator":
        self._seed = seed
        self._answer = answer
        self._rewind()
        return self

    def get_offset(self) -> int:
        return 4

    def set_offset(self, offset: int) -> None:
        """vLLM's way to undo the draw of a chunk that made no token."""
        self._rewind()

    def _rewind(self) -> None:
        self.manual_seed(self._seed)
        for _ in self._answer:
            torch.randint(0, 2**31, (1,), generator=self, dtype=torch.long)


class AnswerState(_original_state):  # type: ignore[misc, valid-type]
    """A request's state that starts with the output told by the connector's orders."""

    generator: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        self.output_token_ids.extend(_outputs.pop(self.req_id, ()))
        if self.generator is None:
            return
        if self.generator.device.type == "cpu":
            seed = self.sampling_params.seed
            self.generator = AnswerGenerator().follow(seed, self.output_token_ids)
        else:
            seeds.follow(self.generator, len(self.output_token_ids))


def install() -> None:
    """Patch this process's runner once, before it is made; raises UnsupportedVllm."""
    if not vllm.__version__.startswith(SUPPORTED):
        raise UnsupportedVllm(f"vLLM {vllm.__version__} is not {SUPPORTED}x")
    if gpu_model_runner.CachedRequestState is AnswerState:
        return
    update_states = gpu_model_runner.GPUModelRunner._update_states

    def update_states_with_outputs(self: Any, scheduler_output: Any) -> Any:
        _outputs.update(getattr(scheduler_output.kv_connector_metadata, "outputs", {}))
        return update_states(self, scheduler_output)

    gpu_model_runner.GPUModelRunner._update_states = update_states_with_outputs
    gpu_model_runner.CachedRequestState = AnswerState
    if current_platform.is_cpu():
        written = getattr(batched_count_greater_than, "__wrapped__", batched_count_greater_than)
        sampler.batched_count_greater_than = written
    rejection_patch.install()
    draft_bias_patch.install()

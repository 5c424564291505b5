"""Several answers to one prompt, side by side in one response.

Each is an exchange of its own with its own output, so that a lost worker costs each answer only what is
left of it. They begin on one worker, which computes the prompt once for all of them; the request, its
budget and its usage are one.
"""

import asyncio

import msgspec

from sub100_proto.placement import Placement
from sub100_proto.sampling import MAX_SEED

from .delivery import Responder
from .exchange import Exchange, Prompt
from .generation import Generator


class Choices:
    """Runs as many answers as the request asks for; one is the ordinary case and goes straight through."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    async def run(self, ex: Exchange, prompt: Prompt, responder: Responder) -> None:
        """As ``Generator.run``. The first answer that fails ends the others."""
        if ex.request.n == 1:
            await self._generator.run(ex, prompt, responder)
            return
        ex.choices = [ex.branch() for _ in range(ex.request.n)]
        try:
            async with self._generator.placed(ex, prompt) as placement:
                await self._run_all(ex, prompt, responder, placement)
        finally:
            _add_up(ex)

    async def _run_all(
        self, ex: Exchange, prompt: Prompt, responder: Responder, placement: Placement
    ) -> None:
        async def run(index: int, choice: Exchange) -> None:
            delivery = responder.choice(index, choice)
            await self._generator.run(choice, _seeded(prompt, index), delivery, placement)
            await delivery.finish()

        try:
            async with asyncio.TaskGroup() as group:
                for index, choice in enumerate(ex.choices):
                    group.create_task(run(index, choice))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed


def _seeded(prompt: Prompt, index: int) -> Prompt:
    """The choice at ``index`` is what a request with ``seed + index`` gets."""
    seed = prompt.sampling.seed
    if seed is None or not index:
        return prompt
    seed = seed + index if seed + index <= MAX_SEED else seed + index - 2 * (MAX_SEED + 1)
    return msgspec.structs.replace(prompt, sampling=msgspec.structs.replace(prompt.sampling, seed=seed))


def _add_up(ex: Exchange) -> None:
    """The request's own account; the prompt was computed once, for the first."""
    first = ex.choices[0]
    ex.tier = first.tier
    ex.finish_reason = first.finish_reason
    ex.told_reason = first.told_reason
    ex.prompt_logprobs = first.prompt_logprobs
    ex.num_cached_tokens = first.num_cached_tokens
    ex.num_completion_tokens = sum(choice.num_completion_tokens for choice in ex.choices)
    ex.num_transferred_tokens = sum(choice.num_transferred_tokens for choice in ex.choices)
    ex.num_attempts = max(choice.num_attempts for choice in ex.choices)
    ex.losses = [code for choice in ex.choices for code in choice.losses]

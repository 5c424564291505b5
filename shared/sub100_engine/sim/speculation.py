"""How many draft tokens the model would have agreed with, without a model.

Each draft token is right with the same chance, independent of the others, and what follows a wrong one is
thrown away (Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023, 3.1).
What a drafter itself costs is not modelled: n-gram look-up costs next to nothing.
"""

import random

import msgspec


class SpeculationCounts(msgspec.Struct):
    """Since the start; ``num_drafts`` counts a sequence's steps that verified something."""

    num_drafts: int = 0
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0


class Acceptance:
    """Draws with a fixed seed: the same work in the same order is accepted alike."""

    def __init__(self, chance: float) -> None:
        self._chance = chance
        self._random = random.Random(0)  # noqa: S311 - it simulates, it guards nothing
        self.counts = SpeculationCounts()

    def num_accepted(self, num_drafted: int) -> int:
        """Of a sequence's draft tokens, those before the first wrong one."""
        if not num_drafted:
            return 0
        accepted = 0
        while accepted < num_drafted and self._random.random() < self._chance:
            accepted += 1
        self.counts.num_drafts += 1
        self.counts.num_drafted_tokens += num_drafted
        self.counts.num_accepted_tokens += accepted
        return accepted

"""Where a seeded generator of an accelerator stands when an answer has some of its tokens already.

Such generators count (Philox): a draw moves the *offset*, by 4 numbers a thread for the one ``exponential_``
that vLLM's ``random_sample`` makes a token. The same 4 is what vLLM's model runner takes back for the draw of
a chunk that made no token. CPU generators have no offset: see ``runner_patch``.
"""

from typing import Final, Protocol

DRAW_OFFSET: Final = 4


class CountingGenerator(Protocol):
    """What there is of ``torch.Generator`` on an accelerator."""

    def get_offset(self) -> int: ...

    def set_offset(self, offset: int) -> None: ...


def follow(generator: CountingGenerator, num_tokens: int) -> None:
    """Move a generator that was just seeded past the draws of so many tokens."""
    generator.set_offset(generator.get_offset() + DRAW_OFFSET * num_tokens)

"""Seeds over a hand-over on accelerators, on a generator that counts as theirs do. No GPU was there."""

from hashlib import blake2b

import pytest

from sub100_engine.vllm import seeds


class Philox:
    """``torch.Generator`` of a GPU: what it draws is a function of seed and offset."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._offset = 0

    def get_offset(self) -> int:
        return self._offset

    def set_offset(self, offset: int) -> None:
        if offset < 0 or offset % 4:
            raise RuntimeError("offset must be a multiple of 4")
        self._offset = offset

    def exponential(self) -> bytes:
        """One kernel call that gives each thread at most four numbers."""
        drawn = blake2b(f"{self._seed}:{self._offset}".encode(), digest_size=8).digest()
        self._offset += 4
        return drawn


@pytest.mark.parametrize("num_tokens", [0, 1, 7])
def test_generator_goes_on_where_that_of_one_engine_would_be(num_tokens: int) -> None:
    whole, later = Philox(11), Philox(11)
    drawn = [whole.exponential() for _ in range(num_tokens + 3)]
    seeds.follow(later, num_tokens)
    assert later.exponential() == drawn[num_tokens]
    later.set_offset(later.get_offset() - 4)  # as vLLM's runner undoes the draw of an unfinished chunk
    assert [later.exponential() for _ in range(3)] == drawn[num_tokens:]

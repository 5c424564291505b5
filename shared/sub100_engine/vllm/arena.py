"""Anonymous shared memory that two processes map: it has no name, so nothing of it can be left behind.

One arena belongs to one connection and is used for one payload after the other, since touching fresh
pages costs far more than the copy itself.
"""

import mmap
import os
from typing import Final

import numpy as np

from .kv_memory import Words

_SMALLEST_BYTES: Final = 1 << 20


class Arena:
    """``words`` is the whole memory. ``close`` drops our mapping; views of it keep it alive until gone."""

    def __init__(self, descriptor: int, num_bytes: int) -> None:
        self.descriptor = descriptor
        self.num_bytes = num_bytes
        self.words: Words = np.frombuffer(mmap.mmap(descriptor, num_bytes), dtype=np.uint64)

    @classmethod
    def create(cls, num_bytes: int) -> "Arena":
        """At least ``num_bytes``, rounded up so that growing is rare."""
        size = max(_SMALLEST_BYTES, 1 << (num_bytes - 1).bit_length())
        descriptor = os.memfd_create("sub100-kv", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, size)
            return cls(descriptor, size)
        except OSError:
            os.close(descriptor)
            raise

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        self.words = np.empty(0, dtype=np.uint64)


def words(num_words: int) -> Words:
    """Plain memory for one frame and its checksum."""
    return np.empty(num_words + 1, dtype=np.uint64)


def as_bytes(array: Words) -> memoryview:
    return array.data.cast("B")

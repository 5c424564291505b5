"""Token ids as packed little-endian u32: 4 bytes a token, no per-token objects on the bus."""

import sys
from array import array
from collections.abc import Iterable

_U32 = next(code for code in "IL" if array(code).itemsize == 4)


def pack(ids: Iterable[int]) -> bytes:
    """Pack token ids; raises OverflowError for an id outside u32."""
    packed = array(_U32, ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack(data: bytes) -> list[int]:
    """Unpack token ids; raises ValueError if ``data`` is not whole u32 values."""
    packed = array(_U32)
    packed.frombytes(data)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tolist()


def count(data: bytes) -> int:
    """How many token ids ``data`` holds."""
    return len(data) // 4

"""Log probabilities, packed: they travel only when asked for, as one run of bytes an event.

A row a token, all of one size: the token's own log probability (f32) and rank (u32, 1 is the likeliest),
then for each of the ``k`` likeliest tokens its id (u32) and log probability (f32). Little-endian; 8 bytes
a token, and 8 more an alternative.
"""

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

_PAIR: Final = 8
_head: Final = struct.Struct("<fI")


class Row(msgspec.Struct, frozen=True, gc=False):
    """One token's: ``top`` are ids and log probabilities, likeliest first."""

    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


def row_bytes(num_top: int) -> int:
    return _PAIR * (1 + num_top)


def pack(rows: Sequence[Row]) -> bytes:
    """Rows with equally many alternatives."""
    parts: list[bytes] = []
    for row in rows:
        parts.append(_head.pack(row.logprob, row.rank))
        parts.append(pack_top(row.top))
    return b"".join(parts)


def pack_top(top: Sequence[tuple[int, float]]) -> bytes:
    flat = [value for pair in top for value in pair]
    return struct.pack("<" + "If" * len(top), *flat)


def unpack(data: bytes, num_top: int) -> list[Row]:
    """Raises ValueError if ``data`` is not whole rows."""
    size = row_bytes(num_top)
    if len(data) % size:
        raise ValueError(f"{len(data)} bytes are not rows of {size}")
    pairs = struct.Struct("<" + "If" * num_top)
    rows: list[Row] = []
    for start in range(0, len(data), size):
        logprob, rank = _head.unpack_from(data, start)
        flat = pairs.unpack_from(data, start + _PAIR)
        rows.append(Row(logprob, rank, tuple(zip(flat[::2], flat[1::2], strict=True))))
    return rows

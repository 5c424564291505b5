"""Reading GGUF: metadata and tensors, the quantisations that the default model uses, numpy alone.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (version 3, little endian).
"""

import struct
from typing import Any, Final

import numpy as np

FloatArray = np.ndarray[Any, np.dtype[np.float32]]

_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING: Final = 8
_ARRAY: Final = 9
_F32: Final = 0
_Q4_1: Final = 3
_Q8_0: Final = 8
_BLOCK: Final = 32
"""Values of one quantisation block."""


class BadGguf(ValueError):
    """Not a GGUF file that this reader understands."""


class Gguf:
    """A file held in memory. ``metadata`` by key; tensors are dequantised when asked for."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0
        if content[:4] != b"GGUF":
            raise BadGguf("no GGUF magic")
        self._at = 4
        if (version := self._number("I")) != 3:
            raise BadGguf(f"version {version}")
        num_tensors, num_entries = self._number("Q"), self._number("Q")
        self.metadata: dict[str, Any] = {}
        for _ in range(num_entries):
            key = self._string()
            self.metadata[key] = self._value(self._number("I"))
        self._tensors: dict[str, tuple[tuple[int, ...], int, int]] = {}
        for _ in range(num_tensors):
            name = self._string()
            # Stored fastest axis first, numpy's order is the reverse.
            shape = tuple(self._number("Q") for _ in range(self._number("I")))[::-1]
            kind, offset = self._number("I"), self._number("Q")
            self._tensors[name] = (shape, kind, offset)
        alignment = int(self.metadata.get("general.alignment", 32))
        self._data = -(-self._at // alignment) * alignment

    @property
    def tensor_names(self) -> list[str]:
        return list(self._tensors)

    def tensor(self, name: str) -> FloatArray:
        """The tensor as float32."""
        shape, kind, offset = self._tensors[name]
        return dequantise(self._content, self._data + offset, int(np.prod(shape)), kind).reshape(shape)

    def _number(self, form: str) -> Any:
        value = struct.unpack_from(f"<{form}", self._content, self._at)[0]
        self._at += struct.calcsize(f"<{form}")
        return value

    def _string(self) -> str:
        length = self._number("Q")
        value = self._content[self._at : self._at + length].decode()
        self._at += length
        return value

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            element, count = self._number("I"), self._number("Q")
            return [self._value(element) for _ in range(count)]
        if kind not in _SCALARS:
            raise BadGguf(f"value type {kind}")
        return self._number(_SCALARS[kind])


def dequantise(content: bytes, offset: int, num_values: int, kind: int) -> FloatArray:
    """``num_values`` float32 from ``offset`` on; raises BadGguf for a kind unknown here.

    Q8_0: 32 values of i8 times an f16 scale.
    Q4_1: 32 nibbles, low halves first, times a scale plus a minimum.
    """
    if kind == _F32:
        return np.frombuffer(content, np.float32, num_values, offset)
    num_blocks = num_values // _BLOCK
    if kind == _Q8_0:
        eight = np.frombuffer(content, np.dtype([("scale", "<f2"), ("q", "i1", 32)]), num_blocks, offset)
        return np.asarray(eight["q"].astype(np.float32) * eight["scale"].astype(np.float32)[:, None]).ravel()
    if kind == _Q4_1:
        layout = np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("q", "u1", 16)])
        four = np.frombuffer(content, layout, num_blocks, offset)
        nibbles = np.concatenate([four["q"] & 15, four["q"] >> 4], axis=1).astype(np.float32)
        scaled = nibbles * four["scale"].astype(np.float32)[:, None]
        return np.asarray(scaled + four["minimum"].astype(np.float32)[:, None]).ravel()
    raise BadGguf(f"tensor type {kind}")

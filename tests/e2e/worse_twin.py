"""A draft model for tests: the tiny model with its weights rounded, so that it is right often, not always."""

import shutil
from pathlib import Path

import numpy as np


def make_worse_twin(model: Path, directory: Path, *, keep_bits: int = 3) -> Path:
    """Round the bfloat16 mantissas (7 bits) to ``keep_bits``; everything else is the model's."""
    twin = shutil.copytree(model, directory)
    path = twin / "model.safetensors"
    content = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    words = np.frombuffer(content, dtype="<u2", offset=start)
    words &= np.uint16(0xFFFF << (7 - keep_bits) & 0xFFFF)
    path.write_bytes(content)
    return twin

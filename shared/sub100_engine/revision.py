"""Which weights a model directory holds: KV of one revision means nothing to an engine of another."""

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final

_PATTERNS: Final = ("config.json", "*.safetensors", "pytorch_model*.bin", "*.gguf")
_NUM_SAMPLES: Final = 64
_SAMPLE_BYTES: Final = 4096


def revision(model: str) -> str:
    """12 hex digits over the configuration and the weights; equal for equal files, wherever they lie.

    Of each weight file name, size and _NUM_SAMPLES evenly spaced pages count, the first and the last among
    them: a model of hundreds of gigabytes takes a moment. ``model`` that is no directory has an empty one.
    """
    directory = Path(model)
    files = sorted(file for pattern in _PATTERNS for file in directory.glob(pattern) if file.is_file())
    if not model or not files:
        return ""
    digest = blake2b(digest_size=6)
    for file in files:
        digest.update(f"{file.name} {file.stat().st_size}\n".encode())
        for sample in _samples(file):
            digest.update(sample)
    return digest.hexdigest()


def _samples(file: Path) -> Iterator[bytes]:
    last = max(0, file.stat().st_size - _SAMPLE_BYTES)
    with file.open("rb", buffering=0) as opened:
        for start in sorted({last * number // (_NUM_SAMPLES - 1) for number in range(_NUM_SAMPLES)}):
            opened.seek(start)
            yield opened.read(_SAMPLE_BYTES)

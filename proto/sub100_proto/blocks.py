"""Chain hashes of KV blocks, the common language of ingress, scheduler and workers.

``h[i] = blake2b(h[i-1] || tokens of block i, 8 bytes)`` with ``h[-1] = root(salt)``. A block's hash
therefore names the whole prefix that ends with it. Only full blocks have a hash. The hash is ours and
not the engine's: workers translate their engine's KV events (which carry the token ids), so ingress
needs no engine library and an engine may change its own hash at will.

The salt separates tenants: with different salts equal prompts share no hash, neither here nor in the
engine (which gets the salt with the job).
"""

from hashlib import blake2b
from typing import Final

HASH_BYTES: Final = 8


def root(salt: str) -> bytes:
    """The parent of a chain's first block."""
    return blake2b(salt.encode(), digest_size=HASH_BYTES, person=b"sub100.kv").digest()


def extend(parent: bytes, block: bytes | memoryview) -> bytes:
    """The hash of the block with these packed token ids after ``parent``."""
    hasher = blake2b(parent, digest_size=HASH_BYTES)
    hasher.update(block)
    return hasher.digest()


def chain(prompt: bytes, block_size: int, salt: str) -> bytes:
    """Hashes of all full blocks of a packed prompt, concatenated (8 bytes a block)."""
    view = memoryview(prompt)
    step = 4 * block_size
    hashes: list[bytes] = []
    parent = root(salt)
    for start in range(0, len(prompt) - step + 1, step):
        parent = extend(parent, view[start : start + step])
        hashes.append(parent)
    return b"".join(hashes)


FINGERPRINT: Final = chain(bytes(range(16)), 2, "sub100")[-HASH_BYTES:].hex()
"""Names this way of hashing, its root included: who says another one cannot be understood."""


def split(hashes: bytes) -> list[bytes]:
    """The single hashes of a concatenation; raises ValueError on a ragged length."""
    if len(hashes) % HASH_BYTES:
        raise ValueError(f"{len(hashes)} bytes are not whole block hashes")
    return [hashes[i : i + HASH_BYTES] for i in range(0, len(hashes), HASH_BYTES)]

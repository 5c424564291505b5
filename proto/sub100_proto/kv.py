"""The handle by which decode pulls the KV cache of a prompt from prefill."""

from ._struct import Message


class KvHandle(Message, frozen=True):
    """Names pinned blocks on a prefill worker.

    ``num_tokens`` is the whole prompt, the partial last block included; the payload holds
    ``ceil(num_tokens / block_size)`` blocks. ``key`` is unguessable and valid until pulled or until
    ``lease_s`` after the handle was made. ``layout`` fingerprints model, dtype, block size and tensor
    shape: a puller with another layout refuses. ``endpoint`` is the producer's ``host:port`` (empty: no
    listener); ``shm`` names its shared-memory directory, usable on the same host only (``host_id``).
    """

    connector: str
    key: str
    num_tokens: int
    layout: str
    lease_s: float
    endpoint: str = ""
    host_id: str = ""
    shm: str = ""
    num_bytes: int = 0

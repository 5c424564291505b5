"""What the scheduler half of the connector tells the worker half, once per engine step.

Nothing here has a repr: vLLM prints its scheduler output when a step fails, and keys must not reach logs.
"""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
)

from sub100_proto import tokens
from sub100_proto.kv import KvHandle


class RequestParams(msgspec.Struct, frozen=True, kw_only=True):
    """What the adapter says about one request, in vLLM's ``kv_transfer_params``.

    ``export``: hand the KV over under this key. ``pull``: take the KV from there. ``output``: tokens that
    the answer has already.
    """

    attempt: str
    export: str = ""
    pull: KvHandle | None = None
    output: list[int] = msgspec.field(default_factory=list)


@dataclass(frozen=True, repr=False)
class PinOrder:
    """Keep these blocks for ``key``; ``owner`` is the engine's request."""

    key: str
    owner: str
    prompt: bytes
    block_ids: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class PullOrder:
    """Fill ``block_ids``, the handle's blocks from ``first_block`` on."""

    owner: str
    attempt: str
    handle: KvHandle
    prompt: bytes
    first_block: int
    block_ids: tuple[int, ...]
    num_tokens: int


@dataclass(repr=False)
class Orders(KVConnectorMetadata):  # type: ignore[misc]
    """``discards``: key and owner. ``unneeded``: handles whose prompt was found in the own cache.
    ``cancels``: owners whose pulls nobody waits for any more. ``outputs``: by request, the tokens it starts
    with (``runner_patch``)."""

    pins: list[PinOrder] = field(default_factory=list)
    discards: list[tuple[str, str]] = field(default_factory=list)
    pulls: list[PullOrder] = field(default_factory=list)
    unneeded: list[KvHandle] = field(default_factory=list)
    cancels: list[str] = field(default_factory=list)
    outputs: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Place(KVConnectorHandshakeMetadata):  # type: ignore[misc]
    """Where the worker half serves KV, and what it looks like."""

    connector: str
    endpoint: str
    host_id: str
    shm: str
    layout: str
    block_bytes: int


class TransferReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one pull (``attempt``) or one export (``key``).

    ``outcome``: ``pulled``, or for pulls an error code, or for exports how the lease of ``num_blocks`` ended.
    """

    attempt: str = ""
    key: str = ""
    outcome: str = "pulled"
    reason: str = ""
    duration_ms: float = 0.0
    num_tokens: int = 0
    num_bytes: int = 0
    num_blocks: int = 0


def prompt_fingerprint(prompt: list[int], salt: str) -> bytes:
    """Names the tokens (and their owner's salt) that KV belongs to."""
    return blake2b(tokens.pack(prompt), key=salt.encode()[:64], digest_size=16).digest()


def parse_params(value: dict[str, Any]) -> RequestParams:
    return msgspec.convert(value, RequestParams)

"""Heartbeats and requests for the scheduler's tests, with every field that a test does not name filled in."""

import random
from typing import Any

from sub100_proto import blocks, tokens
from sub100_proto.budget import Budget
from sub100_proto.fleet import Heartbeat, Load
from sub100_proto.placement import PlaceRequest
from sub100_proto.subjects import Role
from sub100_scheduler.policy import Rules
from sub100_scheduler.view import RegionView

BLOCK = 32
TICK_MS = 2_000.0
RULES = Rules(
    max_queue_factor=4.0,
    decode_alone_tokens=0,
    transfer_ms_per_token=0.01,
    handover_ms=1.5,
    max_stall_ms=5.0,
)


def beat(worker_id: str, role: Role = "prefill", *, load: Load | None = None, **changed: Any) -> Heartbeat:
    fields: dict[str, Any] = {
        "epoch": 1,
        "state": "ready",
        "model": "m",
        "layout": "bf16/32",
        "block_size": BLOCK,
        "num_blocks": 100_000,
        "max_model_len": 131_072,
        "max_num_seqs": 256,
        "max_chunk_tokens": 2_048,
        "interval_s": 0.5,
    }
    return Heartbeat(worker_id=worker_id, role=role, load=load or Load(), **(fields | changed))


def request(num_prompt_tokens: int = 64, *, block_hashes: bytes = b"", **changed: Any) -> PlaceRequest:
    fields: dict[str, Any] = {
        "request_id": "r1",
        "tenant": "t",
        "model": "m",
        "max_tokens": 16,
        "budget": Budget(total_ms=100, remaining_ms=80, allotted_ms=5),
    }
    return PlaceRequest(num_prompt_tokens=num_prompt_tokens, block_hashes=block_hashes, **(fields | changed))


def prompt_hashes(num_tokens: int, *, seed: int, shared: int = 0) -> bytes:
    """Chain hashes of a prompt whose first ``shared`` tokens every seed has in common."""
    ids = [7] * shared + random.Random(seed).choices(range(1000), k=num_tokens - shared)
    return blocks.chain(tokens.pack(ids), BLOCK, "salt")


def view(*heartbeats: Heartbeat, rules: Rules = RULES, seed: int = 1, now_ms: float = 0.0) -> RegionView:
    region = RegionView(
        rules,
        tick_ms=TICK_MS,
        inflight_ttl_ms=60_000,
        max_placements=1_000,
        max_index_blocks=1_000_000,
        chance=random.Random(seed).random,
    )
    for heartbeat in heartbeats:
        region.on_heartbeat(heartbeat, now_ms)
    region.tick(now_ms)
    return region

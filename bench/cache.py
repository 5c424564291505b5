"""``make bench-cache``: what hits take at the client, and what a cache costs that answers nothing.

One client asks in turns, so that a noisy moment hits all kinds alike; real NATS, Redis, HTTP and embedder, a
simulated engine. ``empty`` is a bare SSE server behind the same client: what a hit costs lies above it.
Semantic hits search an index of ``--entries`` vectors, ``--own`` of them in the asker's own partition (a
scope of one tenant: only these are compared). The cache is started anew when it is filled, so that none is
embedded from memory. ``semantic`` asks in the wording of what is stored, as most paraphrases do that the
guard lets pass; ``by vector`` in another, which has to be embedded (the embedder alone is timed on the same
questions in between) and searched for, and ``by vector again`` in yet other words of that wording, whose
vector is known by then.
For the last part the engine takes no time and no question was ever asked: ``off`` (the tenant has no cache),
``miss``, ``lost`` (the cache service runs, Redis does not) and ``dead`` (no cache service runs).
"""

import asyncio
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import uvloop
from redis.asyncio import Redis
from tests.stack import Stack, running_stack

from sub100_cache.config import CacheConfig
from sub100_cache.embedders.minilm import DIMENSION, MiniLm, find_model
from sub100_cache.guard import read
from sub100_cache.store.vectors import PARTITION_FIELD, VECTOR_FIELD
from sub100_local.tiny_model import make

from .client import Sample, StreamClient, quantile
from .control_plane import bare_server
from .results import arguments, write

EMBEDDER = {"SUB100_CACHE_EMBEDDER": "minilm"}
SEMANTIC = ("semantic", "by vector", "by vector again")
_VERBS = "clean repair store paint insure replace measure polish transport sell"
_THINGS = "wooden table, old bicycle, copper kettle, leather saddle, garden fence, kitchen sink, woollen coat"
_PLACES = (
    "in a cold cellar, on a small boat, during the rainy season, before a long journey, without special tools"
)
_TAILS = "if nobody in the house has ever done it and the shop in the village is closed for the whole week"


def questions() -> Iterator[str]:
    """Ten to thirty words each, and no two alike."""
    tails = _TAILS.split()
    choices = itertools.product(_PLACES.split(", "), _THINGS.split(", "), _VERBS.split())
    for number, (place, thing, verb) in enumerate(choices):
        tail = " ".join(tails[: number % len(tails) + 1]) if number % 3 else ""
        yield f"{verb} a {thing} {place} {tail}".strip()


def body(content: str) -> dict[str, Any]:
    return {
        "model": "test-model",
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": 400,
        "stream": True,
    }


def figures(values: list[float]) -> dict[str, Any]:
    return {
        "requests": len(values),
        "p50_ms": round(quantile(values, 0.5), 3),
        "p90_ms": round(quantile(values, 0.9), 3),
        "p99_ms": round(quantile(values, 0.99), 3),
    }


async def until(client: StreamClient, content: str, tier: str) -> Sample:
    async with asyncio.timeout(20):
        while (sample := await client.ask(body(content))).tier != tier:
            pass
    return sample


async def fill_index(url: str, num: int, num_own: int) -> int:
    """Vectors of nobody's questions, ``num_own`` in the partition of those that are there; how many then."""
    redis: Redis = Redis.from_url(url)
    key = await anext(redis.scan_iter(match="sub100:cache:vec:*", count=1000))
    fields: Any = await redis.hgetall(key)
    prefix = key.decode().rpartition(":")[0]
    randomness = np.random.default_rng(1)
    for start in range(0, num, 1000):
        vectors = randomness.standard_normal((min(1000, num - start), DIMENSION)).astype("<f4")
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        pipe = redis.pipeline(transaction=False)
        for row, vector in enumerate(vectors):
            content: dict[Any, Any] = {
                PARTITION_FIELD: fields[PARTITION_FIELD.encode()]
                if start + row < num_own
                else f"{(start + row) % 100:064x}",
                VECTOR_FIELD: vector.tobytes(),
            }
            pipe.hset(f"{prefix}:{start + row:064x}", mapping=content)
        await pipe.execute()
    names = [name async for name in redis.scan_iter(match="sub100:cache:vec:*", count=10_000)]
    await redis.aclose()
    return len(names)


async def fill(stack: Stack, asked: list[str], num_entries: int, num_own: int) -> int:
    client = StreamClient("127.0.0.1", stack.port, "/v1/chat/completions", stack.keys["near"])
    for question in asked:
        await until(client, f"How do I {question}?", "cache_exact")
        await until(client, f"Why do people {question}?", "cache_exact")
    await client.close()
    return await fill_index(stack.redis.url, num_entries, num_own)


def begin_anew(stack: Stack) -> None:
    """From here a first token takes longer than a look-up, as on any real engine: hits are what is timed. And
    the cache has forgotten the vectors of what was asked."""
    stack.replicas["cache-1"].stop()
    stack.wait_ready(stack.add("cache").instance)
    for role in ("prefill", "decode"):
        stack.replicas[f"{role}-1"].stop()
        slow = {f"SUB100_{role.upper()}_TIMING": "smollm2-cpu"}
        stack.wait_ready(stack.add(role, **slow).instance)


async def hits(stack: Stack, bare_port: int, asked: list[str]) -> dict[str, Any]:
    client = StreamClient("127.0.0.1", stack.port, "/v1/chat/completions", stack.keys["near"])
    bare = StreamClient("127.0.0.1", bare_port, "/", "none")
    config = CacheConfig()
    embedder = MiniLm(
        find_model(), max_pieces=config.max_pieces, threads=config.embedder_threads, max_queued=1
    )
    empty: list[float] = []
    exact: list[float] = []
    semantic: dict[str, list[float]] = {name: [] for name in SEMANTIC}
    alone: list[float] = []
    tiers: dict[str, int] = {}
    for question in asked:
        empty += [(await bare.ask(body(question))).ttft_ms for _ in range(3)]
        for _ in range(3):
            sample = await client.ask(body(f"How do I {question}?"))
            if sample.tier == "cache_exact":
                exact.append(sample.ttft_ms)
        others = (
            f"Could you tell me how to {question}?",
            f"Could you tell me why people {question}?",
            f"Tell me why people {question}.",
        )
        for times, other in zip(semantic.values(), others, strict=True):
            sample = await client.ask(body(other))
            tiers[sample.tier] = tiers.get(sample.tier, 0) + 1
            if sample.tier == "cache_semantic":
                times.append(sample.ttft_ms)
        start = perf_counter()
        embedder.encode(read(others[1]).wording)
        alone.append((perf_counter() - start) * 1e3)
    await client.close()
    await bare.close()
    base = figures(empty)
    return {
        "empty": base,
        "exact": figures(exact),
        "exact_above_empty_ms": {
            "p50": round(quantile(exact, 0.5) - base["p50_ms"], 3),
            "p99": round(quantile(exact, 0.99) - base["p50_ms"], 3),
        },
        **{name: figures(times) for name, times in semantic.items()},
        "embedder_alone": figures(alone),
        "by_vector_above_embedder_p50_ms": round(
            quantile(semantic["by vector"], 0.5) - quantile(alone, 0.5), 3
        ),
        "tiers_of_paraphrases": tiers,
    }


async def paired(stack: Stack, name: str, rounds: int) -> dict[str, Any]:
    """A tenant with every tier against one with none, in turns of ten."""
    off = StreamClient("127.0.0.1", stack.port, "/v1/chat/completions", stack.keys["plain"])
    on = StreamClient("127.0.0.1", stack.port, "/v1/chat/completions", stack.keys["near"])
    numbers = itertools.count()

    async def ask(client: StreamClient) -> list[float]:
        contents = [f"{name}: what is the weather of day {next(numbers)}?" for _ in range(10)]
        return [(await client.ask(body(content))).ttft_ms for content in contents]

    for _ in range(5):
        await ask(off)
        await ask(on)
    without: list[float] = []
    with_cache: list[float] = []
    for _ in range(rounds):
        without += await ask(off)
        with_cache += await ask(on)
    await off.close()
    await on.close()
    added = quantile(with_cache, 0.5) - quantile(without, 0.5)
    return {"off": figures(without), name: figures(with_cache), "added_p50_ms": round(added, 3)}


def main() -> None:
    parser = arguments(__doc__, "cache")
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--own", type=int, default=10_000)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    added: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        model = make(Path(directory) / "tiny")
        with running_stack(model, env=EMBEDDER) as stack, bare_server() as bare_port:
            asked = list(itertools.islice(questions(), options.questions))
            num_vectors = uvloop.run(fill(stack, asked, options.entries, options.own))
            begin_anew(stack)
            found = uvloop.run(hits(stack, bare_port, asked)) | {
                "vectors": num_vectors,
                "own": options.own,
            }
        with running_stack(model, env=EMBEDDER) as stack:
            added["miss"] = uvloop.run(paired(stack, "miss", options.rounds))
            stack.redis.kill()
            added["lost"] = uvloop.run(paired(stack, "lost", options.rounds))
            stack.replicas["cache-1"].stop()
            added["dead"] = uvloop.run(paired(stack, "dead", options.rounds))
    for name in ("empty", "exact", *SEMANTIC, "embedder_alone"):
        print(f"{name:<16} {found[name]}")
    print(f"exact above empty {found['exact_above_empty_ms']}; paraphrases {found['tiers_of_paraphrases']}")
    for name, row in added.items():
        print(f"{name:<6} added TTFT p50 {row['added_p50_ms']} ms")
    write(options.out, "hits of the cache, and what it costs who hits nothing", hits=found, added=added)


if __name__ == "__main__":
    main()

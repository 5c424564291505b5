"""What a look-up costs a miss, and what a dispatch beside it costs a hit, at one stream.

One client asks in turns, so that a noisy moment hits all kinds alike: ``plain``, a tenant without cache;
``miss`` of a tenant that only misses (the look-up runs beside the dispatch) and of one that mostly hits (the
look-up goes first for a moment); ``hit`` of both. Exact tier on a real Redis, engines that take no time: the
worst case, in which a first token may be there before a slow look-up.
"""

import argparse
import asyncio
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop
from tests.stack import Stack, running_stack

from sub100_local.tiny_model import make

from .client import Sample, StreamClient, quantile
from .control_plane import cpu_by_service
from .results import write

RESULTS = Path(__file__).parent / "results" / "overlap.json"
HITS_PER_MISS = 4
MISSES_PER_HIT = 24


def bodies(name: str) -> Iterator[dict[str, Any]]:
    """Questions that nobody has asked; answers end by themselves, so that they may be kept."""
    for number in itertools.count():
        yield {
            "model": "test-model",
            "messages": [
                {"role": "user", "content": f"{name} question number {number}: how is the weather?"}
            ],
            "temperature": 0,
            "max_tokens": 400,
            "stream": True,
        }


class Row:
    """Samples of one kind, and the CPU that they took of all services."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.cpu_s = 0.0

    def figures(self) -> dict[str, Any]:
        ttft = [sample.ttft_ms for sample in self.samples]
        return {
            "requests": len(ttft),
            "ttft_ms": {"p50": quantile(ttft, 0.5), "p90": quantile(ttft, 0.9), "p99": quantile(ttft, 0.99)},
            "cpu_ms_per_request": self.cpu_s * 1e3 / len(ttft),
        }


async def timed(stack: Stack, client: StreamClient, questions: list[dict[str, Any]], row: Row) -> None:
    """CPU is read around the whole batch: the counters tick in 10 ms."""
    before = cpu_by_service(stack)
    row.samples += [await client.ask(question) for question in questions]
    await asyncio.sleep(0.01)  # what follows an answer: fills, aborts
    spent = cpu_by_service(stack)
    row.cpu_s += sum(spent[name] - before[name] for name in spent if name != "traces")


async def kept(client: StreamClient, questions: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """A question that is in the cache."""
    question = next(questions)
    async with asyncio.timeout(10):
        while not (await client.ask(question)).tier.startswith("cache"):
            pass
    return question


async def measure(stack: Stack, rounds: int) -> dict[str, Row]:
    plain = StreamClient("127.0.0.1", stack.port, "/v1/chat/completions", stack.keys["plain"])
    asker = StreamClient("127.0.0.1", stack.port, "/v1/chat/completions", stack.keys["demo"])
    names = ("plain", "miss beside", "hit beside", "plain again", "miss after a lead", "hit after a lead")
    rows = {name: Row() for name in names}
    questions, plain_questions = bodies("asked"), bodies("plain")
    found = await kept(asker, questions)
    for client, warm in ((plain, plain_questions), (asker, questions)):
        for question in itertools.islice(warm, 50):
            await client.ask(question)
    for _ in range(rounds):  # the tenant hits so seldom that nothing waits for its look-ups
        await timed(stack, plain, list(itertools.islice(plain_questions, MISSES_PER_HIT)), rows["plain"])
        await timed(stack, asker, list(itertools.islice(questions, MISSES_PER_HIT)), rows["miss beside"])
        await timed(stack, asker, [found], rows["hit beside"])
    for _ in range(50):
        await asker.ask(found)
    for _ in range(rounds):
        await timed(stack, plain, list(itertools.islice(plain_questions, HITS_PER_MISS)), rows["plain again"])
        await timed(stack, asker, [next(questions)], rows["miss after a lead"])
        await timed(stack, asker, [found] * HITS_PER_MISS, rows["hit after a lead"])
    await plain.close()
    await asker.close()
    return rows


def check(rows: dict[str, Row]) -> None:
    for name, row in rows.items():
        num_hits = sum(sample.tier.startswith("cache") for sample in row.samples)
        wanted = len(row.samples) if name.startswith("hit") else 0
        if num_hits != wanted:
            print(f"note: {num_hits} hits among {len(row.samples)} of {name!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        model = make(Path(directory) / "tiny")
        with running_stack(model) as stack:
            rows = uvloop.run(measure(stack, options.rounds))
    check(rows)
    for name, row in rows.items():
        found = row.figures()
        ttft = found["ttft_ms"]
        print(
            f"{name:<18} {found['requests']:>5} requests  TTFT p50 {ttft['p50']:5.2f}  p90 {ttft['p90']:5.2f}"
            f"  p99 {ttft['p99']:6.2f} ms  CPU {found['cpu_ms_per_request']:.2f} ms"
        )
    write(
        options.out, "look-up beside or before the dispatch", rows={n: r.figures() for n, r in rows.items()}
    )


if __name__ == "__main__":
    main()

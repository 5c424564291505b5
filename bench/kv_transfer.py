"""``make bench-kv``: what the hand-over costs inside real vLLM, by transport.

Two engines on this machine, one thread each. A few prompts are prefilled once; prefill's cache holds them,
and decode's holds so little that by their next turn they are pulled whole again: first with decode idle, then
beside streams. Printed per transport: MiB/s from the pull's order to its last verified byte, CPU time of an
engine core that has nothing to do and of one that only holds KV for others, and the gaps between the
streams' steps during pulls against those without.
"""

import asyncio
import itertools
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil  # type: ignore[import-untyped]

from sub100_engine.api import Output, Work
from sub100_engine.vllm.config import Transport, VllmConfig
from sub100_engine.vllm.engine import VllmEngine
from sub100_local.tiny_model import make
from sub100_proto.kv import KvHandle
from sub100_proto.sampling import Sampling

from .client import quantile
from .results import arguments, write

KEY = b"a transfer key that is 32 bytes."
IDLE_S = 10.0
NUM_STREAMS = 4
NUM_PROMPTS = 8
_SAME_STEP_S = 0.002
_numbers = itertools.count()


class Told:
    """What an attempt was told, and when (seconds, monotonic)."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []
        self.times_s: list[float] = []
        self._over = asyncio.Event()

    def __call__(self, output: Output) -> None:
        self.outputs.append(output)
        self.times_s.append(time.monotonic())
        if output.is_last or output.kv is not None:
            self._over.set()

    async def end(self) -> Output:
        await asyncio.wait_for(self._over.wait(), 300)
        last = self.outputs[-1]
        if last.error:
            raise SystemExit(f"{last.error}: {last.reason}")
        return last


def work(prompt: list[int], max_tokens: int, output: list[int], kv: KvHandle | None) -> Work:
    sampling = Sampling(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    return Work(attempt=f"b{next(_numbers)}", prompt=prompt, sampling=sampling, output=output, kv=kv)


class Pair:
    """A prefill and a decode engine and what is done to them."""

    def __init__(self, prefill: VllmEngine, decode: VllmEngine, vocab_size: int, num_tokens: int) -> None:
        self.prefill, self.decode = prefill, decode
        self._vocab_size = vocab_size
        self._num_tokens = num_tokens
        self._random = random.Random(1)
        self._prompts = itertools.cycle([self._prompt(num_tokens) for _ in range(NUM_PROMPTS)])

    def _prompt(self, num_tokens: int) -> list[int]:
        return [self._random.randrange(10, self._vocab_size) for _ in range(num_tokens)]

    async def hand_over(self) -> tuple[list[int], int, KvHandle]:
        """The next prompt's first token and KV."""
        prompt = next(self._prompts)
        told = Told()
        self.prefill.prefill(work(prompt, 8, [], None), told)
        last = await told.end()
        if last.kv is None:
            raise SystemExit("no KV was handed over")
        return prompt, last.token_ids[0], last.kv

    async def pull(self, prompt: list[int], first: int, kv: KvHandle) -> dict[str, float]:
        """One pull: duration in the engine, MiB/s, when it ran, and how many steps it is until the second
        token is there, the transfer apart (the request's own later steps are the measure)."""
        told = Told()
        start_s = time.monotonic()
        self.decode.decode(work(prompt, 8, [first], kv), told)
        await told.end()
        if told.outputs[0].transferred_tokens != self._num_tokens:
            raise SystemExit("decode had some of the prompt: give it a smaller cache (--decode-mib)")
        transfer_ms = told.outputs[0].transfer_ms
        later = [(b - a) * 1e3 for a, b in itertools.pairwise(told.times_s)]
        gap_ms = (told.times_s[0] - start_s) * 1e3
        return {
            "start_s": start_s,
            "end_s": told.times_s[0],
            "transfer_ms": transfer_ms,
            "gap_ms": gap_ms,
            "gap_steps": (gap_ms - transfer_ms) / quantile(later, 0.5),
            "mib_per_s": kv.num_bytes / 2**20 / (transfer_ms / 1e3),
        }

    async def streams(self, until: asyncio.Event) -> list[Told]:
        """Streams that run until told to end."""
        runs = []
        for _ in range(NUM_STREAMS):
            told = Told()
            job = work(self._prompt(16), self._num_tokens - 100, [], None)
            self.decode.decode(job, told)
            runs.append((job.attempt, told))
        await until.wait()
        for attempt, _ in runs:
            self.decode.abort(attempt)
        return [told for _, told in runs]


def steps(streams: list[Told]) -> list[float]:
    """Times of engine steps: each tells every stream once, within a moment."""
    first = max(streams, key=lambda told: len(told.times_s))
    return first.times_s


def gaps(times_s: list[float], spans: list[tuple[float, float]], inside: bool) -> Iterator[float]:
    """Milliseconds between steps that touch one of the spans, or that touch none. The step that ends a span
    is left out: it computes a long prompt's next token beside the streams, which no transfer can help."""
    for earlier, later in itertools.pairwise(times_s):
        ends = [end for start, end in spans if earlier < end and later > start]
        if inside == bool(ends) and all(later < end - _SAME_STEP_S for end in ends):
            yield (later - earlier) * 1e3


async def cpu_share(pid: int, seconds: float) -> float:
    """Cores that a process uses."""
    process = psutil.Process(pid)
    before = process.cpu_times()
    await asyncio.sleep(seconds)
    after = process.cpu_times()
    used_s: float = after.user + after.system - before.user - before.system
    return used_s / seconds


async def measure(pair: Pair, rounds: int) -> dict[str, Any]:
    await asyncio.sleep(2)
    idle = await asyncio.gather(*(cpu_share(e.core_pid, IDLE_S) for e in (pair.prefill, pair.decode)))
    held = [await pair.hand_over() for _ in range(NUM_PROMPTS)]
    await asyncio.sleep(1)
    pinned = await cpu_share(pair.prefill.core_pid, IDLE_S / 2)
    pulled = [await pair.pull(*each) for each in held]  # the first ones connect and touch fresh memory
    alone = [await pair.pull(*await pair.hand_over()) for _ in range(rounds)]
    until = asyncio.Event()
    running = asyncio.ensure_future(pair.streams(until))
    await asyncio.sleep(4)
    beside = []
    for _ in range(rounds):
        handed_over = await pair.hand_over()
        await asyncio.sleep(0.2)
        beside.append(await pair.pull(*handed_over))
        await asyncio.sleep(0.2)
    until.set()
    told = await running
    spans = [(pull["start_s"], pull["end_s"]) for pull in beside]
    times_s = steps(told)
    begin_s = times_s[0] + 1.0
    times_s = [t for t in times_s if t > begin_s]
    during, without = (sorted(gaps(times_s, spans, inside)) for inside in (True, False))
    step_ms = quantile(without, 0.5)
    return {
        "cores_idle": round(max(idle), 3),
        "cores_while_kv_waits": round(pinned, 3),
        "mib_per_s_p50": round(quantile([p["mib_per_s"] for p in alone], 0.5)),
        "mib_per_s_best": round(max(p["mib_per_s"] for p in alone)),
        "mib_per_s_beside_streams_p50": round(quantile([p["mib_per_s"] for p in beside], 0.5)),
        "transfer_ms_p50": round(quantile([p["transfer_ms"] for p in alone], 0.5), 1),
        "t1_to_t2_ms_p50": round(quantile([p["gap_ms"] for p in alone], 0.5), 1),
        "t1_to_t2_less_transfer_in_steps_p50": round(quantile([p["gap_steps"] for p in alone], 0.5), 2),
        "first_pull_mib_per_s": round(pulled[0]["mib_per_s"]),
        "step_gap_ms": {
            "without_p50": round(step_ms, 2),
            "without_p99": round(quantile(without, 0.99), 2),
            "during_pulls_p50": round(quantile(during, 0.5), 2),
            "during_pulls_p99": round(quantile(during, 0.99), 2),
            "during_pulls_max": round(max(during), 2),
            "num_during": len(during),
            "num_without": len(without),
            "p50_ratio": round(quantile(during, 0.5) / step_ms, 2),
            "p99_ratio": round(quantile(during, 0.99) / quantile(without, 0.99), 2),
        },
    }


async def run(
    model: Path, num_tokens: int, rounds: int, decode_mib: int, transport: Transport
) -> dict[str, Any]:
    config = VllmConfig(
        model=str(model),
        max_model_len=num_tokens + 64,
        max_num_seqs=16,
        kv_cache_bytes=1 << 30,
        lease_s=600.0,
        kv_transport=transport,
    )
    small = msgspec.structs.replace(config, kv_cache_bytes=decode_mib << 20)
    prefill, decode = VllmEngine(config, KEY), VllmEngine(small, KEY)
    try:
        await prefill.start(lambda _: None)
        await decode.start(lambda _: None)
        return await measure(Pair(prefill, decode, 4000, num_tokens), rounds)
    finally:
        await decode.stop()
        await prefill.stop()


def main() -> None:
    parser = arguments(__doc__, "kv-transfer")
    parser.add_argument("--model", type=Path, help="a model directory (default: the tiny random model)")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument(
        "--decode-mib", type=int, default=256, help="decode's KV cache; SmolLM2's prompts fit"
    )
    parser.add_argument("--transports", nargs="+", default=["tcp", "shm", "nixl"])
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        model = options.model or make(Path(directory) / "tiny")
        for name in options.transports:
            transport = msgspec.convert(name, Transport)
            figures[name] = asyncio.run(
                run(model, options.tokens, options.rounds, options.decode_mib, transport)
            )
            print(name, msgspec.json.encode(figures[name]).decode(), flush=True)
    write(
        options.out,
        f"KV of {options.tokens}-token prompts of {model.name} between two vLLM engines on one machine",
        transports=figures,
    )


if __name__ == "__main__":
    main()

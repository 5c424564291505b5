"""``make bench-fail-over``: how long a stream pauses when the worker that decodes it is killed or hangs.

Real services, simulated engine, 20 ms a step, two decode workers, one stream at a time, all settings as they
come. After some tokens the worker gets SIGKILL or SIGSTOP; measured is the longest gap between two pieces at
the client, and the text is that of a stream which nobody disturbed.
"""

import itertools
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.e2e.raw_http import DONE, LiveStream, deltas
from tests.e2e.scrape import Scrape
from tests.e2e.slow import slow_stack
from tests.stack import Replica, Stack

from sub100_local.tiny_model import make

from .client import quantile
from .results import arguments, write

STEP_S = 0.02
NUM_TOKENS = 150
NUM_BEFORE = 20
WAYS = {"killed": signal.SIGKILL, "hung": signal.SIGSTOP}
BODY: dict[str, Any] = {
    "model": "test-model",
    "messages": [{"role": "user", "content": "Tell me a long story."}],
    "temperature": 0,
    "max_tokens": NUM_TOKENS,
    "ignore_eos": True,
    "stream": True,
}


def undisturbed(stack: Stack) -> str:
    with LiveStream(stack.url, BODY, stack.keys["plain"]) as stream:
        *events, end = stream.rest()
    assert end == DONE
    return "".join(deltas(events))


def decoder(stack: Stack) -> Replica:
    """The decode worker that has the stream, by its metrics: whoever watched the bus would be somebody who
    listens, and a killed worker is told from a hung one by nobody's listening."""
    workers = [stack.replicas[f"decode-{number}"] for number in (1, 2)]
    (found,) = [worker for worker in workers if Scrape(worker).total("sub100_engine_requests")]
    return found


def longest_gap_ms(stack: Stack, how: signal.Signals, whole: str) -> float:
    with LiveStream(stack.url, BODY, stack.keys["plain"]) as stream:
        pieces: list[str] = []
        times: list[float] = []
        lost = None
        while "".join(pieces) != whole:
            pieces.append(stream.next_text())
            times.append(time.perf_counter())
            if len(pieces) == NUM_BEFORE:
                lost = decoder(stack)
                lost.signal(how)
                times[-1] = time.perf_counter()
    assert lost is not None
    lost.signal(signal.SIGKILL)
    lost.wait(10)
    lost.start()
    stack.wait_ready(lost.instance)
    return max(after - before for before, after in itertools.pairwise(times)) * 1e3


def main() -> None:
    parser = arguments(__doc__, "fail-over")
    parser.add_argument("--losses", type=int, default=20, help="of each kind")
    options = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    with (
        tempfile.TemporaryDirectory() as directory,
        slow_stack(make(Path(directory) / "tiny"), STEP_S, num_decode=2) as stack,
    ):
        whole = undisturbed(stack)
        for name, how in WAYS.items():
            gaps_ms = [longest_gap_ms(stack, how, whole) for _ in range(options.losses)]
            rows[name] = {f"p{q}_ms": round(quantile(gaps_ms, q / 100)) for q in (50, 90)}
            rows[name]["max_ms"] = round(max(gaps_ms))
            print(f"{name:8} {rows[name]}", flush=True)
    what = f"longest pause of a stream whose decode worker is lost, {options.losses} losses of each kind"
    write(options.out, what, pauses=rows)


if __name__ == "__main__":
    main()

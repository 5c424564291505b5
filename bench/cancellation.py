"""``make bench-cancel``: how soon everything of a client that left is free.

Real services, simulated engine, 30 ms a step. A client resets its connection before the first token, between
prefill's end and decode's start, or in mid-stream; measured until engines, KV and bookkeeping of workers and
scheduler hold nothing, read from their metrics (a look takes a few milliseconds, and counts).
"""

import tempfile
from pathlib import Path

from tests.e2e.bus_watch import watching
from tests.e2e.leaving import MOMENTS, freed_ms
from tests.e2e.slow import slow_stack

from sub100_local.tiny_model import make

from .client import quantile
from .results import arguments, write

STEP_S = 0.03


def main() -> None:
    parser = arguments(__doc__, "cancellation")
    parser.add_argument("--aborts", type=int, default=100, help="at each moment")
    options = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    with (
        tempfile.TemporaryDirectory() as directory,
        slow_stack(make(Path(directory) / "tiny"), STEP_S) as stack,
        watching(stack) as bus,
    ):
        for moment, begin in MOMENTS.items():
            times_ms = [freed_ms(stack, bus, begin) for _ in range(options.aborts)]
            rows[moment] = {f"p{q}_ms": round(quantile(times_ms, q / 100), 1) for q in (50, 90, 99)}
            rows[moment]["max_ms"] = round(max(times_ms), 1)
            print(f"{moment:28} {rows[moment]}", flush=True)
    what = f"from a client's RST until nothing of it is held, {options.aborts} aborts at each moment"
    write(options.out, what, moments=rows)


if __name__ == "__main__":
    main()

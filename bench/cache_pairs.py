"""``python -m bench.cache_pairs``: what ``make eval-cache`` says of each file of pairs, written down."""

from pathlib import Path
from typing import Any, Final

import msgspec

from sub100_cache.config import CacheConfig
from sub100_cache.embedders.minilm import MiniLm, find_model
from sub100_cache.evaluate import judge
from sub100_cache.evaluation import read_pairs, report_on

from .results import write

PAIRS: Final = Path(__file__).parent.parent / "tests" / "data" / "cache_pairs"
RESULTS: Final = Path(__file__).parent / "results" / "cache-pairs.json"
FILES: Final = (
    "tune",
    "unseen",
    "minimal",
    "review",
    "kinds",
    "newcomer",
    "edits",
    "domains",
    "lookalikes",
    "support",
    "classic",
    "adversary",
    "adversary_second",
)


def main() -> None:
    defaults = CacheConfig()
    embedder = MiniLm(
        find_model(), max_pieces=defaults.max_pieces, threads=defaults.embedder_threads, max_queued=1
    )
    reports: dict[str, Any] = {
        name: msgspec.to_builtins(
            report_on(judge(read_pairs(PAIRS / f"{name}.jsonl"), embedder), defaults.threshold)
        )
        for name in FILES
    }
    write(
        RESULTS,
        "make eval-cache on the labelled pairs; tune, edits, domains, support were tuned on, others counted",
        **reports,
    )


if __name__ == "__main__":
    main()

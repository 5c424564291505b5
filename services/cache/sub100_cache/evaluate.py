"""``python -m sub100_cache.evaluate pairs.jsonl ...``: the semantic tier on labelled pairs, with no servers.

Each line is ``{"a": ..., "b": ..., "same": true, "kind": ...}``. It decides as the service does: embedder,
threshold, guard. Ends with status 1 if there is a false hit, 2 for files that cannot be read.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from .config import CacheConfig
from .embedders.minilm import MiniLm, find_model
from .evaluation import Judged, Pair, as_text, is_hit, read_pairs, report_on
from .guard import read, refusal


def judge(pairs: Iterable[Pair], embedder: MiniLm) -> list[Judged]:
    return [_judged(pair, embedder) for pair in pairs]


def _judged(pair: Pair, embedder: MiniLm) -> Judged:
    stored, asked = read(pair.a), read(pair.b)
    one, other = (np.frombuffer(embedder.encode(each.wording), "<f4") for each in (stored, asked))
    return Judged(pair, float(one @ other), refusal(asked, stored))


def main(arguments: list[str]) -> int:
    defaults = CacheConfig()
    parser = argparse.ArgumentParser(prog="python -m sub100_cache.evaluate", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--threshold", type=float, default=defaults.threshold)
    parser.add_argument("--model", type=Path, help="the ONNX file (default: that of the installed package)")
    parser.add_argument("--show", action="store_true", help="print false hits, and paraphrases refused")
    parser.add_argument("--json", type=Path, help="write the report here too")
    options = parser.parse_args(arguments)
    try:
        pairs = [pair for file in options.files for pair in read_pairs(file)]
        model = options.model or find_model()
        embedder = MiniLm(
            model, max_pieces=defaults.max_pieces, threads=defaults.embedder_threads, max_queued=1
        )
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command, not the service
        return 2
    judged = judge(pairs, embedder)
    report = report_on(judged, options.threshold)
    if options.show:
        for one in judged:
            if is_hit(one, options.threshold) != one.pair.same:
                what = "refused" if one.pair.same else "FALSE HIT"
                why = one.rule or f"similarity {one.similarity:.3f}"
                print(f"{what} [{one.pair.kind}, {why}] {one.pair.a} | {one.pair.b}")  # noqa: T201
    print(as_text(report))  # noqa: T201
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return 1 if report.num_false_hits else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""How well the semantic tier decides on labelled pairs, and what the count of false hits proves."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

CONFIDENCE: Final = "95 %"


class Pair(msgspec.Struct, frozen=True):
    """``same``: an answer to one is an answer to the other. ``kind`` names what the pair tries."""

    a: str
    b: str
    same: bool
    kind: str = ""


class Judged(msgspec.Struct, frozen=True):
    """``rule`` is the guard's refusal, empty if it lets pass."""

    pair: Pair
    similarity: float
    rule: str


class Tally(msgspec.Struct, kw_only=True):
    """``num_near``: pairs above the threshold, which a cache without a guard would have served."""

    kind: str
    same: bool
    num_pairs: int = 0
    num_near: int = 0
    num_hits: int = 0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """``false_hit_bound``: with 95 % confidence the rate on pairs like these is below it; 3/n for 0 of n."""

    threshold: float
    num_same: int
    num_true_hits: int
    true_hit_rate: float
    num_other: int
    num_false_hits: int
    false_hit_bound: float | None
    num_false_by_threshold_alone: int
    kinds: list[Tally]
    refusals_of_same: dict[str, int]


def read_pairs(path: Path) -> list[Pair]:
    """One JSON object a line. Raises ValueError naming the line."""
    pairs: list[Pair] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            pairs.append(msgspec.json.decode(line, type=Pair))
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
    return pairs


def is_hit(judged: Judged, threshold: float) -> bool:
    return judged.similarity >= threshold and not judged.rule


def report_on(judged: Iterable[Judged], threshold: float) -> Report:
    tallies: dict[tuple[bool, str], Tally] = {}
    refusals: Counter[str] = Counter()
    for one in judged:
        pair = one.pair
        tally = tallies.setdefault((pair.same, pair.kind), Tally(kind=pair.kind, same=pair.same))
        tally.num_pairs += 1
        tally.num_near += one.similarity >= threshold
        tally.num_hits += is_hit(one, threshold)
        if pair.same and not is_hit(one, threshold):
            refusals[one.rule or "similarity"] += 1
    kinds = sorted(tallies.values(), key=lambda tally: (not tally.same, tally.kind))
    same = [tally for tally in kinds if tally.same]
    other = [tally for tally in kinds if not tally.same]
    num_same, num_other = (sum(tally.num_pairs for tally in part) for part in (same, other))
    num_true, num_false = (sum(tally.num_hits for tally in part) for part in (same, other))
    return Report(
        threshold=threshold,
        num_same=num_same,
        num_true_hits=num_true,
        true_hit_rate=round(num_true / num_same, 4) if num_same else 0.0,
        num_other=num_other,
        num_false_hits=num_false,
        false_hit_bound=round(3 / num_other, 5) if num_other and not num_false else None,
        num_false_by_threshold_alone=sum(tally.num_near for tally in other),
        kinds=kinds,
        refusals_of_same=dict(refusals.most_common()),
    )


def as_text(report: Report) -> str:
    lines = [f"{'kind':<24}{'same':>6}{'pairs':>7}{'near':>6}{'hits':>6}"]
    for tally in report.kinds:
        counts = f"{tally.num_pairs:>7}{tally.num_near:>6}{tally.num_hits:>6}"
        lines.append(f"{tally.kind:<24}{'yes' if tally.same else 'no':>6}{counts}")
    bound = (
        f"below {report.false_hit_bound:.2%} ({CONFIDENCE})" if report.false_hit_bound else "no bound stated"
    )
    lines += [
        "",
        f"true hits  {report.num_true_hits} of {report.num_same} ({report.true_hit_rate:.1%})",
        f"false hits {report.num_false_hits} of {report.num_other}: {bound}; "
        f"the threshold {report.threshold} alone would have served {report.num_false_by_threshold_alone}",
    ]
    return "\n".join(lines)

"""The figures on labelled pairs, and that the pairs of this repository hold no false hit."""

import json
from pathlib import Path

import pytest

from sub100_cache.evaluate import main
from sub100_cache.evaluation import Judged, Pair, as_text, read_pairs, report_on
from sub100_cache.guard import read, refusal

PAIRS = Path(__file__).parent.parent / "data" / "cache_pairs"


def judged(*, same: bool, similarity: float, rule: str = "", kind: str = "k") -> Judged:
    return Judged(Pair(a="a", b="b", same=same, kind=kind), similarity, rule)


def test_report_counts_hits_only_above_the_threshold_and_past_the_guard() -> None:
    report = report_on(
        [
            judged(same=True, similarity=0.95),
            judged(same=True, similarity=0.95, rule="word"),
            judged(same=True, similarity=0.90),
            judged(same=True, similarity=0.92),
            judged(same=False, similarity=0.99, rule="negation"),
            judged(same=False, similarity=0.50),
        ],
        0.92,
    )

    assert (report.num_true_hits, report.num_same, report.true_hit_rate) == (2, 4, 0.5)
    assert (report.num_false_hits, report.num_other, report.num_false_by_threshold_alone) == (0, 2, 1)
    assert report.false_hit_bound == 1.5
    assert report.refusals_of_same == {"word": 1, "similarity": 1}


def test_report_states_no_bound_once_there_is_a_false_hit() -> None:
    report = report_on([judged(same=False, similarity=0.99)], 0.92)

    assert report.num_false_hits == 1
    assert report.false_hit_bound is None
    assert "no bound" in as_text(report)


def test_evaluate_ends_with_status_1_at_a_false_hit_and_2_at_a_bad_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs, bad, out = tmp_path / "pairs.jsonl", tmp_path / "bad.jsonl", tmp_path / "out.json"
    pairs.write_text(
        '{"a": "Where is Rome?", "b": "where is rome", "same": true, "kind": "case"}\n\n'
        '{"a": "Is it on?", "b": "Is it off?", "same": false, "kind": "antonyms"}\n'
    )
    bad.write_text('{"a": "x", "b": "y", "same": true}\n{"a": 1}\n')

    assert main([str(pairs), "--json", str(out)]) == 0
    assert "true hits  1 of 1 (100.0%)" in capsys.readouterr().out
    assert json.loads(out.read_text())["num_other"] == 1
    pairs.write_text('{"a": "Where is Rome?", "b": "where is rome", "same": false, "kind": "mislabelled"}\n')
    assert main([str(pairs), "--show"]) == 1
    assert "FALSE HIT [mislabelled" in capsys.readouterr().out
    assert main([str(bad)]) == 2
    assert "bad.jsonl:2" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["tune", "unseen", "edits", "review", "classic"])
def test_guard_lets_more_than_a_third_of_paraphrases_pass(name: str) -> None:
    same = [pair for pair in read_pairs(PAIRS / f"{name}.jsonl") if pair.same]

    assert sum(not refusal(read(pair.b), read(pair.a)) for pair in same) >= 0.35 * len(same)


@pytest.mark.parametrize("file", sorted(PAIRS.glob("*.jsonl")), ids=lambda file: file.stem)
def test_guard_refuses_every_pair_that_must_not_match(file: Path) -> None:
    others = [(read(pair.a), read(pair.b)) for pair in read_pairs(file) if not pair.same]

    assert not [(a.text, b.text) for a, b in others if not refusal(b, a) or not refusal(a, b)]

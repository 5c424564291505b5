"""The form of the labelled pairs: their counts, their split, and that none stands twice."""

import hashlib
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

PAIRS = Path(__file__).resolve().parents[1] / "data" / "cache_pairs"
FILES = ("tune", "unseen")


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Two questions, and whether the answer to `a` may be served for `b`."""

    a: str
    b: str
    same: bool
    kind: str


def _read(name: str) -> list[Pair]:
    lines = (PAIRS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [msgspec.json.decode(line, type=Pair) for line in lines]


def _everything() -> list[Pair]:
    return [pair for name in FILES for pair in _read(name)]


def _wording(text: str) -> str:
    """The text as a reader compares it: no case, every run of white space one blank."""
    return " ".join(text.casefold().split())


def test_pairs_are_enough_in_both_labels() -> None:
    pairs = _everything()
    assert sum(not pair.same for pair in pairs) >= 360
    assert sum(pair.same for pair in pairs) >= 240


@pytest.mark.parametrize("same", [False, True])
def test_unseen_pairs_are_about_a_third_of_each_label(same: bool) -> None:
    unseen = sum(pair.same is same for pair in _read("unseen"))
    everything = sum(pair.same is same for pair in _everything())
    assert 0.30 <= unseen / everything <= 0.40


def test_every_kind_has_fifteen_pairs_and_some_in_both_files() -> None:
    counts: dict[tuple[bool, str], list[int]] = defaultdict(lambda: [0, 0])
    for index, name in enumerate(FILES):
        for pair in _read(name):
            counts[pair.same, pair.kind][index] += 1
    assert {same: sum(label is same for label, _ in counts) for same in (False, True)} == {
        False: 24,
        True: 18,
    }
    thin = {kind: split for kind, split in counts.items() if sum(split) < 15 or min(split) < 5}
    assert not thin


def test_kind_belongs_to_one_label() -> None:
    labels = defaultdict(set)
    for pair in _everything():
        labels[pair.kind].add(pair.same)
    assert [kind for kind, values in labels.items() if len(values) > 1] == []


def test_wordings_stand_once_within_and_across_files() -> None:
    seen: dict[str, Pair] = {}
    twice = []
    for pair in _everything():
        for text in {_wording(pair.a), _wording(pair.b)}:
            if text in seen:
                twice.append(text)
            seen[text] = pair
    assert twice == []


def test_questions_differ_and_have_four_to_thirty_words() -> None:
    pairs = _everything()
    assert [pair.a for pair in pairs if pair.a == pair.b] == []
    texts = [text for pair in pairs for text in (pair.a, pair.b)]
    assert [text for text in texts if text != text.strip() or not 4 <= len(text.split()) <= 30] == []


def test_split_follows_the_hash_rule_of_the_readme() -> None:
    unseen = set(_read("unseen"))
    kinds: dict[str, list[Pair]] = defaultdict(list)
    for pair in _everything():
        kinds[pair.kind].append(pair)
    for kind, pairs in kinds.items():
        pairs.sort(key=lambda pair: hashlib.sha256(f"{pair.a}\n{pair.b}".encode()).hexdigest())
        assert set(pairs[::3]) == unseen.intersection(pairs), kind

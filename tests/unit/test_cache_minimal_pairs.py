"""C02: minimal pairs that mean another thing, half of them not English; the guard alone decides."""

import pytest
from tests.minimal_pairs import PAIRS, MinimalPair

from sub100_cache.guard import read, refusal
from sub100_cache.guard.rules import RULES

KINDS = {
    *("on_off", "enable_disable", "with_without", "before_after", "numbers"),
    *("units", "dates", "names", "order", "negation"),
}


def test_minimal_pairs_are_sixty_of_ten_kinds_and_four_languages() -> None:
    assert len(PAIRS) == 60
    assert {kind: sum(pair.kind == kind for pair in PAIRS) for kind in KINDS} == dict.fromkeys(KINDS, 6)
    abroad = [pair.lang for pair in PAIRS if pair.lang != "en"]
    assert len(abroad) * 3 >= len(PAIRS)
    assert {lang: abroad.count(lang) for lang in ("de", "zh", "ar")} == {"de": 10, "zh": 10, "ar": 10}
    assert len({text for pair in PAIRS for text in (pair.a, pair.b)}) == 120


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.kind}-{pair.lang}")
def test_guard_refuses_a_minimal_pair_in_both_directions(pair: MinimalPair) -> None:
    assert refusal(read(pair.b), read(pair.a)) in RULES
    assert refusal(read(pair.a), read(pair.b)) in RULES


@pytest.mark.parametrize("text", [text for pair in PAIRS for text in (pair.a, pair.b)])
def test_guard_lets_the_very_same_question_pass(text: str) -> None:
    assert refusal(read(text), read(text)) == ""

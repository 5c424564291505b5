import json

import pytest

from sub100_ingress import cache_stats
from sub100_ingress.afterwards import is_same_text
from sub100_proto.cache import CacheStats


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (("Hel", "lo"), ("Hello",), True),
        (("a  b\n",), (" a b",), True),
        (("Café",), ("Cafe\u0301",), True),
        (("Hello",), ("hello",), False),
        (("Hello.",), ("Hello",), False),
        ((), ("",), True),
    ],
)
def test_answers_agree_but_for_white_space_and_form(
    one: tuple[str, ...], other: tuple[str, ...], expected: bool
) -> None:
    assert is_same_text(one, other) is expected


def test_stats_show_counts_and_the_rates_that_follow() -> None:
    stats = CacheStats(
        num_lookups=200,
        num_exact_hits=30,
        num_semantic_hits=20,
        num_shadow_hits=40,
        num_shadow_false=1,
        num_entries=7,
        num_bytes=900,
    )
    assert json.loads(cache_stats.body("demo", stats)) == {
        "object": "cache.stats",
        "tenant": "demo",
        "lookups": 200,
        "exact_hits": 30,
        "semantic_hits": 20,
        "hit_rate": 0.25,
        "shadow_hits": 40,
        "shadow_false_hits": 1,
        "false_hit_rate": 0.025,
        "entries": 7,
        "bytes": 900,
    }
    nothing = json.loads(cache_stats.body("demo", CacheStats()))
    assert (nothing["hit_rate"], nothing["false_hit_rate"]) == (None, None)

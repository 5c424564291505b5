"""C02 as a client meets it: no minimal pair shares an answer, each repeat of a question does."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.system import PATIENT, sim_only
from tests.e2e.test_cache_field_cases import ask, body, hits, is_hit, user
from tests.minimal_pairs import PAIRS
from tests.servers import redisearch_module, uses_containers
from tests.stack import Stack, running_stack

pytestmark = [
    sim_only,
    pytest.mark.skipif(
        not uses_containers() and not redisearch_module(), reason="no query engine for this Redis"
    ),
]


@pytest.fixture(scope="module")
def own(tiny_model: Path) -> Iterator[Stack]:
    env = {"SUB100_CACHE_EMBEDDER": "minilm", "SUB100_SIM_ANSWER_MAX_TOKENS": "8", **PATIENT}
    with running_stack(tiny_model, engine="sim", env=env) as running:
        yield running


def test_second_of_a_minimal_pair_is_never_answered_from_the_first(own: Stack) -> None:
    """``stranger`` has the threshold of the deployment, 0.92."""
    for pair in PAIRS:
        hits(own, body(user(pair.a)), "stranger")
    for pair in PAIRS:
        assert not is_hit(ask(own, body(user(pair.b)), "stranger")), pair
        assert hits(own, body(user(pair.a)), "stranger").headers["x-sub100-cache"] == "exact"


def test_semantic_tier_is_on_where_minimal_pairs_are_asked(own: Stack) -> None:
    """Any of several wordings: the first token may be there before a tenant's first look-up."""
    hits(own, body(user("How do I bleed a radiator?")), "stranger")
    openings = ("Hi, can you tell me", "Could you please tell me", "Hello, please explain", "I wonder")
    answers = [
        ask(own, body(user(f"{opening} how to bleed a radiator?")), "stranger") for opening in openings
    ]
    assert "semantic" in {answer.headers["x-sub100-cache"] for answer in answers}

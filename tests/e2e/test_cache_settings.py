"""What a tenant's settings make of look-ups: similar questions, shadow mode, the judge, its own counts."""

import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.raw_http import Answer, post, request
from tests.e2e.scripted_cache import ScriptedCache, hit, scripted_cache
from tests.e2e.system import MODEL, PATIENT, sim_only
from tests.patience import at_best
from tests.stack import Stack, running_stack

from sub100_proto.cache import CacheAlias, CacheFill, CacheMiss, CacheObserved, CacheStats, NearMiss

pytestmark = sim_only
NEIGHBOUR = NearMiss(digest=b"n" * 32, question="What is it?", similarity=0.96, rule="negation")


@pytest.fixture(scope="module")
def own(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Its model says yes to everything."""
    said = tmp_path_factory.mktemp("answers") / "yes.txt"
    said.write_text("YES and nothing else.")
    with running_stack(
        tiny_model, engine="sim", env={"SUB100_SIM_ANSWER_FILE": str(said), **PATIENT}
    ) as running:
        yield running


@pytest.fixture
def cache(own: Stack) -> Iterator[ScriptedCache]:
    with scripted_cache(own) as scripted:
        yield scripted


def ask(stack: Stack, tenant: str, **fields: Any) -> Answer:
    messages = [{"role": "user", "content": f"  What is {secrets.token_hex(4)}?\r\n"}]
    body = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 200} | fields
    answer = post(stack.url, body, stack.keys[tenant])
    assert answer.status == 200, answer.body
    return answer


def stats(stack: Stack, tenant: str) -> Answer:
    return request(stack.url, "GET", "/v1/cache/stats", [("Authorization", f"Bearer {stack.keys[tenant]}")])


def test_semantic_tenant_asks_with_its_question_and_threshold(own: Stack, cache: ScriptedCache) -> None:
    ask(own, "similar")
    ask(own, "demo")
    similar, exact = cache.lookups
    assert similar.question.startswith("What is ")
    assert similar.question.endswith("?")
    assert (similar.threshold, exact.threshold) == (0.93, 0)
    assert exact.question == ""
    assert similar.scope != exact.scope
    cache.wait(lambda: len(cache.written) >= 2, "both fills")
    fills = {fill.tenant: fill for fill in cache.written if isinstance(fill, CacheFill)}
    assert (fills["similar"].ttl_s, fills["demo"].ttl_s) == (600, 3600)
    assert (fills["similar"].question, fills["demo"].question) == (similar.question, "")


@pytest.mark.parametrize("agrees", [True, False])
def test_shadow_tenant_gets_the_models_answer_and_the_comparison_is_told(
    own: Stack, cache: ScriptedCache, agrees: bool
) -> None:
    question = [{"role": "user", "content": secrets.token_hex(8)}]
    text = ask(own, "shadow", messages=question).json["choices"][0]["message"]["content"]
    cache.wait(lambda: bool(cache.written), "the fill of a miss")
    cache.reply = lambda _: hit(f" {text}", "\n") if agrees else hit(text, " Or not.")
    for _ in range(3):
        answer = ask(own, "shadow", messages=question)
        assert answer.headers["x-sub100-cache"] == "miss"
        assert answer.json["choices"][0]["message"]["content"] == text
    cache.wait(lambda: len(cache.written) >= 4, "three comparisons")
    fill, *observed = cache.written
    assert isinstance(fill, CacheFill)  # and a shadow hit renews nothing
    told = CacheObserved(tenant="shadow", tier="semantic", agreed=agrees, similarity=0.95)
    assert observed == [told] * 3


def test_refused_neighbour_is_judged_afterwards_and_becomes_an_alias(
    own: Stack, cache: ScriptedCache
) -> None:
    cache.reply = lambda _: CacheMiss(generation=b"g3", near=NEIGHBOUR)
    answer = ask(own, "similar")
    assert answer.headers["x-sub100-cache"] == "miss"
    cache.wait(lambda: any(isinstance(each, CacheAlias) for each in cache.written), "an alias")
    [alias] = [each for each in cache.written if isinstance(each, CacheAlias)]
    [lookup] = cache.lookups  # the judge itself asks no cache
    assert alias == CacheAlias(
        tenant="similar",
        digest=lookup.digest,
        target=NEIGHBOUR.digest,
        generation=b"g3",
        scope=lookup.scope,
        revision=lookup.revision,
    )


def test_tenant_without_a_judge_has_nothing_judged(own: Stack, cache: ScriptedCache) -> None:
    cache.reply = lambda _: CacheMiss(generation=b"g3", near=NEIGHBOUR)
    ask(own, "shadow")
    ask(own, "similar")
    cache.wait(lambda: any(isinstance(each, CacheAlias) for each in cache.written), "the other's alias")
    assert [each.tenant for each in cache.written if isinstance(each, CacheAlias)] == ["similar"]


def test_tenant_reads_its_own_counts(own: Stack, cache: ScriptedCache) -> None:
    cache.admin = lambda query: CacheStats(num_lookups=len(query.tenant), num_exact_hits=2)
    assert stats(own, "demo").json["lookups"] == 4
    similar = stats(own, "similar").json
    assert (similar["tenant"], similar["lookups"], similar["hit_rate"]) == ("similar", 7, round(2 / 7, 6))


def test_counts_of_a_cache_that_is_not_well_are_refused_in_time(own: Stack, cache: ScriptedCache) -> None:

    def refused_after_s() -> float:
        silent = stats(own, "demo")
        assert (silent.status, silent.error["code"]) == (503, "cache_unavailable")
        return silent.elapsed_s

    at_best(refused_after_s, 4, "refused after")
    cache.admin = lambda _: CacheStats(error="no Redis")
    assert stats(own, "demo").status == 503


def test_counts_take_one_of_the_tenants_requests_at_a_time(own: Stack, cache: ScriptedCache) -> None:
    """The cache does not answer: the first of them waits, and the tenant has one place."""
    with ThreadPoolExecutor(2) as pool:
        answers = [*pool.map(lambda _: stats(own, "single"), range(2))]
    assert sorted(answer.error["code"] for answer in answers) == [
        "cache_unavailable",
        "tenant_concurrency_exceeded",
    ]
    cache.admin = lambda _: CacheStats(num_lookups=3)
    assert stats(own, "single").json["lookups"] == 3


def test_counts_need_a_key(own: Stack) -> None:
    answer = request(own.url, "GET", "/v1/cache/stats", [])
    assert answer.status == 401
    assert json.loads(answer.body)["error"]["code"] == "invalid_api_key"

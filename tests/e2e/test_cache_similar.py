"""The semantic tier as clients meet it: nothing opposite (C02), nothing of another tenant (C06)."""

import contextlib
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from tests.e2e.bus_watch import publish, watching
from tests.e2e.raw_http import Answer
from tests.e2e.system import PATIENT, sim_only
from tests.e2e.test_cache_field_cases import ask, asked_until_hit, body, fill, hits, is_hit, user
from tests.minimal_pairs import PAIRS, MinimalPair
from tests.patience import eventually
from tests.servers import redisearch_module, uses_containers
from tests.stack import TENANTS, Stack, running_stack

from sub100_proto import codec, subjects
from sub100_proto.cache import CacheFill

pytestmark = [
    sim_only,
    pytest.mark.skipif(
        not uses_containers() and not redisearch_module(), reason="no query engine for this Redis"
    ),
]

NUM_AT_ONCE = 4


@pytest.fixture(scope="module")
def own(tiny_model: Path) -> Iterator[Stack]:
    """Steps take longer than a look-up with its embedding: no first token is there before it."""
    env = {
        "SUB100_CACHE_EMBEDDER": "minilm",
        "SUB100_SIM_DELAY_MS": "60",
        "SUB100_SIM_ANSWER_MIN_TOKENS": "2",
        "SUB100_SIM_ANSWER_MAX_TOKENS": "2",
    }
    with running_stack(tiny_model, engine="sim", env=PATIENT | env) as running:
        yield running


def test_second_of_a_minimal_pair_is_never_answered_from_the_first(own: Stack) -> None:
    """C02. ``stranger`` has the threshold of the deployment, 0.92."""

    def answered_apart(pair: MinimalPair) -> None:
        assert not is_hit(ask(own, body(user(pair.b)), "stranger")), pair
        assert hits(own, body(user(pair.a)), "stranger").headers["x-sub100-cache"] == "exact"

    with ThreadPoolExecutor(NUM_AT_ONCE) as pool:
        list(pool.map(lambda pair: hits(own, body(user(pair.a)), "stranger"), PAIRS))
        list(pool.map(answered_apart, PAIRS))


def test_semantic_tier_is_on_where_minimal_pairs_are_asked(own: Stack) -> None:
    hits(own, body(user("How do I bleed a radiator?")), "stranger")
    assert semantic_hit(own, "how to bleed a radiator?", "stranger")


def test_question_that_is_material_is_answered_from_its_own_wording_alone(own: Stack) -> None:
    """Under such a prompt a paraphrase is another input: it is generated, and only its equal is a hit."""
    one, other = "How do I bleed a radiator?", "Hi, how to bleed a radiator?"
    for task in ("Translate the user's text to German.", "Wie viele Wörter sind das?"):
        prompt = {"role": "system", "content": task}
        hits(own, body(prompt, user(one)), "stranger")
        assert not is_hit(ask(own, body(prompt, user(other)), "stranger"))
        assert hits(own, body(prompt, user(one)), "stranger").headers["x-sub100-cache"] == "exact"
    hits(own, body(user(f"Repeat: {one}")), "stranger")
    assert not is_hit(ask(own, body(user("Repeat: how to bleed a radiator?")), "stranger"))


def semantic_hit(own: Stack, question: str, tenant: str, generated: set[str] | None = None) -> Answer:
    """With any of several beginnings: on a busy machine the first token may be there before a look-up, and
    what was ``generated`` then is kept, too, for the next beginning to hit."""
    for greeting in ("", "Hi, ", "Hello! ", "Good morning, ", "Hey, "):
        for request in ("can you tell me", "could you please tell me", "please explain"):
            answer = ask(own, body(user(f"{greeting}{request} {question}")), tenant)
            if answer.headers["x-sub100-cache"] == "semantic":
                return answer
            if generated is not None:
                generated.add(content(answer))
    raise AssertionError("never a semantic hit")


def keep_instead(own: Stack, request: dict[str, Any], text: str) -> None:
    """Ask it as ``similar`` and put another answer in place of the one that was kept: one that a test can
    recognise."""
    with watching(own) as bus:
        mark = bus.mark()
        fill(own, request)
        fills = [codec.decode_cache_write(message.data) for message in bus.since(mark, ".cache.fill.")]
    kept = next(fill for fill in fills if isinstance(fill, CacheFill) and fill.generation)
    other = msgspec.structs.replace(kept, answer=msgspec.structs.replace(kept.answer, pieces=(text,)))

    def is_there() -> bool:
        publish(own, subjects.cache_fill("local"), codec.encode(other))
        return content(hits(own, request)) == text

    eventually(is_there, "the other answer")


def content(answer: Answer) -> str:
    found: str = answer.json["choices"][0]["message"]["content"]
    return found


def test_personal_answer_reaches_no_other_tenant_however_it_is_asked_for(own: Stack) -> None:
    """C06: the same question, paraphrases, a long one that is nearly equal; the owner named in every field
    and header that might be taken for a tenant. The owner is answered, every time."""
    canary = f"canary-{secrets.token_hex(8)}"
    who = secrets.token_hex(3)
    words = " ".join(f"word{number}" for number in range(2000))
    short = f"How do I reset the password of account {who}?"
    similar = (f"Hi! Could you tell me how to reset the password of account {who}?", short.lower())
    long, nearly = f"{words} {short}", f"{words} And {short}"
    for text in (short, long):
        keep_instead(own, body(user(text)), f"It is {canary}.")
    names = {"user": "similar", "metadata": {"tenant": "similar", "cache_namespace": "similar"}}
    names |= {"cache_salt": "similar", "safety_identifier": "similar", "prompt_cache_key": "similar"}
    headers = {"X-Tenant": "similar", "X-Sub100-Tenant": "similar", "X-Cache-Namespace": "similar"}
    headers |= {"OpenAI-Organization": "similar", "OpenAI-Project": "similar", "X-Sub100-Cache": "exact"}
    for text in (short, *similar, long, nearly):
        for _ in range(2):
            answer = ask(own, body(user(text)) | names, "stranger", **headers)
            assert canary.encode() not in answer.body
            assert canary not in str(answer.headers)
        assert canary.encode() not in ask(own, body(user(text)), "demo").body
    generated: set[str] = set()
    again = semantic_hit(own, f"how to reset the password of account {who}?", "similar", generated)
    assert content(again) in generated | {f"It is {canary}."}
    *misses, hit = asked_until_hit(own, body(user(long)))
    assert content(hit) in {content(miss) for miss in misses} | {f"It is {canary}."}


def test_every_key_in_redis_belongs_to_one_tenant(own: Stack) -> None:
    """C06: in braces in the key itself, not in what was embedded."""
    for tenant in ("similar", "stranger"):
        hits(own, body(user(f"Whose is it {secrets.token_hex(4)}?")), tenant)
    with contextlib.closing(redis.Redis.from_url(own.redis.url)) as store:
        keys = [key.decode() for key in store.scan_iter()]
    owners = {key.partition("{")[2].partition("}")[0] for key in keys}
    ours = {"warm-up"}  # ingress' first look-up, of an empty digest
    assert {"similar", "stranger"} <= owners <= set(TENANTS) | ours

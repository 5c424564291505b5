"""The look-up beside the dispatch: a late hit cancels it, a miss pays nothing, nobody sees both answers."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.bus_watch import BusWatch
from tests.e2e.raw_http import DONE, Answer, LiveStream, deltas, post
from tests.e2e.scripted_cache import ScriptedCache, hit, scripted_cache
from tests.e2e.system import MODEL, PATIENT, log_of, sim_only
from tests.patience import eventually
from tests.stack import Stack, running_stack

from sub100_proto import codec
from sub100_proto.cache import CacheFill, CacheMiss
from sub100_proto.jobs import Abort

pytestmark = sim_only
STEP_S = 0.3
"""What each engine step takes: the first token is never there before a look-up that takes less."""


@pytest.fixture(scope="module")
def stack(tiny_model: Path) -> Iterator[Stack]:
    env = PATIENT | {
        "SUB100_SIM_DELAY_MS": str(STEP_S * 1e3),
        "SUB100_SIM_ANSWER_MIN_TOKENS": "4",
        "SUB100_SIM_ANSWER_MAX_TOKENS": "4",
    }
    with running_stack(tiny_model, engine="sim", env=env) as running:
        yield running


@pytest.fixture
def cache(stack: Stack) -> Iterator[ScriptedCache]:
    with scripted_cache(stack) as scripted:
        yield scripted


def body(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": secrets.token_hex(8)}]
    return {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 200} | fields


def ask(stack: Stack, request: dict[str, Any], **headers: str) -> Answer:
    answer = post(stack.url, request, stack.keys["demo"], headers=[*headers.items()])
    assert answer.status == 200, answer.body
    return answer


def miss_until_dispatch_is_not_held(stack: Stack, bus: BusWatch, cache: ScriptedCache) -> None:
    """Teach ingress that this tenant does not hit: after that dispatch and look-up leave together."""
    cache.reply = lambda _: CacheMiss(generation=b"g1")
    for _ in range(16):
        with LiveStream(stack.url, body(stream=True), stack.keys["demo"]):
            pass
    cache.wait(lambda: len(cache.lookups) >= 16, "16 misses")
    bus.wait_idle("prefill-1", "decode-1")


def test_hit_before_the_first_token_cancels_the_dispatch(
    stack: Stack, bus: BusWatch, cache: ScriptedCache
) -> None:
    miss_until_dispatch_is_not_held(stack, bus, cache)
    cache.reply, cache.delay_s = lambda _: hit("Hel", "lo"), STEP_S / 3
    answer, mark = eventually(lambda: hit_beside_a_dispatch(stack, bus), "a hit beside a dispatch")
    bus.wait(lambda: bool(bus.told_since(mark, "prefill", Abort)), "its abort")
    bus.wait(lambda: bool(bus.since(mark, ".scheduler.settled.")), "its placement settled")
    bus.wait_idle("prefill-1", "decode-1")
    assert bus.since(mark, ".decode.job.", ".cache.fill.") == []
    assert answer.text == "Hello"
    assert answer.finish_reasons == ["stop"]
    assert answer.headers["x-sub100-cache"] == "semantic"
    assert answer.headers["x-sub100-similarity"] == "0.9500"
    assert answer.headers["age"] == "3"
    assert "cache;" in answer.headers["server-timing"]
    assert "prefill;" not in answer.headers["server-timing"]
    usage = answer.chunks[-1]
    assert (usage["usage"]["prompt_tokens"], usage["usage"]["completion_tokens"]) == (11, 2)
    assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert usage["sub100"]["cache"] == {"tier": "semantic", "age_s": 3.0, "similarity": 0.95}
    line = log_of(stack, answer.headers["x-request-id"])
    assert (line["num_attempts"], line["num_completion_tokens"], line["tier"]) == (0, 2, "cache_semantic")


def hit_beside_a_dispatch(stack: Stack, bus: BusWatch) -> tuple[Answer, int] | None:
    """An answer and the mark before it; None if a busy machine let the first token come before the hit."""
    mark = bus.mark()
    answer = ask(stack, body(stream=True, stream_options={"include_usage": True}))
    is_beside = bool(bus.since(mark, ".prefill.job."))
    return (answer, mark) if is_beside and answer.headers["x-sub100-cache"] == "semantic" else None


def test_miss_pays_nothing_for_a_slow_look_up(stack: Stack, bus: BusWatch, cache: ScriptedCache) -> None:
    miss_until_dispatch_is_not_held(stack, bus, cache)
    cache.delay_s = STEP_S / 2
    answer = ask(stack, body(stream=True))
    timing = answer.headers["server-timing"]
    assert answer.headers["x-sub100-cache"] == "miss"
    assert "prefill;" in timing
    assert "cache;" not in timing  # it ran beside: hidden


def test_hit_after_the_first_token_is_ignored_and_nothing_is_filled_over_it(
    stack: Stack, bus: BusWatch, cache: ScriptedCache
) -> None:
    miss_until_dispatch_is_not_held(stack, bus, cache)
    request = body(stream=True)
    wanted = ask(stack, request).text
    digest = cache.lookups[-1].digest
    cache.wait(lambda: bool(fills_of(cache, digest)), "its fill")
    cache.reply, cache.holds = lambda _: hit("never seen"), lambda _: True
    long = [("X-Sub100-Budget-Ms", "300000")]  # and with it the look-up's allotment
    with LiveStream(stack.url, request, stack.keys["demo"], headers=long) as stream:
        pieces = [stream.next_text()]
        cache.release()
        *events, end = stream.rest()
    assert end == DONE
    assert "".join(pieces + deltas(events)) == wanted
    assert stream.response.headers["x-sub100-cache"] == "miss"
    cache.reply = lambda _: CacheMiss(generation=b"g1")
    ask(stack, body())  # what the one before would have filled is before this one's
    other = cache.lookups[-1].digest
    cache.wait(lambda: bool(fills_of(cache, other)), "the other's fill")
    assert len(fills_of(cache, digest)) == 1


def fills_of(cache: ScriptedCache, digest: bytes) -> list[CacheFill]:
    return [fill for fill in cache.written if isinstance(fill, CacheFill) and fill.digest == digest]


def test_hit_answers_though_no_worker_can(stack: Stack, cache: ScriptedCache) -> None:
    """An overloaded or empty fleet still has its cache."""
    cache.reply, cache.delay_s = lambda _: hit("Hello"), 0.05
    scheduler = stack.replicas["scheduler-1"]
    scheduler.terminate()
    scheduler.wait()
    try:
        answer = ask(stack, body())
        assert answer.json["choices"][0]["message"]["content"] == "Hello"
    finally:
        scheduler.start()
        stack.wait_ready("scheduler-1")


def test_fill_brings_back_what_the_look_up_asked_for(stack: Stack, cache: ScriptedCache) -> None:
    cache.reply = lambda _: CacheMiss(generation=b"g7")
    answer = ask(stack, body())
    cache.wait(lambda: bool(cache.written), "a fill")
    [lookup], [fill] = cache.lookups, cache.written
    assert isinstance(fill, CacheFill)
    assert (fill.digest, fill.scope, fill.revision) == (lookup.digest, lookup.scope, lookup.revision)
    assert fill.generation == b"g7"
    assert "".join(fill.answer.pieces) == answer.json["choices"][0]["message"]["content"]
    assert len(lookup.scope) == 32
    assert lookup.revision


@pytest.mark.parametrize(
    ("header", "max_age_s", "fills"),
    [("no-cache", 0, True), ("max-age=2", 2, True), ("max-age=60", 60, False)],
)
def test_cache_control_limits_what_is_read(
    stack: Stack, cache: ScriptedCache, header: str, max_age_s: float, fills: bool
) -> None:
    """Even of a cache that does not know the field: its hit here is three seconds old."""
    cache.reply = lambda _: hit("Hello")
    answer = ask(stack, body(), **{"Cache-Control": header})
    assert cache.lookups[0].max_age_s == max_age_s
    assert answer.headers["x-sub100-cache"] == ("miss" if fills else "semantic")
    if fills:
        cache.wait(lambda: bool(cache.written), "a fill")
        fill = cache.written[0]
        assert isinstance(fill, CacheFill)
        assert fill.generation == b"g1"


def test_no_store_neither_reads_nor_writes(stack: Stack, bus: BusWatch, cache: ScriptedCache) -> None:
    mark = bus.mark()
    answer = ask(stack, body(), **{"Cache-Control": "no-store"})
    assert answer.headers["x-sub100-cache"] == "bypass"
    assert answer.json["sub100"]["cache"] == {"tier": "bypass"}
    other = ask(stack, body())  # what the first would have sent is before this one's
    bus.wait(lambda: bool(bus.since(mark, ".cache.fill.")), "the other's fill")
    fills = [codec.decode_cache_write(msg.data) for msg in bus.since(mark, ".cache.fill.")]
    ids = [fill.request_id for fill in fills if isinstance(fill, CacheFill)]
    assert ids == [other.headers["x-request-id"]]
    assert [lookup.request_id for lookup in cache.lookups] == ids

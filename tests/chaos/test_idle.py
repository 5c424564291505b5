"""Nothing happens for twenty minutes, as at night in a small region; then requests come on every path.

On real vLLM, for ``make verify``. ``SUB100_TEST_IDLE_S`` shortens the night; connections that are cut without
a word while they idle are in test_kv_transfer and test_sim_kv_wire.
"""

import json
import os
import statistics
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.e2e.bus_watch import watching
from tests.e2e.raw_http import DONE, post
from tests.e2e.scrape import Scrape
from tests.e2e.system import ENGINE, MODEL, PATIENT
from tests.e2e.test_cache_exact import ending, fill, hits
from tests.stack import Stack, running_stack

IDLE_S: Final = float(os.environ.get("SUB100_TEST_IDLE_S", "1200"))
NUM_EACH: Final = 5
NUM_WORDS: Final = 60
SLACK_MS: Final = 50.0
KEPT: Final = "A question whose answer is kept over the night."

pytestmark = [pytest.mark.vllm, pytest.mark.long, pytest.mark.timeout(IDLE_S + 600)]


@pytest.fixture(scope="module")
def stack(tiny_model: Path) -> Iterator[Stack]:
    with running_stack(tiny_model, engine=ENGINE, traces=True, env=PATIENT) as running:
        yield running


def body(number: int, **fields: Any) -> dict[str, Any]:
    """No two share a block but the template's."""
    words = " ".join(f"{number}-{i}" for i in range(NUM_WORDS))
    message = {"role": "user", "content": f"Night {number}. {words}"}
    fixed = {"model": MODEL, "messages": [message], "temperature": 0, "max_tokens": 8}
    return {**fixed, "stream": True, **fields}


def ask_each_path(stack: Stack, stop: str, first: int) -> dict[str, float]:
    """NUM_EACH requests on each path; the median time of an answer by path, in ms."""
    paths: dict[str, list[float]] = {"pair": [], "decode alone": [], "cache": []}
    for number in range(first, first + NUM_EACH):
        for path, fields in (("pair", {}), ("decode alone", {"n": 2})):
            answer = post(stack.url, body(number, **fields), stack.keys["plain"], timeout_s=30)
            assert (answer.status, answer.events[-1]) == (200, DONE), (path, answer.body)
            paths[path].append(answer.elapsed_s * 1e3)
        paths["cache"].append(hits(stack, KEPT, stop=stop).elapsed_s * 1e3)
    return {path: statistics.median(times) for path, times in paths.items()}


def troubles(log: str) -> list[str]:
    """Lines of a log, from there on, that somebody would have to look at."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [str(line) for line in lines if line["level"].lower() not in ("info", "debug")]


def test_requests_after_a_long_idle_are_as_quick_as_before_and_nobody_complains(stack: Stack) -> None:
    """P09: five requests on each path; no warning and no error in any log, before or after; KV moves again,
    over connections made anew."""
    decode, stop = stack.replicas["decode-1"], ending(stack)
    fill(stack, KEPT, stop=stop)
    ask_each_path(stack, stop, 0)
    before = ask_each_path(stack, stop, 100)
    marks = {name: len(replica.log) for name, replica in stack.replicas.items()}
    pulled = Scrape(decode).total("sub100_kv_transfer_tokens_total")
    threading.Event().wait(IDLE_S)  # the fault itself
    with watching(stack) as bus:
        after = ask_each_path(stack, stop, 200)
        bus.wait_idle("prefill-1", "decode-1")
    for path, time_ms in after.items():
        assert time_ms < 2 * before[path] + SLACK_MS, (path, before, after)
    assert Scrape(decode).total("sub100_kv_transfer_tokens_total") - pulled > NUM_EACH * NUM_WORDS
    assert {name: troubles(replica.log[marks[name] :]) for name, replica in stack.replicas.items()} == {
        name: [] for name in stack.replicas
    }

"""Streams that have begun and lose their place: they wait for another, and what of them need not be computed
again is in nobody's queue. A request that has not begun is told at once that nothing was done."""

import contextlib
import json
import secrets
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.bus_watch import BusWatch, watching
from tests.e2e.busy_workers import BusyWorkers, busy_workers
from tests.e2e.raw_http import DONE, Answer, LiveStream, deltas, post
from tests.e2e.system import MODEL, PATIENT, sim_only
from tests.patience import eventually
from tests.stack import Stack, running_stack

from sub100_proto import codec
from sub100_proto.fleet import Heartbeat

pytestmark = [sim_only, pytest.mark.timeout(200)]

NUM_BUSY = 5
"""More than ``max_attempts``."""

BODY: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Tell me a story."}],
    "temperature": 0,
    "max_tokens": 60,
    "ignore_eos": True,
}


@pytest.fixture(scope="module")
def stack(tiny_model: Path) -> Iterator[Stack]:
    env = {"SUB100_SIM_DELAY_MS": "20", "SUB100_INGRESS_PATIENCE_MS": "40000"}
    with running_stack(tiny_model, env={**PATIENT, **env}) as running:
        yield running


def heartbeat_of(stack: Stack, worker_id: str) -> Heartbeat:
    with watching(stack) as bus:  # not longer: whoever listens to everything answers for the dead
        stack.wait_ready("prefill-1", "decode-1")
        return eventually(lambda: bus.beat(worker_id), "a heartbeat")


@contextlib.contextmanager
def only_busy_ones(stack: Stack, like: Heartbeat, *, is_killed: bool) -> Iterator[BusyWorkers]:
    """They have come, the real worker is gone until the end: killed, or stopped, so that nobody takes it for
    alive. One that is killed does nothing from the beginning on, however long the others take to come."""
    decode = stack.replicas["decode-1"]
    if is_killed:
        decode.signal(signal.SIGSTOP)
    names = [f"busy-{secrets.token_hex(3)}" for _ in range(NUM_BUSY)]
    with busy_workers(stack, like, *names, code="queue_full") as busy:
        log = stack.replicas["scheduler-1"]
        eventually(lambda: all(f'"{name}"' in log.log for name in names), "registrations")
        decode.signal(signal.SIGKILL if is_killed else signal.SIGTERM)
        decode.wait()
        try:
            yield busy
        finally:
            decode.start()


def test_begun_stream_waits_for_a_worker_that_takes_it(stack: Stack) -> None:
    """However many refuse it meanwhile, and however quickly."""
    key = stack.keys["plain"]
    whole = post(stack.url, BODY | {"stream": True}, key)
    like = heartbeat_of(stack, "decode-1")
    with LiveStream(stack.url, BODY | {"stream": True}, key) as stream:
        pieces = [stream.next_text() for _ in range(5)]
        with only_busy_ones(stack, like, is_killed=True) as busy:
            eventually(lambda: busy.num_refused >= NUM_BUSY, "refusals")
        rest = stream.rest()
    assert rest[-1] == DONE
    assert "".join([*pieces, *deltas(rest[:-1])]) == whole.text


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_workers_that_are_gone_at_once_cost_nobody_a_request(stack: Stack, role: str) -> None:
    """A machine went down: the scheduler still believes in all its workers, and they look idle."""
    key = stack.keys["plain"]
    like = heartbeat_of(stack, f"{role}-1")
    names = [f"gone-{secrets.token_hex(3)}" for _ in range(NUM_BUSY)]
    answers: dict[str, Answer] = {}

    def ask(prompt: str) -> Answer:
        messages = [{"role": "user", "content": prompt}]
        return post(stack.url, BODY | {"messages": messages, "stream": True, "max_tokens": 8}, key)

    def most_met() -> int:
        """Of the gone, by one request. No worker has seen its prompt before: chance alone picks one."""
        prompt = f"{secrets.token_hex(8)} tells a story."
        answers[prompt] = ask(prompt)
        lost = [line for line in stack.replicas["ingress-1"].log.splitlines() if '"attempt lost"' in line]
        met = Counter(json.loads(line)["request_id"] for line in lost if any(name in line for name in names))
        return max(met.values(), default=0)

    with busy_workers(stack, like, *names, code=""):
        log = stack.replicas["scheduler-1"]
        eventually(lambda: all(f'"{name}"' in log.log for name in names), "registrations")
        eventually(lambda: most_met() > 2, "a request that met as many as would end it in other ways")
    stack.wait_ready("decode-1")
    for prompt, answer in answers.items():
        assert (answer.status, answer.text) == (200, ask(prompt).text)


def test_request_that_nobody_takes_is_refused_with_retry_after(stack: Stack) -> None:
    with only_busy_ones(stack, heartbeat_of(stack, "decode-1"), is_killed=False):
        answer = post(stack.url, BODY | {"n": 2}, stack.keys["plain"])  # decode computes the prompt
    assert answer.status == 503
    assert answer.error["code"] == "queue_full"
    assert "lost" not in answer.error["message"]
    assert int(answer.headers["retry-after"]) >= 1


def test_prompt_whose_kv_waits_is_in_no_queue_once_it_is_pulled(stack: Stack) -> None:
    """Decode dies between prefill and its pull. The scheduler is told where the KV is, and when it came."""
    decode = stack.replicas["decode-1"]
    stack.wait_ready("decode-1")
    with watching(stack) as bus:
        mark = bus.mark()
        decode.signal(signal.SIGSTOP)
        with LiveStream(
            stack.url, BODY | {"stream": True, "max_tokens": 5000}, stack.keys["plain"]
        ) as stream:
            bus.wait(lambda: bool(bus.since(mark, ".decode.job.")), "the decode job")
            decode.signal(signal.SIGKILL)
            decode.wait()
            decode.start()
            bus.wait(lambda: len(settled_prefills(bus, mark)) == 2, "the second prefill share settled")
            stream.reset()
        settled = settled_prefills(bus, mark)
        asked = [codec.decode_place_request(msg.data) for msg in bus.since(mark, ".scheduler.place.")]
    assert (asked[0].kv_at, asked[-1].kv_at) == ("", "prefill-1")
    assert settled == [asked[0].placement_id, asked[-1].placement_id]


def settled_prefills(bus: BusWatch, mark: int) -> list[str]:
    """Placements of which the prompt's share was given back by itself, in order."""
    settled = [codec.decode_settled(msg.data) for msg in bus.since(mark, ".scheduler.settled.")]
    return [one.placement_id for one in settled if one.phase == "prefill"]

"""P03: a worker whose KV transfers fail is not ready and in no pair; requests are answered all the same, and
nobody else goes down with it. On both engines: a worker with another deployment's secret can move no KV."""

import json
import secrets
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.bus_watch import BusWatch
from tests.e2e.raw_http import DONE, LiveStream, post
from tests.e2e.scrape import Scrape
from tests.e2e.system import ENGINE, MODEL, PATIENT, sim_only
from tests.stack import Replica, Stack, running_stack

pytestmark = pytest.mark.timeout(400)

AFTER_S = 0.5
REST_S = 6 * AFTER_S
OUT_S = 180.0
"""Four times AFTER_S, since each bad worker has one peer here, and what a busy machine adds."""


@pytest.fixture(scope="module")
def stack(tiny_model: Path) -> Iterator[Stack]:
    env = {f"SUB100_{role}_KV_FAULT_AFTER_S": str(AFTER_S) for role in ("PREFILL", "DECODE")}
    env |= {"SUB100_SIM_PULL_TIMEOUT_S": "60", "SUB100_INGRESS_CLAIM_TIMEOUT_MS": "5000"}
    with running_stack(tiny_model, engine=ENGINE, env={**PATIENT, **env}) as running:
        yield running


def readiness(replica: Replica) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{replica.ops_url}/readyz", timeout=5) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read()).get("reason", "")


def body(**fields: Any) -> dict[str, Any]:
    """A prompt of its own."""
    ids = [300 + secrets.randbelow(3000) for _ in range(50)]
    return {"model": MODEL, "prompt": ids, "max_tokens": 4, "ignore_eos": True, **fields}


def ask(stack: Stack) -> None:
    answer = post(stack.url, body(), stack.keys["plain"], path="/v1/completions")
    assert answer.status == 200, answer
    assert answer.json["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("role", ["decode", pytest.param("prefill", marks=sim_only)])
def test_worker_that_can_move_no_kv_is_out_and_takes_nobody_along(
    stack: Stack, bus: BusWatch, role: str
) -> None:
    wrong = stack.directory / f"wrong-{role}"
    wrong.write_text(secrets.token_hex(32))
    wrong.chmod(0o600)
    bad = stack.add(role, SUB100_SECRET_FILE=str(wrong))
    stack.wait_ready(bad.instance)
    try:
        deadline_s = time.monotonic() + OUT_S
        well_s = time.monotonic()
        while not (found := readiness(bad))[1]:
            well_s = time.monotonic()
            ask(stack)
            assert well_s < deadline_s, bad.log[-2000:]
        assert found[0] == 503
        assert found[1].startswith("KV transfers fail")
        assert Scrape(bad).total("sub100_kv_fault") == 1

        def is_out() -> bool:
            beat = bus.beat(bad.instance)
            return beat is not None and bool(beat.kv_fault)

        bus.wait(is_out, "a heartbeat that says so")
        ask(stack)
        mark = bus.mark()
        while time.monotonic() < well_s + REST_S - 1:  # before it is tried
            assert not bus.since(mark, f".{role}.job.{bad.instance}.")
            ask(stack)
        others = [stack.replicas["prefill-1"], stack.replicas["decode-1"]]
        assert [readiness(other) for other in others] == [(200, "")] * 2
        assert not any("kv fault" in other.log for other in others)
    finally:
        bad.stop()


@sim_only
def test_stream_does_not_wait_for_the_kv_of_a_prefill_worker_that_hangs(stack: Stack, bus: BusWatch) -> None:
    """Not until the pull's time is up, 30 s here: ingress finds out, and decode computes the prompt."""
    prefill, decode = stack.replicas["prefill-1"], stack.replicas["decode-1"]
    mark = bus.mark()
    decode.signal(signal.SIGSTOP)
    try:
        with LiveStream(stack.url, body(stream=True), stack.keys["plain"], path="/v1/completions") as stream:
            bus.wait(lambda: bool(bus.since(mark, ".decode.job.")), "the decode job")
            prefill.signal(signal.SIGSTOP)
            decode.signal(signal.SIGCONT)
            started_s = time.monotonic()
            assert stream.rest()[-1] == DONE
            assert time.monotonic() - started_s < 15
        bus.wait_idle("decode-1")
    finally:
        decode.signal(signal.SIGCONT)
        prefill.signal(signal.SIGCONT)

"""Workers lost in mid stream: the answer goes on elsewhere without a seam, or ends in one error event."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest
from tests.e2e.bus_watch import BusWatch
from tests.e2e.losing import decoder_of, revive
from tests.e2e.raw_http import DONE, LiveStream, deltas, post
from tests.e2e.slow import slow_stack
from tests.e2e.system import MODEL, log_of, sim_only
from tests.patience import eventually
from tests.stack import Stack

pytestmark = sim_only

BODY: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Tell me a story."}],
    "temperature": 0,
    "max_tokens": 60,
    "ignore_eos": True,
}
STREAM: dict[str, Any] = BODY | {"stream": True, "stream_options": {"include_usage": True}}
STEP_S = 0.03
LASTING_MS = "60000"
"""As long as a worker may take to start, or to come back, on a busy machine."""


@pytest.fixture(scope="module")
def stack(tiny_model: Path) -> Iterator[Stack]:
    """Two decode workers, slow enough to be lost in mid answer; tests restart what they kill."""
    with slow_stack(tiny_model, STEP_S, num_decode=2, SUB100_INGRESS_STALL_TIMEOUT_S="10") as running:
        yield running


@pytest.fixture(scope="module")
def whole(stack: Stack) -> str:
    """The answer of a quiet run."""
    return str(post(stack.url, BODY, stack.keys["plain"]).json["choices"][0]["message"]["content"])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
def test_stream_goes_on_elsewhere_without_a_seam(
    stack: Stack, bus: BusWatch, whole: str, how: signal.Signals
) -> None:
    """P07, A04 (b): no token repeated, none missing, usage counted once."""

    def num_attempts() -> int:
        mark = bus.mark()
        with LiveStream(stack.url, STREAM, stack.keys["plain"]) as stream:
            request_id = stream.response.headers["x-request-id"]
            pieces = [stream.next_text() for _ in range(8)]
            lost = decoder_of(stack, bus, mark)
            lost.signal(how)
            try:
                *events, end = stream.rest()
            finally:
                revive(stack, lost)
        assert end == DONE
        assert "".join(pieces + deltas(events)) == whole
        assert [e["choices"][0]["finish_reason"] for e in events if e["choices"]][-1] == "length"
        assert events[-1]["usage"]["completion_tokens"] == 60
        return int(log_of(stack, request_id)["num_attempts"])

    eventually(lambda: num_attempts() >= 2, "a worker that is lost before it is done with all of it")


@pytest.mark.parametrize("who_tells", ["worker", "ingress"])
def test_stream_goes_on_elsewhere_when_its_engine_hangs_behind_a_worker_that_answers(
    tiny_model: Path, whole: str, who_tells: str
) -> None:
    """The worker's heartbeats and pongs go on; its engine makes no step. The worker says so, and gets nothing
    more; ingress notices too."""
    timeout_s = {"worker": "60", "ingress": "1"}[who_tells]
    with (
        slow_stack(
            tiny_model,
            STEP_S,
            SUB100_INGRESS_STEP_TIMEOUT_S=timeout_s,
            SUB100_SIM_HANG_AFTER_STEPS="12",
            SUB100_INGRESS_PATIENCE_MS=LASTING_MS,
        ) as stack,
        LiveStream(stack.url, STREAM, stack.keys["plain"]) as stream,
    ):
        pieces = [stream.next_text() for _ in range(5)]
        stack.add("decode", SUB100_SIM_HANG_AFTER_STEPS="0")
        *events, end = [event for event in stream.rest() if not isinstance(event, bytes)]
        if who_tells == "worker":
            hung = stack.replicas["decode-1"]
            eventually(lambda: "engine hangs" in hung.log, "the worker's own word")
            assert post(stack.url, STREAM, stack.keys["plain"]).status == 200
            assert "attempt lost" in stack.replicas["ingress-1"].log
    assert end == DONE
    assert "".join(pieces + deltas(events)) == whole


def test_only_worker_is_used_again_if_it_was_late_and_not_lost(tiny_model: Path, whole: str) -> None:
    """There is nobody else: a worker that ingress gave up too early must not cost its streams."""
    with (
        slow_stack(tiny_model, STEP_S, SUB100_INGRESS_PATIENCE_MS=LASTING_MS) as stack,
        LiveStream(stack.url, STREAM, stack.keys["plain"]) as stream,
    ):
        pieces = [stream.next_text() for _ in range(5)]
        decode, ingress = stack.replicas["decode-1"], stack.replicas["ingress-1"]
        decode.signal(signal.SIGSTOP)
        # It did not answer, or its heartbeats stopped.
        eventually(lambda: "attempt lost" in ingress.log, "decode given up")
        decode.signal(signal.SIGCONT)
        # An ingress that had heard no heartbeat of it yet took its time: comments kept the client alive.
        *events, end = [event for event in stream.rest() if not isinstance(event, bytes)]
    assert end == DONE
    assert "".join(pieces + deltas(events)) == whole


def test_body_without_a_stream_survives_a_lost_worker(stack: Stack, bus: BusWatch, whole: str) -> None:
    mark = bus.mark()
    client = LiveStream(stack.url, BODY, stack.keys["plain"])
    lost = decoder_of(stack, bus, mark)
    lost.signal(signal.SIGKILL)
    try:
        answer = client.response.read()
    finally:
        client.close()
        revive(stack, lost)
    assert client.response.status == 200
    assert whole.encode() in answer


def test_draining_worker_finishes_its_stream(stack: Stack, bus: BusWatch, whole: str) -> None:
    """N05: SIGTERM lets the answer end where it is."""
    mark = bus.mark()
    with LiveStream(stack.url, STREAM, stack.keys["plain"]) as stream:
        pieces = [stream.next_text() for _ in range(4)]
        drained = decoder_of(stack, bus, mark)
        drained.terminate()
        *events, end = stream.rest()
    assert drained.wait() == 0
    drained.start()
    stack.wait_ready(drained.instance)
    assert end == DONE
    assert "".join(pieces + deltas(events)) == whole
    assert len(bus.since(mark, ".decode.job.")) == 1


class Broken(NamedTuple):
    """Streams that had begun when every decode worker died."""

    body: dict[str, Any]
    events: list[Any]
    """What came after that, read raw, by a tenant with a cache."""
    error: openai.APIError
    """What the official client raised."""


@pytest.fixture(scope="module")
def broken(stack: Stack, whole: str) -> Broken:
    body = STREAM | {"stop": [whole[-6:]], "max_tokens": 200}
    decoders = [stack.replicas["decode-1"], stack.replicas["decode-2"]]
    with (
        openai.OpenAI(base_url=f"{stack.url}/v1", api_key=stack.keys["plain"], max_retries=0) as client,
        LiveStream(stack.url, body, stack.keys["demo"]) as raw,
        client.chat.completions.create(
            model=MODEL,
            messages=BODY["messages"],
            max_tokens=100,
            stream=True,
            extra_body={"ignore_eos": True},
        ) as official,
    ):
        next(official)
        for _ in range(4):
            raw.next_text()
        for decoder in decoders:
            decoder.signal(signal.SIGKILL)
        try:
            events = raw.rest()
            with pytest.raises(openai.APIError) as caught:
                list(official)
        finally:
            revive(stack, *decoders)
    return Broken(body, events, caught.value)


def test_stream_without_another_worker_ends_in_one_error_event(broken: Broken) -> None:
    """A04 (b): an error object last, no finish reason, no ``[DONE]``; the socket closes within seconds."""
    *events, last = broken.events
    assert set(last) == {"error", "request_id"}
    assert last["error"]["type"] == "server_error"
    assert last["error"]["code"] in ("worker_lost", "no_capacity")
    assert all(event["choices"][0]["finish_reason"] is None for event in events if isinstance(event, dict))
    assert DONE not in events


def test_official_client_raises_when_the_stream_breaks(broken: Broken) -> None:
    """A04 (b)."""
    assert broken.error.code in ("worker_lost", "no_capacity")


def test_answer_that_broke_never_enters_the_cache(stack: Stack, broken: Broken, whole: str) -> None:
    """C08, C09: with decode killed in mid stream the next one gets the whole answer, computed."""
    again = post(stack.url, broken.body, stack.keys["demo"])
    assert "cache" not in str(again.headers["x-sub100-tier"])
    assert again.text == whole[: whole.index(whole[-6:])]
    assert again.finish_reasons == ["stop"]


def test_loss_before_the_first_token_is_an_http_status_or_an_answer(stack: Stack, bus: BusWatch) -> None:
    """Nothing was said yet: the request goes elsewhere; with nobody left it is a 5xx with a code."""
    prefill = stack.replicas["prefill-1"]
    prefill.signal(signal.SIGKILL)
    prefill.wait()
    try:
        answer = post(stack.url, STREAM, stack.keys["plain"])
        assert answer.status == 200
        assert answer.events[-1] == DONE
    finally:
        prefill.start()
        stack.wait_ready("prefill-1")

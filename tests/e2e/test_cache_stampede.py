"""Equal cacheable questions at once: one generation, and everybody's own answer (C13)."""

import contextlib
import secrets
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.bus_watch import BusWatch, watching
from tests.e2e.raw_http import DONE, Answer, LiveStream, deltas, post
from tests.e2e.system import MODEL, PATIENT, log_of, sim_only
from tests.patience import NUM_TRIES
from tests.stack import Stack, running_stack

pytestmark = sim_only
NUM_CLIENTS = 100
FIFTY = 50
STEP_MS = 30


@pytest.fixture(scope="module")
def stack(tiny_model: Path) -> Iterator[Stack]:
    """Answers are slow enough for a crowd to gather during one."""
    env = {
        "SUB100_SIM_DELAY_MS": str(STEP_MS),
        "SUB100_SIM_ANSWER_MIN_TOKENS": "80",
        "SUB100_SIM_ANSWER_MAX_TOKENS": "100",
        "SUB100_INGRESS_BUDGET_MS": "20000",
    }
    with running_stack(tiny_model, engine="sim", env=PATIENT | env) as running:
        yield running


def body(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": secrets.token_hex(8)}]
    return {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 300} | fields


def rush(stack: Stack, requests: list[tuple[dict[str, Any], str]]) -> list[Answer]:
    """All at once."""
    gate = threading.Barrier(len(requests))

    def one(request: tuple[dict[str, Any], str]) -> Answer:
        gate.wait(30)
        return post(stack.url, request[0], stack.keys[request[1]])

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(one, requests))


def num_jobs(bus: BusWatch, mark: int) -> int:
    return len(bus.since(mark, ".prefill.job."))


def text_of(answer: Answer) -> str:
    assert answer.status == 200, answer.body
    if "event-stream" in answer.headers["content-type"]:
        assert answer.events[-1] == DONE
        assert answer.finish_reasons == ["stop"]
        return answer.text
    choice = answer.json["choices"][0]
    assert choice["finish_reason"] == "stop"
    text: str = choice["message"]["content"]
    return text


def test_hundred_equal_questions_are_generated_once(stack: Stack, bus: BusWatch) -> None:
    question = body()
    forms: list[dict[str, Any]] = [
        {},
        {"stream": True},
        {"stream": True, "stream_options": {"include_usage": True}},
    ]
    mark = bus.mark()
    answers = rush(stack, [(question | forms[i % 3], "demo") for i in range(NUM_CLIENTS)])
    assert num_jobs(bus, mark) == 1
    bus.wait(lambda: bool(bus.since(mark, ".cache.fill.")), "the fill")
    bus.wait_idle("prefill-1", "decode-1")
    assert len(bus.since(mark, ".cache.fill.")) == 1
    assert len({text_of(answer) for answer in answers}) == 1
    outcomes = Counter(answer.headers["x-sub100-cache"] for answer in answers)
    assert outcomes["miss"] == 1
    assert outcomes["joined"] > NUM_CLIENTS / 2
    assert outcomes["exact"] == NUM_CLIENTS - 1 - outcomes["joined"]  # whoever came after its end
    bodies = [answer.json for answer in answers[::3]]
    assert len({each["id"] for each in bodies}) == len(bodies)
    assert len({each["usage"]["completion_tokens"] for each in bodies}) == 1
    with_usage = [answer.chunks[-1] for answer in answers[2::3]]
    assert {chunk["usage"]["total_tokens"] for chunk in with_usage} == {bodies[0]["usage"]["total_tokens"]}


def test_tenants_never_share_a_flight(stack: Stack, bus: BusWatch) -> None:
    question = body()
    mark = bus.mark()
    answers = rush(stack, [(question, tenant) for tenant in ("demo", "other") * 8])
    assert num_jobs(bus, mark) == 2
    assert len({text_of(answer) for answer in answers}) == 1


def test_requests_that_are_not_cacheable_run_each_for_itself(stack: Stack, bus: BusWatch) -> None:
    question = body(max_tokens=4, ignore_eos=True)
    mark = bus.mark()
    rush(stack, [(question, "plain")] * 6)
    assert num_jobs(bus, mark) == 6


def test_first_client_that_leaves_takes_nobody_with_it(stack: Stack, bus: BusWatch) -> None:
    question = body(stream=True)
    mark = bus.mark()
    with LiveStream(stack.url, question, stack.keys["demo"]) as first:
        said = first.next_text()
        with LiveStream(stack.url, question, stack.keys["demo"]) as second:
            assert second.response.headers["x-sub100-cache"] == "joined"
            first_id = first.response.headers["x-request-id"]
            first.reset()
            assert log_of(stack, first_id or "")["code"] == "cancelled"
            events = second.rest()
    assert events[-1] == DONE
    text = "".join(deltas(event for event in events if isinstance(event, dict)))
    assert text.startswith(said)
    assert num_jobs(bus, mark) == 1
    bus.wait(lambda: bool(bus.since(mark, ".cache.fill.")), "the fill: the answer is whole")


def test_first_of_fifty_that_leaves_costs_the_others_nothing(stack: Stack, bus: BusWatch) -> None:
    """C13: cold, all at once; one generation, and forty-nine whole and equal answers."""
    question = body(stream=True)
    with contextlib.ExitStack() as crowd:
        mark = bus.mark()
        first = crowd.enter_context(LiveStream(stack.url, question, stack.keys["demo"]))
        others = [
            crowd.enter_context(LiveStream(stack.url, question, stack.keys["demo"])) for _ in range(FIFTY - 1)
        ]
        said = first.next_text()
        first.reset()
        endings = [stream.rest() for stream in others]
        assert num_jobs(bus, mark) == 1
        bus.wait(lambda: bool(bus.since(mark, ".cache.fill.")), "the fill: the answer is whole")
    assert all(events[-1] == DONE for events in endings)
    texts = {"".join(deltas(event for event in events if isinstance(event, dict))) for events in endings}
    assert len(texts) == 1
    assert texts.pop().startswith(said)
    assert {stream.response.headers["x-sub100-cache"] for stream in others} <= {"joined", "exact"}


def test_generation_ends_when_the_last_client_leaves(stack: Stack, bus: BusWatch) -> None:
    question = body(stream=True, max_tokens=2000, ignore_eos=True)
    mark = bus.mark()
    streams = [LiveStream(stack.url, question, stack.keys["demo"]) for _ in range(3)]
    for stream in streams:
        stream.next_text()
    for stream in streams:
        stream.reset()
    bus.wait_idle("prefill-1", "decode-1")
    assert num_jobs(bus, mark) == 1
    assert bus.since(mark, ".cache.fill.") == []


def test_lost_generation_is_begun_again_for_those_who_wait(tiny_model: Path) -> None:
    """One attempt each: alone, a request whose worker dies is lost; a crowd gets one more generation."""
    env = {
        "SUB100_SIM_DELAY_MS": "300",
        "SUB100_SIM_ANSWER_MAX_TOKENS": "8",
        "SUB100_INGRESS_MAX_ATTEMPTS": "1",
    }
    with (
        running_stack(tiny_model, engine="sim", num_prefill=2, env=PATIENT | env) as stack,
        watching(stack) as bus,
    ):

        def num_generations() -> int:
            question, mark = body(stream=True), bus.mark()
            streams = [LiveStream(stack.url, question, stack.keys["demo"]) for _ in range(3)]
            bus.wait(lambda: num_jobs(bus, mark) == 1, "the job")
            [job] = bus.since(mark, ".prefill.job.")
            lost = stack.replicas[job.subject.rpartition(".")[2]]
            lost.signal(signal.SIGKILL)
            for stream in streams:
                assert stream.rest()[-1] == DONE
                stream.close()
            lost.wait()
            lost.start()
            stack.wait_ready(lost.instance)
            return num_jobs(bus, mark)

        for _ in range(NUM_TRIES):  # on a busy machine the first token may be there before the kill
            if (num := num_generations()) > 1:
                break
        assert num == 2

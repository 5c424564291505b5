"""Other weights under the same name: what the old ones said is not an answer of the new ones."""

from pathlib import Path

from tests.e2e.bus_watch import watching
from tests.e2e.raw_http import Answer, post
from tests.e2e.system import MODEL, PATIENT, log_of, sim_only
from tests.stack import Stack, running_stack

pytestmark = sim_only
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 200}
ENV = {"SUB100_SIM_REVISION": "aaaaaaaaaaaa", "SUB100_SIM_ANSWER_MAX_TOKENS": "8", **PATIENT}


def outcome(answer: Answer) -> str:
    assert answer.status == 200, answer.body
    return answer.headers["x-sub100-cache"]


def ask_until_hit(stack: Stack) -> Answer:
    """The fill is on its way when the first answer has ended."""
    for _ in range(50):
        answer = post(stack.url, BODY, stack.keys["demo"])
        if outcome(answer) == "exact":
            return answer
    raise AssertionError("never a hit")


def test_answers_of_other_weights_are_not_found_after_workers_changed(tiny_model: Path) -> None:
    with running_stack(tiny_model, engine="sim", env=ENV) as stack:
        first = post(stack.url, BODY, stack.keys["demo"])
        assert outcome(first) == "miss"
        hit = ask_until_hit(stack)
        workers = [one for one in stack.replicas.values() if one.service in ("prefill", "decode")]
        for worker in workers:
            worker.stop()
            worker.env["SUB100_SIM_REVISION"] = "bbbbbbbbbbbb"
            worker.start()
        names = [worker.instance for worker in workers]
        stack.wait_ready(*names, timeout_s=30)
        with watching(stack) as bus:
            bus.wait_idle(*names)
        tuned = post(stack.url, BODY, stack.keys["demo"])
        assert outcome(tuned) == "miss"
        lines = [log_of(stack, answer.headers["x-request-id"]) for answer in (first, hit, tuned)]
        revisions = [line["model_revision"] for line in lines]
        assert revisions[0] == revisions[1] != revisions[2]
        assert len(lines[0]["cache_scope"]) == 64

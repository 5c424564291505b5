"""Other weights under the same name: what the old ones said is not an answer of the new ones."""

from pathlib import Path

from tests.e2e.raw_http import Answer, post
from tests.e2e.system import MODEL, PATIENT, log_of, sim_only
from tests.patience import eventually
from tests.stack import Stack, running_stack

pytestmark = sim_only
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 200}
ENV = {"SUB100_SIM_REVISION": "aaaaaaaaaaaa", "SUB100_SIM_ANSWER_MAX_TOKENS": "8", **PATIENT}


def outcome(answer: Answer) -> str:
    assert answer.status == 200, answer.body
    return answer.headers["x-sub100-cache"]


def revision(stack: Stack, answer: Answer) -> str:
    return str(log_of(stack, answer.headers["x-request-id"])["model_revision"])


def test_answers_of_other_weights_are_not_found_after_workers_changed(tiny_model: Path) -> None:
    with running_stack(tiny_model, engine="sim", env=ENV) as stack:
        first = post(stack.url, BODY, stack.keys["demo"])
        assert outcome(first) == "miss"

        def hit() -> bool:
            """The fill is on its way when the first answer has ended."""
            answer = post(stack.url, BODY, stack.keys["demo"])
            assert revision(stack, answer) == revision(stack, first)
            return outcome(answer) == "exact"

        eventually(hit, "a hit")
        workers = [one for one in stack.replicas.values() if one.service in ("prefill", "decode")]
        for worker in workers:
            worker.stop()
            worker.env["SUB100_SIM_REVISION"] = "bbbbbbbbbbbb"
            worker.start()
        stack.wait_ready(*(worker.instance for worker in workers))

        def tuned() -> Answer | None:
            """Once ingress has heard of the new ones."""
            answer = post(stack.url, BODY, stack.keys["demo"])
            return answer if revision(stack, answer) != revision(stack, first) else None

        assert outcome(eventually(tuned, "an answer of the new weights")) == "miss"
        assert len(log_of(stack, first.headers["x-request-id"])["cache_scope"]) == 64

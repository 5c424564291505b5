"""An engine that makes no step is told from one that computes something long, and from a late observer."""

import math

import pytest

from sub100_engine.worker.step_watch import MAX_STILL_S, MIN_STILL_S, STILL_STEPS, StepWatch
from sub100_proto.fleet import Load

BEAT_S = 0.5


class Engine:
    """Looked at every ``BEAT_S``; makes ``rate`` steps a second."""

    def __init__(self) -> None:
        self.watch = StepWatch(BEAT_S)
        self.now_s = 100.0
        self.step = 0

    def run(
        self, s: float, *, rate: float, num_running: int = 1, num_waiting: int = 0, prompt_step_s: float = 0.0
    ) -> None:
        begun, first = self.now_s, self.step
        for look in range(1, round(s / BEAT_S) + 1):
            self.now_s = begun + look * BEAT_S
            self.step = first + int(look * BEAT_S * rate)
            self.look(num_running, num_waiting, prompt_step_s=prompt_step_s)

    def look(self, num_running: int = 1, num_waiting: int = 0, *, prompt_step_s: float = 0.0) -> None:
        load = Load(num_running=num_running, num_waiting=num_waiting, step=self.step)
        self.watch.look(load, prompt_step_s=prompt_step_s, now_s=self.now_s)


@pytest.fixture
def engine() -> Engine:
    engine = Engine()
    engine.run(10, rate=40)
    return engine


def test_decoding_engine_that_stands_still_hangs_until_it_steps_again(engine: Engine) -> None:
    engine.run(MIN_STILL_S, rate=0)
    assert not engine.watch.fault
    engine.run(BEAT_S, rate=0)
    assert "no step, with 1 requests and 0 pinned blocks in it" in engine.watch.fault
    engine.run(60, rate=0, num_running=0)
    assert engine.watch.fault, "having nothing to do mends nobody"
    engine.run(BEAT_S, rate=2)
    assert not engine.watch.fault


def test_engine_that_hung_before_it_heard_of_its_first_request_is_found(engine: Engine) -> None:
    engine.run(60, rate=0, num_running=0)
    engine.run(MIN_STILL_S + 2 * BEAT_S, rate=0, num_running=0, num_waiting=1)
    assert engine.watch.fault


def test_engine_that_hangs_while_it_only_holds_kv_for_others_is_found(engine: Engine) -> None:
    load = Load(step=engine.step, num_pinned_blocks=4)
    for _ in range(round(MIN_STILL_S / BEAT_S) + 2):
        engine.now_s += BEAT_S
        engine.watch.look(load, prompt_step_s=0.0, now_s=engine.now_s)
    assert "0 requests and 4 pinned blocks" in engine.watch.fault


def test_engine_with_a_prompt_that_takes_nobody_knows_how_long_may_take_longest(engine: Engine) -> None:
    engine.run(MAX_STILL_S, rate=0, prompt_step_s=math.inf)
    assert not engine.watch.fault
    engine.run(BEAT_S, rate=0, prompt_step_s=math.inf)
    assert engine.watch.fault


def test_engine_with_a_prompt_to_compute_is_given_five_times_what_it_should_take(engine: Engine) -> None:
    engine.run(STILL_STEPS * 0.8, rate=0, prompt_step_s=0.8)
    assert not engine.watch.fault
    engine.run(BEAT_S, rate=0, prompt_step_s=0.8)
    assert engine.watch.fault


def test_engine_whose_prompts_are_quick_is_given_no_longer_than_one_that_decodes(engine: Engine) -> None:
    engine.run(MIN_STILL_S, rate=0, prompt_step_s=0.05)
    assert not engine.watch.fault
    engine.run(BEAT_S, rate=0, prompt_step_s=0.05)
    assert engine.watch.fault


def test_engine_whose_steps_are_long_is_given_as_much_longer(engine: Engine) -> None:
    engine.run(10, rate=1 / 0.8)  # 0.8 s each; seen in halves of a second
    longest_s = 1.0
    engine.run(STILL_STEPS * longest_s - BEAT_S, rate=0)
    assert not engine.watch.fault
    engine.run(2 * BEAT_S, rate=0)
    assert engine.watch.fault


def test_idle_engine_makes_no_step_and_is_well(engine: Engine) -> None:
    engine.run(600, rate=0, num_running=0)
    assert not engine.watch.fault
    engine.run(MIN_STILL_S, rate=0)
    assert not engine.watch.fault, "its first step has only begun"


def test_worker_that_stood_still_itself_blames_nobody(engine: Engine) -> None:
    engine.now_s += 30
    engine.look()
    engine.run(MIN_STILL_S, rate=0)
    assert not engine.watch.fault
    engine.run(BEAT_S, rate=0)
    assert engine.watch.fault

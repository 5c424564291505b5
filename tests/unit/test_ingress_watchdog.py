import pytest

from sub100_ingress.attempts import Attempt, AttemptLost, AttemptTable
from sub100_ingress.watchdog import Watchdog
from sub100_proto import codec
from sub100_proto.fleet import Heartbeat, Load
from sub100_proto.placement import WorkerRef
from sub100_proto.stream import FirstToken, Timing, Tokens
from sub100_shared.bus import Incoming


class Lab:
    """A watchdog over one attempt, on a clock that the test moves."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.table = AttemptTable()
        self.attempt = Attempt(WorkerRef(worker_id="w1", epoch=7), "decode", 1, 100)
        self.table.add(self.attempt)
        self.dog = Watchdog(
            self.table, lambda: self.ms, keep_alive_s=15, first_token_timeout_s=60, stall_timeout_s=20
        )
        self.dog.look()

    def after(self, ms: float) -> None:
        self.ms += ms
        self.dog.look()

    def beat(self, epoch: int = 7) -> None:
        heartbeat = Heartbeat(
            worker_id="w1",
            role="decode",
            epoch=epoch,
            state="ready",
            model="m",
            layout="l",
            block_size=32,
            num_blocks=1,
            max_model_len=1,
            max_num_seqs=1,
            max_chunk_tokens=1,
            load=Load(),
            interval_s=0.5,
        )
        self.dog.on_heartbeat(Incoming("s", codec.encode(heartbeat), "", {}))

    async def is_lost(self) -> str:
        self.attempt.poke()
        try:
            while self.attempt._events:
                await self.attempt.next()
            if self.attempt._lost is not None:
                await self.attempt.next()
        except AttemptLost as lost:
            return lost.code
        return ""


async def test_watchdog_loses_an_attempt_whose_worker_stopped_beating() -> None:
    lab = Lab()
    lab.beat()
    lab.after(1_900)
    assert await lab.is_lost() == ""
    lab.after(200)
    assert await lab.is_lost() == "worker_lost"


async def test_watchdog_loses_an_attempt_whose_worker_came_back_as_another_life() -> None:
    lab = Lab()
    lab.beat(epoch=8)
    lab.after(10)
    assert await lab.is_lost() == "worker_lost"


async def test_watchdog_does_not_judge_a_worker_that_it_never_heard() -> None:
    lab = Lab()
    lab.after(10_000)
    assert await lab.is_lost() == ""


async def test_watchdog_loses_a_stream_that_stalls_after_a_token() -> None:
    lab = Lab()
    lab.attempt.accept(Tokens("", 1, (5,)))
    lab.after(10)
    lab.after(19_900)
    assert await lab.is_lost() == ""
    lab.after(200)
    assert await lab.is_lost() == "worker_lost"


async def test_watchdog_waits_longer_for_a_first_token_and_then_gives_up() -> None:
    lab = Lab()
    for _ in range(5):
        lab.after(11_900)
    assert await lab.is_lost() == ""
    lab.after(1_000)
    assert await lab.is_lost() == "deadline_exceeded"


@pytest.mark.parametrize(("quiet_ms", "expected"), [(14_900, 0), (15_100, 1), (31_000, 2)])
async def test_watchdog_pokes_for_keep_alives_at_their_interval(quiet_ms: float, expected: int) -> None:
    lab = Lab()
    pokes: list[None] = []
    lab.attempt.poke = lambda: pokes.append(None)  # type: ignore[method-assign]
    passed = 0.0
    lab.after(10)
    while passed < quiet_ms:
        step = min(250.0, quiet_ms - passed)
        lab.after(step)
        passed += step
    assert len(pokes) == expected


async def test_watchdog_counts_silence_from_the_last_event() -> None:
    lab = Lab()
    lab.attempt.accept(Tokens("", 1, (5,)))
    for position in range(2, 6):
        lab.after(15_000)
        lab.attempt.accept(Tokens("", position, (5,)))
    lab.after(10)
    assert await lab.is_lost() == ""


async def test_first_event_ends_the_wait_for_a_first_token() -> None:
    lab = Lab()
    attempt = Attempt(WorkerRef(worker_id="w2", epoch=1), "prefill", 0, 10)
    lab.table.add(attempt)
    attempt.accept(FirstToken("", 3, 0, Timing()))
    assert attempt.has_token


async def test_watchdog_asks_again_while_a_gap_is_open_even_if_later_tokens_come() -> None:
    lab = Lab()
    lab.attempt.accept(Tokens("", 3, (5,)))
    assert lab.attempt.take_gap() == 1
    lab.after(250)
    asked = [lab.attempt.take_gap()]
    for position in range(4, 12):
        lab.attempt.accept(Tokens("", position, (5,)))
        lab.after(250)
        asked.append(lab.attempt.take_gap())
    assert [position for position in asked if position is not None] == [1] * 5
    lab.attempt.accept(Tokens("", 1, (5, 5)))
    lab.after(1_000)
    assert lab.attempt.take_gap() is None


async def test_watchdog_loses_a_stream_whose_gap_never_closes() -> None:
    lab = Lab()
    lab.attempt.accept(Tokens("", 1, (5,)))
    lab.after(10)
    for position in range(5, 95):
        lab.attempt.accept(Tokens("", position, (5,)))
        lab.after(250)
    assert await lab.is_lost() == "worker_lost"

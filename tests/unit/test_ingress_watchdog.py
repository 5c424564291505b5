import msgspec
import pytest

from sub100_ingress.attempts import Attempt, AttemptLost, AttemptTable
from sub100_ingress.liveness import GRACE_MS, Liveness
from sub100_ingress.strays import Stray, Strays
from sub100_ingress.watchdog import SILENT_INTERVAL_MS, Watchdog
from sub100_proto import codec, subjects
from sub100_proto.fleet import Heartbeat, Load, State
from sub100_proto.jobs import Accepted, Pong
from sub100_proto.placement import WorkerRef
from sub100_proto.stream import FirstToken, Timing, Tokens
from sub100_shared.bus import Incoming

_IDLE = Load()


class Lab:
    """A watchdog over one attempt, on a clock that the test moves."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.is_beating = False
        """The worker beats at every look."""
        self.strays = Strays(lambda: self.ms)
        self.table = AttemptTable(self.strays)
        self.attempt = Attempt(WorkerRef(worker_id="w1", epoch=7), "decode", 1, 100)
        self.table.add(self.attempt)
        self.liveness = Liveness(lambda: self.ms)
        self.dog = Watchdog(
            self.table,
            self.liveness,
            self.strays,
            self.ping,
            self.stop,
            lambda: self.ms,
            keep_alive_s=15,
            first_token_timeout_s=60,
            stall_timeout_s=20,
            step_timeout_s=8,
        )
        self.dog.look()

    async def ping(self, worker_id: str, role: str) -> None:
        raise AssertionError("run() is not running")

    async def stop(self, stray: Stray) -> None:
        raise AssertionError("run() is not running")

    def after(self, ms: float) -> None:
        """Time passes with a look every 100 ms, as in life."""
        end = self.ms + ms
        while self.ms < end:
            self.ms = min(end, self.ms + 100)
            if self.is_beating:
                self.beat()
            self.dog.look()

    def asked(self) -> list[tuple[str, str]]:
        return list(self.liveness.take_to_ask())

    def pong(self, status: str = "") -> None:
        subject = subjects.stream_pong("local", "in-1", "w1")
        data = b"" if status else codec.encode(Pong(epoch=7))
        self.liveness.on_pong(Incoming(subject, data, "", {"Status": status} if status else {}))

    def beat(
        self,
        epoch: int = 7,
        answers_pings: bool = False,
        load: Load = _IDLE,
        worker_id: str = "w1",
        state: State = "ready",
    ) -> None:
        heartbeat = Heartbeat(
            worker_id=worker_id,
            role="decode",
            epoch=epoch,
            state=state,
            model="m",
            layout="l",
            block_size=32,
            num_blocks=1,
            max_model_len=1,
            max_num_seqs=1,
            max_chunk_tokens=1,
            load=load,
            interval_s=0.5,
            answers_pings=answers_pings,
        )
        self.liveness.on_heartbeat(heartbeat)

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


class Handed(Lab):
    """Its attempt waits for the KV of another worker."""

    def __init__(self, *, answers_pings: bool = False) -> None:
        super().__init__()
        self.attempt.source = WorkerRef(worker_id="p1", epoch=7)
        self.beat()
        self.beat(worker_id="p1", answers_pings=answers_pings)

    def without_source(self, ms: float) -> None:
        """Time passes, and only the attempt's own worker beats."""
        for _ in range(int(ms / 100)):
            self.beat()
            self.after(100)


async def test_watchdog_gives_kv_up_whose_worker_stopped_beating() -> None:
    lab = Handed()
    lab.without_source(1_900)
    assert await lab.is_lost() == ""
    lab.without_source(300)
    assert await lab.is_lost() == "kv_expired"


async def test_watchdog_gives_kv_up_whose_worker_says_that_its_engine_hangs() -> None:
    lab = Handed()
    lab.beat(worker_id="p1", state="draining")
    lab.after(100)
    assert await lab.is_lost() == ""
    lab.beat(worker_id="p1", state="starting")
    lab.after(100)
    assert await lab.is_lost() == "kv_expired"


async def test_watchdog_has_the_worker_asked_whose_kv_does_not_come() -> None:
    lab = Handed(answers_pings=True)
    lab.without_source(200)
    assert lab.asked() == [("p1", "prefill")]
    lab.without_source(900)
    assert await lab.is_lost() == ""
    lab.without_source(300)
    assert await lab.is_lost() == "kv_expired"


async def test_watchdog_does_not_mind_the_end_of_a_worker_whose_kv_has_come() -> None:
    lab = Handed()
    lab.attempt.accept(Tokens("", 1, (5,)))
    for _ in range(30):
        lab.attempt.is_live = True
        lab.without_source(100)
    assert await lab.is_lost() == ""


async def test_watchdog_judges_a_worker_that_it_never_heard_from_its_first_silence_on() -> None:
    """This ingress is new, or the worker died too soon."""
    lab = Lab()
    for position in range(1, 40):
        lab.attempt.accept(Tokens("", position, (5,)))
        lab.after(100)
    assert await lab.is_lost() == ""
    lab.after(2_000)
    assert await lab.is_lost() == ""
    lab.after(500)
    assert await lab.is_lost() == "worker_lost"


async def test_watchdog_keeps_a_silent_worker_whose_first_heartbeat_comes() -> None:
    lab = Lab()
    lab.after(1_900)
    lab.is_beating = True
    lab.after(5_000)
    assert await lab.is_lost() == ""


async def test_watchdog_loses_a_stream_that_stalls_after_a_token() -> None:
    lab = Lab()
    lab.is_beating = True
    lab.attempt.accept(Tokens("", 1, (5,)))
    lab.after(10)
    lab.after(19_900)
    assert await lab.is_lost() == ""
    lab.after(200)
    assert await lab.is_lost() == "worker_lost"


async def test_watchdog_waits_longer_for_a_first_token_and_then_gives_up() -> None:
    lab = Lab()
    lab.is_beating = True
    for _ in range(5):
        lab.after(11_900)
    assert await lab.is_lost() == ""
    lab.after(1_000)
    assert await lab.is_lost() == "deadline_exceeded"


@pytest.mark.parametrize(("quiet_ms", "expected"), [(14_900, 0), (15_100, 1), (31_000, 2)])
async def test_watchdog_pokes_for_keep_alives_at_their_interval(quiet_ms: float, expected: int) -> None:
    lab = Lab()
    lab.is_beating = True
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
    lab.is_beating = True
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


async def test_watchdog_asks_for_what_a_silent_attempt_may_have_lost() -> None:
    """A prefill has one event, and a stream one last: nothing after them shows that they are missing."""
    lab = Lab()
    lab.is_beating = True
    lab.after(10 * SILENT_INTERVAL_MS)
    assert lab.attempt.take_gap() is None, "its claim is yet to come"
    lab.attempt.claim(Accepted(worker_id="w1", epoch=7))
    asked = []
    for _ in range(100):
        lab.after(SILENT_INTERVAL_MS / 20)
        asked.append(lab.attempt.take_gap())
    assert [position for position in asked if position is not None] == [1] * 5
    lab.attempt.accept(Tokens("", 1, (5,)))
    lab.after(SILENT_INTERVAL_MS - 200)
    assert lab.attempt.take_gap() is None


async def test_watchdog_loses_a_stream_whose_gap_never_closes() -> None:
    lab = Lab()
    lab.attempt.accept(Tokens("", 1, (5,)))
    lab.after(10)
    for position in range(5, 95):
        lab.attempt.accept(Tokens("", position, (5,)))
        lab.after(250)
    assert await lab.is_lost() == "worker_lost"


async def test_watchdog_asks_a_worker_whose_streams_stand_still_once_at_a_time() -> None:
    lab = Lab()
    lab.beat(answers_pings=True)
    lab.after(100)
    assert lab.asked() == []
    lab.after(200)
    assert lab.asked() == [("w1", "decode")]
    lab.pong()
    lab.after(100)
    assert lab.asked() == []
    lab.after(200)
    assert lab.asked() == [("w1", "decode")]
    assert await lab.is_lost() == ""


async def test_watchdog_never_asks_a_worker_that_does_not_know_how_to_answer() -> None:
    lab = Lab()
    lab.beat()
    lab.after(1_000)
    assert lab.asked() == []
    assert await lab.is_lost() == ""


async def test_watchdog_asks_nobody_while_tokens_come() -> None:
    lab = Lab()
    for position in range(1, 20):
        lab.beat(answers_pings=True)
        lab.attempt.accept(Tokens("", position, (5,)))
        lab.after(100)
    assert lab.asked() == []


async def test_killed_worker_is_lost_within_half_a_second() -> None:
    """NATS says that nobody listens: twice, for the first may be a connection's moment of absence."""
    lab = Lab()
    lab.beat(answers_pings=True)
    lab.after(300)
    assert len(lab.asked()) == 1
    lab.pong("503")
    lab.after(100)
    assert len(lab.asked()) == 1
    assert await lab.is_lost() == ""
    lab.pong("503")
    lab.after(100)
    lab.dog.look()
    assert await lab.is_lost() == "worker_lost"
    assert lab.ms <= 500


@pytest.mark.parametrize(("has_token", "within_ms"), [(True, 1_000), (False, 1_500)])
async def test_hung_worker_is_lost_within_a_second_of_a_streams_pause(
    has_token: bool, within_ms: float
) -> None:
    lab = Lab()
    lab.beat(answers_pings=True)
    if has_token:
        lab.attempt.accept(Tokens("", 1, (5,)))
    lab.after(within_ms - 400)
    assert await lab.is_lost() == ""
    lab.after(400)
    assert await lab.is_lost() == "worker_lost"


async def test_worker_that_is_late_but_beats_is_kept() -> None:
    lab = Lab()
    for _ in range(20):
        lab.beat(answers_pings=True)
        lab.after(300)
    assert await lab.is_lost() == ""


async def test_worker_that_comes_back_is_lost_no_more() -> None:
    lab = Lab()
    lab.beat(answers_pings=True)
    lab.after(1_500)
    assert await lab.is_lost() == "worker_lost"
    lab.beat(answers_pings=True)
    again = Attempt(WorkerRef(worker_id="w1", epoch=7), "decode", 1, 100)
    lab.table.remove(lab.attempt)
    lab.table.add(again)
    lab.after(100)
    assert again._lost is None


@pytest.mark.parametrize("after_stall", [False, True])
async def test_workers_are_not_blamed_for_what_ingress_could_not_hear(after_stall: bool) -> None:
    """Its link to the bus was away, or it stood still itself."""
    lab = Lab()
    lab.beat(answers_pings=True)
    lab.after(300)
    if after_stall:
        lab.ms += 5_000
        lab.dog.look()
    else:
        lab.liveness.on_bus_state(False)
        lab.after(1_900)
        lab.liveness.on_bus_state(True)
    lab.after(GRACE_MS - 100)
    assert await lab.is_lost() == ""
    lab.beat(answers_pings=True)
    lab.after(1_500)
    assert await lab.is_lost() == "worker_lost"


@pytest.mark.parametrize("has_token", [False, True])
@pytest.mark.parametrize(
    ("steps_per_beat", "load", "expected"),
    [
        (0, Load(num_running=1), "worker_lost"),
        (0, Load(num_waiting=1), "worker_lost"),
        (1, Load(num_running=1), ""),
        (0, Load(), ""),
    ],
)
async def test_worker_that_answers_for_an_engine_that_hangs_is_lost(
    has_token: bool, steps_per_beat: int, load: Load, expected: str
) -> None:
    lab = Lab()
    if has_token:
        lab.attempt.accept(Tokens("", 1, (5,)))
    for number in range(18):
        lab.beat(load=msgspec.structs.replace(load, step=7 + number * steps_per_beat))
        lab.after(500)
        assert number > 15 or await lab.is_lost() == ""
    assert await lab.is_lost() == expected


async def test_stream_looks_for_another_place_when_the_bus_stays_away() -> None:
    lab = Lab()
    lab.beat(answers_pings=True)
    lab.liveness.on_bus_state(False)
    lab.after(1_900)
    assert await lab.is_lost() == ""
    lab.after(300)
    assert await lab.is_lost() == "worker_lost"

"""Workers that leave, die, hang or lose the bus: what ingress sees, and how the processes end."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path

from tests.integration.worker_fleet import Attempt, Fleet, Ingress, Worker
from tests.patience import NUM_TRIES, PATIENCE_S
from tests.servers import Server

from sub100_engine.worker.shell import HEARTBEAT_S, LAPSE_S
from sub100_engine.worker.step_watch import MAX_STILL_S
from sub100_proto.jobs import Accepted, Busy, Resend
from sub100_shared.bus import Bus

SLOW = {"SIM_DELAY_MS": "15"}


def prompt(num_tokens: int) -> list[int]:
    return [5 + 3 * i for i in range(num_tokens)]


def code(attempt: Attempt) -> str:
    return attempt.failure.code if attempt.failure is not None else ""


async def back(worker: Worker, epoch: int) -> None:
    """The worker, which lost the bus for too long, is there in another life."""
    await worker.beat(lambda beat: beat.epoch > epoch and beat.state == "ready")


async def streaming(ingress: Ingress, worker: Worker, max_tokens: int) -> Attempt:
    """A stream that has begun."""
    attempt = await ingress.send(worker, ingress.decode_job(worker, prompt(20), max_tokens=max_tokens))
    await ingress.has_tokens(attempt, 2)
    return attempt


# -- leaving in order


async def test_workers_lose_no_token_when_they_drain(fleet: Fleet, ingress: Ingress) -> None:
    decode = await fleet.start("decode", **SLOW)
    running = [await streaming(ingress, decode, 60) for _ in range(4)]
    decode.send_signal(signal.SIGTERM)
    await decode.beat(lambda beat: beat.state == "draining")
    late = await ingress.claimed(await ingress.send(decode, ingress.decode_job(decode, prompt(5))))
    assert late == Busy(worker_id=decode.worker_id, epoch=decode.epoch, code="draining")
    for attempt in running:
        await ingress.over(attempt)
        assert len(attempt.ids()) == 60
        assert attempt.tokens[-1].finish_reason == "length"
    assert await decode.exited() == 0
    await decode.beat(lambda beat: beat.state == "stopped")


async def test_workers_fail_what_is_left_when_the_drain_takes_too_long(
    fleet: Fleet, ingress: Ingress
) -> None:
    decode = await fleet.start("decode", DRAIN_TIMEOUT_S="0.3", **SLOW)
    endless = await streaming(ingress, decode, 5000)
    decode.send_signal(signal.SIGTERM)
    await ingress.over(endless)
    assert code(endless) == "draining"
    assert len(endless.ids()) >= 2
    assert await decode.exited() == 0


async def test_workers_drain_waits_until_handed_over_kv_is_pulled(fleet: Fleet, ingress: Ingress) -> None:
    prefill, decode = await fleet.start("prefill"), await fleet.start("decode")
    ids = prompt(70)
    first = await ingress.prefilled(prefill, ids)
    prefill.send_signal(signal.SIGTERM)
    await prefill.beat(lambda beat: beat.state == "draining")
    rest = await ingress.send(decode, ingress.decode_job(decode, ids, output=[first.token], kv=first.kv))
    await ingress.over(rest)
    assert rest.tokens[0].transferred_tokens == 70
    assert len(rest.ids()) == 15
    assert await prefill.exited() == 0


# -- dying


async def test_workers_that_died_are_told_as_no_responders(fleet: Fleet, ingress: Ingress) -> None:
    decode = await fleet.start("decode")
    decode.send_signal(signal.SIGKILL)
    await decode.exited()
    attempts: list[Attempt] = []

    # The server needs a moment to see that the connection is gone.
    async with asyncio.timeout(PATIENCE_S):
        while not any(attempt.has_no_responders for attempt in attempts):
            attempts.append(await ingress.send(decode, ingress.decode_job(decode, prompt(5))))
            await asyncio.sleep(0.01)
    assert all(not attempt.claims for attempt in attempts)


async def test_workers_fail_a_decode_whose_prefill_was_killed_before_the_pull(
    fleet: Fleet, ingress: Ingress
) -> None:
    prefill, decode = await fleet.start("prefill"), await fleet.start("decode")
    ids = prompt(70)
    first = await ingress.prefilled(prefill, ids)
    prefill.send_signal(signal.SIGKILL)
    await prefill.exited()
    rest = await ingress.send(decode, ingress.decode_job(decode, ids, output=[first.token], kv=first.kv))
    await ingress.over(rest)
    assert code(rest) == "kv_load_failed"
    assert rest.tokens == []
    again = await ingress.over(
        await ingress.send(decode, ingress.decode_job(decode, ids, output=[first.token]))
    )
    assert len(again.ids()) == 15


async def test_workers_tell_every_stream_and_exit_when_the_engine_dies(
    fleet: Fleet, ingress: Ingress
) -> None:
    decode = await fleet.start("decode", SIM_DIE_AFTER_STEPS="20", **SLOW)
    streams = [await streaming(ingress, decode, 5000) for _ in range(2)]
    for stream in streams:
        await ingress.over(stream)
        assert code(stream) == "worker_lost"
        assert len(stream.ids()) >= 2
    assert await decode.exited() == 1


async def test_workers_exit_at_once_when_a_dead_engine_still_had_leases(
    fleet: Fleet, ingress: Ingress
) -> None:
    prefill = await fleet.start("prefill", SIM_DIE_AFTER_STEPS="2")
    first = await ingress.prefilled(prefill, prompt(10))
    assert first.kv is not None
    await ingress.send(prefill, ingress.prefill_job(prefill, prompt(11)))
    assert await prefill.exited() == 1


async def test_worker_whose_engine_hangs_gives_up_its_streams_takes_no_more_and_drains_at_once(
    fleet: Fleet, ingress: Ingress
) -> None:
    decode = await fleet.start("decode", SIM_HANG_AFTER_STEPS="5", DRAIN_TIMEOUT_S="60")
    stuck = await ingress.send(decode, ingress.decode_job(decode, prompt(20), max_tokens=100))
    await ingress.has_tokens(stuck, 5)

    await ingress.over(stuck)
    assert stuck.failure is not None
    assert (stuck.failure.code, stuck.failure.reason) == (
        "worker_lost",
        "the engine makes no step, with 1 requests and 0 pinned blocks in it",
    )
    assert len(stuck.ids()) == 5
    beat = await decode.beat(lambda beat: beat.state == "starting")
    assert beat.load.step == 5
    late = await ingress.send(decode, ingress.decode_job(decode, prompt(21), max_tokens=100))
    busy = Busy(worker_id=decode.worker_id, epoch=decode.epoch, code="misplaced")
    assert await ingress.claimed(late) == busy
    decode.send_signal(signal.SIGTERM)
    assert await decode.exited(30) == 0


async def test_worker_whose_engine_hangs_over_a_prompt_is_found_by_what_prompts_took_before(
    fleet: Fleet, ingress: Ingress
) -> None:
    """Counted in its own beats, at least half a second each, so that a slow machine changes nothing."""
    prefill = await fleet.start("prefill", SIM_HANG_AFTER_STEPS="1")
    await ingress.prefilled(prefill, prompt(70))
    stuck = await ingress.send(prefill, ingress.prefill_job(prefill, prompt(71)))
    await ingress.claimed(stuck)
    num_beats = len(prefill.beats)

    await ingress.over(stuck)
    assert code(stuck) == "worker_lost"
    assert len(prefill.beats) - num_beats < MAX_STILL_S / HEARTBEAT_S


# -- losing the bus


async def test_workers_lose_no_token_over_a_short_loss_of_the_bus(
    own_nats_server: Server, region: str, tmp_path: Path
) -> None:
    async with _on(own_nats_server, region, tmp_path) as (bus, fleet, ingress):
        decode = await fleet.start("decode", SIM_DELAY_MS="5")
        for number in range(1, NUM_TRIES + 1):
            epoch, stream = decode.epoch, await streaming(ingress, decode, 250)
            own_nats_server.kill()
            own_nats_server.start()
            await ingress.over(stream)
            assert bus.num_reconnects == number
            if code(stream) != "worker_lost":
                break
            await back(decode, epoch)  # on a busy machine the loss was a long one
        stream.events.clear()  # what was on the wire may be lost: a gap that ingress asks for
        await ingress.control(decode, Resend(attempt=stream.job.attempt, position=0))
        await ingress.over(stream)
        assert len(stream.ids()) == 250
        assert stream.tokens[-1].finish_reason == "length"


async def test_workers_tell_the_end_of_streams_that_ended_while_the_bus_was_away(
    own_nats_server: Server, region: str, tmp_path: Path
) -> None:
    async with _on(own_nats_server, region, tmp_path) as (_, fleet, ingress):
        prefill = await fleet.start("prefill", SIM_DELAY_MS="400")
        decode = await fleet.start("decode", SIM_DELAY_MS="5")
        for _ in range(NUM_TRIES):
            epochs = prefill.epoch, decode.epoch
            first = await ingress.send(prefill, ingress.prefill_job(prefill, prompt(20)))
            await ingress.claimed(first)
            stream = await streaming(ingress, decode, 60)
            own_nats_server.kill()
            await asyncio.sleep(0.7)
            own_nats_server.start()
            await ingress.over(first)
            await ingress.over(stream)
            if "worker_lost" not in (code(first), code(stream)):
                break
            if code(first):  # on a busy machine the loss was a long one
                await back(prefill, epochs[0])
            if code(stream):
                await back(decode, epochs[1])
        assert stream.tokens[-1].finish_reason == "length"
        assert first.first is not None


async def test_workers_come_back_as_another_life_after_a_long_loss_of_the_bus(
    own_nats_server: Server, region: str, tmp_path: Path
) -> None:
    async with _on(own_nats_server, region, tmp_path) as (_, fleet, ingress):
        decode = await fleet.start("decode", DECODE_MAX_NUM_SEQS="1", **SLOW)
        running = await streaming(ingress, decode, 5000)
        waiting = await ingress.send(decode, ingress.decode_job(decode, prompt(9)))
        await ingress.claimed(waiting)
        epoch = decode.epoch
        own_nats_server.kill()
        await asyncio.sleep(LAPSE_S + 0.5)
        own_nats_server.start()
        await decode.beat(lambda beat: beat.epoch > epoch and beat.load.num_running == 0)
        stale = await ingress.send(decode, ingress.decode_job(decode, prompt(9), epoch=epoch))
        assert await ingress.claimed(stale) == Busy(
            worker_id=decode.worker_id, epoch=decode.epoch, code="stale_epoch"
        )
        fresh = await ingress.send(decode, ingress.decode_job(decode, prompt(9)))
        await ingress.over(fresh)
        assert fresh.claims == [Accepted(worker_id=decode.worker_id, epoch=decode.epoch)]
        for attempt in (running, waiting):
            await ingress.over(attempt)
            assert code(attempt) == "worker_lost"
        assert waiting.tokens == []


@contextlib.asynccontextmanager
async def _on(server: Server, region: str, directory: Path) -> AsyncIterator[tuple[Bus, Fleet, Ingress]]:
    """A fleet and an ingress on a server that a test may harm."""
    bus = await Bus.connect(server.url, name="test")
    fleet = Fleet(bus, region, server.url, directory)
    try:
        await fleet.listen()
        ingress = Ingress(bus, region)
        await ingress.start()
        yield bus, fleet, ingress
    finally:
        await fleet.close()
        await bus.close(2)

"""Prefill and decode as processes on a real NATS: claims, hand-over, streams, control."""

from typing import Any

import msgspec
from tests.integration.worker_fleet import BLOCK_SIZE, Fleet, Ingress

from sub100_proto import blocks, codec, subjects, tokens
from sub100_proto.fleet import KvEvents, Limits
from sub100_proto.jobs import Accepted, Busy, ReleaseKv, Resend
from sub100_proto.stream import Tokens
from sub100_shared.bus import Incoming
from sub100_shared.errors import http_status

SLOW = {"SIM_DELAY_MS": "15"}


def prompt(num_tokens: int, start: int = 5) -> list[int]:
    return [start + 3 * i for i in range(num_tokens)]


async def test_workers_hand_over_and_stream_the_answer_of_one_engine(fleet: Fleet, ingress: Ingress) -> None:
    prefill, decode = await fleet.start("prefill"), await fleet.start("decode")
    ids = prompt(100)
    first = await ingress.prefilled(prefill, ids)
    assert first.kv is not None
    assert first.kv.num_tokens == 100
    assert first.timing.compute_ms > 0

    rest = await ingress.send(decode, ingress.decode_job(decode, ids, output=[first.token], kv=first.kv))
    await ingress.over(rest)
    assert rest.claims == [Accepted(worker_id=decode.worker_id, epoch=decode.epoch)]
    assert len(rest.ids()) == 15
    assert rest.tokens[-1].finish_reason == "length"
    assert rest.tokens[0].transferred_tokens == 100
    assert rest.tokens[0].timing is not None
    assert rest.tokens[0].timing.transfer_ms > 0
    assert all(event.timing is None for event in rest.tokens[1:])

    alone = await ingress.over(await ingress.send(decode, ingress.decode_job(decode, ids)))
    assert alone.ids() == [first.token, *rest.ids()]
    assert alone.tokens[0].transferred_tokens == 0
    assert alone.tokens[0].cached_tokens == 96

    gone = await prefill.beat(lambda beat: beat.load.kv_usage == 0)
    assert gone.load.num_running == 0


async def test_workers_send_sixteen_tokens_in_sixteen_messages(fleet: Fleet, ingress: Ingress) -> None:
    decode = await fleet.start("decode")
    answer = await ingress.over(await ingress.send(decode, ingress.decode_job(decode, prompt(10))))
    assert len(answer.ids()) == 16
    assert [len(batch.events) for batch in ingress.batches] == [1] * 16


async def test_workers_coalesce_the_streams_of_a_step_into_one_message(
    fleet: Fleet, ingress: Ingress
) -> None:
    decode = await fleet.start("decode", SIM_DELAY_MS="60")  # all have come before any ends
    answers = [
        await ingress.send(decode, ingress.decode_job(decode, prompt(10, start))) for start in range(8)
    ]
    for answer in answers:
        await ingress.over(answer)
        assert len(answer.ids()) == 16
    assert max(len(batch.events) for batch in ingress.batches) == 8
    assert len(ingress.batches) <= 40  # 128 events


async def test_workers_end_an_answer_at_its_first_token_without_kv(fleet: Fleet, ingress: Ingress) -> None:
    prefill = await fleet.start("prefill")
    first = await ingress.prefilled(prefill, prompt(40), max_tokens=1)
    assert (first.finish_reason, first.kv) == ("length", None)
    stopped = await ingress.prefilled(prefill, prompt(40), stop_token_ids=(first.token,))
    assert (stopped.finish_reason, stopped.kv) == ("stop", None)
    await prefill.beat(lambda beat: beat.load.kv_usage == 0 and beat.load.num_running == 0)


async def test_workers_abort_a_stream_and_free_its_blocks(fleet: Fleet, ingress: Ingress) -> None:
    decode = await fleet.start("decode", **SLOW)
    answer = await ingress.send(decode, ingress.decode_job(decode, prompt(50), max_tokens=5000))
    await ingress.has_tokens(answer, 3)
    await decode.beat(lambda beat: beat.load.num_running == 1)
    await ingress.abort(decode, answer)
    await ingress.dump(decode)  # what was sent before the abort was seen has arrived
    num_events = len(answer.events)
    await decode.beat(lambda beat: beat.load.num_running == 0 and beat.load.kv_usage == 0)
    other = await ingress.over(await ingress.send(decode, ingress.decode_job(decode, prompt(5))))
    assert len(other.ids()) == 16
    assert len(answer.events) == num_events
    assert not answer.is_over


async def test_workers_do_not_run_a_job_whose_abort_came_first(fleet: Fleet, ingress: Ingress) -> None:
    decode = await fleet.start("decode")
    job = ingress.decode_job(decode, prompt(20))
    early = await ingress.send(decode, ingress.decode_job(decode, prompt(3)))
    await ingress.over(early)
    await ingress.abort(decode, type(early)(job))
    await ingress.dump(decode)
    aborted = await ingress.send(decode, job)
    after = await ingress.over(await ingress.send(decode, ingress.decode_job(decode, prompt(20))))
    assert len(after.ids()) == 16
    assert (aborted.claims, aborted.events) == ([], [])


async def test_workers_send_a_gap_again_also_after_the_end(fleet: Fleet, ingress: Ingress) -> None:
    decode = await fleet.start("decode")
    answer = await ingress.over(await ingress.send(decode, ingress.decode_job(decode, prompt(20))))
    ids = answer.ids()
    answer.events.clear()
    await ingress.control(decode, Resend(attempt=answer.job.attempt, position=11))
    await ingress.over(answer)
    assert answer.events == [Tokens(answer.job.attempt, 11, tuple(ids[11:]), "length")]


async def test_workers_send_a_first_token_and_a_failure_again(fleet: Fleet, ingress: Ingress) -> None:
    prefill, decode = await fleet.start("prefill"), await fleet.start("decode")
    good = await ingress.over(await ingress.send(prefill, ingress.prefill_job(prefill, prompt(20))))
    bad = await ingress.over(await ingress.send(decode, ingress.decode_job(decode, [2**32 - 1])))
    for worker, attempt in ((prefill, good), (decode, bad)):
        event = attempt.events.pop()
        await ingress.control(worker, Resend(attempt=attempt.job.attempt, position=0))
        await ingress.over(attempt)
        assert attempt.events == [event]


async def test_workers_refuse_at_their_bound_and_for_another_life(fleet: Fleet, ingress: Ingress) -> None:
    bounds = {"DECODE_MAX_JOBS": "2", "DECODE_MAX_QUEUED_TOKENS": "100"}
    decode = await fleet.start("decode", SIM_DELAY_MS="60000", **bounds)

    async def code(num_tokens: int, **fields: Any) -> str:
        claim = await ingress.claimed(
            await ingress.send(
                decode, ingress.decode_job(decode, prompt(num_tokens), max_tokens=5000, **fields)
            )
        )
        return claim.code if isinstance(claim, Busy) else ""

    assert await code(10, epoch=decode.epoch - 1) == "stale_epoch"
    assert await code(60) == ""
    assert await code(60) == "queue_full"
    assert await code(30) == ""
    assert await code(1) == "queue_full"
    running = [a for a in ingress.attempts.values() if isinstance(a.claims[0], Accepted)]
    await ingress.abort(decode, running[0])
    await ingress.dump(decode)
    assert await code(1) == ""


async def test_workers_queue_a_prompt_until_its_first_token_and_say_so(
    fleet: Fleet, ingress: Ingress
) -> None:
    decode = await fleet.start("decode", DECODE_MAX_QUEUED_TOKENS="100", **SLOW)
    for _ in range(3):
        job = ingress.decode_job(decode, prompt(80), max_tokens=5000)
        answer = await ingress.send(decode, job)
        assert isinstance(await ingress.claimed(answer), Accepted)
        await ingress.has_tokens(answer, 1)
    beat = await decode.beat(lambda beat: beat.num_jobs == 3)
    assert beat.num_queued_tokens == 0
    assert beat.limits == Limits(max_jobs=256, max_queued_tokens=100)


async def test_workers_refuse_jobs_that_are_not_for_them(fleet: Fleet, ingress: Ingress) -> None:
    decode = await fleet.start("decode", DECODE_MAX_MODEL_LEN="512")
    fitting = ingress.decode_job(decode, prompt(20))
    for job in (
        ingress.prefill_job(decode, prompt(20)),
        msgspec.structs.replace(fitting, model="another"),
        ingress.decode_job(decode, prompt(512)),
    ):
        claim = await ingress.claimed(await ingress.send(decode, job))
        assert claim == Busy(worker_id=decode.worker_id, epoch=decode.epoch, code="misplaced")
        assert http_status(claim.code) == 503
    await ingress.over(await ingress.send(decode, fitting))


async def test_workers_survive_jobs_that_make_no_sense(fleet: Fleet, ingress: Ingress, region: str) -> None:
    decode = await fleet.start("decode")
    subject = subjects.job(region, "decode", decode.worker_id)
    good = ingress.decode_job(decode, prompt(20))
    for payload in (b"", b"\xff\xff", codec.encode(ReleaseKv(kv=None)), codec.encode(good)[:-3]):  # type: ignore[arg-type]
        await ingress.bus.publish(subject, payload)
    ragged = msgspec.structs.replace(ingress.decode_job(decode, []), prompt=b"123")
    nowhere = msgspec.structs.replace(ingress.decode_job(decode, prompt(3)), events="")
    for job in (ragged, nowhere):
        await ingress.bus.publish(subject, codec.encode(job))
    outside = await ingress.over(await ingress.send(decode, ingress.decode_job(decode, [2**32 - 1])))
    assert outside.failure is not None
    assert outside.failure.code == "invalid_value"
    answer = await ingress.over(await ingress.send(decode, good))
    assert len(answer.ids()) == 16
    assert decode.process.returncode is None


async def test_workers_tell_of_the_blocks_they_hold(fleet: Fleet, ingress: Ingress, region: str) -> None:
    prefill = await fleet.start("prefill")
    events: list[KvEvents] = []

    def on_events(msg: Incoming) -> None:
        events.append(codec.decode_kv_events(msg.data))
        ingress.changed()

    await ingress.bus.listen(subjects.kv_events_all(region), on_events)
    ids = prompt(3 * BLOCK_SIZE + 1)
    await ingress.prefilled(prefill, ids, salt="tenant")
    expected = set(blocks.split(blocks.chain(tokens.pack(ids), BLOCK_SIZE, "tenant")))
    await ingress.changed.until(
        lambda: {h for event in events for h in blocks.split(event.stored)} >= expected
    )
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    dump = await ingress.dump(prefill)
    assert set(blocks.split(dump.hashes)) == expected
    assert (dump.seq, dump.epoch) == (events[-1].seq, prefill.epoch)
    beat = await prefill.beat(lambda beat: beat.kv_seq == dump.seq)
    assert beat.model == "sim-model"


async def test_workers_free_kv_that_nobody_will_pull(fleet: Fleet, ingress: Ingress) -> None:
    prefill, decode = await fleet.start("prefill"), await fleet.start("decode")
    ids = prompt(40)
    first = await ingress.prefilled(prefill, ids)
    assert first.kv is not None
    await prefill.beat(lambda beat: beat.load.kv_usage > 0)
    await ingress.control(prefill, ReleaseKv(kv=first.kv))
    await prefill.beat(lambda beat: beat.load.kv_usage == 0)
    late = await ingress.send(decode, ingress.decode_job(decode, ids, output=[first.token], kv=first.kv))
    await ingress.over(late)
    assert late.failure is not None
    assert late.failure.code == "kv_expired"

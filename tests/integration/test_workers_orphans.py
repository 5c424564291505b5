"""Jobs whose ingress is gone: nobody waits for them, so workers end them and free what they hold."""

import pytest
from tests.integration.worker_fleet import Fleet, Ingress

from sub100_proto import codec, subjects
from sub100_proto.fleet import ServiceStatus, State
from sub100_shared.bus import Bus

PROMPT = [5 + 3 * i for i in range(100)]


async def say(ingress: Ingress, state: State) -> None:
    status = ServiceStatus(service="ingress", instance=ingress.ingress_id, state=state)
    subject = subjects.status(ingress.region, "ingress", ingress.ingress_id)
    await ingress.bus.publish(subject, codec.encode(status))


@pytest.mark.parametrize("last_word", ["stopped", "ready"])
async def test_workers_end_what_an_ingress_that_is_gone_gave_and_nothing_else(
    fleet: Fleet, bus: Bus, region: str, last_word: State
) -> None:
    """It stopped, or it fell silent. Its streams end and its KV is free, long before the KV's lease ends; an
    ingress of which nothing was ever heard keeps its own."""
    prefill = await fleet.start("prefill", PREFILL_LEASE_S="600")
    decode = await fleet.start("decode", SIM_DELAY_MS="15")
    gone, unheard = Ingress(bus, region), Ingress(bus, region)
    for ingress in (gone, unheard):
        await ingress.start()
    await say(gone, "ready")
    mine = await gone.send(decode, gone.decode_job(decode, PROMPT, max_tokens=5000))
    other = await unheard.send(decode, unheard.decode_job(decode, PROMPT, max_tokens=5000))
    await gone.has_tokens(mine, 2)
    await gone.prefilled(prefill, PROMPT)
    await unheard.prefilled(prefill, PROMPT[::-1])

    await say(gone, last_word)

    await gone.over(mine)
    assert mine.failure is not None
    assert mine.failure.code == "worker_lost"
    await decode.beat(lambda beat: beat.num_jobs == 1 and beat.load.num_running == 1)
    beat = await prefill.beat(lambda beat: beat.load.num_released_blocks == 4)
    assert beat.load.num_pinned_blocks == 4
    await unheard.has_tokens(other, sum(len(event.ids) for event in other.tokens) + 2)

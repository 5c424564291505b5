"""P03: a worker whose KV transfers fail is not ready, and says so; one bad peer spreads to nobody. Worker
processes on a real NATS, beside a real scheduler; what is to fail is led to addresses where nobody is."""

import asyncio

import httpx
import msgspec
from tests.integration.scheduler_service import Asker, eventually, running_scheduler
from tests.integration.worker_fleet import MODEL, Fleet, Ingress, Worker
from tests.patience import PATIENCE_S
from tests.servers import Server, free_port

from sub100_proto.jobs import ReleaseKv
from sub100_proto.placement import Placement, Settled
from sub100_proto.stream import FirstToken
from sub100_shared.bus import Bus

AFTER_S = 0.5
NOBODY = ("127.0.0.1:1", "127.0.0.1:2")


class Pair:
    """A prefill and a decode worker, and hand-overs between them."""

    def __init__(self, ingress: Ingress, prefill: Worker, decode: Worker) -> None:
        self._ingress = ingress
        self._number = 0
        self.prefill = prefill
        self.decode = decode

    async def prefilled(self) -> tuple[list[int], FirstToken]:
        self._number += 1
        prompt = [7 + self._number * 3, *range(5, 45)]
        return prompt, await self._ingress.prefilled(self.prefill, prompt)

    async def hand_over(self, endpoint: str = "") -> str:
        """Pull, from another endpoint if one is given; how it failed, empty if it did not."""
        prompt, first = await self.prefilled()
        assert first.kv is not None
        kv = msgspec.structs.replace(first.kv, endpoint=endpoint or first.kv.endpoint)
        job = self._ingress.decode_job(self.decode, prompt, output=[first.token], kv=kv)
        attempt = await self._ingress.over(await self._ingress.send(self.decode, job))
        if attempt.failure is None:
            return ""
        await self._ingress.control(self.prefill, ReleaseKv(kv=first.kv))
        return attempt.failure.code

    async def fail_until_out(self) -> None:
        """Two peers whose address nobody answers at."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.decode.beats[-1].kv_fault:
                for endpoint in NOBODY:
                    assert await self.hand_over(endpoint) == "kv_load_failed"
                await asyncio.sleep(AFTER_S / 4)


async def readiness(port: int) -> tuple[int, str]:
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{port}/readyz")
    return answer.status_code, answer.json().get("reason", "")


async def ready(port: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await readiness(port) != (200, ""):  # noqa: ASYNC110 - an operator asks again, too
            await asyncio.sleep(0.02)


async def test_decode_worker_whose_transfers_fail_is_not_ready_until_one_succeeds(
    fleet: Fleet, ingress: Ingress, bus: Bus, region: str, nats_server: Server
) -> None:
    port = free_port()
    variables = {"OPS_PORT": str(port), "DECODE_KV_FAULT_AFTER_S": str(AFTER_S)}
    async with running_scheduler(nats_server, region) as view:
        prefill, bad, good = await asyncio.gather(
            fleet.start("prefill"), fleet.start("decode", **variables), fleet.start("decode")
        )
        pair = Pair(ingress, prefill, bad)
        await ready(port)
        assert await pair.hand_over() == ""
        await pair.fail_until_out()
        assert bad.beats[-1].state == "ready"
        status, reason = await readiness(port)
        assert status == 503
        assert reason.startswith("KV transfers fail")
        assert all(endpoint in reason for endpoint in NOBODY)

        def is_known() -> bool:
            seen = view.fleet.get(bad.worker_id)
            return seen is not None and bool(seen.heartbeat.kv_fault)

        await eventually(is_known)
        asker = Asker(bus, region)
        while is_known():  # until it is open for a trial
            answer = await asker.place(model=MODEL)
            assert isinstance(answer, Placement)
            await asker.settle(Settled(placement_id=answer.placement_id, phase="all"))
            assert answer.prefill is not None
            assert answer.decode.worker_id == good.worker_id or not is_known()

        assert (await readiness(port))[0] == 503, "open for a trial is not ready"
        assert await pair.hand_over() == ""
        await ready(port)
        assert "kv fault is over" in bad.log()


async def test_trial_that_fails_closes_the_worker_again(fleet: Fleet, ingress: Ingress) -> None:
    prefill, bad = await asyncio.gather(
        fleet.start("prefill"), fleet.start("decode", DECODE_KV_FAULT_AFTER_S=str(AFTER_S))
    )
    pair = Pair(ingress, prefill, bad)
    await pair.fail_until_out()
    await bad.beat(lambda beat: not beat.kv_fault)
    assert await pair.hand_over(NOBODY[0]) == "kv_load_failed"
    await bad.beat(lambda beat: bool(beat.kv_fault))


async def test_prefill_worker_whose_kv_nobody_can_load_is_not_ready_and_takes_no_decode_worker_along(
    fleet: Fleet, ingress: Ingress, bus: Bus, region: str, nats_server: Server
) -> None:
    """Its decode workers fail as well, with it alone; ingress tells it."""
    port = free_port()
    after = str(AFTER_S)
    bad, *decodes = await asyncio.gather(
        fleet.start("prefill", PREFILL_KV_FAULT_AFTER_S=after, OPS_PORT=str(port)),
        fleet.start("decode", DECODE_KV_FAULT_AFTER_S=after),
        fleet.start("decode", DECODE_KV_FAULT_AFTER_S=after),
    )
    pairs = [Pair(ingress, bad, decode) for decode in decodes]
    async with asyncio.timeout(PATIENCE_S):
        while not bad.beats[-1].kv_fault:
            for pair in pairs:
                _, first = await pair.prefilled()
                assert first.kv is not None
                await ingress.control(bad, ReleaseKv(kv=first.kv, failed_at=pair.decode.worker_id))
            await asyncio.sleep(AFTER_S / 4)
    status, reason = await readiness(port)
    assert status == 503
    assert all(decode.worker_id in reason for decode in decodes)
    assert [decode.beats[-1].kv_fault for decode in decodes] == ["", ""]

    assert await pairs[0].hand_over() == ""
    await bad.beat(lambda beat: not beat.kv_fault)
    await ready(port)


async def test_decode_worker_beside_one_bad_peer_stays_ready(fleet: Fleet, ingress: Ingress) -> None:
    """Nor do clients that leave, and KV that is gone, count against it."""
    prefill, decode = await asyncio.gather(
        fleet.start("prefill"), fleet.start("decode", DECODE_KV_FAULT_AFTER_S=str(AFTER_S))
    )
    pair = Pair(ingress, prefill, decode)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + 6 * AFTER_S
    while loop.time() < end_s:
        assert await pair.hand_over(NOBODY[0]) == "kv_load_failed"
        assert await pair.hand_over() == ""
        prompt, first = await pair.prefilled()
        assert first.kv is not None
        await ingress.control(prefill, ReleaseKv(kv=first.kv))
        job = ingress.decode_job(decode, prompt, output=[first.token], kv=first.kv)
        aborted = await ingress.send(decode, job)
        await ingress.abort(decode, aborted)
        assert not decode.beats[-1].kv_fault
    assert "kv fault" not in decode.log()

"""What a worker learns of its transfers from its engine (``worker/transfers.py``): a suite for every engine.

Subclass it beside a fixture ``rig``, as ``engine_suite`` says. Time is the tests' own.
"""

import asyncio
import secrets

import msgspec
from tests.contract.engine_rig import Recorder, Rig

from sub100_engine.worker.transfer_health import TransferHealth
from sub100_engine.worker.transfers import Transfers
from sub100_proto import tokens
from sub100_proto.budget import Budget
from sub100_proto.jobs import DecodeJob
from sub100_proto.kv import KvHandle
from sub100_shared.metrics import Metrics

AFTER_S = 5.0
NOBODY = ("127.0.0.1:1", "127.0.0.1:2")


class Worker:
    """The decode side: hand-overs through the rig's engines, and what the worker makes of them."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.now_s = 1000.0
        self.faults: list[str] = []
        health = TransferHealth(AFTER_S)
        self.transfers = Transfers(health, lambda: self.now_s * 1e3, Metrics(), self.faults.append)

    def led_to(self, kv: KvHandle, endpoint: str) -> KvHandle:
        return msgspec.structs.replace(kv, endpoint=endpoint, shm="") if endpoint else kv

    async def hand_over(self, endpoint: str = "", *, is_aborted: bool = False) -> Recorder:
        """Decode with KV from its prefill engine, or from where nobody is."""
        rig = self._rig
        prompt = rig.prompt(40)
        first, kv = await rig.handed_over(prompt)
        work = rig.work(prompt, output=[first], kv=self.led_to(kv, endpoint), ignore_eos=True)
        self.transfers.began(
            DecodeJob(
                attempt=work.attempt,
                request_id=secrets.token_hex(8),
                events="events",
                model=rig.prefill_info.model,
                prompt=tokens.pack(prompt),
                sampling=work.sampling,
                budget=Budget(total_ms=100, remaining_ms=80, allotted_ms=40),
                epoch=1,
                kv=work.kv,
            )
        )
        told = Recorder(work)
        rig.decode.decode(work, told)
        if is_aborted:
            rig.decode.abort(work.attempt)
            self.transfers.forget(work.attempt)
            await rig.idle(rig.decode)
        else:
            await rig.ended(told)
        for output in told.outputs:
            self.transfers.on_output(output)
        if told.outputs == [] or told.last.error:
            rig.prefill.release(kv)
        return told


class TransferBehaviour:
    """Subclass it beside a fixture ``rig``."""

    async def test_pull_that_fails_tells_how_long_it_was_tried(self, rig: Rig) -> None:
        told = await Worker(rig).hand_over(NOBODY[0])
        assert told.last.error == "kv_load_failed"
        assert told.last.transfer_ms > 0

    async def test_pulled_blocks_are_counted_and_others_are_not(self, rig: Rig) -> None:
        worker = Worker(rig)
        await rig.idle(rig.prefill)
        before = rig.prefill.load().num_pulled_blocks
        await worker.hand_over(NOBODY[0])
        await rig.idle(rig.prefill)
        assert rig.prefill.load().num_pulled_blocks == before
        await worker.hand_over()
        num_blocks = -(-40 // rig.prefill_info.block_size)
        await rig.until(lambda: rig.prefill.load().num_pulled_blocks == before + num_blocks)

    async def test_worker_is_out_when_pulls_fail_with_two_peers_and_back_with_one_that_succeeds(
        self, rig: Rig
    ) -> None:
        worker = Worker(rig)
        for _ in range(3):
            for endpoint in NOBODY:
                await worker.hand_over(endpoint)
            worker.now_s += 0.6 * AFTER_S  # in all some more: pulls begin a moment before they fail
        assert len(worker.faults) == 1
        assert all(endpoint in worker.faults[0] for endpoint in NOBODY)
        assert worker.transfers.fault() == worker.faults[0]
        assert (await worker.hand_over()).last.error == ""
        assert worker.faults[1:] == [""]
        assert worker.transfers.fault() == ""

    async def test_one_bad_peer_and_clients_that_leave_do_not_count(self, rig: Rig) -> None:
        worker = Worker(rig)
        for _ in range(6):
            await worker.hand_over(NOBODY[0])
            await worker.hand_over(is_aborted=True)
            await worker.hand_over()
            worker.now_s += AFTER_S
        assert worker.faults == []

    async def test_peers_that_die_in_one_moment_do_not_count(self, rig: Rig) -> None:
        """However late their pulls are given up."""
        worker = Worker(rig)
        told = await asyncio.gather(*(worker.hand_over(endpoint) for endpoint in NOBODY * 4))
        assert {recorder.last.error for recorder in told} == {"kv_load_failed"}
        assert worker.faults == []

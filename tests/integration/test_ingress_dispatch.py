"""Ingress sends jobs over a real NATS: one that is given up on its way is called back."""

import asyncio

from tests.servers import Server
from tests.unit.ingress_exchange import exchange

from sub100_ingress.attempts import AttemptTable
from sub100_ingress.dispatch import Dispatcher
from sub100_ingress.exchange import Prompt
from sub100_ingress.strays import Strays
from sub100_proto import codec, subjects
from sub100_proto.jobs import Abort
from sub100_proto.placement import WorkerRef
from sub100_proto.sampling import Sampling
from sub100_shared import semconv
from sub100_shared.bus import Bus, Incoming
from sub100_shared.clock import monotonic_ms

WAIT_S = 30.0
LONG = Prompt(
    packed=bytes(7_000_000), num_tokens=1_750_000, block_hashes=b"", salt="s", sampling=Sampling(max_tokens=8)
)


async def test_job_given_up_while_nats_does_not_read_is_aborted(own_nats_server: Server, region: str) -> None:
    """The job leaves when NATS reads again, and so does the abort behind it."""
    worker = WorkerRef(worker_id="d1", epoch=1)
    jobs: asyncio.Queue[Incoming] = asyncio.Queue()
    controls: asyncio.Queue[Incoming] = asyncio.Queue()
    listening = await Bus.connect(own_nats_server.url, name="worker")
    await listening.listen(subjects.job(region, "decode", "d1"), jobs.put_nowait)
    await listening.listen(subjects.control(region, "decode", "d1"), controls.put_nowait)
    bus = await Bus.connect(own_nats_server.url, name="ingress")
    table = AttemptTable(Strays(monotonic_ms))
    dispatcher = Dispatcher(bus, table, region=region, ingress_id="i", claim_timeout_ms=100, max_buffered=8)
    ex = exchange()
    hop = ex.ledger.open(semconv.HOP_DECODE)
    own_nats_server.pause()
    try:
        sending = asyncio.create_task(dispatcher.decode(ex, LONG, worker, None, hop, ex.span))
        _, waiting = await asyncio.wait({sending}, timeout=0.2)
        assert waiting
        sending.cancel()
        own_nats_server.resume()
        await asyncio.wait({sending}, timeout=WAIT_S)
        assert sending.cancelled()
        async with asyncio.timeout(WAIT_S):
            job = codec.decode_job((await jobs.get()).data)
            control = codec.decode_control((await controls.get()).data)
    finally:
        own_nats_server.resume()
        await bus.close(2)
        await listening.close(2)
    assert control == Abort(attempt=job.attempt)
    assert len(table) == 0

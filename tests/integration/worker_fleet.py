"""Real worker processes on the simulated engine, and an ingress made of a test's own connection."""

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S

from sub100_proto import codec, headers, subjects, tokens
from sub100_proto.budget import Budget
from sub100_proto.fleet import Heartbeat, KvDump
from sub100_proto.jobs import Abort, Claim, Control, DecodeJob, DumpKv, Job, PrefillJob
from sub100_proto.kv import KvHandle
from sub100_proto.sampling import Sampling
from sub100_proto.stream import Failed, FirstToken, StreamBatch, StreamEvent, Tokens
from sub100_proto.subjects import Role
from sub100_shared.bus import Bus, Incoming

ROOT = Path(__file__).parents[2]
MODEL = "sim-model"
BLOCK_SIZE = 32


class Signal:
    """Wakes whoever waits for a condition over what has arrived."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def __call__(self) -> None:
        self._changed.set()

    async def until(self, is_so: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        async with asyncio.timeout(timeout_s):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()


class Worker:
    """A worker process. ``beats`` are its heartbeats, in order."""

    def __init__(self, role: Role, worker_id: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.role: Role = role
        self.worker_id = worker_id
        self.process = process
        self.beats: list[Heartbeat] = []
        self.changed = Signal()
        self._log = log

    @property
    def epoch(self) -> int:
        return self.beats[-1].epoch

    def log(self) -> str:
        """Whole lines: what is being written at this moment is left out."""
        whole, newline, _ = self._log.read_text(errors="replace").rpartition("\n")
        return whole + newline

    async def beat(self, is_so: Callable[[Heartbeat], bool]) -> Heartbeat:
        """The latest heartbeat, once it is as asked."""
        await self.changed.until(lambda: bool(self.beats) and is_so(self.beats[-1]))
        return self.beats[-1]

    async def ready(self) -> None:
        ready = asyncio.ensure_future(self.beat(lambda beat: beat.state == "ready"))
        exited = asyncio.ensure_future(self.process.wait())
        await asyncio.wait({ready, exited}, return_when=asyncio.FIRST_COMPLETED)
        exited.cancel()
        if not ready.done():
            ready.cancel()
            raise AssertionError(f"{self.worker_id} exited:\n{self.log()[-3000:]}")
        ready.result()

    async def exited(self, timeout_s: float = PATIENCE_S) -> int:
        async with asyncio.timeout(timeout_s):
            return await self.process.wait()

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


class Attempt:
    """What came back for one job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.claims: list[Claim] = []
        self.has_no_responders = False
        self.events: list[StreamEvent] = []

    @property
    def first(self) -> FirstToken | None:
        return next((e for e in self.events if isinstance(e, FirstToken)), None)

    @property
    def failure(self) -> Failed | None:
        return next((e for e in self.events if isinstance(e, Failed)), None)

    @property
    def tokens(self) -> list[Tokens]:
        return [e for e in self.events if isinstance(e, Tokens)]

    @property
    def is_over(self) -> bool:
        return bool(self.events) and (
            isinstance(self.events[-1], (Failed, FirstToken)) or self.events[-1].finish_reason != ""
        )

    def ids(self) -> list[int]:
        """The ids in order; fails if a position repeats or is missing."""
        position = tokens.count(self.job.output) if isinstance(self.job, DecodeJob) else 0
        ids: list[int] = []
        for event in self.tokens:
            assert event.position == position, (event.position, position)
            ids.extend(event.ids)
            position += len(event.ids)
        return ids


class Ingress:
    """Publishes jobs as an ingress does and keeps what comes back."""

    def __init__(self, bus: Bus, region: str) -> None:
        self.bus = bus
        self.region = region
        self.ingress_id = f"ing-{secrets.token_hex(4)}"
        self.attempts: dict[str, Attempt] = {}
        self.batches: list[StreamBatch] = []
        self.changed = Signal()

    async def start(self) -> None:
        await self.bus.listen(subjects.stream_all(self.region, self.ingress_id), self._on_message)

    def prefill_job(self, worker: Worker, prompt: list[int], **fields: Any) -> PrefillJob:
        return PrefillJob(**self._common(worker, prompt, fields))

    def decode_job(
        self,
        worker: Worker,
        prompt: list[int],
        *,
        output: list[int] | None = None,
        kv: KvHandle | None = None,
        **fields: Any,
    ) -> DecodeJob:
        return DecodeJob(**self._common(worker, prompt, fields), output=tokens.pack(output or []), kv=kv)

    async def send(self, worker: Worker, job: Job) -> Attempt:
        """Publish a job; its claim and events come to the returned attempt."""
        attempt = self.attempts[job.attempt] = Attempt(job)
        await self.bus.publish(
            subjects.job(self.region, worker.role, worker.worker_id),
            codec.encode(job),
            reply=subjects.stream_claim(self.region, self.ingress_id, job.attempt),
        )
        return attempt

    async def control(self, worker: Worker, control: Control) -> None:
        await self.bus.publish(
            subjects.control(self.region, worker.role, worker.worker_id), codec.encode(control)
        )

    async def abort(self, worker: Worker, attempt: Attempt) -> None:
        await self.control(worker, Abort(attempt=attempt.job.attempt))

    async def dump(self, worker: Worker) -> KvDump:
        reply = await self.bus.request(
            subjects.control(self.region, worker.role, worker.worker_id),
            codec.encode(DumpKv()),
            timeout_s=PATIENCE_S,
        )
        return codec.decode_kv_dump(reply.data)

    async def over(self, attempt: Attempt) -> Attempt:
        await self.changed.until(lambda: attempt.is_over)
        return attempt

    async def claimed(self, attempt: Attempt) -> Claim:
        await self.changed.until(lambda: bool(attempt.claims))
        return attempt.claims[0]

    async def has_tokens(self, attempt: Attempt, number: int) -> None:
        await self.changed.until(lambda: sum(len(e.ids) for e in attempt.tokens) >= number)

    async def prefilled(self, worker: Worker, prompt: list[int], **fields: Any) -> FirstToken:
        """First token and handle of a prompt."""
        attempt = await self.over(await self.send(worker, self.prefill_job(worker, prompt, **fields)))
        assert attempt.first is not None, attempt.events
        return attempt.first

    def _common(self, worker: Worker, prompt: list[int], fields: dict[str, Any]) -> dict[str, Any]:
        epoch = fields.pop("epoch", None)
        salt = fields.pop("salt", "")
        return {
            "attempt": secrets.token_urlsafe(12),
            "request_id": secrets.token_hex(8),
            "events": subjects.stream_events(self.region, self.ingress_id),
            "model": MODEL,
            "prompt": tokens.pack(prompt),
            "sampling": Sampling(**{"max_tokens": 16, "temperature": 0.0, "ignore_eos": True, **fields}),
            "budget": Budget(total_ms=100, remaining_ms=80, allotted_ms=40),
            "epoch": worker.epoch if epoch is None else epoch,
            "salt": salt,
        }

    def _on_message(self, msg: Incoming) -> None:
        owner, _, last = msg.subject.rpartition(".")
        if owner.endswith(".claim"):
            if msg.headers.get(headers.STATUS) == headers.NO_RESPONDERS:
                self.attempts[last].has_no_responders = True
            else:
                self.attempts[last].claims.append(codec.decode_claim(msg.data))
        else:
            batch = codec.decode_stream_batch(msg.data)
            self.batches.append(batch)
            for event in batch.events:
                self.attempts[event.attempt].events.append(event)
        self.changed()


class Fleet:
    """Starts workers and listens to what they say of themselves. Kills what is left at the end."""

    def __init__(self, bus: Bus, region: str, nats_url: str, directory: Path) -> None:
        self._bus = bus
        self._region = region
        self._nats_url = nats_url
        self._directory = directory
        self._workers: dict[str, Worker] = {}
        self._secret = directory / "secret"
        self._secret.write_text(secrets.token_hex(32))

    async def listen(self) -> None:
        await self._bus.listen(subjects.heartbeat_all(self._region), self._on_beat)

    async def start(self, role: Role, **variables: str) -> Worker:
        """A worker that is ready. ``variables`` without ``SUB100_``, e.g. ``DECODE_MAX_JOBS="2"``."""
        worker = await self.launch(role, **variables)
        await worker.ready()
        return worker

    async def launch(self, role: Role, **variables: str) -> Worker:
        """The same, not waiting for it."""
        worker_id = f"{role}-{secrets.token_hex(4)}"
        own = f"SUB100_{role.upper()}_"
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path.startswith(str(ROOT))),
            "SUB100_NATS_URL": self._nats_url,
            "SUB100_REGION": self._region,
            "SUB100_INSTANCE": worker_id,
            "SUB100_SECRET_FILE": str(self._secret),
            f"{own}ENGINE": "sim",
            f"{own}MODEL": MODEL,
            f"{own}BLOCK_SIZE": str(BLOCK_SIZE),
            **{f"SUB100_{name}": value for name, value in variables.items()},
        }
        log = self._directory / f"{worker_id}.log"
        with log.open("wb") as sink:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", f"sub100_{role}", env=environment, stderr=sink, stdout=sink
            )
        worker = self._workers[worker_id] = Worker(role, worker_id, process, log)
        return worker

    async def close(self) -> None:
        for worker in self._workers.values():
            if worker.process.returncode is None:
                worker.process.kill()
            await worker.process.wait()

    def _on_beat(self, msg: Incoming) -> None:
        beat = codec.decode_heartbeat(msg.data)
        worker = self._workers.get(beat.worker_id)
        if worker is not None:
            worker.beats.append(beat)
            worker.changed()

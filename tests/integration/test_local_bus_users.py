"""``infra/nats/nats.conf`` on a real server: every service reaches its own subjects and no others."""

import asyncio
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from tests.patience import PATIENCE_S
from tests.servers import ChildProcess, Server, free_port

from sub100_bootstrap.places import ROOT
from sub100_cache.follower import LOG_NAME
from sub100_local.credentials import NATS_USERS
from sub100_proto import subjects
from sub100_shared.durable_log import DurableLog

PASSWORD = "a-password-for-tests"
REGION = "here"

FLOWS = [
    ("ingress", "scheduler", subjects.scheduler_settled(REGION)),
    ("ingress", "prefill", subjects.job(REGION, "prefill", "w1")),
    ("ingress", "decode", subjects.job(REGION, "decode", "w1")),
    ("ingress", "decode", subjects.control(REGION, "decode", "w1")),
    ("ingress", "cache", subjects.cache_fill(REGION)),
    ("ingress", "cache", subjects.of_replica(subjects.cache_fill(REGION), "c1")),
    ("scheduler", "ingress", subjects.status(REGION, "scheduler", "s1")),
    ("cache", "ingress", subjects.status(REGION, "cache", "c1")),
    ("cache", "cache", subjects.cache_replica(REGION)),
    ("scheduler", "scheduler", subjects.scheduler_placed(REGION)),
    ("scheduler", "prefill", subjects.control(REGION, "prefill", "w1")),
    ("prefill", "ingress", subjects.stream_events(REGION, "i1")),
    ("decode", "ingress", subjects.stream_claim(REGION, "i1", "a1")),
    ("prefill", "scheduler", subjects.heartbeat(REGION, "prefill", "w1")),
    ("decode", "ingress", subjects.heartbeat(REGION, "decode", "w1")),
    ("decode", "scheduler", subjects.kv_events(REGION, "w1")),
    ("ingress", "prefill", subjects.status(REGION, "ingress", "i1")),
    ("ingress", "decode", subjects.status(REGION, "ingress", "i1")),
    *(
        (service, "operator", subjects.status(REGION, service, "x"))
        for service in NATS_USERS
        if service != "operator"
    ),
]
FORBIDDEN = [
    ("ingress", subjects.cache_admin(REGION)),
    ("cache", subjects.job(REGION, "prefill", "w1")),
    ("prefill", subjects.job(REGION, "decode", "w1")),
    ("prefill", subjects.heartbeat(REGION, "decode", "w1")),
    ("decode", subjects.scheduler_placed(REGION)),
    ("scheduler", subjects.job(REGION, "prefill", "w1")),
    ("ingress", subjects.stream_events(REGION, "i1")),
    ("ingress", subjects.heartbeat(REGION, "prefill", "w1")),
    ("traces", subjects.cache_fill(REGION)),
    ("operator", subjects.control(REGION, "decode", "w1")),
    ("operator", subjects.cache_fill(REGION)),
    ("operator", subjects.cache_log(REGION)),
    ("ingress", subjects.cache_log(REGION)),
    ("ingress", subjects.cache_replica(REGION)),
    ("cache", "$JS.API.STREAM.DELETE.sub100_cache"),
    ("cache", subjects.status(REGION, "ingress", "x")),
]


class Members:
    """A connection per user, made when asked for, and what the server complains about to each."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._clients: dict[str, Client] = {}
        self.complaints: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def get(self, user: str) -> Client:
        if user not in self._clients:

            async def on_error(error: Exception) -> None:
                self.complaints.put_nowait((user, str(error)))

            client = self._clients[user] = Client()
            await client.connect(
                self._url, user=user, password=PASSWORD, inbox_prefix=f"_INBOX_{user}", error_cb=on_error
            )
        return self._clients[user]

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()


def answers(connection: socket.socket) -> bool:
    return connection.recv(5) == b"INFO "


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """NATS with the project's own configuration."""
    beside = Path(sys.executable).with_name("nats-server")
    binary = str(beside) if beside.exists() else shutil.which("nats-server")
    assert binary is not None
    port = free_port()
    passwords = [f"SUB100_NATS_{user.upper()}_PASSWORD={PASSWORD}" for user in NATS_USERS]
    config = str(ROOT / "infra/nats/nats.conf")
    directory = tmp_path_factory.mktemp("nats")
    kept = ["-js", "-sd", str(directory / "jetstream")]
    command = ["env", *passwords, binary, "-c", config, "-a", "127.0.0.1", "-p", str(port), *kept]
    server = Server(ChildProcess(command, directory / "log"), "nats", "127.0.0.1", port, answers)
    server.start()
    yield server
    server.close()


@pytest.fixture
async def members(guarded: Server) -> AsyncIterator[Members]:
    made = Members(guarded.url)
    yield made
    await made.close()


@pytest.mark.parametrize(("sender", "receiver", "subject"), FLOWS)
async def test_message_of_the_flow_arrives(
    members: Members, sender: str, receiver: str, subject: str
) -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def on_message(message: Msg) -> None:
        received.put_nowait(message.data)

    listening = await members.get(receiver)
    await listening.subscribe(subject, cb=on_message)
    await listening.flush()
    await (await members.get(sender)).publish(subject, b"hello")
    assert await asyncio.wait_for(received.get(), PATIENCE_S) == b"hello"


@pytest.mark.parametrize(
    ("asker", "replier", "subject"),
    [
        ("ingress", "cache", subjects.cache_lookup(REGION)),
        ("operator", "cache", subjects.cache_admin(REGION)),
        ("operator", "cache", subjects.cache_stats(REGION)),
        ("ingress", "cache", subjects.cache_stats(REGION)),
        ("ingress", "scheduler", subjects.scheduler_place(REGION)),
        ("ingress", "scheduler", subjects.of_replica(subjects.scheduler_place(REGION), "s1")),
        ("ingress", "cache", subjects.of_replica(subjects.cache_lookup(REGION), "c1")),
        ("ingress", "cache", subjects.of_replica(subjects.cache_stats(REGION), "c1")),
        ("scheduler", "decode", subjects.control(REGION, "decode", "w1")),
    ],
)
async def test_request_is_answered(members: Members, asker: str, replier: str, subject: str) -> None:
    async def on_message(message: Msg) -> None:
        await message.respond(b"answer")

    listening = await members.get(replier)
    await listening.subscribe(subject, cb=on_message)
    await listening.flush()
    reply = await (await members.get(asker)).request(subject, b"question", timeout=PATIENCE_S)
    assert reply.data == b"answer"


@pytest.mark.parametrize(("sender", "subject"), FORBIDDEN)
async def test_message_outside_a_users_part_is_refused(members: Members, sender: str, subject: str) -> None:
    await (await members.get(sender)).publish(subject, b"intruder")
    user, complaint = await asyncio.wait_for(members.complaints.get(), PATIENCE_S)
    assert user == sender
    assert f'permissions violation for publish to "{subject}"'.lower() in complaint.lower()


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        ("cache", "sub100.v1.here.ingress.stream.>"),
        ("decode", "sub100.v1.here.prefill.job.*"),
        ("ingress", "_INBOX_scheduler.>"),
        ("operator", "sub100.v1.here.ingress.stream.>"),
        ("scheduler", ">"),
    ],
)
async def test_listening_to_others_is_refused(members: Members, user: str, subject: str) -> None:
    client = await members.get(user)
    await client.subscribe(subject)
    _, complaint = await asyncio.wait_for(members.complaints.get(), PATIENCE_S)
    assert f'permissions violation for subscription to "{subject}"'.lower() in complaint.lower()


async def test_message_may_be_eight_mebibytes(members: Members) -> None:
    assert (await members.get("ingress")).max_payload == 8 * 2**20


async def test_cache_makes_writes_and_reads_the_log_of_invalidations(members: Members) -> None:
    log = DurableLog(await members.get("cache"), LOG_NAME, subjects.cache_log_all())

    await log.ensure(max_age_s=3600, max_bytes=2**20, num_replicas=1)
    position = await log.append(subjects.cache_log(REGION), b"one")
    records = await log.read(position, position)

    assert [(record.position, record.subject, record.data) for record in records] == [
        (position, subjects.cache_log(REGION), b"one")
    ]
    assert (await log.ends()).last == position

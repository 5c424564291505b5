"""What is shown of a NATS URL."""

import asyncio

import pytest
from tests.patience import PATIENCE_S
from tests.servers import free_port

from sub100_shared.bus import Bus, address_of


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
        ("nats://svc:hunter2@host:4222", "nats://host:4222"),
        ("tls://token@host", "tls://host"),
        ("nats://svc:p@ss/w@host:4222", "nats://host:4222"),
        ("svc:hunter2@host:4222", "host:4222"),
        ("nats://a:b@one:1,nats://c:d@two:2", "nats://one:1,nats://two:2"),
    ],
)
def test_address_is_shown_without_user_and_password(url: str, shown: str) -> None:
    assert address_of(url) == shown


async def test_waiting_for_a_server_tells_no_password() -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    port = free_port()
    connecting = asyncio.create_task(
        Bus.connect(f"nats://svc:hunter2@127.0.0.1:{port}", name="x", on_wait=told.put_nowait)
    )
    async with asyncio.timeout(PATIENCE_S):
        reason = await told.get()
    connecting.cancel()
    await asyncio.gather(connecting, return_exceptions=True)
    assert f"nats://127.0.0.1:{port}" in reason
    assert "hunter2" not in reason

"""The traces service on a thread of its own, and an hour of a fleet for it to show."""

import asyncio
import threading
import time
import urllib.request
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tests.browser.fleet_spans import MS, Export, Fleet
from tests.patience import PATIENCE_S

from sub100_traces import otlp
from sub100_traces.config import TracesConfig
from sub100_traces.service import TracesService
from sub100_traces.store import Limits, Store


class Traces:
    """The service on a thread with its own loop, and a way to send it spans."""

    def __init__(self, path: Path) -> None:
        self._config = TracesConfig(port=0, path=str(path))
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="traces")
        self.fleet = Fleet(seed=7)
        self.url = ""

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)

    def close(self) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def send(self, **story: Any) -> str:
        """Export one request that has just ended; returns its id."""
        export = Export()
        length_ms = story.get("answer_ms", 700.0)
        request_id = self.fleet.request(export, time.time_ns() - int(length_ms * MS), **story)
        self.post(export)
        return request_id

    def post(self, export: Export) -> None:
        request = urllib.request.Request(
            f"{self.url}/v1/traces", export.body, {"content-type": otlp.CONTENT_TYPE}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def spawn(coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
            task = asyncio.create_task(coroutine, name=name)
            tasks.add(task)
            return task

        service = TracesService(self._config, spawn)
        await service.start()
        self.url = service.url
        self._ready.set()
        await self._stop.wait()
        await service.stop()


def fill(path: Path, num_minutes: int, per_minute: int) -> None:
    """An hour that went wrong for twelve minutes, as if it had just passed."""
    clock = [0.0]
    store = Store(str(path), Limits(), lambda: clock[0])
    fleet = Fleet()
    end_s = time.time() - 5
    for minute in range(num_minutes):
        clock[0] = end_s - 60 * (num_minutes - minute)
        export = Export()
        trouble = 6.0 if num_minutes * 0.4 <= minute < num_minutes * 0.6 else 1.8
        fleet.some(export, int(clock[0] * 1e9), per_minute, trouble)
        store.write(otlp.parse(export.body).spans)
        clock[0] += 5
        while store.keep_house().is_more:
            pass
    store.close()

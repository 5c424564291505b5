"""``python -m sub100_prefill``."""

from sub100_engine.settings import EngineConfig
from sub100_engine.worker.build import build_worker
from sub100_engine.worker.shell import WorkerShell
from sub100_shared import lifecycle

from .service import PrefillRole


async def create(runtime: lifecycle.Runtime, config: EngineConfig) -> WorkerShell:
    return build_worker(runtime, config, PrefillRole())


if __name__ == "__main__":
    lifecycle.run("prefill", EngineConfig, create)

"""``python -m sub100_decode``."""

from sub100_engine.settings import EngineConfig
from sub100_engine.worker.build import build_worker
from sub100_engine.worker.shell import WorkerShell
from sub100_shared import lifecycle

from .service import DecodeRole


async def create(runtime: lifecycle.Runtime, config: EngineConfig) -> WorkerShell:
    return build_worker(runtime, config, DecodeRole())


if __name__ == "__main__":
    lifecycle.run("decode", EngineConfig, create)

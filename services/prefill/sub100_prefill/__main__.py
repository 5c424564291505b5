"""``python -m sub100_prefill``."""

import os

from sub100_engine.factory import create_engine
from sub100_engine.settings import EngineConfig
from sub100_engine.worker.claims import Limits
from sub100_engine.worker.shell import WorkerShell
from sub100_shared import config, lifecycle

from .service import PrefillRole


async def create(runtime: lifecycle.Runtime) -> WorkerShell:
    settings = config.load(EngineConfig, "SUB100_PREFILL_", os.environ)
    engine = create_engine(settings, runtime.common, os.environ)
    limits = Limits(max_jobs=settings.max_jobs, max_tokens=settings.max_queued_tokens)
    return WorkerShell(runtime, engine, PrefillRole(), limits, pool=settings.pool)


if __name__ == "__main__":
    lifecycle.run("prefill", create)

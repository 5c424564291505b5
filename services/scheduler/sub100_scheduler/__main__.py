"""``python -m sub100_scheduler``."""

import os

from sub100_shared import config, lifecycle
from sub100_shared.clock import monotonic_ms

from .config import SchedulerConfig
from .service import SchedulerService, build


async def create(runtime: lifecycle.Runtime) -> SchedulerService:
    return build(runtime, config.load(SchedulerConfig, "SUB100_SCHEDULER_", os.environ), monotonic_ms)


if __name__ == "__main__":
    lifecycle.run("scheduler", create)

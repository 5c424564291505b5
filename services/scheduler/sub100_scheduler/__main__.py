"""``python -m sub100_scheduler``."""

from sub100_shared import lifecycle
from sub100_shared.clock import monotonic_ms

from .config import SchedulerConfig
from .service import SchedulerService, build


async def create(runtime: lifecycle.Runtime, config: SchedulerConfig) -> SchedulerService:
    return build(runtime, config, monotonic_ms)


if __name__ == "__main__":
    lifecycle.run("scheduler", SchedulerConfig, create)

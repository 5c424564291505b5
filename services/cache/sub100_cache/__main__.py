"""``python -m sub100_cache``."""

import os

from sub100_shared import config, lifecycle
from sub100_shared.clock import monotonic_ms

from .config import CacheConfig
from .service import CacheService, build


async def create(runtime: lifecycle.Runtime) -> CacheService:
    return build(runtime, config.load(CacheConfig, "SUB100_CACHE_", os.environ), monotonic_ms)


if __name__ == "__main__":
    lifecycle.run("cache", create)

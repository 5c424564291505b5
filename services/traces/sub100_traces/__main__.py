"""Composition root: ``python -m sub100_traces``."""

import logging

from sub100_shared.lifecycle import Runtime, Service, run

from .config import TracesConfig
from .service import TracesService


async def build(runtime: Runtime, config: TracesConfig) -> Service:
    logging.getLogger(__name__).info("configured", extra={"host": config.host, "port": config.port})
    return TracesService(config, runtime.spawn)


if __name__ == "__main__":
    run("traces", TracesConfig, build)

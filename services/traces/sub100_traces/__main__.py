"""Composition root: ``python -m sub100_traces``."""

import logging
from collections.abc import Mapping

from sub100_shared import catalog
from sub100_shared.lifecycle import Runtime, Service, run

from .config import TracesConfig
from .service import TracesService


async def build(runtime: Runtime, config: TracesConfig) -> Service:
    logging.getLogger(__name__).info("configured", extra={"host": config.host, "port": config.port})
    service = TracesService(config, runtime.spawn)
    runtime.metrics.observe(catalog.SPANS_TAKEN, lambda: _taken(service))
    runtime.metrics.observe(catalog.SPANS_QUEUED, lambda: service.intake_stats.queued)
    return service


def _taken(service: TracesService) -> Mapping[tuple[str, ...], float]:
    stats = service.intake_stats
    return {("stored",): stats.stored, ("dropped",): stats.dropped}


if __name__ == "__main__":
    run("traces", TracesConfig, build)

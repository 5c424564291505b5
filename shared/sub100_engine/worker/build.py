"""A worker from its settings: the composition that prefill and decode share."""

import os

from sub100_proto.fleet import Limits
from sub100_shared.config import ConfigError
from sub100_shared.lifecycle import Runtime

from ..factory import create_engine
from ..settings import EngineConfig
from .role import WorkerRole
from .shell import WorkerShell
from .transfer_health import TransferHealth


def build_worker(runtime: Runtime, config: EngineConfig, role: WorkerRole) -> WorkerShell:
    """Raises ConfigError naming what the engine lacks or what does not go together."""
    if fault := config.speculation.fault_line(role.role):
        raise ConfigError(fault)
    engine = create_engine(config, runtime.common, os.environ)
    limits = Limits(max_jobs=config.max_jobs, max_queued_tokens=config.max_queued_tokens)
    health = TransferHealth(config.kv_fault_after_s)
    return WorkerShell(runtime, engine, role, limits, health, pool=config.pool)

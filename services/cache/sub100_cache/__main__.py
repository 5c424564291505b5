"""``python -m sub100_cache``."""

import time

from sub100_shared import lifecycle
from sub100_shared.clock import monotonic_ms
from sub100_shared.config import ConfigError, read_secret

from .composition import compose
from .config import CacheConfig
from .embedders.api import WrongDimension
from .embedders.choice import open_embedder
from .service import CacheService
from .store.commands import open_commands
from .store.ledger import Quota
from .tenants import load_tenants


async def create(runtime: lifecycle.Runtime, config: CacheConfig) -> CacheService:
    common = runtime.common
    password = (
        read_secret(common.redis_password_file, "SUB100_REDIS_PASSWORD_FILE").decode()
        if common.redis_password_file
        else None
    )
    try:
        commands = open_commands(
            common.redis_url,
            password=password,
            max_connections=config.max_connections,
            is_cluster=config.redis_cluster,
        )
    except ValueError as error:
        raise ConfigError(f"SUB100_REDIS_URL: {error}") from error
    tenants = load_tenants(config.tenants_file, Quota(config.max_tenant_entries, config.max_tenant_bytes))
    if tenants.is_anything_shared and config.log == "none":
        raise ConfigError("SUB100_CACHE_LOG is none: regions that share answers must share invalidations")
    embedder = open_embedder(config)
    if embedder is not None:
        try:
            await embedder.check()
        except WrongDimension as error:
            await embedder.close()
            raise ConfigError(f"SUB100_CACHE_EMBEDDER_DIMENSION: {error}") from error
    return compose(runtime, config, commands, embedder, tenants, monotonic_ms, time.time)


if __name__ == "__main__":
    lifecycle.run("cache", CacheConfig, create)

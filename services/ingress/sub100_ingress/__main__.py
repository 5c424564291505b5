"""``python -m sub100_ingress``."""

import os

from sub100_shared import config, lifecycle

from .config import IngressConfig
from .service import IngressService, build


async def create(runtime: lifecycle.Runtime) -> IngressService:
    return await build(runtime, config.load(IngressConfig, "SUB100_INGRESS_", os.environ))


if __name__ == "__main__":
    lifecycle.run("ingress", create)

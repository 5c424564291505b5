"""Everything that can be refused before anything starts, and the choices that a start needs."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from sub100_bootstrap import checks
from sub100_bootstrap.failure import Failure

from . import credentials, lifetime, models, ports
from .directories import Directories
from .options import SERVICES, Options
from .runner import Runner
from .stack import Stack, replica_name

Say = Callable[[str], None]


def prepare(directories: Directories, options: Options, say: Say) -> Stack:
    """Check, clean up after a crash, get the model, make directories and secrets; raises Failure."""
    if Runner(directories.socket).is_running():
        raise Failure("already running from this checkout: 'make status' shows it, 'make down' stops it")
    if directories.run.exists():
        say("cleaning up after a run that did not end well")
        lifetime.clean_up(directories, say)
    ports.demand("PORT", options.port)
    checks.memory(options.needed_memory_gib, f"engine {options.engine} with its services")
    engine_python = ""
    if options.engine == "vllm":
        checks.tool("gcc", "gcc")
        engine_python = _interpreter("SUB100_ENGINE_PYTHON")
    model, name = models.resolve(options.model, directories.cache / "models", say)
    directories.create()
    credentials.write_run_secrets(directories.secrets)
    names = [
        replica_name(service, index + 1)
        for service in SERVICES
        for index in range(options.replicas.get(service, 1))
    ]
    first, *others = [replica_name("ingress", index + 1) for index in range(options.replicas["ingress"])]
    return Stack(
        engine=options.engine,
        model=str(model),
        model_name=name,
        run_id=lifetime.new_run_id(),
        secrets=str(directories.secrets),
        control_python=_interpreter("SUB100_CONTROL_PYTHON"),
        engine_python=engine_python,
        redisearch=os.environ.get("SUB100_REDISEARCH", ""),
        nats_port=ports.any_free(),
        redis_port=ports.any_free(),
        traces_port=ports.prefer(options.traces_port),
        ingress_ports={first: options.port} | {other: ports.any_free() for other in others},
        ops_ports=dict(zip(names, ports.several_free(len(names)), strict=True)),
    )


def with_ports(stack: Stack, service: str, name: str) -> Stack:
    """Each replica has an ops port of its own, and each ingress replica one for clients."""
    own, ops = ports.several_free(2)
    ingress_ports = stack.ingress_ports | ({name: own} if service == "ingress" else {})
    return msgspec.structs.replace(
        stack, ingress_ports=ingress_ports, ops_ports=stack.ops_ports | {name: ops}
    )


def without_ports(stack: Stack, names: Iterable[str]) -> Stack:
    gone = set(names)

    def kept(by_name: dict[str, int]) -> dict[str, int]:
        return {name: port for name, port in by_name.items() if name not in gone}

    return msgspec.structs.replace(
        stack, ingress_ports=kept(stack.ingress_ports), ops_ports=kept(stack.ops_ports)
    )


def _interpreter(variable: str) -> str:
    path = os.environ.get(variable, "")
    if not Path(path).is_file():
        raise Failure(f"{variable} does not name a Python: start this through make")
    return path

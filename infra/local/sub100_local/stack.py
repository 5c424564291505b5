"""The composition: which programs make a stack, and what each is told. Data only; nothing is started here."""

from pathlib import Path
from typing import Final

import msgspec

from sub100_bootstrap.places import ROOT

from . import credentials, ports
from .options import SERVICES, EngineName
from .programs import Program

REGION: Final = "local"
DRAIN_TIMEOUT_S: Final = 20
STOP_WAIT_S: Final = 60
"""A drain, and the bounded steps that follow it in a service's shutdown."""

NATS_WAVE, REDIS_WAVE, TRACES_WAVE, CONTROL_WAVE, WORKER_WAVE, INGRESS_WAVE = 10, 20, 30, 40, 50, 60
_WAVES: Final = {
    "traces": TRACES_WAVE,
    "cache": CONTROL_WAVE,
    "scheduler": CONTROL_WAVE,
    "prefill": WORKER_WAVE,
    "decode": WORKER_WAVE,
    "ingress": INGRESS_WAVE,
}


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """What a running stack was started with; written down so that another process can scale it.

    ``ingress_ports`` and ``ops_ports`` (health, metrics, drain) by replica name. ``model`` is a local
    directory, ``model_name`` what clients call it.
    """

    engine: EngineName
    model: str
    model_name: str
    run_id: str
    secrets: str
    control_python: str
    engine_python: str
    redisearch: str
    nats_port: int
    redis_port: int
    traces_port: int
    ingress_ports: dict[str, int]
    ops_ports: dict[str, int]

    def server_programs(self) -> list[Program]:
        return [self._nats(), self._redis()]

    def service_program(self, service: str, index: int) -> Program:
        """Replica ``index`` (from 1) of a service; it must have its ports already."""
        name = replica_name(service, index)
        is_worker = service in ("prefill", "decode")
        uses_vllm = is_worker and self.engine == "vllm"
        return Program(
            name=name,
            service=service,
            wave=_WAVES[service],
            command=(self.engine_python if uses_vllm else self.control_python, "-m", f"sub100_{service}"),
            environment=self._common(service, name) | self._own(service, name),
            # Where cores are few, the engines' long steps must not delay the control plane's short ones.
            nice=5 if uses_vllm else 0,
            settle_s=30 if uses_vllm else 5,
            stop_wait_s=STOP_WAIT_S,
        )

    def nats_url(self) -> str:
        return f"nats://{ports.HOST}:{self.nats_port}"

    def _common(self, service: str, name: str) -> dict[str, str]:
        secrets = Path(self.secrets)
        return {
            "SUB100_REGION": REGION,
            "SUB100_INSTANCE": name,
            "SUB100_NATS_URL": self.nats_url(),
            "SUB100_NATS_USER": service,
            "SUB100_NATS_PASSWORD_FILE": str(secrets / f"nats-{service}"),
            "SUB100_SECRET_FILE": str(secrets / "deployment"),
            "SUB100_DRAIN_TIMEOUT_S": str(DRAIN_TIMEOUT_S),
            "SUB100_DIE_WITH_PARENT": "1",
            "SUB100_OPS_HOST": ports.HOST,
            "SUB100_OPS_PORT": str(self.ops_ports[name]),
            # The traces service takes spans only.
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{ports.HOST}:{self.traces_port}",
        }

    def _own(self, service: str, name: str) -> dict[str, str]:
        match service:
            case "ingress":
                return {
                    "SUB100_INGRESS_HOST": ports.HOST,
                    "SUB100_INGRESS_PORT": str(self.ingress_ports[name]),
                    "SUB100_INGRESS_MODEL": self.model,
                    "SUB100_INGRESS_SERVED_NAME": self.model_name,
                    "SUB100_INGRESS_KEYS_FILE": str(Path(self.secrets) / "keys.json"),
                }
            case "cache":
                password = credentials.read(Path(self.secrets), "redis")
                return {
                    "SUB100_REDIS_URL": f"redis://:{password}@{ports.HOST}:{self.redis_port}/0",
                    "SUB100_CACHE_EMBEDDER": "minilm",
                }
            case "prefill" | "decode":
                return self._worker(service)
            case "traces":
                # Its own spans would fill the list that it shows.
                return {"SUB100_TRACES_PORT": str(self.traces_port), "OTEL_SDK_DISABLED": "true"}
            case _:
                return {}

    def _worker(self, service: str) -> dict[str, str]:
        prefix = f"SUB100_{service.upper()}_"
        own = {
            f"{prefix}ENGINE": self.engine,
            f"{prefix}MODEL": self.model,
            f"{prefix}SERVED_NAME": self.model_name,
        }
        if self.engine == "sim":
            return own | {f"{prefix}TIMING": "h200-8b"}
        return own | {
            # Binding threads to cores that others use made the first token seven times slower.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }

    def _nats(self) -> Program:
        return Program(
            name="nats",
            service="nats",
            wave=NATS_WAVE,
            command=(
                *(str(Path(self.control_python).with_name("nats-server")), "-c"),
                *(str(ROOT / "infra/nats/nats.conf"), "-a", ports.HOST, "-p", str(self.nats_port)),
            ),
            environment={
                f"SUB100_NATS_{user.upper()}_PASSWORD": credentials.read(Path(self.secrets), f"nats-{user}")
                for user in credentials.NATS_USERS
            },
        )

    def _redis(self) -> Program:
        return Program(
            name="redis",
            service="redis",
            wave=REDIS_WAVE,
            command=(
                str(Path(self.control_python).with_name("redis-server")),
                str(Path(self.secrets) / "redis.conf"),
            ),
            environment={},
        )

    def redis_config(self) -> str:
        """Holds the password, so it lies among the secrets and not on a command line."""
        secrets = Path(self.secrets)
        module = f'loadmodule "{self.redisearch}"\n' if self.redisearch else ""
        return (
            f'include "{ROOT / "infra/redis/redis.conf"}"\n{module}'
            f'bind {ports.HOST}\nport {self.redis_port}\ndir "{secrets}"\n'
            f"requirepass {credentials.read(secrets, 'redis')}\n"
        )


def replica_name(service: str, index: int) -> str:
    return f"{service}-{index}"


def service_of(name: str) -> str:
    return name.rpartition("-")[0] or name


def waves_of_stop(names: list[str]) -> list[list[str]]:
    """Programs that stop together, in the order ingress, workers, control plane, traces, Redis, NATS."""
    waves = {**_WAVES, "nats": NATS_WAVE, "redis": REDIS_WAVE}
    by_wave: dict[int, list[str]] = {}
    for name in names:
        by_wave.setdefault(waves[service_of(name)], []).append(name)
    return [sorted(by_wave[wave]) for wave in sorted(by_wave, reverse=True)]


def replicas_of(names: list[str], service: str) -> list[int]:
    """Indexes of the replicas of ``service`` among ``names``, rising."""
    assert service in SERVICES
    prefix = f"{service}-"
    return sorted(int(name.removeprefix(prefix)) for name in names if name.startswith(prefix))

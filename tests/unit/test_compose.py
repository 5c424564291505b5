"""The compose file against what the services really read, and against its own promises."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml  # type: ignore[import-untyped]

from sub100_cache.config import CacheConfig
from sub100_engine.settings import EngineConfig
from sub100_ingress.config import IngressConfig
from sub100_scheduler.config import SchedulerConfig
from sub100_shared.config import Common, load, load_common
from sub100_traces.config import TracesConfig

ROOT = Path(__file__).resolve().parents[2]
CONFIGS: dict[str, type[msgspec.Struct]] = {
    "ingress": IngressConfig,
    "cache": CacheConfig,
    "scheduler": SchedulerConfig,
    "prefill": EngineConfig,
    "decode": EngineConfig,
    "traces": TracesConfig,
}
_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<text>[^}]*))?\}")


def interpolate(text: str) -> str:
    """Every variable at its default; one that must be set becomes /set."""
    return _VARIABLE.sub(lambda match: match["text"] or "" if match["kind"] == "-" else "/set", text)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load(interpolate((ROOT / "docker-compose.yml").read_text()))
    return parsed


def services(compose: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from compose["services"].items()


def test_compose_runs_every_service_with_nats_and_redis(compose: dict[str, Any]) -> None:
    always = {name for name, service in services(compose) if "profiles" not in service}
    assert always == {"nats", "redis", *CONFIGS}


def test_compose_service_is_hardened_and_limited(compose: dict[str, Any]) -> None:
    for name, service in services(compose):
        assert service["user"] == "10001:10001", name
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}, name
        assert "privileged" not in service, name


def test_compose_service_has_a_health_check_unless_its_image_has_no_shell(compose: dict[str, Any]) -> None:
    unchecked = {name for name, service in services(compose) if "healthcheck" not in service}
    assert unchecked == {"collector", "jaeger"}


def test_compose_publishes_http_alone_and_on_loopback(compose: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in services(compose) if "ports" in service}
    assert published == {
        "ingress": ["127.0.0.1:8080:8080"],
        "traces": ["127.0.0.1:8090:8090"],
        "jaeger": ["127.0.0.1:16686:16686"],
        "prometheus": ["127.0.0.1:9090:9090"],
    }


def test_compose_keeps_redis_out_of_reach_of_all_but_the_cache(compose: dict[str, Any]) -> None:
    assert {name for name, service in services(compose) if "store" in service["networks"]} == {
        "redis",
        "cache",
    }
    assert compose["networks"]["bus"] == compose["networks"]["store"] == {"internal": True}


@pytest.mark.parametrize("name", CONFIGS)
def test_compose_environment_is_what_the_service_reads(compose: dict[str, Any], name: str) -> None:
    environment = compose["services"][name]["environment"]
    prefix = f"SUB100_{name.upper()}_"
    shared = {f"SUB100_{field.upper()}" for field in Common.__struct_fields__}

    load(CONFIGS[name], prefix, environment)
    common = load_common(environment, name)

    ours = {variable for variable in environment if variable.startswith("SUB100_")}
    assert {variable for variable in ours if not variable.startswith(prefix)} <= shared
    assert common.nats_user == name
    for path in (common.nats_password_file, common.secret_file):
        assert path.removeprefix("/run/secrets/") in compose["services"][name]["secrets"]


def test_compose_gives_a_service_no_secret_of_another(compose: dict[str, Any]) -> None:
    for name in CONFIGS:
        secrets = compose["services"][name]["secrets"]
        assert [secret for secret in secrets if secret.startswith("nats_")] == [f"nats_{name}"]
    assert {name for name, service in services(compose) if "api_keys" in service.get("secrets", [])} == {
        "ingress"
    }


def test_compose_secrets_are_the_files_that_prepare_makes(compose: dict[str, Any], tmp_path: Path) -> None:
    directory = prepare(tmp_path)

    for secret in compose["secrets"].values():
        made = directory / Path(secret["file"]).name
        assert made.stat().st_mode & 0o777 == 0o444, made
    assert (directory / "demo.key").stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700


def test_prepare_keeps_what_it_made_before(tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in prepare(tmp_path).iterdir()}

    assert {path.name: path.read_bytes() for path in prepare(tmp_path).iterdir()} == before


def test_nats_passwords_cover_every_user_of_the_bus(tmp_path: Path) -> None:
    passwords = (prepare(tmp_path) / "nats-passwords").read_text()

    given = set(re.findall(r"^(\w+)=", passwords, re.MULTILINE))
    wanted = set(re.findall(r"password: \$(\w+)", (ROOT / "infra/nats/nats.conf").read_text()))
    assert given == wanted


def prepare(tmp_path: Path) -> Path:
    directory = tmp_path / "secrets"
    subprocess.run([ROOT / "infra/containers/prepare.sh", directory], check=True, timeout=30)
    return directory

"""The composition of a local stack: who is told what, and in which order it ends."""

import hashlib
import json
from pathlib import Path

import msgspec
import pytest

from sub100_engine.settings import EngineConfig
from sub100_ingress.config import IngressConfig
from sub100_ingress.keys import KeyRing
from sub100_local import credentials, stack
from sub100_local.banner import banner
from sub100_local.directories import Directories, of_checkout
from sub100_local.options import SERVICES, EngineName
from sub100_local.stack import Stack
from sub100_shared.config import load, load_common
from sub100_traces.config import TracesConfig


def a_stack(secrets: Path, engine: EngineName = "vllm") -> Stack:
    credentials.write_run_secrets(secrets)
    return Stack(
        engine=engine,
        model="/models/small",
        model_name="small",
        run_id="r",
        secrets=str(secrets),
        control_python="/control/bin/python",
        engine_python="/engine/bin/python",
        redisearch="/control/redisearch.so",
        nats_port=4001,
        redis_port=4002,
        traces_port=4003,
        ingress_ports={"ingress-1": 8080, "ingress-2": 4004},
        ops_ports=dict.fromkeys(("ingress-2", "decode-3", *(f"{service}-1" for service in SERVICES)), 4005),
    )


@pytest.mark.parametrize("service", ["ingress", "cache", "scheduler", "prefill", "decode", "traces"])
def test_service_accepts_its_environment(tmp_path: Path, service: str) -> None:
    environment = a_stack(tmp_path).service_program(service, 1).environment
    common = load_common(environment, service)
    assert common.instance == f"{service}-1"
    assert common.nats_user == service
    assert common.nats_url == "nats://127.0.0.1:4001"
    assert len(common.secret()) >= 16
    assert (common.ops_host, common.ops_port) == ("127.0.0.1", 4005)
    assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:4003"


def test_ingress_replica_has_its_own_port(tmp_path: Path) -> None:
    environment = a_stack(tmp_path).service_program("ingress", 2).environment
    config = load(IngressConfig, "SUB100_INGRESS_", environment)
    assert (config.host, config.port, config.model, config.served_name) == (
        "127.0.0.1",
        4004,
        "/models/small",
        "small",
    )


def test_traces_service_keeps_its_own_spans_out(tmp_path: Path) -> None:
    environment = a_stack(tmp_path).service_program("traces", 1).environment
    assert load(TracesConfig, "SUB100_TRACES_", environment).port == 4003
    assert environment["OTEL_SDK_DISABLED"] == "true"


def test_worker_on_vllm_runs_in_the_engine_environment_and_yields_to_the_control_plane(
    tmp_path: Path,
) -> None:
    program = a_stack(tmp_path).service_program("decode", 3)
    assert program.command == ("/engine/bin/python", "-m", "sub100_decode")
    assert program.nice > 0
    assert program.environment["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert load(EngineConfig, "SUB100_DECODE_", program.environment).engine == "vllm"


def test_worker_on_the_simulation_needs_no_engine_environment(tmp_path: Path) -> None:
    program = a_stack(tmp_path, "sim").service_program("prefill", 1)
    assert program.command == ("/control/bin/python", "-m", "sub100_prefill")
    assert load(EngineConfig, "SUB100_PREFILL_", program.environment).engine == "sim"


def test_stop_goes_from_the_door_to_the_bus() -> None:
    names = [
        "nats",
        "redis",
        "cache-1",
        "decode-1",
        "ingress-1",
        "ingress-2",
        "prefill-1",
        "scheduler-1",
        "traces-1",
    ]
    assert stack.waves_of_stop(names) == [
        ["ingress-1", "ingress-2"],
        ["decode-1", "prefill-1"],
        ["cache-1", "scheduler-1"],
        ["traces-1"],
        ["redis"],
        ["nats"],
    ]


def test_replicas_are_found_by_number_not_by_text() -> None:
    assert stack.replicas_of(["prefill-10", "prefill-2", "decode-1"], "prefill") == [2, 10]


def test_stack_survives_being_written_down(tmp_path: Path) -> None:
    made = a_stack(tmp_path)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Stack) == made


def test_no_password_stands_on_a_command_line(tmp_path: Path) -> None:
    made = a_stack(tmp_path)
    passwords = {path.read_text() for path in tmp_path.iterdir()}
    assert len(passwords) == 2 + len(credentials.NATS_USERS)
    words = {word for program in made.server_programs() for word in program.command}
    assert not [word for word in words if any(password in word for password in passwords)]
    assert credentials.read(tmp_path, "redis") in made.redis_config()


def test_keys_file_lets_the_demo_key_in_and_holds_only_its_hash(tmp_path: Path) -> None:
    key = credentials.demo_key(tmp_path)
    assert credentials.demo_key(tmp_path) == key
    credentials.write_keys_file(tmp_path / "keys.json", key)
    assert key not in (tmp_path / "keys.json").read_text()
    tenant = KeyRing.load(tmp_path / "keys.json").authenticate([f"Bearer {key}".encode()])
    assert (tenant.name, tenant.cache) == ("demo", "all")
    assert (
        json.loads((tmp_path / "keys.json").read_text())[0]["hash"]
        == hashlib.sha256(key.encode()).hexdigest()
    )


def test_banner_gives_the_same_request_twice(tmp_path: Path) -> None:
    lines = banner(a_stack(tmp_path), "sk-demo-1", 12.0).splitlines()
    curls = [line for line in lines if "curl" in line]
    assert len(curls) == 2
    assert curls[0] == curls[1]
    assert "http://127.0.0.1:8080/v1/chat/completions" in curls[0]
    assert "sk-demo-1" in curls[0]
    assert any("http://127.0.0.1:4003/" in line for line in lines)


def test_checkouts_never_share_a_run(tmp_path: Path) -> None:
    one, other = of_checkout(tmp_path / "one"), of_checkout(tmp_path / "other")
    assert one.run != other.run
    assert one.logs != other.logs
    assert one == of_checkout(tmp_path / "one")


def test_fresh_run_directory_is_private_and_logs_of_the_last_run_are_gone(tmp_path: Path) -> None:
    directories = Directories(cache=tmp_path, run=tmp_path / "run", logs=tmp_path / "logs")
    directories.logs.mkdir()
    (directories.logs / "old-1.log").touch()
    directories.create()
    assert list(directories.logs.iterdir()) == []
    assert directories.run.stat().st_mode & 0o777 == 0o700

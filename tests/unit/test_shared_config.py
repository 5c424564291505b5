from pathlib import Path

import msgspec
import pytest

from sub100_shared.config import Common, ConfigError, load, load_common


class Example(msgspec.Struct, frozen=True, kw_only=True):
    port: int
    name: str = "x"
    ratio: float = 0.5
    on: bool = False


def test_load_converts_values_and_ignores_other_prefixes() -> None:
    env = {"SUB100_X_PORT": "80", "SUB100_X_ON": "true", "SUB100_Y_PORT": "nope", "PATH": "/bin"}
    assert load(Example, "SUB100_X_", env) == Example(port=80, on=True)


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"SUB100_X_PORT": "eighty"}, "SUB100_X_PORT"),
        ({}, "port"),
        ({"SUB100_X_PORT": "1", "SUB100_X_PROT": "2"}, "SUB100_X_PROT"),
        ({"SUB100_X_PORT": "1", "SUB100_X_ON": "perhaps"}, "SUB100_X_ON"),
    ],
)
def test_load_names_the_variable_at_fault(env: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load(Example, "SUB100_X_", env)


def test_common_gives_each_process_its_own_instance() -> None:
    first, second = load_common({}, "cache"), load_common({}, "cache")
    assert first.instance != second.instance
    assert load_common({"SUB100_INSTANCE": "cache-1"}, "cache").instance == "cache-1"


def test_common_leaves_variables_of_services_alone() -> None:
    assert load_common({"SUB100_INGRESS_PORT": "1", "SUB100_REGION": "eu"}, "cache").region == "eu"


def test_secret_refuses_a_short_or_missing_file(tmp_path: Path) -> None:
    short = tmp_path / "secret"
    short.write_bytes(b"short")
    with pytest.raises(ConfigError, match="SUB100_SECRET_FILE"):
        Common(secret_file=str(short)).secret()
    with pytest.raises(ConfigError, match="SUB100_SECRET_FILE"):
        Common(secret_file=str(tmp_path / "absent")).secret()
    with pytest.raises(ConfigError, match="SUB100_SECRET_FILE"):
        Common().secret()

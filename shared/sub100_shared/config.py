"""Configuration from the environment: read once, in ``__main__``, into a frozen Struct.

``SUB100_<SERVICE>_<FIELD>`` belongs to one service; the shared variables are the fields of ``Common``.
A variable with a service's prefix that no field claims, or a value of the wrong type, stops
start-up and is named. Standard ``OTEL_*`` variables are left to OpenTelemetry.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

_COMMON_PREFIX: Final = "SUB100_"


class ConfigError(ValueError):
    """One line that names the variable at fault."""


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """What every service shares.

    ``instance`` names this process among its replicas; it is a subject key. ``secret_file`` holds
    the deployment secret (KV hand-over, cache salts). ``ops_port``: the operator's HTTP endpoint (see
    ``ops``), 0 for none. ``metrics_tenants``: whether metrics name tenants.
    """

    region: str = "local"
    nats_url: str = "nats://127.0.0.1:4222"
    redis_url: str = "redis://127.0.0.1:6379/0"
    redis_password_file: str = ""
    instance: str = ""
    secret_file: str = ""
    nats_user: str = ""
    nats_password_file: str = ""
    ops_host: str = "127.0.0.1"
    ops_port: int = 0
    drain_timeout_s: float = 20.0
    metrics_tenants: bool = True
    log_level: str = "INFO"

    def secret(self) -> bytes:
        """The deployment secret; raises ConfigError if it is not configured or too short."""
        return read_secret(self.secret_file, "SUB100_SECRET_FILE")


def read_secret(path: str, variable: str) -> bytes:
    """Read a secret of at least 16 bytes; raises ConfigError naming ``variable``."""
    if not path:
        raise ConfigError(f"{variable} is not set")
    try:
        value = Path(path).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"{variable}: cannot read {path}: {error.strerror}") from error
    if len(value) < 16:
        raise ConfigError(f"{variable}: {path} holds fewer than 16 bytes")
    return value


def load(config_type: type[T], prefix: str, environ: Mapping[str, str]) -> T:
    """Build ``config_type`` from the variables that start with ``prefix``; raises ConfigError."""
    fields = {
        prefix + field.encode_name.upper(): field.encode_name for field in msgspec.structs.fields(config_type)
    }
    values: dict[str, str] = {}
    for name, value in environ.items():
        if not name.startswith(prefix):
            continue
        if name not in fields:
            raise ConfigError(f"unknown variable {name} (known: {', '.join(sorted(fields))})")
        values[fields[name]] = value
    try:
        return msgspec.convert(values, config_type, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{prefix}*: {_name_field(str(error), prefix)}") from error


def load_common(environ: Mapping[str, str], service: str) -> Common:
    """The shared variables; an empty ``instance`` gets a random one."""
    names = {_COMMON_PREFIX + name.upper() for name in Common.__struct_fields__}
    common = load(Common, _COMMON_PREFIX, {name: value for name, value in environ.items() if name in names})
    if common.instance:
        return common
    return msgspec.structs.replace(common, instance=f"{service}-{secrets.token_hex(4)}")


def _name_field(message: str, prefix: str) -> str:
    """msgspec says ``... - at `$.port```; an operator looks for the variable."""
    text, at, field = message.partition(" - at `$.")
    return f"{prefix}{field.rstrip('`').upper()}: {text}" if at else text

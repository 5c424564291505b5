"""``secret_files.py DIRECTORY``: the files behind the compose file's secrets; prints where the demo key lies.

Compose mounts each file as it is, and its readers have another uid. So the files may be read by all, but they
lie in a directory that only its owner may enter: on the host nobody else gets at them.
"""

import secrets
import sys
from pathlib import Path

from sub100_local import credentials, private_files

DEMO_KEY = "demo.key"
OPERATOR_KEY = "operator.key"
"""What the traces page asks for: it listens on more than loopback in its container."""


def make(directory: Path) -> Path:
    """Make what is missing, all or nothing; returns the demo key's file. An earlier run's secrets stay."""
    key = private_files.directory(directory) / DEMO_KEY
    operator = directory / OPERATOR_KEY
    if not operator.exists():
        private_files.write(operator, f"op-{secrets.token_urlsafe(24)}\n".encode())
        operator.chmod(0o444)
    if key.exists():
        return key
    credentials.write_run_secrets(directory)
    passwords = {user: credentials.read(directory, f"nats-{user}") for user in credentials.NATS_USERS}
    lines = [f"SUB100_NATS_{user.upper()}_PASSWORD={value}\n" for user, value in passwords.items()]
    private_files.write(directory / "nats-passwords", "".join(lines).encode())
    password = credentials.read(directory, "redis")
    private_files.write(directory / "redis-auth", f"requirepass {password}\n".encode())
    value = f"sk-demo-{secrets.token_urlsafe(24)}"
    credentials.write_keys_file(directory / "keys.json", value)
    for path in directory.iterdir():
        path.chmod(0o444)
    private_files.write(key, f"{value}\n".encode())
    return key


if __name__ == "__main__":
    made = make(Path(sys.argv[1]).absolute())
    print(f"demo key: {made}\noperator key of the traces page: {made.with_name(OPERATOR_KEY)}")

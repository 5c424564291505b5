"""``python -m sub100_cache.admin invalidate|erase|stats --tenant NAME``: the operator's hand on the cache.

Over the bus, as its user ``operator``, with the variables that every service takes (``SUB100_NATS_URL``,
``SUB100_NATS_USER``, ``SUB100_NATS_PASSWORD_FILE``, ``SUB100_REGION``). Exit code 0: done; 1: not done, or
not wholly; 2: bad arguments or configuration.
"""

import argparse
import asyncio
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

import msgspec

from sub100_proto import codec, subjects
from sub100_proto.cache import CacheInvalidate, CacheInvalidated, CacheStats, CacheStatsQuery
from sub100_shared.bus import Bus, BusUnavailable, NoResponders, ReplyTimeout, address_of
from sub100_shared.config import Common, ConfigError, load_common, read_secret

CONNECT_TIMEOUT_S: Final = 10.0
TIMEOUT_S: Final = 120.0
"""An erasure scans the whole store."""

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d{1,9})([smhd])")

Command = CacheInvalidate | CacheStatsQuery


def parse(arguments: Sequence[str], now_s: float) -> Command:
    """The message that the arguments mean; exits with 2 for bad ones."""
    parser = _Parser(prog="sub100_cache.admin", description="Invalidate, erase or count a tenant's answers.")
    parser.add_argument("action", choices=("invalidate", "erase", "stats"))
    parser.add_argument("--tenant", required=True)
    parser.add_argument("--scope", default="", help="64 hexadecimal digits: only this scope")
    parser.add_argument("--revision", default="", help="only answers of this revision of a model")
    parser.add_argument("--older-than", default="", help="only answers older than e.g. 30m, 12h, 7d")
    parsed = parser.parse_args(arguments)
    if not parsed.tenant:
        parser.error("--tenant is empty")
    if parsed.action == "stats":
        if parsed.scope or parsed.revision or parsed.older_than:
            parser.error("stats are of a whole tenant")
        return CacheStatsQuery(tenant=parsed.tenant)
    try:
        scope = bytes.fromhex(parsed.scope)
    except ValueError:
        parser.error(f"--scope: not hexadecimal: {parsed.scope}")
    if len(scope) not in (0, 32):
        parser.error("--scope: a scope has 64 hexadecimal digits")
    before_s = 0.0
    if parsed.older_than:
        duration = _DURATION.fullmatch(parsed.older_than)
        if duration is None:
            parser.error("--older-than: a number and one of s, m, h, d, e.g. 12h")
        before_s = now_s - int(duration[1]) * _UNITS_S[duration[2]]
    return CacheInvalidate(
        tenant=parsed.tenant,
        scope=scope,
        revision=parsed.revision,
        before_unix_s=before_s,
        erase=parsed.action == "erase",
    )


def told(reply: CacheInvalidated | CacheStats, command: Command) -> str:
    """One line: what was done, or what was counted."""
    if reply.error:
        return f"error: {reply.error}"
    if isinstance(reply, CacheInvalidated):
        is_erasure = isinstance(command, CacheInvalidate) and command.erase
        counts = f" num_erased={reply.num_erased} num_left={reply.num_left}" if is_erasure else ""
        doubt = "" if reply.is_known else f": nothing was known here of a tenant {command.tenant}"
        return f"invalidated{counts}{doubt}"
    fields = msgspec.structs.asdict(reply)
    return " ".join(f"{name}={value}" for name, value in fields.items() if name != "error")


async def ask(bus: Bus, region: str, command: Command) -> CacheInvalidated | CacheStats:
    """Raises NoResponders, ReplyTimeout, BusUnavailable, MsgspecError."""
    of = subjects.cache_stats if isinstance(command, CacheStatsQuery) else subjects.cache_admin
    msg = await bus.request(of(region), codec.encode(command), timeout_s=TIMEOUT_S)
    return codec.decode_cache_admin_reply(msg.data)


async def run(common: Common, command: Command) -> int:
    password = (
        read_secret(common.nats_password_file, "SUB100_NATS_PASSWORD_FILE").decode()
        if common.nats_password_file
        else ""
    )
    connecting = Bus.connect(common.nats_url, name="cache-admin", user=common.nats_user, password=password)
    try:
        bus = await asyncio.wait_for(connecting, CONNECT_TIMEOUT_S)
    except TimeoutError:
        return _fail(f"no NATS at {address_of(common.nats_url)}")
    try:
        reply = await ask(bus, common.region, command)
    except (NoResponders, ReplyTimeout, BusUnavailable, msgspec.MsgspecError) as error:
        return _fail(str(error))
    finally:
        await bus.close(2)
    sys.stdout.write(f"{told(reply, command)}\n")
    return 1 if reply.error or (isinstance(reply, CacheInvalidated) and reply.num_left) else 0


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    command = parse(arguments, time.time())
    try:
        return asyncio.run(run(load_common(environ, "cache-admin"), command))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{self.prog}: {message}\n")
        raise SystemExit(2)


def _fail(reason: str) -> int:
    sys.stderr.write(f"{reason}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))

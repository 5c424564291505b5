"""``python -m sub100_local run|up|down|status|logs|scale|model|cache``; see ``make help``."""

import argparse
import asyncio
import logging
import os
import sys

from sub100_bootstrap.failure import Failure

from . import cache_admin, commands, directories, lifetime, models, options, report
from .options import Options
from .programs import log_path

_say = lifetime.stderr


def main(arguments: list[str]) -> int:
    parsed = _parse(arguments)
    # What the bus client has to say while servers come and go is said better by this program.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        where = directories.of_checkout()
        match parsed.command:
            case "run":
                return asyncio.run(commands.run(where, _options(parsed), _say))
            case "up":
                return asyncio.run(commands.up(where, _options(parsed), _say))
            case "down":
                return asyncio.run(commands.down(where, _say))
            case "status":
                return asyncio.run(report.status(where))
            case "scale":
                wanted = options.parse_replicas(parsed.replicas)
                return asyncio.run(commands.scale(where, wanted, _say))
            case "model":
                print(models.resolve(parsed.model, where.cache / "models", _say)[0])
                return 0
            case "cache":
                return cache_admin.run(where, parsed.arguments)
            case _:
                return _logs(where, parsed.programs)
    except Failure as failure:
        _say(f"error: {failure}")
        return 1
    except KeyboardInterrupt:
        return 130


def _parse(arguments: list[str]) -> argparse.Namespace:
    """What follows ``cache`` is the cache's own command's, its ``--help`` too."""
    if arguments[:1] == ["cache"]:
        return argparse.Namespace(command="cache", arguments=arguments[1:])
    return _parser().parse_args(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sub100_local", description="The whole stack on this machine.")
    subparsers = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "up"):
        sub = subparsers.add_parser(name)
        sub.add_argument("--engine", default="vllm")
        sub.add_argument("--model", default="")
        sub.add_argument("--port", default="8080")
        sub.add_argument("--traces-port", default="8090")
        sub.add_argument("replicas", nargs="*", metavar="service=count")
    subparsers.add_parser("down")
    subparsers.add_parser("status")
    subparsers.add_parser("scale").add_argument("replicas", nargs="*", metavar="service=count")
    subparsers.add_parser("model").add_argument("model", nargs="?", default=options.DEFAULT_MODEL)
    subparsers.add_parser("cache")
    subparsers.add_parser("logs").add_argument("programs", nargs="*")
    return parser


def _options(parsed: argparse.Namespace) -> Options:
    """The simulated engine needs a tokenizer only, and the tiny model's is made in seconds."""
    engine = options.parse_engine(parsed.engine)
    return Options(
        engine=engine,
        model=parsed.model or ("tiny" if engine == "sim" else options.DEFAULT_MODEL),
        port=options.parse_port("PORT", parsed.port),
        traces_port=options.parse_port("TRACES_PORT", parsed.traces_port),
        replicas=dict.fromkeys(options.SCALABLE, 1) | options.parse_replicas(parsed.replicas),
    )


def _logs(where: directories.Directories, names: list[str]) -> int:
    """Follow the logs, as ``tail -F`` does; those of the last run if none runs."""
    paths = [log_path(where.logs, name) for name in names] or sorted(where.logs.glob("*.log"))
    missing = [path for path in paths if not path.exists()]
    if missing or not paths:
        raise Failure(f"no log at {(missing or [where.logs])[0]}")
    os.execvp("tail", ["tail", "-n", "20", "-F", *map(str, paths)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What the operator's command asks for and prints."""

import pytest

from sub100_cache.admin import main, parse, told
from sub100_local.__main__ import main as local
from sub100_proto.cache import CacheInvalidate, CacheInvalidated, CacheStats, CacheStatsQuery

NOW_S = 1_000_000.0
SCOPE = "ab" * 32


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["stats", "--tenant", "t"], CacheStatsQuery(tenant="t")),
        (["invalidate", "--tenant", "t"], CacheInvalidate(tenant="t")),
        (["erase", "--tenant", "t"], CacheInvalidate(tenant="t", erase=True)),
        (
            ["invalidate", "--tenant", "t", "--scope", SCOPE, "--revision", "r"],
            CacheInvalidate(tenant="t", scope=bytes.fromhex(SCOPE), revision="r"),
        ),
        (
            ["erase", "--tenant", "t", "--older-than", "2h"],
            CacheInvalidate(tenant="t", before_unix_s=NOW_S - 7200, erase=True),
        ),
    ],
)
def test_admin_asks_for_what_the_arguments_say(arguments: list[str], command: CacheInvalidate) -> None:
    assert parse(arguments, NOW_S) == command


def test_local_command_hands_help_to_the_cache(capfd: pytest.CaptureFixture[str]) -> None:
    """Not the wrapper's, which has nothing to say; and no stack needs to run."""
    assert local(["cache", "--help"]) == 0

    told_help = capfd.readouterr().out
    for word in ("invalidate", "erase", "stats", "--tenant", "--older-than"):
        assert word in told_help


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["stats"], "--tenant"),
        (["stats", "--tenant", ""], "--tenant"),
        (["drop", "--tenant", "t"], "drop"),
        (["stats", "--tenant", "t", "--revision", "r"], "whole tenant"),
        (["erase", "--tenant", "t", "--scope", "ab"], "--scope"),
        (["erase", "--tenant", "t", "--scope", "no"], "--scope"),
        (["erase", "--tenant", "t", "--older-than", "2"], "--older-than"),
        (["erase", "--tenant", "t", "--older-than", "-2h"], "--older-than"),
    ],
)
def test_admin_names_a_bad_argument(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        parse(arguments, NOW_S)

    assert exited.value.code == 2
    assert named in capsys.readouterr().err


def test_admin_tells_counts_and_errors() -> None:
    erase, invalidate = CacheInvalidate(tenant="t", erase=True), CacheInvalidate(tenant="t")
    assert told(CacheInvalidated(num_erased=3), erase) == "invalidated num_erased=3 num_left=0"
    assert told(CacheInvalidated(), invalidate) == "invalidated"
    assert told(CacheInvalidated(error="no"), invalidate) == "error: no"
    unknown = told(CacheInvalidated(is_known=False), invalidate)
    assert unknown == "invalidated: nothing was known here of a tenant t"
    assert "num_lookups=7" in told(CacheStats(num_lookups=7), CacheStatsQuery(tenant="t"))


def test_admin_names_a_bad_variable(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["stats", "--tenant", "t"], {"SUB100_NATS_PASSWORD_FILE": "/does/not/exist"})

    assert code == 2
    assert "SUB100_NATS_PASSWORD_FILE" in capsys.readouterr().err

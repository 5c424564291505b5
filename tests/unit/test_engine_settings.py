"""What a worker's environment may say of its engine."""

import pytest

from sub100_engine.settings import EngineConfig
from sub100_shared.config import ConfigError, load


def settings(**variables: str) -> EngineConfig:
    environ = {f"SUB100_DECODE_{name}": value for name, value in variables.items()}
    return load(EngineConfig, "SUB100_DECODE_", {"SUB100_DECODE_MODEL": "m", **environ})


def test_speculation_is_off_until_it_is_asked_for() -> None:
    assert not settings().speculation.is_on


def test_ngram_speculation_is_one_setting_away() -> None:
    speculation = settings(SPECULATIVE_METHOD="ngram").speculation
    assert speculation.is_on
    assert not speculation.has_kv
    assert (speculation.num_tokens, speculation.lookup_min, speculation.lookup_max) == (4, 2, 5)
    assert speculation.fault_line("decode") == ""


@pytest.mark.parametrize(
    ("role", "variables", "named"),
    [
        ("prefill", {"SPECULATIVE_METHOD": "ngram"}, "belongs to decode"),
        ("decode", {"SPECULATIVE_METHOD": "draft_model"}, "SPECULATIVE_MODEL"),
        ("decode", {"SPECULATIVE_METHOD": "eagle"}, "SPECULATIVE_MODEL"),
        ("decode", {"SPECULATIVE_METHOD": "ngram", "SPECULATIVE_LOOKUP_MIN": "9"}, "LOOKUP_MIN 9"),
    ],
)
def test_speculation_that_cannot_work_is_named(role: str, variables: dict[str, str], named: str) -> None:
    assert named in settings(**variables).speculation.fault_line(role)


def test_speculation_of_an_unknown_method_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="SPECULATIVE_METHOD"):
        settings(SPECULATIVE_METHOD="magic")

"""The file of what tenants may keep, and where."""

import json
from pathlib import Path

import pytest

from sub100_cache.store.ledger import Quota
from sub100_cache.tenants import load_tenants
from sub100_shared.config import ConfigError

DEFAULT = Quota(max_entries=10, max_bytes=1000)


def written(path: Path, rules: object) -> str:
    file = path / "tenants.json"
    file.write_text(json.dumps(rules))
    return str(file)


def test_tenants_without_a_file_have_the_defaults_and_share_nothing() -> None:
    tenants = load_tenants("", DEFAULT)

    assert tenants.quota("anybody") == DEFAULT
    assert tenants.regions("anybody") == frozenset()


def test_tenants_of_the_file_have_what_it_says(tmp_path: Path) -> None:
    rules = {"large": {"max_entries": 99}, "shared": {"max_bytes": 5, "regions": ["eu", "us"]}}
    tenants = load_tenants(written(tmp_path, rules), DEFAULT)

    assert tenants.quota("large") == Quota(max_entries=99, max_bytes=1000)
    assert tenants.quota("shared") == Quota(max_entries=10, max_bytes=5)
    assert tenants.regions("shared") == {"eu", "us"}
    assert tenants.quota("other") == DEFAULT


@pytest.mark.parametrize(
    "rules",
    [
        [],
        {"t": {"max_entries": 0}},
        {"t": {"max_bytes": "many"}},
        {"t": {"unknown": 1}},
        {"t": {"regions": ["eu.west"]}},
    ],
)
def test_tenants_file_that_cannot_be_right_is_named(tmp_path: Path, rules: object) -> None:
    with pytest.raises(ConfigError, match="SUB100_CACHE_TENANTS_FILE"):
        load_tenants(written(tmp_path, rules), DEFAULT)


def test_tenants_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="SUB100_CACHE_TENANTS_FILE"):
        load_tenants("/does/not/exist", DEFAULT)

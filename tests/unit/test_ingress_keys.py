import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from sub100_ingress.keys import KeyRing, Tenant
from sub100_shared.errors import ClientError

KEY = "sk-demo"


def entry(key: str = KEY, **fields: Any) -> dict[str, Any]:
    return {"hash": sha256(key.encode()).hexdigest(), "tenant": "demo", **fields}


def write(path: Path, entries: Any) -> Path:
    path.write_text(json.dumps(entries))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def test_ring_knows_the_tenant_of_a_key(path: Path) -> None:
    other = entry("other", tenant="b", cache="all", budget_ms=250, max_concurrency=3)
    ring = KeyRing.load(write(path, [entry(), other]))
    assert ring.authenticate([b"Bearer sk-demo"]) == Tenant(
        name="demo", cache="off", budget_ms=None, max_concurrency=256
    )
    assert ring.authenticate([b"bearer other"]) == Tenant(
        name="b", cache="all", budget_ms=250, max_concurrency=3
    )


def test_ring_reads_what_a_tenant_wants_of_the_cache(path: Path) -> None:
    fields: dict[str, Any] = {
        "cache": "all",
        "semantic": True,
        "threshold": 0.95,
        "shadow": True,
        "judge": True,
        "cache_tools": True,
        "ttl_s": 60,
    }
    ring = KeyRing.load(write(path, [entry(**fields)]))
    assert ring.authenticate([b"Bearer sk-demo"]) == Tenant(
        name="demo",
        cache="all",
        semantic=True,
        threshold=0.95,
        shadow=True,
        judge=True,
        cache_tools=True,
        ttl_s=60,
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"semantic": True},
        {"shadow": True},
        {"cache_tools": True},
        {"cache": "all", "judge": True},
        {"cache": "all", "threshold": 0.95},
        {"cache": "all", "semantic": True, "threshold": 0.5},
        {"cache": "all", "semantic": True, "threshold": 1.01},
        {"cache": "all", "ttl_s": 0},
        {"cache": "all", "semantic": 1},
    ],
    ids=str,
)
def test_ring_refuses_cache_settings_that_cannot_be_meant(path: Path, fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="json"):
        KeyRing.load(write(path, [entry(**fields)]))


@pytest.mark.parametrize(
    "authorizations",
    [
        [],
        [b""],
        [b"Bearer"],
        [b"Bearer "],
        [b"sk-demo"],
        [b"Basic c2stZGVtbw=="],
        [b"Token sk-demo"],
        [b"Bearersk-demo"],
        [b"Bearer wrong"],
        [b"Bearer SK-DEMO"],
        [b"Bearer sk-demo extra"],
        [b"Bearer sk-demo, Bearer sk-demo"],
        [b"Bearer sk-demo", b"Bearer sk-demo"],
        [b"Bearer \xff\xfe"],
        [b"Bearer " + b"x" * 100_000],
        [b"Bearer " + sha256(KEY.encode()).hexdigest().encode()],
    ],
)
def test_ring_refuses_anything_but_one_bearer_of_a_known_key(path: Path, authorizations: list[bytes]) -> None:
    ring = KeyRing.load(write(path, [entry()]))
    with pytest.raises(ClientError) as refused:
        ring.authenticate(authorizations)
    assert (refused.value.code, refused.value.status) == ("invalid_api_key", 401)
    assert KEY not in refused.value.message


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        ([entry(), {"tenant": "x"}], r"\$\[1\]"),
        ([entry(hash="abc")], r"\$\[0\]\.hash"),
        ([entry(tenant="a.b")], r"\$\[0\]\.tenant"),
        ([entry(cache="some")], r"\$\[0\]\.cache"),
        ([entry(budget_ms=0)], r"\$\[0\]\.budget_ms"),
        ([entry(max_concurrency=0)], r"\$\[0\]\.max_concurrency"),
        ([entry(key="sk-demo")], "key"),
        ([entry(), entry()], "entry 1"),
        ([entry(), entry("other", cache="all")], "entry 1"),
        ([], "no keys"),
        ({"keys": []}, "keys.json"),
    ],
)
def test_ring_names_the_fault_of_a_bad_file(path: Path, entries: Any, named: str) -> None:
    if isinstance(entries, list) and named == "key":
        entries[0]["key"] = KEY
    with pytest.raises(ValueError, match=named) as failed:
        KeyRing.load(write(path, entries))
    assert "\n" not in str(failed.value)


def test_ring_names_a_file_that_is_missing(path: Path) -> None:
    with pytest.raises(OSError, match=r"keys\.json"):
        KeyRing.load(path)


def test_ring_reloads_when_the_file_changes_and_keeps_its_keys_when_it_is_bad(path: Path) -> None:
    ring = KeyRing.load(write(path, [entry()]))
    assert not ring.reload()
    write(path, [entry("new key that is longer")])
    os.utime(path, ns=(1, 1))
    assert ring.reload()
    assert ring.authenticate([b"Bearer new key that is longer"]).name == "demo"
    with pytest.raises(ClientError):
        ring.authenticate([b"Bearer sk-demo"])
    path.write_text("[")
    with pytest.raises(ValueError, match="keys"):
        ring.reload()
    assert ring.authenticate([b"Bearer new key that is longer"]).name == "demo"

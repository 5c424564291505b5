import json
from typing import Any

import pytest

from sub100_ingress.account import cache_headers, sub100_object
from sub100_ingress.exchange import BYPASS, MISS, CacheFacts, Exchange
from sub100_ingress.keys import Tenant
from sub100_ingress.openai_request import parse_chat
from sub100_shared.ledger import Ledger
from sub100_shared.telemetry import Telemetry


class Now:
    def __init__(self) -> None:
        self.ms = 500.0

    def __call__(self) -> float:
        return self.ms


def exchange(now: Now) -> Exchange:
    return Exchange(
        request_id="r1",
        tenant=Tenant(name="t"),
        request=parse_chat(b'{"model":"m","messages":[{"role":"user","content":"x"}]}'),
        ledger=Ledger(now),
        span=Telemetry.create("ingress", "i", "r", {}).start("chat", None),
    )


@pytest.mark.parametrize(
    ("facts", "headers", "shown"),
    [
        (BYPASS, {"x-sub100-cache": "bypass"}, {"tier": "bypass"}),
        (MISS, {"x-sub100-cache": "miss"}, {"tier": "miss"}),
        (
            CacheFacts(outcome="exact", age_s=61.98765, similarity=1.0),
            {"x-sub100-cache": "exact", "age": "61"},
            {"tier": "exact", "age_s": 61.988, "similarity": 1.0},
        ),
        (
            CacheFacts(outcome="semantic", age_s=0.0, similarity=0.953219),
            {"x-sub100-cache": "semantic", "age": "0", "x-sub100-similarity": "0.9532"},
            {"tier": "semantic", "age_s": 0.0, "similarity": 0.9532},
        ),
    ],
)
def test_account_tells_what_the_cache_did(
    facts: CacheFacts, headers: dict[str, str], shown: dict[str, Any]
) -> None:
    ex = exchange(Now())
    ex.cache = facts
    assert {name.decode(): value.decode() for name, value in cache_headers(ex)} == headers
    assert json.loads(sub100_object(ex))["cache"] == shown


def test_account_sums_over_the_critical_path_and_shows_what_ran_beside_as_hidden() -> None:
    now = Now()
    ex = exchange(now)
    ledger = ex.ledger
    cache, schedule = ledger.open("cache"), ledger.open("schedule")
    now.ms += 2
    ledger.close(schedule)
    prefill = ledger.open("prefill")
    now.ms += 1
    ledger.close(cache)
    now.ms += 120
    ledger.close(prefill)
    now.ms += 1
    ledger.first_content_byte()
    decode = ledger.open("decode")
    now.ms += 50
    ledger.close(decode)
    account = json.loads(sub100_object(ex))
    hops = [(h["name"], h["spent_ms"], h.get("hidden", False)) for h in account["hops"]]
    assert sorted(hops) == [
        ("cache", 3.0, True),
        ("ingress", 1.0, False),
        ("prefill", 121.0, False),
        ("schedule", 2.0, False),
    ]
    assert sum(ms for _, ms, hidden in hops if not hidden) == account["ttft_ms"] == 124.0
    assert (account["blame"], account["budget_ms"], account["request_id"]) == ("prefill", 100.0, "r1")


def test_account_of_a_request_without_content_has_no_ttft_and_blames_nobody() -> None:
    now = Now()
    ex = exchange(now)
    now.ms += 500
    account = json.loads(sub100_object(ex))
    assert (account["ttft_ms"], account["blame"]) == (None, None)

import json
from typing import Any

import pytest

from sub100_ingress.account import cache_headers, sub100_object
from sub100_ingress.exchange import BYPASS, MISS, CacheFacts, Exchange
from sub100_ingress.keys import Tenant
from sub100_ingress.openai_request import parse_chat
from sub100_shared.ledger import Ledger
from sub100_shared.telemetry import Telemetry


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
    telemetry = Telemetry.create("ingress", "i", "r", {})
    ex = Exchange(
        request_id="r",
        tenant=Tenant(name="t"),
        request=parse_chat(b'{"model":"m","messages":[{"role":"user","content":"x"}]}'),
        ledger=Ledger(lambda: 0.0),
        span=telemetry.start("chat", None),
        cache=facts,
    )
    assert {name.decode(): value.decode() for name, value in cache_headers(ex)} == headers
    assert json.loads(sub100_object(ex)) == {"cache": shown}

"""How much time a request has, who may say so, and what its caller is told of it afterwards."""

from typing import Any

import pytest
from starlette.datastructures import Headers

from sub100_ingress.exchange import Exchange
from sub100_ingress.keys import Tenant
from sub100_ingress.openai_request import parse_chat
from sub100_ingress.opening import Opener
from sub100_shared.errors import ClientError
from sub100_shared.ledger import DEFAULT_SPLIT, changed_split
from sub100_shared.telemetry import Telemetry

REQUEST = parse_chat(b'{"model":"m","messages":[{"role":"user","content":"x"}]}')


class Now:
    def __init__(self) -> None:
        self.ms = 500.0

    def __call__(self) -> float:
        return self.ms


def opened(
    headers: dict[str, str], *, now: Now | None = None, trust_edge: bool = False, **tenant: Any
) -> Exchange:
    opener = Opener(
        telemetry=Telemetry.create("ingress", "i", "local", {}),
        clock=now or Now(),
        region="local",
        budget_ms=100.0,
        split=DEFAULT_SPLIT,
        trust_edge=trust_edge,
    )
    return opener.open(
        Headers(headers),
        REQUEST,
        Tenant(name="t", **tenant),
        request_id="r1",
        arrived_at_ms=500.0,
        operation="chat",
        route="/v1/chat/completions",
    )


@pytest.mark.parametrize(
    ("headers", "tenant_ms", "total_ms"),
    [
        ({}, None, 100.0),
        ({}, 250.0, 250.0),
        ({"X-Sub100-Budget-Ms": "40"}, None, 40.0),
        ({"X-Sub100-Budget-Ms": "40.5"}, 250.0, 40.5),
    ],
)
def test_budget_is_the_requests_then_the_tenants_then_the_deployments(
    headers: dict[str, str], tenant_ms: float | None, total_ms: float
) -> None:
    assert opened(headers, budget_ms=tenant_ms).ledger.total_ms == total_ms


@pytest.mark.parametrize("value", ["", "0", "-5", "nan", "inf", "1e9", "fast", "5;6"])
def test_budget_header_that_is_none_is_refused_by_name(value: str) -> None:
    with pytest.raises(ClientError, match="must be a number from 1 to 600000") as refused:
        opened({"X-Sub100-Budget-Ms": value})
    assert (refused.value.code, refused.value.param) == ("invalid_value", "x-sub100-budget-ms")


def test_allotments_are_the_tenants_where_it_has_some() -> None:
    assert opened({}).ledger.allotted_ms("prefill") == 60.0
    split = changed_split({"prefill": 0.4})
    assert opened({"X-Sub100-Budget-Ms": "200"}, allotments=split).ledger.allotted_ms("prefill") == 80.0


@pytest.mark.parametrize(
    ("trust_edge", "value", "network_ms"),
    [(True, "20.5", 20.5), (False, "20.5", 0.0), (True, "-1", 0.0), (True, "soon", 0.0), (True, "1e6", 0.0)],
)
def test_network_time_is_taken_from_a_trusted_edge_only(
    trust_edge: bool, value: str, network_ms: float
) -> None:
    ledger = opened({"X-Sub100-Network-Ms": value}, trust_edge=trust_edge).ledger
    assert (ledger.network_ms, ledger.remaining_ms()) == (network_ms, 100.0 - network_ms)

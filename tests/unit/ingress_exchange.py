"""Exchanges as the routes open them, for tests of what is behind the routes."""

from sub100_ingress.cache_key import cache_key
from sub100_ingress.exchange import Exchange
from sub100_ingress.keys import Tenant
from sub100_ingress.openai_request import parse_chat
from sub100_shared.ledger import Ledger
from sub100_shared.telemetry import Telemetry

BODY = b'{"model":"m","temperature":0,"messages":[{"role":"user","content":"How are you?"}]}'
TELEMETRY = Telemetry.create("ingress", "i", "r", {})
DEMO = Tenant(name="demo", cache="all", semantic=True)


def exchange(request_id: str = "r", *, tenant: Tenant = DEMO, body: bytes = BODY) -> Exchange:
    """On a clock that stands still."""
    request = parse_chat(body)
    return Exchange(
        request_id=request_id,
        tenant=tenant,
        request=request,
        ledger=Ledger(lambda: 0.0),
        span=TELEMETRY.start("chat", None),
        key=cache_key(request, tenant, "rev"),
    )

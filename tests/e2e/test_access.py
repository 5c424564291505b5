"""Nothing but health is open: every route, every path trick and every odd Authorization without a key."""

import secrets
from typing import Any

import pytest
from tests.e2e.bus_watch import BusWatch
from tests.e2e.raw_http import Answer, post, request
from tests.e2e.system import MODEL, log_of
from tests.stack import Stack

BODY = b'{"model": "test-model", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}'
ROUTES = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/test-model"),
]
GUESSES = [
    "/",
    "/docs",
    "/redoc",
    "/openapi.json",
    "/metrics",
    "/admin",
    "/debug/pprof",
    "/v1",
    "/v1/embeddings",
    "/v1/load_lora_adapter",
    "/v1/responses",
    "/reset_prefix_cache",
    "/reset_mm_cache",
    "/sleep",
    "/wake_up",
    "/collective_rpc",
    "/tokenize",
    "/detokenize",
    "/invocations",
    "/generate",
    "/ping",
    "/version",
    "/server_info",
    "/scale_elastic_ep",
    "/health",
]
TRICKS = [
    "/V1/CHAT/COMPLETIONS",
    "//v1/chat/completions",
    "/v1//chat/completions",
    "/v1/chat/completions/",
    "/v1/chat/completions?x=/healthz",
    "/v1/chat/completions;/healthz",
    "/v1/chat/completions#/healthz",
    "/healthz/../v1/chat/completions",
    "/healthz/%2e%2e/v1/chat/completions",
    "/v1/%2e/chat/completions",
    "/%76%31/chat/completions",
    "/v1%2Fchat%2Fcompletions",
    "/healthz%00/v1/chat/completions",
    "/healthz%2f..%2fv1/chat/completions",
    "/readyz//v1/chat/completions",
    "/./v1/chat/completions",
    "/healthz/",
    "/HEALTHZ",
    "http://healthz/v1/chat/completions",
]


def try_it(stack: Stack, method: str, path: str, *headers: tuple[str, str | bytes]) -> Answer:
    body = BODY if method in ("POST", "PUT", "PATCH") else None
    return request(stack.url, method, path, [("Content-Type", "application/json"), *headers], body)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", [path for _, path in ROUTES])
def test_route_without_a_key_is_401_by_any_method(stack: Stack, method: str, path: str) -> None:
    """S03."""
    answer = try_it(stack, method, path)
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    if method != "HEAD":
        assert answer.error["code"] == "invalid_api_key"


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", GUESSES + TRICKS)
def test_no_path_gets_round_the_key(stack: Stack, bus: BusWatch, method: str, path: str) -> None:
    """S03: 401, or 400/404 where the path is none; never an answer."""
    mark = bus.mark()
    answer = try_it(stack, method, path)
    assert answer.status in (400, 401, 404), (path, answer.status, answer.body)
    assert bus.dispatched_since(mark) == []


@pytest.mark.parametrize("path", GUESSES)
def test_unknown_path_with_a_key_is_404_in_openai_shape(stack: Stack, path: str) -> None:
    answer = try_it(stack, "GET", path, ("Authorization", f"Bearer {stack.keys['plain']}"))
    assert answer.status == 404
    assert answer.error["code"] == "not_found"


def test_trailing_slash_is_never_a_redirect(stack: Stack) -> None:
    """A14, in part: a redirect would lose the key."""
    key = ("Authorization", f"Bearer {stack.keys['plain']}")
    assert try_it(stack, "POST", "/v1/chat/completions/", key).status == 404
    assert try_it(stack, "GET", "/v1/models", key).status == 200
    assert try_it(stack, "GET", "/v1/chat/completions", key).status == 405


def odd_authorizations(key: str) -> dict[str, list[bytes]]:
    return {
        "empty": [b""],
        "blank": [b" "],
        "scheme alone": [b"Bearer"],
        "scheme and blank": [b"Bearer "],
        "key alone": [key.encode()],
        "basic": [b"Basic " + key.encode()],
        "token scheme": [b"Token " + key.encode()],
        "wrong key": [b"Bearer sk-" + secrets.token_hex(16).encode()],
        "prefix of a key": [b"Bearer " + key[:-1].encode()],
        "longer than a key": [b"Bearer " + key.encode() + b"x"],
        "key twice": [b"Bearer " + key.encode() + b" " + key.encode()],
        "two in one": [b"Bearer " + key.encode() + b", Bearer " + key.encode()],
        "two headers": [b"Bearer " + key.encode(), b"Bearer " + key.encode()],
        "a wrong one first": [b"Bearer x", b"Bearer " + key.encode()],
        "bearer bearer": [b"Bearer Bearer " + key.encode()],
        "no blank": [b"Bearer" + key.encode()],
        "colon": [b"Bearer: " + key.encode()],
        "quoted": [b'Bearer "' + key.encode() + b'"'],
        "not ASCII": [b"Bearer " + "schlüssel".encode()],
        "huge": [b"Bearer " + b"k" * 20_000],
        "the hash": [b"Bearer " + b"0" * 64],
        "null": [b"Bearer null"],
    }


@pytest.mark.parametrize("name", odd_authorizations("sk"))
def test_odd_authorization_is_refused(stack: Stack, name: str) -> None:
    """S03: auth is never skipped because a header has an unexpected shape."""
    values = odd_authorizations(stack.keys["plain"])[name]
    headers: list[tuple[str, str | bytes]] = [("Authorization", value) for value in values]
    answer = try_it(stack, "POST", "/v1/chat/completions", *headers)
    assert answer.status in (401, 400, 431), (answer.status, answer.body)
    assert stack.keys["plain"].encode() not in answer.body


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_scheme_is_case_insensitive(stack: Stack, scheme: str) -> None:
    key = stack.keys["plain"]
    assert try_it(stack, "GET", "/v1/models", ("Authorization", f"{scheme} {key}")).status == 200


def test_key_elsewhere_than_in_the_header_does_not_count(stack: Stack) -> None:
    key = stack.keys["plain"]
    for path, headers in (
        (f"/v1/models?api_key={key}", []),
        ("/v1/models", [("X-Api-Key", key)]),
        ("/v1/models", [("Cookie", f"Authorization=Bearer {key}")]),
        ("/v1/models", [("Proxy-Authorization", f"Bearer {key}")]),
    ):
        assert try_it(stack, "GET", path, *headers).status == 401


def test_health_is_open_and_says_nothing_more(stack: Stack) -> None:
    assert try_it(stack, "GET", "/healthz").json == {"status": "ok"}
    assert try_it(stack, "GET", "/readyz").json == {"ready": True}


def test_no_header_names_a_tenant(stack: Stack) -> None:
    """Tenants come from keys: with the key of one, no header makes another of it."""
    request_id = f"t-{secrets.token_hex(6)}"
    forged = [("X-Tenant", "demo"), ("X-Sub100-Tenant", "demo"), ("OpenAI-Project", "demo")]
    body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    answer = post(stack.url, body, stack.keys["narrow"], headers=[*forged, ("X-Request-Id", request_id)])
    assert answer.status == 200
    assert log_of(stack, request_id)["tenant"] == "narrow"


def test_keys_are_in_no_log(stack: Stack) -> None:
    for key in stack.keys.values():
        try_it(stack, "GET", f"/v1/models/{key}", ("Authorization", f"Bearer {key}"))
        assert key not in stack.logs()
        assert all(key not in replica.log for replica in stack.replicas.values())

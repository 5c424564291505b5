"""Who may read and who may write, over real HTTP."""

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
from tests.integration.test_traces_service import OTLP_HEADERS, spawn

from sub100_shared.config import ConfigError
from sub100_traces.access import COOKIE
from sub100_traces.config import TracesConfig
from sub100_traces.service import TracesService

OPERATOR_KEY = "an-operators-key-of-some-length"
INTAKE_KEY = "an-exporters-key-of-some-length"
PATHS = (
    "/",
    "/rows",
    "/events",
    "/fleet",
    "/trace/abc",
    "/r/abc",
    "/request/abc",
    "/api/traces",
    "/api/trace/abc",
    "/api/fleet",
    "/static/../api/traces",
    "//api/traces",
    "/API/traces",
    "/login/../api/traces",
    "/healthz/",
    "/nothing",
)


@pytest.fixture
def keyed(tmp_path: Path) -> TracesConfig:
    for name, key in (("operator", OPERATOR_KEY), ("intake", INTAKE_KEY)):
        (tmp_path / name).write_text(f"{key}\n")
    return TracesConfig(
        port=0, operator_key_file=str(tmp_path / "operator"), intake_key_file=str(tmp_path / "intake")
    )


@pytest.fixture
async def client(keyed: TracesConfig) -> AsyncIterator[httpx.AsyncClient]:
    service = TracesService(keyed, spawn)
    await service.start()
    async with httpx.AsyncClient(base_url=service.url, timeout=10) as client:
        yield client
    await service.stop()


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        f"Basic {OPERATOR_KEY}",
        OPERATOR_KEY,
        f"Bearer {OPERATOR_KEY}x",
        f"Bearer {OPERATOR_KEY[:-1]}",
        f"Bearer {INTAKE_KEY}",
        "Bearer \u00e9".encode("latin-1").decode("latin-1"),
    ],
)
async def test_nothing_but_health_is_open_without_the_key(
    client: httpx.AsyncClient, authorization: str | None
) -> None:
    """S03: every route, and paths that only look like open ones."""
    headers = [] if authorization is None else [(b"authorization", authorization.encode("latin-1"))]
    for path in PATHS:
        for method in ("GET", "HEAD", "POST"):
            url = httpx.URL(str(client.base_url).rstrip("/")).copy_with(raw_path=path.encode())
            answer = await client.request(method, url, headers=headers)
            assert answer.status_code == 401, (method, path)
    for path in ("/healthz", "/readyz"):
        assert (await client.get(path)).status_code == 200


async def test_two_keys_at_once_are_none(client: httpx.AsyncClient) -> None:
    headers = [("authorization", f"Bearer {OPERATOR_KEY}"), ("authorization", f"Bearer {OPERATOR_KEY}")]
    assert (await client.get("/api/traces", headers=headers)).status_code == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_program_comes_in_with_the_operators_key(client: httpx.AsyncClient, scheme: str) -> None:
    headers = {"authorization": f"{scheme} {OPERATOR_KEY}"}
    for path in ("/", "/fleet", "/api/traces", "/api/fleet"):
        assert (await client.get(path, headers=headers)).status_code == 200


async def test_exporters_write_with_their_own_key_only(client: httpx.AsyncClient) -> None:
    for key, status in (("guess", 401), (OPERATOR_KEY, 401), (INTAKE_KEY, 200)):
        headers = OTLP_HEADERS | {"authorization": f"Bearer {key}"}
        answer = await client.post("/v1/traces", content=b"", headers=headers)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/x-protobuf"


async def test_person_gets_a_form_then_a_cookie_that_scripts_and_other_sites_cannot_use(
    client: httpx.AsyncClient,
) -> None:
    asked = await client.get("/fleet", headers={"accept": "text/html"})
    assert (asked.status_code, asked.headers["location"]) == (303, "/login")
    assert "Operator key" in (await client.get("/login")).text
    wrong = await client.post("/login", data={"key": "guess"})
    assert (wrong.status_code, "not the key" in wrong.text, COOKIE in client.cookies) == (403, True, False)
    right = await client.post("/login", data={"key": OPERATOR_KEY})
    assert (right.status_code, right.headers["location"]) == (303, "/")
    cookie = right.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert OPERATOR_KEY not in cookie
    assert (await client.get("/fleet")).status_code == 200
    assert (await client.post("/v1/traces", content=b"", headers=OTLP_HEADERS)).status_code == 401
    await client.post("/logout")
    assert (await client.get("/fleet")).status_code == 401


@pytest.mark.parametrize(
    "forge",
    [
        lambda value: value[:-1] + ("0" if value[-1] != "0" else "1"),
        lambda value: f"9{value}",
        lambda value: value.partition(".")[0],
        lambda _: f"{int(time.time()) + 9999}.",
        lambda _: ".",
        lambda _: "\u0663.0",
    ],
)
async def test_session_that_was_not_given_is_worth_nothing(
    client: httpx.AsyncClient, forge: Callable[[str], str]
) -> None:
    given = await client.post("/login", data={"key": OPERATOR_KEY})
    value = forge(given.cookies[COOKIE])
    client.cookies.clear()
    headers = [(b"cookie", f"{COOKIE}={value}".encode())]
    assert (await client.get("/api/traces", headers=headers)).status_code == 401


async def test_form_takes_no_more_than_a_form(client: httpx.AsyncClient) -> None:
    assert (await client.post("/login", content=b"key=" + b"x" * 100_000)).status_code == 413


async def test_open_service_answers_to_no_foreign_name() -> None:
    """A web page that rebinds its own name to loopback must not read what the machine's user may."""
    service = TracesService(TracesConfig(port=0), spawn)
    await service.start()
    port = service.url.rpartition(":")[2]
    async with httpx.AsyncClient(base_url=service.url) as client:
        for host, status in (
            (f"127.0.0.1:{port}", 200),
            (f"localhost:{port}", 200),
            (f"[::1]:{port}", 200),
            (f"evil.example:{port}", 401),
            ("evil.example", 401),
            ("127.0.0.1.evil.example", 401),
        ):
            assert (await client.get("/", headers={"host": host})).status_code == status, host
    await service.stop()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "traces.example"])
async def test_start_refuses_to_be_open_beyond_loopback(host: str) -> None:
    service = TracesService(TracesConfig(host=host, port=0), spawn)
    with pytest.raises(ConfigError, match="SUB100_TRACES_OPERATOR_KEY_FILE is not set"):
        await service.start()
    await service.stop()


async def test_start_refuses_a_key_that_is_too_short(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("short")
    service = TracesService(TracesConfig(port=0, operator_key_file=str(tmp_path / "key")), spawn)
    with pytest.raises(ConfigError, match="fewer than 16 bytes"):
        await service.start()
    await service.stop()

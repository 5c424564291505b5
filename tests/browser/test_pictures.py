"""``--screenshots DIRECTORY``: the pictures of the README, drawn from a fleet of their own."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.fleet_spans import MS, Export
from tests.browser.traces_service import Traces, fill
from tests.browser.visit import PHONE

WIDE: Final = (1180, 720)
PICTURES: Final = {
    "list": ("/", WIDE, "light"),
    "waterfall": ("/r/req-7f3a91c2", WIDE, "light"),
    "waterfall-dark": ("/r/req-7f3a91c2", WIDE, "dark"),
    "fleet": ("/fleet", (1180, 1020), "light"),
    "phone": ("/r/req-7f3a91c2", PHONE, "dark"),
}


@pytest.fixture
def directory(request: pytest.FixtureRequest) -> Path:
    given = request.config.getoption("--screenshots")
    path = Path(str(given)) if given else request.getfixturevalue("tmp_path")
    path.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traces]:
    path = tmp_path_factory.mktemp("pictures") / "traces.db"
    fill(path, 60, 60)
    traces = Traces(path)
    traces.start()
    export = Export()
    now_ns = time.time_ns()
    traces.fleet.some(export, now_ns - 60_000 * MS, 24, trouble=4.0)
    late: dict[str, Any] = {"queue_ms": 40.0, "compute_ms": 31.0, "network_ms": 24.0, "lost": True}
    traces.fleet.request(export, now_ns - 900 * MS, request_id="req-7f3a91c2", **late)
    traces.fleet.some(export, now_ns - 500 * MS, 7, trouble=3.0)
    traces.post(export)
    yield traces
    traces.close()


def test_pictures_show_each_page_with_all_hops_accounted_for(
    browser: Browser, staged: Traces, directory: Path
) -> None:
    for name, (path, (width, height), scheme) in PICTURES.items():
        options: dict[str, Any] = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
        context = browser.new_context(**options)
        page = context.new_page()
        page.goto(staged.url)
        expect(page.locator("#rows li").first.locator("svg.mini [class^=h-]").nth(1)).to_be_attached()
        expect(page.locator("li.new")).to_have_count(0)
        page.goto(f"{staged.url}{path}")
        if path in ("/", "/fleet"):
            expect(page.locator("#live")).to_have_text("live")
        page.screenshot(path=directory / f"{name}.png")
        context.close()
        assert (directory / f"{name}.png").stat().st_size > 10_000

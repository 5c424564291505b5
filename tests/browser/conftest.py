"""A traces service of its own, filled with a fleet's hour, and a real Chromium in front of it.

``SUB100_BROWSER`` names the browser: the directory that the bootstrap made, or an executable; ``none`` leaves
these tests out. Without it they fail: a suite that skips itself is no proof.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, expect, sync_playwright
from tests.browser.traces_service import Traces, fill
from tests.browser.visit import LAPTOP, Visit
from tests.patience import PATIENCE_S

VARIABLE: Final = "SUB100_BROWSER"
NUM_MINUTES: Final = 60
PER_MINUTE: Final = 50

expect.set_options(timeout=PATIENCE_S * 1e3)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", default="", help="a directory for pictures of the traces pages")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """No longer than a module: while Playwright's blocking interface is open its event loop counts as running
    in this thread, and no other module's asynchronous test could run."""
    where = os.environ.get(VARIABLE, "")
    if where == "none":
        pytest.skip(f"{VARIABLE}=none")
    if not where:
        pytest.fail(
            f"no browser: run make test, which fetches one, or set {VARIABLE} (none leaves these out)"
        )
    path = Path(where)
    environment: dict[str, str | float | bool] = {**os.environ}
    if path.is_dir():
        environment |= {"LD_LIBRARY_PATH": str(path / "lib"), "FONTCONFIG_PATH": str(path)}
        path /= "chromium"
    # No sandbox: it needs rights that containers and root do not have, and all that is opened is our own
    # page.
    arguments = ["--headless=shell", "--no-sandbox", "--no-zygote"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(path), args=arguments, env=environment, timeout=60_000
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traces]:
    path = tmp_path_factory.mktemp("browser") / "traces.db"
    fill(path, NUM_MINUTES, PER_MINUTE)
    traces = Traces(path)
    traces.start()
    yield traces
    traces.close()


@pytest.fixture
def visit(browser: Browser, traces: Traces, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """Parametrise indirectly with keyword arguments of a browser context."""
    options = {"viewport": {"width": LAPTOP[0], "height": LAPTOP[1]}} | getattr(request, "param", {})
    context = browser.new_context(**options)
    visit = Visit(context, traces.url)
    yield visit
    context.close()
    assert visit.complaints == []

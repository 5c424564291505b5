"""A page under watch."""

from typing import Final

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request
from tests.patience import PATIENCE_S

LAPTOP: Final = (1280, 800)
PHONE: Final = (390, 844)


class Visit:
    """A page under watch: anything on the console, any failed or foreign request is a failure of the test."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.url = url
        self.complaints: list[str] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE_S * 1e3)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("request", self._on_request)

    def go(self, path: str) -> Page:
        self.page.goto(f"{self.url}{path}")
        return self.page

    def _on_console(self, message: ConsoleMessage) -> None:
        self.complaints.append(f"{message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:image/svg+xml")):
            self.complaints.append(f"asked for {request.url}")

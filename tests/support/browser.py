"""Debian's chromium, driven by playwright; `make chromium` installs it as root. Where there is none, the test is skipped, which CI does not allow."""

import contextlib
import shutil
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed; `make chromium` installs it as root")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One page of a browser, and what it complained about: errors of scripts, and what its policy refused."""

    def __init__(self, context: BrowserContext) -> None:
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "console", lambda message: self.complaints.append(message.text) if message.type == "error" else None
        )
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, url: str) -> "Tab":
        self.page.goto(url)
        self.page.wait_for_selector("h1")
        return self

    def violations(self) -> list[str]:
        """What axe-core finds wrong."""
        found = Axe().run(self.page).response["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found]

    def heap_bytes(self) -> float:
        """Of JavaScript, after a collection."""
        session = self.page.context.new_cdp_session(self.page)
        session.send("HeapProfiler.collectGarbage")
        return float(session.send("Runtime.getHeapUsage")["usedSize"])

"""A browser for the tests of the page."""

import shutil

import pytest


@pytest.fixture(scope="session")
def browser():
    """Chromium of the system, without a window; Playwright's own would have to be downloaded."""
    sync_api = pytest.importorskip("playwright.sync_api")
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("there is no chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()

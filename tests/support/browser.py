"""A real browser for the tests of the pages: Chromium or Chrome as the machine has it, without a window."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
REMEDY = "no Chromium on PATH; apt-get install chromium brings it"


@contextmanager
def browser() -> Iterator[Browser]:
    """The browser. Without one the tests are skipped, or fail where ``CUTAWAY_BROWSER_TESTS=required``.

    Meanwhile this thread can't run an event loop of its own.
    """
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        if os.environ.get("CUTAWAY_BROWSER_TESTS") == "required":
            pytest.fail(REMEDY)
        pytest.skip(REMEDY)
    with sync_playwright() as playwright:
        # Without Chromium's sandbox, which root can't have; and a container's /dev/shm is too small for it.
        started = playwright.chromium.launch(
            executable_path=found, chromium_sandbox=False, args=["--disable-dev-shm-usage"]
        )
        try:
            yield started
        finally:
            started.close()

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Headless Chromium, driven by selenium out of its own virtual environment."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from testbed import prerequisites

_OPTIONS = (
    *("--headless=new", "--window-size=1280,900", "--hide-scrollbars"),
    # Root cannot have Chromium's sandbox, and small machines have neither a GPU nor much shared memory.
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    # Nothing of its own goes to the network.
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-quic"),
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Selenium's WebDriver with a window of 1280 x 900, which keeps what a page reports to the console."""
    chromium, driver = (shutil.which(name) for name in prerequisites.OPTIONAL["Chromium"])
    if not chromium or not driver:
        pytest.skip("no Chromium: install the packages chromium and chromium-driver of Debian, or their like")
    # At the end: what both environments have is that of the tests.
    sys.path.append(str(prerequisites.make_browser_environment()))
    webdriver: Any = importlib.import_module("selenium.webdriver")
    service: Any = importlib.import_module("selenium.webdriver.chrome.service")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for option in (*_OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = webdriver.Chrome(options=options, service=service.Service(driver))
    try:
        yield window
    finally:
        window.quit()

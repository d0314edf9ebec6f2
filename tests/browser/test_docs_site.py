# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation site in Chromium: start page, search, pages of roles and modules, a phone, contrast.

Its links are checked in tests/checks/test_site.py, without a browser.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from testbed import documentation
from tests.browser.window import Window
from tests.checks.tools import locked

START, ROLE, MODULE, GUIDE = (
    "index.html",
    "reference/docker_role.html",
    "reference/gpu_settings_module.html",
    "README.html",
)
PAGES = (START, ROLE, MODULE, GUIDE, "messages.html", "docs/troubleshooting.html")
PHONE = 360
BAR = 45
"""Height of the theme's bar, in pixels."""


class _Quiet(SimpleHTTPRequestHandler):
    """Files of a directory, without a line on stderr for each."""

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


class Site(NamedTuple):
    """The built site. The search reads the pages that it finds, which a browser refuses for files: it is served."""

    html: Path
    address: str

    def open(self, browser: Any, page: str) -> Window:
        """A page of the site."""
        return Window(browser, f"{self.address}/{page}")


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with locked("venv-docs"):
        html = documentation.build(tmp_path_factory.mktemp("docs")).parent
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(html)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Site(html, f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


def test_every_page_opens_without_a_message_in_the_console(browser: Any, site: Site) -> None:
    pages = sorted(str(path.relative_to(site.html)) for path in site.html.rglob("*.html"))
    assert len(pages) > 100
    found = {}
    for page in pages:
        window = site.open(browser, page)
        found[page] = [entry["message"] for entry in window.messages()]
        # What comes from elsewhere would be missing at a site without a network.
        found[page] += window.run(
            "performance.getEntriesByType('resource').map((entry) => entry.name)"
            ".filter((name) => !name.startsWith(location.origin))"
        )
    assert {page: messages for page, messages in found.items() if messages} == {}


def test_the_start_page_leads_to_every_topic_of_the_guides(browser: Any, site: Site) -> None:
    window = site.open(browser, START)
    topics = window.strings(".wy-nav-content h2, .wy-nav-content .caption-text")
    assert topics[:2] == ["Start", "Run"]
    assert {"Driver", "GPUs", "Software", "Reference", "Project"} <= set(topics)
    titles = window.strings(".wy-nav-content .toctree-l1 > a")
    assert titles[0] == "Quick start"
    assert len(titles) == len(set(titles)) > 30


def test_the_search_finds_an_option_and_leads_to_its_page(browser: Any, site: Site) -> None:
    window = site.open(browser, START)
    window.type("input[name=q]", "power_limit_w\n")
    # The summary of each result is read from its page.
    window.wait("document.querySelectorAll('ul.search li p.context').length > 3")
    (result,) = window.find(f"ul.search a[href*='{MODULE}']")
    result.click()
    window.wait(f"location.pathname === '/{MODULE}'")
    assert "power_limit_w" in "".join(window.strings("table.ansible-option-table .ansible-option-title"))
    assert window.messages() == []


@pytest.mark.parametrize("page", PAGES)
def test_a_phone_shows_text_and_tables_in_its_width(page: str, browser: Any, site: Site) -> None:
    """A table of more than three columns scrolls in its frame; these pages have none."""
    window = site.open(browser, page)
    with window.width(PHONE):
        assert window.run("document.documentElement.scrollWidth") <= PHONE
        beyond = window.run(
            "[...document.querySelectorAll('.wy-table-responsive')]"
            ".filter((table) => table.scrollWidth > table.clientWidth + 1).map((table) => table.innerText.slice(0, 80))"
        )
        assert beyond == []


def test_a_phone_opens_the_navigation_by_its_button(browser: Any, site: Site) -> None:
    window = site.open(browser, ROLE)
    with window.width(PHONE):
        (field,) = window.find("input[name=q]")
        assert window.run("arguments[0].getBoundingClientRect().left < 0", field)
        (button,) = window.find(".wy-nav-top i")
        button.click()
        window.wait("document.querySelector('input[name=q]').getBoundingClientRect().left >= 0")


@pytest.mark.parametrize("page", PAGES)
def test_text_has_enough_contrast(page: str, browser: Any, site: Site) -> None:
    """The theme has light colours only, also for a user who prefers dark ones."""
    window = site.open(browser, page)
    with window.media(prefers_color_scheme="dark"):
        assert window.low_contrasts(".rst-content :is(h1, h2, p, td, th, code, a), .wy-side-nav-search > a") == {}


def test_the_bar_stays_and_hides_no_heading(browser: Any, site: Site) -> None:
    window = site.open(browser, f"{GUIDE}#requirements")
    window.wait("scrollY > 0")
    assert window.run("document.querySelector('.DocSite-nav').getBoundingClientRect().top") == 0
    assert window.run("document.querySelector('#requirements h2').getBoundingClientRect().top") >= BAR

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of the report in Chromium, at 3, 50 and 1000 hosts.

Run with GPU_FLEET_SCREENSHOTS=docs to take the pictures of the guide again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._report import page
from ansible_collections.gpu.fleet.plugins.plugin_utils._report.model import Host

from tests.browser.window import Window
from tests.unit.report.fleets import HOSTILE, TIME, fleet

SIZES = (3, 50, 1000)
SHOWN_AT_FIRST = 100


@pytest.fixture(scope="module", name="pages")
def _pages(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The page of each size."""
    directory = tmp_path_factory.mktemp("pages")
    made = {}
    for size in SIZES:
        made[size] = directory / f"{size}.html"
        made[size].write_text(page.as_html(page.make(fleet(size), TIME)))
    return made


class ReportWindow(Window):
    """The window with the page of a report."""

    def hosts(self) -> list[str]:
        """The names in the table of hosts, from above."""
        found: list[str] = self.run("[...document.querySelectorAll('tr[data-host]')].map((row) => row.dataset.host)")
        return found

    def search(self, words: str) -> None:
        """Type into the field of the search."""
        self.type("#search", words)

    def choose(self, name: str, value: str) -> None:
        """Choose a value of a filter."""
        self.run(
            "(() => { const field = document.getElementById(arguments[0]); field.value = arguments[1];"
            " field.dispatchEvent(new Event('input', { bubbles: true })); })()",
            name,
            f"={value}",
        )

    @property
    def status(self) -> str:
        """What a screen reader announces about the filters."""
        return str(self.run("document.getElementById('shown').textContent"))

    def open(self, host: str) -> str:
        """Open a host with the keyboard; the text of its details."""
        (button,) = [button for button in self.find("button.open") if button.text == host]
        button.send_keys("\n")
        assert button.get_attribute("aria-expanded") == "true"
        return str(self.find("tr.detail")[-1].text)

    def check_quiet(self) -> None:
        """Nothing was reported to the console, and no name of a host has run as a program."""
        assert self.messages() == []
        assert self.run("window.hostile") is None
        assert self.run("document.documentElement.dataset.ready") == "true"


@pytest.fixture(name="window", params=SIZES)
def _window(request: pytest.FixtureRequest, browser: Any, pages: dict[int, Path]) -> ReportWindow:
    return ReportWindow(browser, pages[request.param])


def test_the_page_shows_the_fleet_and_reports_no_error(window: ReportWindow) -> None:
    size = int(window.status.split()[-2])
    assert window.status == f"{size} of {size} hosts"
    assert len(window.hosts()) == min(size, SHOWN_AT_FIRST)
    assert "lost1" in window.hosts()
    window.check_quiet()


def test_search_and_filters_choose_hosts(browser: Any, pages: dict[int, Path]) -> None:
    window = ReportWindow(browser, pages[50])
    window.search("a100")
    assert (window.hosts(), window.status) == (["pair1"], "1 of 50 hosts")
    window.search("DGX1 reset")
    assert [name for name in window.hosts() if not name.startswith("dgx1")] == []
    window.search("")
    window.choose("by-status", "unreachable")
    assert window.hosts() == ["lost1"]
    window.choose("by-status", "ok")
    window.choose("by-model", "Tesla T4")
    assert window.hosts() == ["single2"]
    (clear,) = window.find("#filters button[type=reset]")
    clear.click()
    window.wait("document.getElementById('shown').textContent === '50 of 50 hosts'")
    window.search("no such host")
    assert (window.hosts(), window.status) == ([], "0 of 50 hosts")
    window.check_quiet()


def test_a_header_sorts_and_states_how(browser: Any, pages: dict[int, Path]) -> None:
    window = ReportWindow(browser, pages[50])
    head = "#host-table > thead th"
    for expected, first in (("ascending", "broken"), ("descending", "single2")):
        window.find(f"{head} button")[0].send_keys("\n")
        assert window.find(head)[0].get_attribute("aria-sort") == expected
        assert window.hosts()[0].startswith(first)
        assert window.run("document.activeElement.textContent") == "host"
    dgx = [name for name in window.hosts() if name.startswith("dgx")]
    assert dgx.index("dgx10") < dgx.index("dgx9")
    window.check_quiet()


def test_a_host_opens_to_its_gpus_processes_and_topology(browser: Any, pages: dict[int, Path]) -> None:
    window = ReportWindow(browser, pages[50])
    text = window.open("dgx0")
    for part in ("3g.71gb", "python train.py", "88 of 140 GiB", "78 of 700 W", "mlx5_0", "2 rows remapped"):
        assert part in text
    assert HOSTILE in text
    assert "[object" not in text
    assert len(window.find("tr.detail svg rect.gpu")) == 8
    window.find("button.open[aria-expanded=true]")[0].click()
    assert window.find("tr.detail") == []
    window.check_quiet()


def test_an_open_host_does_not_widen_the_table_and_its_mig_slices_have_whole_labels(
    browser: Any, pages: dict[int, Path]
) -> None:
    window = ReportWindow(browser, pages[50])
    window.open("dgx0")
    assert window.run("document.getElementById('host-table').scrollWidth") <= window.run(
        "document.getElementById('host-table').parentElement.clientWidth"
    )
    labels = window.find(".slices strong")
    assert [label.text for label in labels] == ["2g.35gb", "1g.18gb", "3g.71gb"]
    for label in labels:
        assert window.run("arguments[0].scrollWidth <= arguments[0].clientWidth", label), label.text
        assert window.run("arguments[0].getClientRects().length", label) == 1


def test_checks_follow_the_filters(browser: Any, pages: dict[int, Path]) -> None:
    window = ReportWindow(browser, pages[50])
    window.search("pair1")
    rows = window.run("[...document.querySelectorAll('#check-table tbody tr')].map((row) => row.textContent)")
    assert rows == ["pair1W"]
    heads = window.run("[...document.querySelectorAll('#check-table thead th')].map((head) => head.textContent)")
    assert heads == ["host", "ecc mode pending"]
    window.search("single2")
    assert window.run("document.getElementById('check-table').textContent").startswith("No check")


def test_all_of_a_thousand_hosts_can_be_shown(browser: Any, pages: dict[int, Path]) -> None:
    window = ReportWindow(browser, pages[1000])
    (more,) = window.find("#more")
    assert more.text == "Show all 1000 hosts"
    more.click()
    assert len(window.hosts()) == 1000
    assert not more.is_displayed()
    window.search("rack249")
    assert len(window.hosts()) == 2
    window.check_quiet()


@pytest.mark.parametrize("width", [360, 1280])
def test_no_text_is_beyond_the_width_of_the_window(width: int, browser: Any, pages: dict[int, Path]) -> None:
    window = ReportWindow(browser, pages[50])
    with window.width(width):
        window.open("dgx0")
        assert window.run("document.documentElement.scrollWidth") <= width


def test_the_column_of_hosts_is_in_view_in_a_window_of_400_pixels(browser: Any, pages: dict[int, Path]) -> None:
    """Without scrolling a table sideways. Tables that begin with the host are wider: it is what they show first."""
    window = ReportWindow(browser, pages[50])
    with window.width(400):
        window.run("document.querySelectorAll('main details').forEach((details) => { details.open = true; })")
        ends = window.run(_ENDS_OF_HOSTS)
    assert len(ends) == 4
    assert max(ends.values()) <= 400, ends


_ENDS_OF_HOSTS = """
Object.fromEntries([...document.querySelectorAll("main table")]
  .filter((table) => [...table.querySelectorAll("thead th:last-child:not(.number)")].some(
    (head) => head.textContent === "hosts"))
  .map((table) => [table.caption.textContent, Math.max(...[...table.querySelectorAll("td:last-child")].map(
    (cell) => cell.getBoundingClientRect().left + cell.scrollWidth))]))
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(scheme: str, browser: Any, pages: dict[int, Path]) -> None:
    window = ReportWindow(browser, pages[50])
    with window.media(prefers_color_scheme=scheme):
        window.open("dgx0")
        assert window.low_contrasts("h1, h2, h3, p, caption, th, td, li, a, .status, summary, button, label") == {}


def test_on_paper_there_is_no_navigation(browser: Any, pages: dict[int, Path]) -> None:
    window = ReportWindow(browser, pages[3])
    with window.media("print"):
        assert [element.is_displayed() for element in window.find("nav, #filters")] == [False, False]
        assert window.find("#h-summary")[0].is_displayed()


@pytest.mark.skipif("GPU_FLEET_SCREENSHOTS" not in os.environ, reason="the pictures of the guide are taken on request")
def test_take_the_pictures_of_the_guide(browser: Any, tmp_path: Path) -> None:
    directory = Path(os.environ["GPU_FLEET_SCREENSHOTS"])
    text = json.dumps([vars(host) for host in fleet(14) if HOSTILE not in host.name])
    hosts = [Host(**fields) for fields in json.loads(text.replace(json.dumps(HOSTILE), '"python serve.py"'))]
    path = tmp_path / "report.html"
    path.write_text(page.as_html(page.make(hosts, TIME)))
    window = ReportWindow(browser, path)
    window.screenshot(directory / "report-summary.png")
    window.open("dgx0")
    with window.media(prefers_color_scheme="dark"):
        window.run("document.querySelector('tr[data-host=dgx0]').scrollIntoView()")
        window.screenshot(directory / "report-host.png")

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation site: it is built without a warning, has every page, and no link within it is broken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed import documentation, messages
from tests.checks.conftest import Reported
from tests.checks.tools import ROOT, locked, project_files


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the built site."""
    with locked("venv-docs"):
        return documentation.build(tmp_path_factory.mktemp("docs")).parent


def test_no_link_within_the_site_is_broken(html: Path, reported: Reported) -> None:
    broken, elsewhere = documentation.links(html)
    reported("documentation site", f"{len(elsewhere)} addresses of other sites, which are not visited")
    assert broken == []


def test_every_role_plugin_and_guide_has_a_page(html: Path) -> None:
    pages = {str(path.relative_to(html)) for path in html.rglob("*.html")}
    roles = {f"reference/{path.parts[1]}_role.html" for path in project_files() if path.parts[0] == "roles"}
    kinds = ("modules", "filter", "test", "callback")
    plugins = {
        f"reference/{path.stem}_{path.parts[1].removesuffix('s')}.html"
        for path in project_files(".py")
        if path.parts[0] == "plugins" and path.parts[1] in kinds
    }
    guides = {str(path.with_suffix(".html")) for path in project_files(".md") if path.parts[0] == "docs"}
    assert (roles | plugins | guides | {"index.html", "messages.html"}) - pages == set()


def test_options_of_programs_keep_their_hyphens(html: Path) -> None:
    pages = {str(path.relative_to(html)): path.read_text(encoding="utf-8") for path in html.rglob("*.html")}
    assert [name for name, text in pages.items() if re.search("[\u2013\u2014][a-z]", text)] == []
    assert any("nvidia-smi --gpu-reset" in text for text in pages.values())


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#there">1</a><a href="b.html#no">2</a><a href="c.html">3</a>')
    (tmp_path / "b.html").write_text('<p id="there"><a href="https://example.com/">4</a></p>')
    assert documentation.links(tmp_path) == (["a.html: b.html#no", "a.html: c.html"], ["https://example.com/"])


def test_the_page_of_messages_is_made_from_the_sources() -> None:
    page = messages.page(ROOT)
    assert "| nothing is declared: set one of … |  |" in page
    assert "| gpus is empty: it names no GPU | leave it out for all GPUs of the host |" in page
    assert "## Role `docker`" in page
    # Collected by a plan, not raised.
    assert "| docker\\_users has …, who do not exist on the host | create them first |" in page
    assert "| runs as user …, not as root | add --become, or set ansible\\_become for this host |" in page
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) > 300 and not [row for row in rows if len(re.findall(r"(?<!\\)\|", row)) != 3]

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guides: every page is reached from README, no link of theirs is broken, and no remedy is missing."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.remedies import REMEDIES

from tests.checks.tools import ROOT, project_files

PAGES = [path for path in project_files(".md") if path.parts[0] not in ("changelogs", "tests", "testbed")]
START = Path("README.md")
NOT_FROM_README = {Path(".github/ISSUE_TEMPLATE")}
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^( *)```.*?^\1```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def _links(page: Path) -> list[tuple[Path, str]]:
    """Targets of a page's links within the project, as (path from the root, anchor)."""
    text = _CODE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    found = []
    for target in _LINK.findall(text):
        if not re.match(r"[a-z]+:", target):
            path, _hash, anchor = target.partition("#")
            resolved = Path(os.path.normpath(page.parent / path)) if path else page
            found.append((resolved, anchor))
    return found


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the documentation site make them."""
    text = re.sub(r"^( *)```.*?^\1```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    seen: Counter[str] = Counter()
    anchors = set()
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return anchors


def test_every_page_is_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [START]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        waiting += [path for path, _anchor in _links(page) if (ROOT / path).is_file()]
    assert [str(path) for path in PAGES if path not in reached and path.parent not in NOT_FROM_README] == []


def test_the_readme_is_read_in_a_minute() -> None:
    """Everything else is on the pages that docs/README.md lists."""
    assert len((ROOT / START).read_text(encoding="utf-8").splitlines()) <= 120


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_link_within_the_project_is_broken(page: Path) -> None:
    broken = [
        f"{path}#{anchor}" if anchor else str(path)
        for path, anchor in _links(page)
        if not (ROOT / path).exists() or (anchor and path.suffix == ".md" and anchor not in _anchors(path))
    ]
    assert broken == []


def test_the_search_for_links_and_anchors_finds_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`, c\n## A b c\n[x](other.md#y) `[no](code.md)` [w](https://a.b/) [z](#a-b-c)\n```\n# no\n```\n"
    )
    assert _links(page) == [(tmp_path / "other.md", "y"), (page, "a-b-c")]
    assert _anchors(page) == {"a-b-c", "a-b-c-1"}


def test_troubleshooting_has_every_remedy() -> None:
    """The table of docs/troubleshooting.md is that of the modules."""
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| (.+?) \|$", text, re.MULTILINE))
    assert shown == REMEDIES

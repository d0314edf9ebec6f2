# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for every file of the project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.checks.tools import ROOT, project_files

HEADER = """\
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""
LARGEST = 600 * 1024
LARGEST_RECORDING = 2 * 1024 * 1024
"""A real host is recorded in one file; one document of eight GPUs has 240 KiB there."""
ROLES_AND_PLAYBOOKS = [path for path in project_files(".yml") if path.parts[0] in ("roles", "playbooks")]
# Each hides a failure or the command that is run. A justified use has the reason at the end of its line.
HIDING = re.compile(
    r"^\s*(?:- )?(?:ignore_errors:|ignore_unreachable:|failed_when: *false\b|(?:ansible\.builtin\.)?(?:shell|raw):)"
    r"(?!.*\s# \w)",
    re.MULTILINE,
)
# No personal home directories. root's exists on every target host, but tools installed below it do not.
HOME = re.compile(r"/(?:home|Users)/[a-z][\w.-]*/|/root/\.(?:pyenv|cache|local|ansible|venv)\b")


def _text(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


@pytest.mark.parametrize("path", project_files(".py"), ids=str)
def test_python_file_has_the_licence(path: Path) -> None:
    text = _text(path)
    # An empty file has nothing to license.
    assert not text or (text.partition("\n")[2] if text.startswith("#!") else text).startswith(HEADER)


@pytest.mark.parametrize("path", ROLES_AND_PLAYBOOKS, ids=str)
def test_nothing_hides_a_failure_without_a_reason(path: Path) -> None:
    assert HIDING.findall(_text(path)) == []


def test_the_search_for_hidden_failures_finds_them() -> None:
    assert HIDING.search("    ignore_errors: true\n")
    assert HIDING.search("  ansible.builtin.shell: ls | wc\n")
    assert HIDING.search("  failed_when: false\n")
    assert not HIDING.search("  failed_when: false  # the next task reports what is wrong\n")


def test_no_file_is_large() -> None:
    recordings = Path("tests", "unit", "recordings")
    assert [
        str(path)
        for path in project_files()
        if (ROOT / path).stat().st_size > (LARGEST_RECORDING if path.parent == recordings else LARGEST)
    ] == []


def test_no_file_names_a_home_directory() -> None:
    assert [str(path) for path in project_files() if HOME.search(_text(path))] == []

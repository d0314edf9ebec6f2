# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guides, names of tasks, messages and comments are in plain words; see testbed/prose.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import prose
from tests.checks.tools import project_files

NOT_OURS = {"CHANGELOG.md", "CODE_OF_CONDUCT.md"}
PAGES = [
    path
    for path in project_files(".md")
    if path.parts[0] not in ("changelogs", "tests", "testbed") and path.name not in NOT_OURS
]
SPECS = [path for path in project_files(".yml") if path.name == "argument_specs.yml"]
TASKS = [path for path in project_files(".yml") if path.parts[0] in ("roles", "playbooks")]
FILES = [
    path
    for path in project_files()
    if path.parts[0] in ("plugins", "roles", "playbooks", "testbed")
    and path.suffix in (".py", ".yml")
    and path != Path("testbed/prose.py")
]
EXCEPTIONS = {
    # The unit of the boot service, as results of real hosts record it.
    "plugins/module_utils/_state/service_files.py": ("Those of",),
    "plugins/module_utils/_knowledge/cuda.py": ("that of",),
    "plugins/module_utils/_knowledge/distributions.py": ("are NVIDIA's own", "those of"),
    "plugins/module_utils/_knowledge/room.py": ("those of",),
    "plugins/module_utils/_knowledge/specifications.py": ("What is",),
}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_guide_is_in_plain_words(page: Path) -> None:
    assert list(map(str, prose.of_page(page))) == []


@pytest.mark.parametrize("path", SPECS, ids=str)
def test_descriptions_of_variables_are_in_plain_words(path: Path) -> None:
    assert list(map(str, prose.of_file(path))) == []


@pytest.mark.parametrize("path", TASKS, ids=str)
def test_names_of_tasks_are_in_plain_words(path: Path) -> None:
    assert list(map(str, prose.of_names(path))) == []


@pytest.mark.parametrize("path", FILES, ids=str)
def test_messages_and_comments_are_in_plain_words(path: Path) -> None:
    allowed = EXCEPTIONS.get(str(path), ())
    assert [str(one) for one in prose.of_file(path) if one.text not in allowed] == []


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("the port of one host and that of the others", "that of"),
        ("- What is not declared stays.", "What is"),
        ("Have systemd read the unit", "Have systemd"),
        ("downloads some hundred MB", "some hundred"),
        ("It takes the host for a missing one.", "takes the host for a"),
        ("a downgrade without leave", "without leave"),
        ("toolkits are NVIDIA's own", "are NVIDIA's own"),
        ("one package, of which the newest counts", ", of which"),
        ("the reason of before", "of before"),
    ],
)
def test_a_form_is_found(text: str, form: str) -> None:
    assert [one.text for one in prose.of_text(text, Path("page.md"))] == [form]


@pytest.mark.parametrize(
    "text",
    [
        "It reports what is missing.",
        "Have no fear.",
        "leave the host drained",
        "## What is checked",
        "the head of that rack",
    ],
)
def test_plain_words_are_not_found(text: str) -> None:
    assert list(prose.of_text(text, Path("page.md"))) == []

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names, messages, comments and documentation use the field's standard terms."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from tests.checks.tools import ROOT, project_files

# By pattern of a whole word, or of a part of a name in snake case: what to use instead.
WORDS = {
    r"foretells?|foretold|foretelling": "predict, preview",
    r"look-?alikes?": "mock (of a repository), derivative (of an image)",
    r"glances?|glancing": "quick check",
    r"(?:bring|brings|bringing|brought)(?: \w+){0,3} about": "install, apply, configure",
    r"wish(?:es|ed)?": "desired, requested",
    r"wanted": "desired, requested",
    r"afresh|anew": "again",
    r"beside": "next to, in addition to",
    r"complain(?:t|ts|s|ed|ing)?": "error message, report",
    r"tell|tells|telling|told": "report, print, configure; distinguish (tell apart)",
    r"say|says|saying|said": "report, print, state",
    r"answer(?:s|ed|ing)?": "result, output, reply, response",
    r"remark(?:s|ed)?": "diagnostics",
    r"somebody|someone": "unmanaged (of what the role did not install), another user or program",
    r"strangers?": "unrelated packages, processes or files",
    r"foreign": "unmanaged",
    r"(?:put|puts|putting)(?: \w+)? back|way back|(?:go|goes|going|went) back": "restore, roll back",
    r"meddl(?:e|es|ed|ing|er)": "intercept (calls), tamper with, modify (files)",
    r"saboteurs?": "fault injector",
    r"patience": "retry policy",
    r"hopeless": "non-retryable",
    r"withdraw(?:s|n|ing)?|withdrew": "remove stale files",
    r"folders?": "directory",
    r"holders?": "blocker",
    r"speaks? (?:against|for)|spoke against": "incompatible with",
    r"texts": "strings, messages, output",
    r"remember(?:s|ed|ing)?|recall(?:s|ed|ing)?": "put, get (of a cache); store, record",
    r"forget(?:s|ting)?|forgot|forgotten": "invalidate (of a cache); lose, reset",
    r"riddles?": "a plain statement",
}
# What real programs print or name, and standard terms that have such a word in them.
ALLOWED = {
    r"holders(?=[\"'/)])": "directory of a kernel module in /sys/module: the modules that use it",
    r"place ?holders?|(?:copyright|license) holders?|foreign keys?": "standard term",
    r"--folder": "option of a hook of nvidia-ctk",
}
# Files whose words are not the project's, or that have to name the words.
NOT_OURS = re.compile(
    r"^(?:LICENSE|CODE_OF_CONDUCT[.]md|CHANGELOG[.]md|changelogs/changelog[.]yaml|tests/checks/test_words[.]py)$"
    r"|/(?:fixtures|recordings|data)/"
    r"|[.](?:out|csv|tsv|json|xml|svg|png|txt|gz|xz)$"
)


def _whole(patterns: Iterable[str]) -> re.Pattern[str]:
    """A word by itself or as a part of a name in snake case."""
    return re.compile(rf"(?<![a-z])(?:{'|'.join(patterns)})(?![a-z])", re.IGNORECASE)


ANY_WORD, ANY_ALLOWED = _whole(WORDS), _whole(ALLOWED)


def _found(text: str) -> list[str]:
    """The words of the list in a text, with what to use instead."""
    return [
        f"{number}: {match[0]}: use {next(use for word, use in WORDS.items() if _whole([word]).fullmatch(match[0]))}"
        for number, line in enumerate(text.splitlines(), 1)
        for match in ANY_WORD.finditer(ANY_ALLOWED.sub("", line))
    ]


def test_the_project_uses_the_terms_of_the_field() -> None:
    files = [path for path in project_files() if not NOT_OURS.search(str(path))]
    contents = {path: (ROOT / path).read_text(encoding="utf-8", errors="replace") for path in files}
    assert [f"{path}:{found}" for path, content in contents.items() for found in _found(content)] == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("# What it says of the GPU", ["says"]),
        ("def test_somebody_elses_driver() -> None:", ["somebody"]),
        ("The old file is put back, beside the new one.", ["put back", "beside"]),
        ("    name: Bring the driver about", ["Bring the driver about"]),
        ("class Answer: ...", ["Answer"]),
        ('(root / "sys/module/nvidia/holders").mkdir()', []),
        ("besides, a placeholder essay tells", ["tells"]),
        ("the shareholder's foreign key", []),
    ],
)
def test_words_are_found_as_such(line: str, expected: list[str]) -> None:
    assert [found.split(": ")[1] for found in _found(line)] == expected

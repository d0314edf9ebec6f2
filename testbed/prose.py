# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Forms of prose that read as translated, and where the project has them: `python3 -m testbed.prose` lists them.

tests/checks/test_prose.py allows none. Comments, messages and DOCUMENTATION are held to FORMS, guides, descriptions of
variables and names of tasks to GUIDE_FORMS as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
_START = r"(?:^|(?<=[.;:|] )|(?<=- )|(?<=<br>))"
FORMS = {
    r"\b(?:[Tt]hat|[Tt]hose) of\b": "name the thing again: `the driver of the host`, not `that of the host`",
    rf"{_START}What (?:is|was|has|are|were)\b": "begin with the subject: `Undeclared settings stay`",
    rf"{_START}(?:Have|Let) (?:the|a|an|it|its|hosts|systemd|[Ss]lurm\w*|Docker)\b": "use the verb: `Reload systemd`",
    r"\bsome (?:hundreds?|thousands?|dozens?)\b": "a number, or `several hundred`",
    r"\b[Tt](?:ake|akes|aken|ook) (?:(?:the|a|an|this|that) \w+|it|them)? ?for (?:an?|the|one)\b": "`counts as`",
    r"\b[Ll]ook for what\b": "name what is found",
    r"\b(?:with|without|gives?|is) leave\b|\bleave for what\b": "permission",
    r"\bas good as\b": "state the consequence",
    r"\bare (?:NVIDIA|Docker|Debian|Ubuntu|Ansible)'s own\b": "`come from NVIDIA`",
    r"\b(?:and|or) (?:the )?alike\b": "`and others`",
    r"\brequested is\b": "`version X was requested`",
    r"\b(?:is|are) (?:yet )?to be (?:done|had|seen|known)\b": "`still needs`",
    r"\bin place of what\b|\bof before\b(?! the)": "`instead of the declared`, `the earlier`",
    r"\b(?:[Pp]ower|[Pp]owers) the host off and on\b": "`power-cycle the host`",
}
# Beyond these in guides, descriptions of variables and names of tasks.
GUIDE_FORMS = {
    r", of which\b|\bof which (?:the|one|it|a|nothing)\b": "two sentences, or `whose`",
    r"\ball the same\b": "`anyway`",
    r"\bat hand\b": "`available`, or leave it out",
    r"\b[Mm]end(?:s|ed)?\b": "`fix` or `repair`",
    r"\bthere (?:is|are) none\b": "`without one`",
}
_USE = {**FORMS, **GUIDE_FORMS}
ANY_FORM = re.compile("|".join(f"(?:{form})" for form in FORMS))
GUIDE_FORM = re.compile("|".join(f"(?:{form})" for form in _USE))
_NAME = re.compile(r"^ *(?:- )?name: (.*)$", re.MULTILINE)
_BLOCK = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#.*$|^\| [^|\n]*\|.*\n(?=\| ---)", re.MULTILINE)


class Found(NamedTuple):
    """A form, and where it is."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        use = next(use for form, use in _USE.items() if re.search(form, self.text))
        return f"{self.path}:{self.line}: {self.text.strip()}: {use}"


def of_text(text: str, path: Path, forms: re.Pattern[str] = GUIDE_FORM) -> Iterator[Found]:
    """The forms in a text, a line at a time."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in forms.finditer(line.lstrip("-* ")):
            yield Found(path, number, match[0])


def of_page(path: Path) -> list[Found]:
    """The forms in a guide: not in its blocks of code, its headings, and the first row of its tables."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n")

    text = (ROOT / path).read_text(encoding="utf-8")
    return list(of_text(_HEADING.sub(blank, _BLOCK.sub(blank, text)), path))


def of_names(path: Path) -> list[Found]:
    """The forms in the names of plays and tasks."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return [
        Found(path, text[: match.start()].count("\n") + 1, found[0])
        for match in _NAME.finditer(text)
        for found in [GUIDE_FORM.search(match[1])]
        if found
    ]


def of_file(path: Path) -> list[Found]:
    """The forms in all of a file."""
    forms = GUIDE_FORM if path.name == "argument_specs.yml" else ANY_FORM
    return list(of_text((ROOT / path).read_text(encoding="utf-8", errors="replace"), path, forms))


if __name__ == "__main__":
    for each in sorted(ROOT.glob("*/**/*")):
        relative = each.relative_to(ROOT)
        if relative.parts[0] in ("plugins", "roles", "playbooks", "docs") and each.suffix in (".py", ".yml", ".md"):
            for one in of_page(relative) if each.suffix == ".md" else of_file(relative):
                print(one)

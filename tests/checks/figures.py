# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Count what is decided in YAML and Jinja in place of Python: `python3 -m tests.checks.figures` prints the figures.

computed: variables of roles/*/vars whose value is a template. conditional: those of them with `if`. long: expressions
of Jinja of over 200 characters. logic: templates and conditions of tasks, vars and playbooks with a decision in them,
by the names of `LOGIC`. private filters: those that are not for playbooks of users. plans: tasks that ask a
planner. lines: of what is not tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.checks.tools import ROOT, project_files

LOGIC = re.compile(
    r"\b(if|select|reject|selectattr|rejectattr|map|regex_\w+|combine|union|intersect|difference|symmetric_difference)\b"
    r"|\bis (?:not )?(?:ansible\.builtin\.)?version\b|\bgpu\.fleet\.\w*version\w*"
)
_LONG = 200
_PLAN = re.compile(r"^ +gpu\.fleet\.role_plan:$", re.MULTILINE)
_BRACES = re.compile(r"\{\{.*?\}\}", re.DOTALL)
# Keys whose values are expressions without braces.
_BARE = frozenset({"when", "changed_when", "failed_when", "until", "that"})
PUBLIC_FILTERS = frozenset(
    {
        *("compatibility", "health_junit", "health_metrics", "mig_combinations", "mig_layouts", "mig_parted"),
        *("platform", "run_lists", "select_gpus"),
    }
)


class _Loader(yaml.SafeLoader):
    """Reads the tags of Ansible as plain values."""


_Loader.add_multi_constructor("!", lambda loader, _suffix, node: loader.construct_scalar(node))


def _documents(*patterns: str) -> Iterator[Any]:
    for path in project_files(".yml"):
        if any(path.match(pattern) for pattern in patterns):
            yield yaml.load((ROOT / path).read_text(encoding="utf-8"), _Loader)


def _expressions(value: Any, key: str = "") -> Iterator[str]:
    """All templates and conditions below a value."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _expressions(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _expressions(item, key)
    elif isinstance(value, str) and ("{{" in value or "{%" in value or key in _BARE):
        yield value


def _logical(text: str) -> str:
    """A template without the text around its braces, such as a path with a directory `select`."""
    return " ".join(_BRACES.findall(text)) if "{{" in text and "{%" not in text else text


def count() -> dict[str, int]:
    """The figures by name."""
    variables = [
        value
        for document in _documents("roles/*/vars/*.yml")
        for value in (document or {}).values()
        if any(_expressions(value))
    ]
    expressions = [
        text
        for document in _documents(
            "roles/*/tasks/**/*.yml",
            "roles/*/tasks/*.yml",
            "roles/*/handlers/*.yml",
            "roles/*/vars/*.yml",
            "playbooks/*.yml",
            "playbooks/*/*.yml",
        )
        for text in _expressions(document)
    ]
    filters = {path.stem for path in (ROOT / "plugins" / "filter").glob("*.py") if not path.stem.startswith("_")}
    return {
        "computed": len(variables),
        "conditional": sum(any(re.search(r"\bif\b", text) for text in _expressions(value)) for value in variables),
        "long": sum(len(" ".join(one.split())) > _LONG for text in expressions for one in _BRACES.findall(text)),
        "logic": sum(LOGIC.search(_logical(text)) is not None for text in expressions),
        "private filters": len(filters - PUBLIC_FILTERS),
        "plans": sum(len(_PLAN.findall((ROOT / path).read_text(encoding="utf-8"))) for path in project_files(".yml")),
        "lines": sum(map(_lines, _sources())),
    }


def _sources() -> Iterator[Path]:
    for path in project_files():
        if path.parts[0] in ("plugins", "roles", "playbooks", "testbed") and path.suffix in (".py", ".yml", ".j2", ""):
            yield path


def _lines(path: Path) -> int:
    return (ROOT / path).read_bytes().count(b"\n")


if __name__ == "__main__":
    for name, number in count().items():
        print(f"{name:<16}{number:>7}")

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of all error messages, made from the sources, so that none is missing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_ERROR = re.compile(r"(?:Error|Refused)$|^(?:missing|_no_rollback)$")
_ROLE_MESSAGE = re.compile(r"^( *)(?:fail_msg|msg): (?:>-\n((?:\1 +.*\n)+)|(.+)\n)", re.MULTILINE)
_TASK = re.compile(r"ansible\.builtin\.(fail|assert):\n(?:.*\n)*?(?=\n|\Z)")
_FEWEST_WORDS = 3
"""A message of fewer words has only what another one reports."""


def of_python(path: Path) -> Iterator[str]:
    """The messages that a file raises, with … where a value is put in."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            name = getattr(node.exc.func, "id", getattr(node.exc.func, "attr", ""))
            message = _text(node.exc.args[0])
            if _ERROR.search(name) and message:
                yield message


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "…" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_text(node.left) or "…") + (_text(node.right) or "…")
    return ""


def of_tasks(path: Path) -> Iterator[str]:
    """The messages of a task file's refusals, with … where a value is put in."""
    for task in _TASK.finditer(path.read_text(encoding="utf-8")):
        for match in _ROLE_MESSAGE.finditer(task[0] + "\n"):
            message = " ".join((match[2] or match[3]).split()).strip("\"'")
            yield re.sub(r"{{.*?}}|{%.*?%}", "…", message)


def page(root: Path) -> str:
    """The page in Markdown: by part, each message with what to do, which is what follows its last semicolon."""
    groups: dict[str, dict[str, None]] = {}
    for path in sorted((root / "plugins").rglob("*.py")):
        part = path.parent.name.strip("_") if path.parent.parent.name == "module_utils" else path.stem.strip("_")
        groups.setdefault(f"`{part}`", {}).update(dict.fromkeys(of_python(path)))
    for path in sorted(root.glob("roles/*/tasks/**/*.yml")) + sorted(root.glob("playbooks/**/*.yml")):
        part = f"Role `{path.parts[len(root.parts) + 1]}`" if "roles" in path.parts else "`site.yml`"
        groups.setdefault(part, {}).update(dict.fromkeys(of_tasks(path)))
    lines = [
        "# All messages",
        "",
        "Made from the sources of modules, filters and task files. `…` stands for a name or value. Where the second",
        "column is empty, the message itself names the option or variable, and what it takes.",
    ]
    for part, messages in groups.items():
        rows = [_row(message) for message in messages if len(re.findall(r"\w+", message)) >= _FEWEST_WORDS]
        if rows:
            lines += ["", f"## {part}", "", "| message | what to do |", "| --- | --- |", *rows]
    return "\n".join(lines) + "\n"


def _row(message: str) -> str:
    cause, _semicolon, remedy = message.rpartition("; ")
    cells = (cause, remedy) if cause else (message, "")
    return "| " + " | ".join(re.sub(r"([|<>*`_{}\\[\]])", r"\\\1", cell) for cell in cells) + " |"

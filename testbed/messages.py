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
_REMEDY = re.compile(r"^(?![#;,)])(?:\W*\w+){3}[^\n]*; \W*\w+ [^\n]*\w+ [^\n]*$")
"""A cause and, after a semicolon, what to do: the form of all messages, raised or collected by a plan."""
_OUTCOME = re.compile(r"(?:nothing|it was|known are|it holds|what is there|the previous file)\b")
"""How a last part of a message begins that reports what was done, and not what to do."""
_DOCUMENTATION = {"DOCUMENTATION", "EXAMPLES", "RETURN"}


class _Messages(ast.NodeVisitor):
    """Collects what is raised, and strings with a remedy such as the refusals of a plan; no documentation."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def visit_Expr(self, node: ast.Expr) -> None:
        """Leave out documentation strings."""
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Leave out the documentation of plugins."""
        if not _DOCUMENTATION & {getattr(target, "id", "") for target in node.targets}:
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Take the first argument of an error, with a remedy or without."""
        if isinstance(node.exc, ast.Call) and node.exc.args:
            name = getattr(node.exc.func, "id", getattr(node.exc.func, "attr", ""))
            message = _text(node.exc.args[0])
            if _ERROR.search(name) and message:
                self.found.append(message)
                return
        self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        """Take a string with a remedy as a whole, not its parts."""
        text = _text(node)
        if text and _REMEDY.match(text):
            self.found.append(text)
        elif not text:
            super().generic_visit(node)


def of_python(path: Path) -> Iterator[str]:
    """The messages of a file, with … where a value is put in."""
    messages = _Messages()
    messages.visit(ast.parse(path.read_text(encoding="utf-8")))
    yield from messages.found


def _text(node: ast.AST) -> str:
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
    """The page in Markdown: by part, each message with what to do, which follows a semicolon."""
    groups: dict[str, dict[str, None]] = {}
    for path in sorted((root / "plugins").rglob("*.py")):
        groups.setdefault(_part(path, root), {}).update(dict.fromkeys(of_python(path)))
    for path in sorted(root.glob("roles/*/tasks/**/*.yml")) + sorted(root.glob("playbooks/**/*.yml")):
        part = f"Role `{path.parts[len(root.parts) + 1]}`" if "roles" in path.parts else "Playbooks"
        groups.setdefault(part, {}).update(dict.fromkeys(of_tasks(path)))
    lines = [
        "# All messages",
        "",
        "Made from the sources of modules, filters and task files. `…` stands for a name or value. Where the second",
        "column is empty, the message itself names the option or variable, and what it takes.",
    ]
    for part, messages in sorted(groups.items()):
        rows = [_row(message) for message in messages if len(re.findall(r"\w+", message)) >= _FEWEST_WORDS]
        if rows:
            lines += ["", f"## {part}", "", "| message | what to do |", "| --- | --- |", *rows]
    return "\n".join(lines) + "\n"


def _part(path: Path, root: Path) -> str:
    """The heading of a plugin's messages: its role where it plans one, its sub-package where it is of a module."""
    within = path.relative_to(root / "plugins").parts
    role = within[2].removesuffix(".py") if within[1] == "_roles" else ""
    if role and (root / "roles" / role).is_dir():
        return f"Role `{role}`"
    name = path.parent.name if path.parent.parent.name == "module_utils" else path.stem
    return f"`{name.strip('_')}`"


def _row(message: str) -> str:
    parts = message.split("; ")
    first = next((number for number in range(len(parts) - 1, 0, -1) if not _OUTCOME.match(parts[number])), len(parts))
    cells = ("; ".join(parts[:first]), "; ".join(parts[first:]))
    return "| " + " | ".join(re.sub(r"([|<>*`_{}\\[\]])", r"\\\1", cell) for cell in cells) + " |"

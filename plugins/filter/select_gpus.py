# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose GPUs of one host or of all by an expression, on the controller."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

try:
    import jmespath  # type: ignore[import-untyped]  # it comes without type information
    from jmespath import exceptions

    JMESPATH_MISSING: ImportError | None = None
except ImportError as error:
    JMESPATH_MISSING = error


def select_gpus(data: Any, query: str) -> Any:
    """Search the GPUs in `data` with a JMESPath expression.

    `data` is a list of GPUs, the facts of nvidia_smi_facts, a host's facts or variables, or hostvars. GPUs of several
    hosts get the name of theirs as `host`. Raises AnsibleFilterError that names the position of a fault in `query`.
    """
    if JMESPATH_MISSING is not None:
        raise AnsibleFilterError(
            "gpu.fleet.select_gpus needs the Python library jmespath on the controller"
        ) from JMESPATH_MISSING
    gpus = _gpus(data)
    if gpus is None:
        raise AnsibleFilterError(
            "gpu.fleet.select_gpus takes a list of GPUs, facts of gpu.fleet.nvidia_smi_facts, or hostvars, "
            f"but got {type(data).__name__}"
        )
    try:
        return jmespath.search(query, _plain(gpus))
    except exceptions.JMESPathError as error:
        raise AnsibleFilterError(_explain(query, error)) from None


def _gpus(data: Any) -> list[Any] | None:
    """The list of GPUs in each of the shapes that facts come in."""
    if isinstance(data, Mapping):
        for name in ("gpus", "nvidia_smi", "ansible_facts"):
            if name in data:
                return _gpus(data[name])
        found = []
        for host, variables in data.items():
            if not isinstance(variables, Mapping):
                return None
            # A host whose facts were not gathered, or that has none, has no GPU to choose from.
            facts = variables.get("ansible_facts", {}).get("nvidia_smi", {})
            found += [{**gpu, "host": host} for gpu in facts.get("gpus", ())]
        return found
    return list(data) if isinstance(data, Sequence) and not isinstance(data, (str, bytes)) else None


def _plain(value: Any) -> Any:
    """The same data in Python's own types: JMESPath looks at names of types, and Ansible has subclasses of its own."""
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return value


def _explain(query: str, error: Exception) -> str:
    """What is wrong with the expression, where, with a mark below the place."""
    position = _position(query, error)
    line_start = query.rfind("\n", 0, position) + 1
    line = query[line_start:].partition("\n")[0]
    reason = str(error).partition("\n")[0].partition(": Parse error")[0].rstrip(":")
    if getattr(error, "token_type", None) == "NUMBER":
        reason = f"a number stands in backticks: `{getattr(error, 'token_value', '')}`"
    mark = " " * (position - line_start) + "^"
    return f"wrong GPU query at position {position + 1}: {reason}\n  {line}\n  {mark}"


def _position(query: str, error: Exception) -> int:
    """Where the fault is, counted from 0; a function is found by its name, an incomplete expression at its end."""
    for name in ("lex_position", "lexer_position"):
        position = getattr(error, name, None)
        if isinstance(position, int):
            return min(position, len(query))
    function = getattr(error, "function_name", None) or "".join(re.findall(r"Unknown function: (\w+)", str(error)))
    found = re.search(rf"\b{re.escape(function)}\s*\(", query) if function else None
    return found.start() if found else len(query)


class FilterModule:
    """The filter by its name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Give Ansible the filter."""
        return {"select_gpus": select_gpus}

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defaults, variables and argument specifications of the collection's roles, read once. Private to this collection."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.template import trust_as_template

from ._preflight import REPOSITORY_ROLE, ROLES, Tables

_NAME = re.compile(r"\b__[a-z0-9_]+")
_DIRECTORY = Path(__file__).resolve().parents[2] / "roles"


@dataclass(frozen=True)
class RoleFiles:
    """Files by role; their strings are templates, as in a role that Ansible runs."""

    default_values: Mapping[str, Mapping[str, Any]]
    role_values: Mapping[str, Mapping[str, Any]]
    tables: Tables

    @classmethod
    def read(cls) -> RoleFiles:
        """Read the files of all roles that a playbook can plan."""
        roles = (*ROLES, REPOSITORY_ROLE)
        values = {role: _load(role, "vars/main.yml") for role in roles}
        cuda, cudnn = values["cuda"], values["cudnn"]
        tables = Tables(
            specs={role: _load(role, "meta/argument_specs.yml")["argument_specs"]["main"]["options"] for role in roles},
            cuda={"cuda_repository": cuda["__cuda_components"], "distribution": cuda["__cuda_distribution_components"]},
            cudnn=cudnn["__cudnn_table"],
            keys=values[REPOSITORY_ROLE]["__nvidia_repository_keys"],
        )
        return cls({role: _load(role, "defaults/main.yml") for role in roles}, values, tables)

    def defaults(self, roles: Iterable[str]) -> dict[str, Any]:
        """The default values of these roles; none of them depends on a host, and null is the only template."""
        return {
            name: None if isinstance(value, str) and "{{" in value else value
            for role in roles
            for name, value in self.default_values[role].items()
        }

    def variables(self, roles: Iterable[str]) -> dict[str, Any]:
        """Defaults and variables of these roles, to be evaluated."""
        found: dict[str, Any] = {}
        for role in roles:
            found.update(self.default_values[role])
            found.update(self.role_values[role])
        return found

    def shared(self, role: str) -> tuple[str, ...]:
        """Variables on which the role's plan depends more than once, each after those that it depends on itself."""
        values = self.role_values[role]
        uses = {name: [used for used in _NAME.findall(str(value)) if used in values] for name, value in values.items()}
        found: dict[str, None] = {}

        def visit(name: str, above: tuple[str, ...]) -> None:
            for used in uses[name]:
                if used not in found and used not in above:
                    visit(used, (*above, name))
            found.setdefault(name)

        for name in (f"__{role}_has_work", f"__{role}_needs_repository"):
            if name in values:
                visit(name, ())
        counts = Counter(used for name in found for used in uses[name])
        return tuple(name for name in found if counts[name] > 1)

    def has_plan(self, role: str) -> bool:
        """Whether the role's variables state whether it has work."""
        return f"__{role}_has_work" in self.role_values[role]


def trusted(template: str) -> str:
    """A template of the collection's own, as Ansible evaluates it."""
    marked: str = trust_as_template(template)
    return marked


def _load(role: str, name: str) -> Any:
    path = _DIRECTORY / role / name
    # With `unsafe` the only reader gets the data itself, not a deep copy of it.
    return DataLoader().load_from_file(str(path), unsafe=True, trusted_as_template=True) if path.exists() else {}

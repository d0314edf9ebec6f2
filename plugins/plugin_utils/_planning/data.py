# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defaults, tables and argument specifications of the collection's roles, read once. Private to this collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader

from .variable_forms import Spec, with_truths
from .variable_names import PublicNames

_DIRECTORY = Path(__file__).resolve().parents[3] / "roles"


@dataclass(frozen=True)
class Tables:
    """What roles keep as data: argument specifications by role, keys of repositories."""

    specs: Mapping[str, Mapping[str, Spec]]
    keys: Mapping[str, Any]


@dataclass(frozen=True)
class RoleData:
    """Files by role, as they are: a template is its text."""

    default_values: Mapping[str, Mapping[str, Any]]
    role_values: Mapping[str, Mapping[str, Any]]
    tables: Tables

    @classmethod
    @cache
    def read(cls) -> RoleData:
        """Read the files of all roles."""
        roles = _roles()
        values = {role: _values(role) for role in roles}
        tables = Tables(
            specs={role: options_of(role) for role in roles},
            keys=values["nvidia_repository"]["__nvidia_repository_keys"],
        )
        return cls({role: _load(role, "defaults/main.yml") for role in roles}, values, tables)

    def with_truths(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Values of variables of any role, with truth values for those that are booleans."""
        return with_truths(
            given, {name: spec for of_role in self.tables.specs.values() for name, spec in of_role.items()}
        )

    def planner_values(self, role: str, variables: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """What the planner of a role reads: the variables, and its tables, which have these names."""
        return {**variables, **{name: self.role_values[role][name] for name in names}}

    def defaults(self, roles: Iterable[str]) -> dict[str, Any]:
        """The default values of these roles; none of them depends on a host, and null is the only template."""
        return {
            name: None if isinstance(value, str) and "{{" in value else value
            for role in roles
            for name, value in self.default_values[role].items()
        }


@cache
def public_names() -> PublicNames:
    """The variables of all roles."""
    specs: dict[str, dict[str, Mapping[str, Any]]] = {
        role: {name: spec for entry in _entry_points(role).values() for name, spec in entry.get("options", {}).items()}
        for role in _roles()
    }
    secret = [name for of_role in specs.values() for name, spec in of_role.items() if _is_secret(spec)]
    return PublicNames(specs, secret)


def _roles() -> list[str]:
    return [path.parts[-3] for path in _DIRECTORY.glob("*/meta/argument_specs.yml")]


def _is_secret(spec: Mapping[str, Any]) -> bool:
    return bool(spec.get("no_log")) or any(map(_is_secret, spec.get("options", {}).values()))


def options_of(role: str) -> Mapping[str, Any]:
    """The specifications of a role's variables, by name."""
    found: Mapping[str, Any] = _entry_points(role)["main"]["options"]
    return found


@cache
def _entry_points(role: str) -> Mapping[str, Any]:
    """The argument specifications of a role, by entry point."""
    found: Mapping[str, Any] = _load(role, "meta/argument_specs.yml")["argument_specs"]
    return found


def _values(role: str) -> dict[str, Any]:
    """The variables of a role in all of its files: a table may have one of its own."""
    files = sorted((_DIRECTORY / role / "vars").glob("*.yml"))
    return {name: value for path in files for name, value in _load(role, f"vars/{path.name}").items()}


def _load(role: str, name: str) -> Any:
    path = _DIRECTORY / role / name
    # With `unsafe` the only reader gets the data itself, not a deep copy of it.
    return DataLoader().load_from_file(str(path), unsafe=True) if path.exists() else {}

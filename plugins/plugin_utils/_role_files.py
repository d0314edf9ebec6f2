# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defaults, variables and argument specifications of the collection's roles, read once. Private to this collection."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.release import __version__ as installed_core

from ._preflight import Tables
from ._roles.registry import REPOSITORY_ROLE, ROLES
from ._variable_names import PublicNames

OBSERVING: Mapping[str, str] = {"gpu_state": "converge.yml"}
"""Roles that begin with a module of their name, which also finds that nothing is to be done: the file of its task."""
OLDEST_CORE = (2, 19)
"""As in meta/runtime.yml, of which ansible-core itself only warns."""
_DIRECTORY = Path(__file__).resolve().parents[2] / "roles"


@dataclass(frozen=True)
class RoleFiles:
    """Files by role; their strings are templates, as in a role that Ansible runs."""

    default_values: Mapping[str, Mapping[str, Any]]
    role_values: Mapping[str, Mapping[str, Any]]
    tables: Tables
    arguments: Mapping[str, Mapping[str, Any]]

    @classmethod
    @cache
    def read(cls) -> RoleFiles:
        """Read the files of all roles that a playbook can plan."""
        refuse_old_core(installed_core)
        roles = (*ROLES, REPOSITORY_ROLE)
        values = {role: _values(role) for role in roles}
        tables = Tables(
            specs={role: options_of(role) for role in roles},
            cuda=values["cuda"]["__cuda_tables"],
            cudnn=values["cudnn"]["__cudnn_table"],
            keys=values[REPOSITORY_ROLE]["__nvidia_repository_keys"],
        )
        arguments = {f"__{role}_arguments": _arguments(role, name) for role, name in OBSERVING.items()}
        return cls({role: _load(role, "defaults/main.yml") for role in roles}, values, tables, arguments)

    def defaults(self, roles: Iterable[str]) -> dict[str, Any]:
        """The default values of these roles; none of them depends on a host, and null is the only template."""
        return {
            name: None if isinstance(value, str) and "{{" in value else value
            for role in roles
            for name, value in self.default_values[role].items()
        }

    def variables(self) -> dict[str, Any]:
        """Defaults and variables of all roles, and the arguments of their modules, to be evaluated."""
        of_roles = {
            name: value
            for values in (self.default_values, self.role_values)
            for role in values
            for name, value in values[role].items()
        }
        return {**self.arguments, **of_roles}


def missing_collections(names: Iterable[str]) -> list[str]:
    """A refusal where the controller lacks one of these collections; a role would stop in its middle."""
    missing = [name for name in names if not _is_installed(name)]
    if not missing:
        return []
    plural = "s" if len(missing) > 1 else ""
    refusal = (
        f"the controller lacks the collection{plural} {' and '.join(missing)}, which tasks of the roles use; run "
        f"`ansible-galaxy collection install {' '.join(missing)}`, or correct ANSIBLE_COLLECTIONS_PATH"
    )
    return [refusal]


@cache
def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(f"ansible_collections.{name}") is not None
    except ModuleNotFoundError:
        return False


def refuse_old_core(version: str) -> None:
    """Raise AnsibleError for an ansible-core that the collection does not work with."""
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_CORE:
        oldest = ".".join(map(str, OLDEST_CORE))
        raise AnsibleError(
            f"ansible-core {version} is too old for gpu.fleet, which needs {oldest} or newer; run `pip install "
            f"--upgrade 'ansible-core>={oldest}'` in the environment of ansible-playbook, with Python 3.11 or newer"
        )


@cache
def public_names() -> PublicNames:
    """The variables of all roles, also of those that no playbook plans."""
    names = {}
    for path in _DIRECTORY.glob("*/meta/argument_specs.yml"):
        role = path.parts[-3]
        names[role] = [name for entry in _entry_points(role).values() for name in entry.get("options", ())]
    return PublicNames(names)


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


def _arguments(role: str, name: str) -> Mapping[str, Any]:
    """The arguments of the role's module, as the role gives them."""
    found: Mapping[str, Any] = next(
        task[f"gpu.fleet.{role}"] for task in _load(role, f"tasks/{name}") if f"gpu.fleet.{role}" in task
    )
    return found


def _load(role: str, name: str) -> Any:
    path = _DIRECTORY / role / name
    # With `unsafe` the only reader gets the data itself, not a deep copy of it.
    return DataLoader().load_from_file(str(path), unsafe=True, trusted_as_template=True) if path.exists() else {}

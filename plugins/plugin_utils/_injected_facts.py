# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts that Ansible makes variables, and hosts that lie by them. Private to this collection.

With inject_facts_as_vars, Ansible's default until ansible-core 2.24, a fact precedes inventory and role defaults, and
any module may return any fact. So each action plugin that reads variables of a host looks at the names of its facts
first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ansible import constants
from ansible.plugins.loader import become_loader, connection_loader, shell_loader

from ._ansible_core import refuse_old_core
from ._planning.contract import is_true
from ._planning.data import public_names

REFUSE, ACCEPT = "gpu_fleet_refuse_injected_facts", "gpu_fleet_accept_injected_facts"
"""Refuse to run at all where facts become variables; accept it for a playbook that runs commands on the controller."""
RUNS_COMMANDS = "__common_runs_commands"
"""Set by the plays that run commands and hooks of the site on the controller."""
WARNING = (
    "facts become variables (inject_facts_as_vars is true). A host cannot set a variable of gpu.fleet, but it can set "
    "one of yours that ours are made from, and programs of Ansible's connections, such as ansible_sftp_executable, in "
    "every play of this run. Set inject_facts_as_vars = false in the section [defaults] of ansible.cfg to close that"
)
"""The same for each host, so that Ansible prints it once a run."""

_CLOSE = "set inject_facts_as_vars = false in the section [defaults] of ansible.cfg, or ANSIBLE_INJECT_FACT_VARS=false"
_MOST_NAMES, _LONGEST_NAME = 5, 80
# What Ansible itself has in every template, and a fact precedes: a value for each `omit`, another name of the host.
_IN_TEMPLATES = frozenset(
    (
        *("inventory_hostname", "inventory_hostname_short", "group_names", "inventory_dir", "inventory_file"),
        *("omit", "lookup", "query", "q", "now", "undef", "dict", "range"),
    )
)
_PLUGINS = (("connection", connection_loader), ("shell", shell_loader), ("become", become_loader))


def refusals(known: Mapping[str, Any], connection: Any = None) -> list[str]:
    """Why nothing may be done with a host; `known` are its variables, with ansible_facts among them."""
    # Here and not where a file is imported: tools import plugins without the settings of a run.
    refuse_old_core()
    if not constants.INJECT_FACTS_AS_VARS:
        return []
    lies = facts_like_variables(known, public_names().names, _options(connection))
    if lies:
        return [lies]
    # No fact has these names, so that they are the user's. Not evaluated: a template may evaluate to anything.
    if is_true(known.get(REFUSE)):
        return [f"inject_facts_as_vars is true, and {REFUSE} is set; {_CLOSE}"]
    if known.get(RUNS_COMMANDS) and not is_true(known.get(ACCEPT)):
        commands = "this playbook runs commands of the site on the controller, which a host could choose by its facts"
        return [
            f"inject_facts_as_vars is true, and {commands}; {_CLOSE}, or accept the risk with -e {ACCEPT}=true",
        ]
    return []


def warnings() -> list[str]:
    """What stays open where facts become variables."""
    return [WARNING] if constants.INJECT_FACTS_AS_VARS else []


def without_facts(known: Mapping[str, Any]) -> list[str]:
    """The names of a host's variables, without facts that have become variables."""
    facts = {*(known.get("ansible_facts") or ())} if constants.INJECT_FACTS_AS_VARS else set()
    return [name for name in known if name not in facts]


def facts_like_variables(known: Mapping[str, Any], names: Collection[str], options: Collection[str]) -> str:
    """A refusal of a host whose facts have names of our variables, or set options of Ansible's connections. Pure.

    In ansible_facts a fact has lost its prefix `ansible_`; the variable has it.
    """
    facts = sorted(map(str, known.get("ansible_facts") or ()))
    ours = [fact for fact in facts if fact in names or fact.startswith("__")]
    in_templates = [fact for fact in facts if fact in _IN_TEMPLATES]
    of_ansible = [f"ansible_{fact}" for fact in facts if f"ansible_{fact}" in options and f"ansible_{fact}" in known]
    found = [
        *([f"{_listed(ours)}, as variables of gpu.fleet are called"] if ours else []),
        *([f"{_listed(in_templates)}, as variables of Ansible are called"] if in_templates else []),
        *([f"{_listed(of_ansible)}, by which Ansible connects"] if of_ansible else []),
    ]
    if not found:
        return ""
    return (
        f"facts of this host are named {'; and '.join(found)}: a host must not set variables. Find the module or the "
        f"custom fact that returns them, or {_CLOSE}"
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(name[:_LONGEST_NAME] for name in names[:_MOST_NAMES]) + more


def _options(connection: Any) -> frozenset[str]:
    """Variables that set options of Ansible itself, of its own connections, and of the one to this host."""
    found = set(_OF_ANSIBLE)
    for kind, plugin in (
        ("connection", connection),
        ("shell", getattr(connection, "_shell", None)),
        ("become", getattr(connection, "become", None)),
    ):
        name = getattr(plugin, "_load_name", "")
        found |= {*constants.config.get_plugin_vars(kind, name)} if name else set()
    return frozenset(found)


def _options_of_ansible() -> frozenset[str]:
    definitions = constants.config.get_configuration_definitions().values()
    found = {entry["name"] for definition in definitions for entry in definition.get("vars") or ()}
    found |= {name for names in constants.MAGIC_VARIABLE_MAPPING.values() for name in names}
    for kind, loader in _PLUGINS:
        for plugin in loader.all(class_only=True):
            found |= {*constants.config.get_plugin_vars(kind, plugin._load_name)}
    return frozenset(found)


# A quarter of a second, once: in Ansible's main process, whose forks inherit it.
_OF_ANSIBLE = _options_of_ansible() if constants.INJECT_FACTS_AS_VARS else frozenset()

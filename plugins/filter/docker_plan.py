# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan Docker from variables and facts of a host, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.docker import docker_plan as plan
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.docker import docker_restart as restart
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.docker import pull_error


def docker_plan(variables: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """The plan for the variables of the role docker; see the documentation."""
    try:
        return plan(variables, facts)
    except KeyError as error:
        raise AnsibleFilterError(f"gpu.fleet.docker_plan: {error} is missing") from None


def docker_restart(policy: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Whether Docker is restarted; see the documentation."""
    try:
        return restart(policy, facts)
    except KeyError as error:
        raise AnsibleFilterError(f"gpu.fleet.docker_restart: {error} is missing") from None


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"docker_plan": docker_plan, "docker_restart": docker_restart, "docker_pull_error": pull_error}

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the declared containers of a host, and find those that are not as planned, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils import _container_plan as plans
from ansible_collections.gpu.fleet.plugins.plugin_utils._container_engines import podman_errors


def container_plan(
    declared: Sequence[Mapping[str, Any]],
    state: str,
    facts: Mapping[str, Any],
    engine: str = "docker",
    adopt: Sequence[str] = (),
) -> dict[str, Any]:
    """The plan for the variables of the role gpu_containers; see the documentation."""
    return plans.container_plan(state, declared, facts, engine, adopt).as_dict()


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "container_plan": container_plan,
            "container_failures": plans.container_failures,
            "podman_errors": podman_errors,
        }

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node of Kubernetes that a host of a rolling upgrade is, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._kubernetes_drain import explain_failure, plan_node


def kubernetes_drain(
    resources: Sequence[Mapping[str, Any]],
    action: str,
    pods: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """The plan for the node in `resources`; see the filter's documentation."""
    return asdict(plan_node(action, resources, pods, options))


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "kubernetes_drain": kubernetes_drain,
            "kubernetes_failure": explain_failure,
        }

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manifests of a GPU node of Kubernetes, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._kubernetes_manifests import (
    Found,
    Manifest,
    Request,
    kubernetes_node,
    unapplied,
)


def kubernetes_manifests(request: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The plan for `request`; see the filter's documentation."""
    return kubernetes_node(Request(**request), Found(**found)).as_dict()


def kubernetes_unapplied(plan: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the cluster lacks of a plan; see the filter's documentation."""
    return unapplied([Manifest(**each) for each in plan["manifests"]], plan["taint"], objects)


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"kubernetes_manifests": kubernetes_manifests, "kubernetes_unapplied": kubernetes_unapplied}

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The generic resources of a node of Slurm, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._slurm_gres import (
    Device,
    Found,
    GresPlan,
    Request,
    gres_errors,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._slurm_gres import slurm_gres as plan_gres


def slurm_gres(request: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The plan for `request`; see the filter's documentation."""
    return plan_gres(Request(**request), Found(**found)).as_dict()


def slurm_gres_errors(plan: Mapping[str, Any], output: str) -> list[str]:
    """What slurmd reads differently; see the filter's documentation."""
    devices = tuple(Device(device["type"], tuple(device["files"]), device["cores"]) for device in plan["devices"])
    return gres_errors(GresPlan(**{**plan, "devices": devices}), output)


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"slurm_gres": slurm_gres, "slurm_gres_errors": slurm_gres_errors}

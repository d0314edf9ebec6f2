# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Driver, CUDA and cuDNN of Windows hosts, on the controller."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._windows_gpu import (
    read_found,
    read_request,
    request_refusals,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._windows_gpu import windows_gpu_failures as failures_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._windows_gpu import windows_gpu_plan as plan_of


def windows_gpu_refusals(variables: Mapping[str, Any]) -> list[str]:
    """What is wrong before anything is read; see the filter's documentation."""
    refusals = request_refusals(variables)
    if importlib.util.find_spec("ansible_collections.ansible.windows") is None:
        refusals.append(
            "the controller has no collection ansible.windows, whose modules run on Windows; run "
            "`ansible-galaxy collection install ansible.windows` there, or install the Python package ansible"
        )
    return refusals


def windows_gpu_plan(variables: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The plan for the variables; see the filter's documentation."""
    return plan_of(read_request(variables), read_found(found)).as_dict()


def windows_gpu_failures(variables: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """What is not as declared; see the filter's documentation."""
    return failures_of(read_request(variables), read_found(found))


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "windows_gpu_failures": windows_gpu_failures,
            "windows_gpu_plan": windows_gpu_plan,
            "windows_gpu_refusals": windows_gpu_refusals,
        }

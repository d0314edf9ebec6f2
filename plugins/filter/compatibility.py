# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check compatibility of GPUs, driver, CUDA, compiler and cuDNN, and list versions that fit, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._compatibility import (
    CompatibilityError,
    check,
    fits,
    read_request,
)


def compatibility(combination: Mapping[str, Any], with_fits: bool = True) -> dict[str, Any]:
    """Everything that the tables know about `combination`, whose keys are in the filter's documentation."""
    if not isinstance(combination, Mapping):
        raise AnsibleFilterError(f"gpu.fleet.compatibility takes a dictionary, but got {type(combination).__name__}")
    try:
        request = read_request(combination)
    except CompatibilityError as error:
        raise AnsibleFilterError(f"gpu.fleet.compatibility: {error}") from None
    found = check(request)
    return {
        "compatible": not found.reasons,
        "certain": not found.unknown,
        "reasons": found.reasons,
        "unknown": found.unknown,
        "notes": found.notes,
        "forward_compatibility_package": found.forward_package,
        "gpus": [
            {
                "name": gpu.name,
                "chip": gpu.chip.name if gpu.chip else None,
                "architecture": gpu.chip.architecture if gpu.chip else None,
                "compute_capability": gpu.chip.compute_capability if gpu.chip else None,
                **asdict(gpu.cores),
            }
            for gpu in request.gpus
        ],
        # Each value of the tables is checked for it, which takes far longer than the rest.
        **({"fits": fits(request)} if with_fits else {}),
    }


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"compatibility": compatibility}

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The current MIG state of a host as input of mig_profile, on the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.module_utils._mig.export import export_layouts
from ansible_collections.gpu.fleet.plugins.plugin_utils._mig_facts import FactsError, present_gpus


def mig_layouts(data: Any) -> list[dict[str, Any]]:
    """The option `layouts` of mig_profile that describes the current state; see the filter's documentation."""
    try:
        gpus = present_gpus(data)
    except FactsError as error:
        raise AnsibleFilterError(f"gpu.fleet.mig_layouts: {error}") from None
    return export_layouts(gpus)


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"mig_layouts": mig_layouts}

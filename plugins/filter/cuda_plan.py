# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan CUDA toolkits from variables and facts of a host, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._compatibility import CompatibilityError
from ansible_collections.gpu.fleet.plugins.plugin_utils._cuda_plan import cuda_plan as plan


def cuda_plan(variables: Mapping[str, Any], facts: Mapping[str, Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """The plan for the variables of the role cuda; see the documentation."""
    try:
        return plan(variables, facts, tables)
    except KeyError as error:
        raise AnsibleFilterError(f"gpu.fleet.cuda_plan: {error} is missing") from None
    except CompatibilityError as error:
        raise AnsibleFilterError(f"gpu.fleet.cuda_plan: {error}") from None


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"cuda_plan": cuda_plan}

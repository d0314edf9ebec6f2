# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan cuDNN, NCCL and TensorRT from variables and facts of a host, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._compatibility import CompatibilityError
from ansible_collections.gpu.fleet.plugins.plugin_utils._cudnn_plan import cudnn_plan as plan


def cudnn_plan(variables: Mapping[str, Any], facts: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """The plan for the variables of the role cudnn; see the documentation."""
    try:
        return plan(variables, facts, table)
    except KeyError as error:
        raise AnsibleFilterError(f"gpu.fleet.cudnn_plan: {error} is missing") from None
    except CompatibilityError as error:
        raise AnsibleFilterError(f"gpu.fleet.cudnn_plan: {error}") from None


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"cudnn_plan": cudnn_plan}

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the kernel module nvidia as a file for modprobe, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils import _module_options


def module_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The filter: `options` has values by name."""
    if not isinstance(options, Mapping):
        raise AnsibleFilterError("gpu.fleet.module_options takes a dictionary of values by name")
    return _module_options.module_options(options).as_dict()


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"module_options": module_options}

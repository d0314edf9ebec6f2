# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the signatures of kernel modules with trusted certificates, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._module_signatures import signature_problems


def module_signatures(modules: Mapping[str, str], serials: list[str]) -> list[str]:
    """The filter: `modules` is the output of modinfo by kernel, `serials` the lines of `openssl x509 -serial`."""
    if not isinstance(modules, Mapping) or not isinstance(serials, list):
        raise AnsibleFilterError(
            "gpu.fleet.module_signatures takes the output of modinfo by kernel, and a list of serials"
        )
    return signature_problems(modules, serials)


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"module_signatures": module_signatures}

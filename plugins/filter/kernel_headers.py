# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Name the package with the headers of a kernel, on the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._kernel_packages import headers_package


def kernel_headers(kernel: str, manager: str) -> str:
    """The filter: `kernel` as `uname -r` prints it, `manager` apt or dnf."""
    if not isinstance(kernel, str) or not kernel.strip() or manager not in ("apt", "dnf"):
        raise AnsibleFilterError("gpu.fleet.kernel_headers takes a kernel as `uname -r` prints it, and apt or dnf")
    return headers_package(kernel.strip(), manager)


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"kernel_headers": kernel_headers}

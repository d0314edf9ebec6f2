# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the kind of kernel modules, open or proprietary, for the GPUs of a host, on the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._compatibility import (
    CompatibilityError,
    check,
    choose_kernel_modules,
    read_request,
)


def kernel_modules(gpus: Any, driver: Any = None, desired: str = "auto", today: Any = None) -> dict[str, Any]:
    """Choose the kind for `gpus` and the branch or version `driver`; see the filter's documentation."""
    try:
        request = read_request({"gpus": gpus, "driver": driver, "kernel_modules": desired, "today": today})
    except CompatibilityError as error:
        raise AnsibleFilterError(f"gpu.fleet.kernel_modules: {error}") from None
    kind, because = choose_kernel_modules(request.gpus, request.branch, desired)
    found = check(request)
    return {
        "kind": None if found.reasons else kind,
        "because": because,
        "reasons": found.reasons,
        "unknown": found.unknown,
        "notes": found.notes,
    }


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"kernel_modules": kernel_modules}

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Test whether GPUs, driver, CUDA, compiler and cuDNN are compatible, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._compatibility import CompatibilityError, check, read_request


def compatible(combination: Mapping[str, Any]) -> bool:
    """Whether no known incompatibility exists in `combination`, whose keys are in the documentation."""
    if not isinstance(combination, Mapping):
        raise AnsibleFilterError(f"gpu.fleet.compatible takes a dictionary, but got {type(combination).__name__}")
    try:
        return not check(read_request(combination)).reasons
    except CompatibilityError as error:
        raise AnsibleFilterError(f"gpu.fleet.compatible: {error}") from None


class TestModule:
    """Entry point of the test plugin."""

    def tests(self) -> dict[str, Callable[..., bool]]:
        """Return the tests by name."""
        return {"compatible": compatible}

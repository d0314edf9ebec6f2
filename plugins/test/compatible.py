# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether GPUs, driver, CUDA, compiler and cuDNN go together, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._compatibility import CompatibilityError, check, read_request


def compatible(asked: Mapping[str, Any]) -> bool:
    """Whether nothing that is known speaks against the combination `asked`; its keys are in the documentation."""
    if not isinstance(asked, Mapping):
        raise AnsibleFilterError(f"gpu.fleet.compatible takes a dictionary, but got {type(asked).__name__}")
    try:
        return not check(read_request(asked)).reasons
    except CompatibilityError as error:
        raise AnsibleFilterError(f"gpu.fleet.compatible: {error}") from None


class TestModule:
    """The test by its name."""

    def tests(self) -> dict[str, Callable[..., bool]]:
        """Give Ansible the test."""
        return {"compatible": compatible}

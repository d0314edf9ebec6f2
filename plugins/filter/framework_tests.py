# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan tests of frameworks on GPUs and judge their output, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils import _framework_tests as plans


def framework_tests(requested: Sequence[Mapping[str, Any]], state: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The plan for the variables of the role gpu_workload; see the documentation."""
    return plans.framework_tests(state, requested, facts).as_dict()


def framework_verdict(output: str, test: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict of one test; see the documentation."""
    try:
        return plans.framework_verdict(output, test, facts).as_dict()
    except (KeyError, TypeError) as error:
        raise AnsibleFilterError(
            f"gpu.fleet.framework_verdict takes what framework_test.py printed, not of another version: {error!r}"
        ) from error


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"framework_tests": framework_tests, "framework_verdict": framework_verdict}

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why pip failed, see pip_errors.yml."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._pip import pip_errors


def _filter(output: str, requirements: str = "the requirements") -> list[str]:
    return list(pip_errors(output, requirements))


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"pip_errors": _filter}

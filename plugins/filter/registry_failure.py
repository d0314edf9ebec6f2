# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kept an engine from pulling an image, see registry_failure.yml."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._registry_failures import registry_failure


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"registry_failure": registry_failure}

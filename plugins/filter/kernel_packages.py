# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the packages that pin a host's kernel out of the installed ones, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ansible_collections.gpu.fleet.plugins.plugin_utils import _driver_change


def kernel_packages(installed: Iterable[str], kernels: Iterable[str]) -> list[str]:
    """The packages of `kernels` and the metapackages that install new ones; see the filter's documentation."""
    return _driver_change.kernel_packages(installed, kernels)


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        """Return the filters by name."""
        return {"kernel_packages": kernel_packages}

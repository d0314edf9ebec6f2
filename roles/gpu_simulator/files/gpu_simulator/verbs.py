# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which module answers which option or subcommand; a module is imported when it is needed."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Optional

    from .selection import Selected
    from .shapes import Answer, State, Version

MODIFICATIONS: Mapping[str, str] = {
    "persistence-mode": "settings:set_persistence_mode",
    "ecc-config": "settings:set_ecc_mode",
    "reset-ecc-errors": "settings:reset_ecc_errors",
    "compute-mode": "settings:set_compute_mode",
    "gom": "settings:set_operation_mode",
    "gpu-reset": "reset:reset_gpus",
    "lock-gpu-clocks": "settings:lock_gpu_clocks",
    "reset-gpu-clocks": "settings:reset_gpu_clocks",
    "lock-memory-clocks": "settings:lock_memory_clocks",
    "reset-memory-clocks": "settings:reset_memory_clocks",
    "lock-memory-clocks-deferred": "settings:lock_memory_clocks_deferred",
    "reset-memory-clocks-deferred": "settings:reset_memory_clocks_deferred",
    "applications-clocks": "settings:set_applications_clocks",
    "reset-applications-clocks": "settings:reset_applications_clocks",
    "power-limit": "settings:set_power_limit",
    "accounting-mode": "settings:set_accounting_mode",
    "clear-accounted-apps": "settings:clear_accounted_apps",
    "multi-instance-gpu": "mig_mode:set_mig_mode",
}

SUBCOMMANDS: Mapping[str, str] = {"mig": "mig:mig", "topo": "topo:topo", "nvlink": "nvlink:nvlink"}

QUERIES: Mapping[str, str] = {
    "query-gpu": "render_csv:query_gpu",
    "query-supported-clocks": "render_csv:query_supported_clocks",
    "query-compute-apps": "render_csv:query_compute_apps",
    "query-accounted-apps": "render_csv:query_accounted_apps",
    "query-retired-pages": "render_csv:query_retired_pages",
    "query-remapped-rows": "render_csv:query_remapped_rows",
}


class Call:
    """One call of nvidia-smi: what was asked, by whom, of which host in which state."""

    def __init__(
        self, arguments: List[str], root: str, state: State, visible: Selected, version: Version, root_user: bool
    ) -> None:
        self.arguments = arguments
        self.root = root
        self.state = state
        self.visible = visible
        self.gpus = visible
        self.version = version
        self.driver_version = state["driver"]["installed"]
        self.root_user = root_user
        self.options: Dict[str, str] = {}
        self.value: Optional[str] = None


def find(target: str) -> Callable[[Call], Answer]:
    """Import what an entry of the tables names."""
    module, function = target.split(":")
    handler: Callable[[Call], Answer] = getattr(
        __import__(f"{__package__}.{module}", fromlist=[function]), function
    )
    return handler

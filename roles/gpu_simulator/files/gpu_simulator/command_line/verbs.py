# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules that handle the options and subcommands; a module is imported when it is needed."""

from __future__ import annotations

from .. import lazy
from ..state import branches
from . import selection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Mapping

    from ..state.shapes import Reply, State, Version
    from .selection import Selected

MODIFICATIONS: Mapping[str, str] = {
    "persistence-mode": "state.settings:set_persistence_mode",
    "ecc-config": "state.settings:set_ecc_mode",
    "reset-ecc-errors": "state.settings:reset_ecc_errors",
    "compute-mode": "state.settings:set_compute_mode",
    "gom": "state.settings:set_operation_mode",
    "gpu-reset": "state.reset:reset_gpus",
    "lock-gpu-clocks": "state.settings:lock_gpu_clocks",
    "reset-gpu-clocks": "state.settings:reset_gpu_clocks",
    "lock-memory-clocks": "state.settings:lock_memory_clocks",
    "reset-memory-clocks": "state.settings:reset_memory_clocks",
    "lock-memory-clocks-deferred": "state.settings:lock_memory_clocks_deferred",
    "reset-memory-clocks-deferred": "state.settings:reset_memory_clocks_deferred",
    "applications-clocks": "state.settings:set_applications_clocks",
    "reset-applications-clocks": "state.settings:reset_applications_clocks",
    "power-limit": "state.settings:set_power_limit",
    "accounting-mode": "state.settings:set_accounting_mode",
    "clear-accounted-apps": "state.settings:clear_accounted_apps",
    "multi-instance-gpu": "mig.mode:set_mig_mode",
    "get-hostname": "state.settings:get_hostname",
    **dict.fromkeys(
        (
            "applications-clocks-permission",
            "cuda-clocks",
            "auto-boost-default",
            "auto-boost-permission",
            "virt-mode",
            "gpu-target-temp",
            "dram-encryption",
            "set-hostname",
        ),
        "state.settings:not_simulated",
    ),
}

COMMANDS: Mapping[str, str] = {
    "help": "queries.listing:general_help",
    "version": "queries.listing:version",
    "list-gpus": "queries.listing:list_gpus",
    "list-excluded-gpus": "queries.listing:list_excluded_gpus",
    "help-query-gpu": "queries.listing:help_of_fields",
    "help-query-supported-clocks": "queries.listing:help_of_fields",
    "help-query-compute-apps": "queries.listing:help_of_fields",
    "help-query-accounted-apps": "queries.listing:help_of_fields",
    "help-query-retired-pages": "queries.listing:help_of_fields",
    "help-query-remapped-rows": "queries.listing:help_of_fields",
}

VIEWS: Mapping[str, str] = {
    "query": "queries.query:query",
    "table": "rendering.table:table",
    "text": "rendering.text:text",
    "xml": "rendering.xml:xml",
}

_REPORTS = (
    "clocks pci conf-compute power-smoothing power-profiles compute-policy boost-slider c2c gpm power-hint base-clocks "
    "prm drain"
)

SUBCOMMANDS: Mapping[str, str] = {
    "mig": "mig.verb:mig",
    "topo": "queries.topo:topo",
    "nvlink": "queries.nvlink:nvlink",
    "dmon": "queries.monitors:dmon",
    "pmon": "queries.monitors:pmon",
    "encodersessions": "queries.monitors:encoder_sessions",
    "fbcsessions": "queries.monitors:fbc_sessions",
    "vgpu": "queries.monitors:vgpu",
    "daemon": "queries.monitors:persistent",
    "replay": "queries.monitors:persistent",
    **dict.fromkeys(_REPORTS.split(), "queries.reports:report"),
}

UNITS = "queries.query:toggle_led"

SUBCOMMANDS_SINCE: Mapping[str, int] = {"power-smoothing": 570, "power-profiles": 570, "prm": 580}
MONITORS = ("dmon", "pmon", "encodersessions", "fbcsessions", "vgpu")
"""Subcommands that repeat until Ctrl-C."""

QUERIES: Mapping[str, str] = {
    "query-gpu": "rendering.csv:query_gpu",
    "query-supported-clocks": "rendering.csv:query_supported_clocks",
    "query-compute-apps": "rendering.csv:query_compute_apps",
    "query-accounted-apps": "rendering.csv:query_accounted_apps",
    "query-retired-pages": "rendering.csv:query_retired_pages",
    "query-remapped-rows": "rendering.csv:query_remapped_rows",
}


class Call:
    """One call of nvidia-smi: arguments, caller, and the host with its state."""

    def __init__(self, arguments: list[str], root: str, state: State, root_user: bool) -> None:
        self.arguments = arguments
        self.root = root
        self.state = state
        self.visible: Selected = selection.visible(state, root)
        self.gpus = self.visible
        self.version: Version = branches.parse(state["driver"]["installed"])
        self.driver_version = state["driver"]["installed"]
        self.root_user = root_user
        self.options: dict[str, str] = {}
        self.value: str | None = None


def subcommand_of(arguments: list[str], state: State) -> str | None:
    """Return the subcommand of a command line if this driver has it, else None."""
    word = arguments[0] if arguments else ""
    branch = branches.parse(state["driver"]["installed"])[0]
    return word if word in SUBCOMMANDS and branch >= SUBCOMMANDS_SINCE.get(word, 0) else None


def find(target: str) -> Callable[[Call], Reply]:
    """Import the function that an entry of the tables names."""
    module, function = target.split(":")
    handler: Callable[[Call], Reply] = getattr(lazy.load(module), function)
    return handler

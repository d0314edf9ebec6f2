# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``-L``, ``-B``, ``--version`` and the help."""

from __future__ import annotations

from ..mig import devices as mig_devices
from ..state import branches, catalogue, health
from . import fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..command_line.verbs import Call
    from ..state.shapes import Reply


def list_gpus(call: Call) -> Reply:
    """List GPUs and their MIG devices with their UUIDs; a lost GPU ends the list."""
    if not call.visible:
        return "No devices found.\n", 0
    lines: list[str] = []
    for index, gpu in call.visible:
        refusal = health.lost([(index, gpu)], "gpu {}")
        if refusal:
            return "".join(lines) + refusal[0], refusal[1]
        name = catalogue.load(gpu["model"])["name"]
        lines.append("GPU {}: {} (UUID: {})\n".format(index, name, gpu["uuid"]))
        lines.extend(
            f"  MIG {device.name:<11} Device {device.index:>2}: (UUID: {device.uuid})\n"
            for device in mig_devices.mig_devices(gpu, call.version)
        )
    return "".join(lines), 0


def list_excluded_gpus(call: Call) -> Reply:
    """Report that no GPU is excluded."""
    return "No excluded devices found.\n", 0


def version(call: Call) -> Reply:
    """Return the versions of program, library, driver and CUDA; 610 renamed the last two."""
    driver, cuda = call.driver_version, branches.cuda_version(call.driver_version)
    lines = [("NVIDIA-SMI version", driver), ("NVML version", branches.library_version(driver))]
    if call.version >= (610,):
        lines += [
            ("DRIVER version", 'Deprecated, see "KMD version" instead'),
            ("CUDA version", 'Deprecated, see "CUDA UMD version" instead'),
            ("KMD version", driver),
            ("CUDA UMD version", cuda),
        ]
    else:
        lines += [("DRIVER version", driver), ("CUDA Version", cuda)]
    return "".join(f"{name:<20}: {value}\n" for name, value in lines), 0


def help_text(name: str) -> Reply:
    """Return the help text of a subcommand."""
    return catalogue.read_help(name), 0


def general_help(call: Call) -> Reply:
    """Handle ``-h``."""
    return catalogue.read_help("help").replace("{version}", call.driver_version), 0


def help_of_fields(call: Call) -> Reply:
    """Handle ``--help-query-*``; ``--query-gpu`` lists the fields of this driver."""
    name = call.value or ""
    return (fields.help_text(call.version), 0) if name == "help-query-gpu" else help_text(name)

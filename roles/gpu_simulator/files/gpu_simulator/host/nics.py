# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The InfiniBand adapters of a simulated host in sysfs, with one port each, and what can be wrong with them."""

from __future__ import annotations

import os
import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..state.shapes import Nic, State

RATE_GB = 400
FAULTS = ("down", "errors", "flap", "missing", "nodes", "slow")
COUNTERS = ("link_downed", "symbol_error", "local_link_integrity_errors")

_FIRST_BUS = 0x40
_DEVICES = "sys/bus/pci/devices"
_CLASSES = "sys/class"
_NODES = "dev/infiniband"


def new(count: int) -> list[Nic]:
    """The adapters of a new host, all of them with a link."""
    return [
        {
            "name": f"mlx5_{slot}",
            "address": f"0000:{_FIRST_BUS + slot:02x}:00.0",
            "guid": f"58a2:e103:00da:{slot + 1:04x}",
            "faults": [],
            "counters": dict.fromkeys(COUNTERS, 0),
        }
        for slot in range(count)
    ]


def boot(nics: list[Nic]) -> None:
    """Counters begin again with a boot; a broken cable stays broken."""
    for nic in nics:
        nic["counters"] = dict.fromkeys(COUNTERS, 0)


def add_fault(nic: Nic, fault: str, count: int) -> None:
    """Let something be wrong with an adapter: ``count`` is how often a link is lost, and how many symbols are wrong."""
    if fault == "flap":
        nic["counters"]["link_downed"] += count
    elif fault == "errors":
        nic["counters"]["symbol_error"] += count
    else:
        nic["faults"] = sorted({*nic["faults"], fault})


def files(nics: list[Nic]) -> dict[str, str]:
    """Return the files of all adapters, by path."""
    found: dict[str, str] = {}
    for number, nic in enumerate(nics):
        if "missing" not in nic["faults"]:
            found.update(_files(nic, number))
    return found


def _files(nic: Nic, number: int) -> dict[str, str]:
    is_up, is_slow = "down" not in nic["faults"], "slow" in nic["faults"]
    rate = f"{RATE_GB // 2} Gb/sec (4X HDR)" if is_slow else f"{RATE_GB} Gb/sec (4X NDR)"
    device, port = f"{_DEVICES}/{nic['address']}", f"{_CLASSES}/infiniband/{nic['name']}/ports/1"
    lines = {
        f"{device}/vendor": "0x15b3",
        f"{device}/device": "0x1021",
        f"{device}/class": "0x020700",
        f"{device}/numa_node": "-1",
        f"{device}/current_link_speed": "32.0 GT/s PCIe",
        f"{device}/max_link_speed": "32.0 GT/s PCIe",
        f"{device}/current_link_width": "16",
        f"{device}/max_link_width": "16",
        f"{_CLASSES}/infiniband/{nic['name']}/node_guid": nic["guid"],
        f"{port}/link_layer": "InfiniBand",
        f"{port}/state": "4: ACTIVE" if is_up else "1: DOWN",
        f"{port}/phys_state": "5: LinkUp" if is_up else "2: Polling",
        f"{port}/rate": rate if is_up else "10 Gb/sec (4X SDR)",
        **{f"{port}/counters/{name}": str(nic["counters"][name]) for name in COUNTERS},
    }
    if "nodes" not in nic["faults"]:
        lines[f"{_CLASSES}/infiniband_verbs/uverbs{number}/ibdev"] = nic["name"]
        lines[f"{_CLASSES}/infiniband_mad/umad{number}/ibdev"] = nic["name"]
        lines[f"{_CLASSES}/infiniband_mad/umad{number}/port"] = "1"
        lines[f"{_NODES}/uverbs{number}"] = lines[f"{_NODES}/umad{number}"] = ""
    return {path: text + "\n" if text else "" for path, text in lines.items()}


def show(root: str, state: State) -> None:
    """Write the adapters' files below ``root``, replacing the old ones."""
    nics = state.get("nics", [])
    if not nics:
        return
    for nic in nics:
        shutil.rmtree(os.path.join(root, _DEVICES, nic["address"]), ignore_errors=True)
    for directory in (f"{_CLASSES}/infiniband", f"{_CLASSES}/infiniband_verbs", f"{_CLASSES}/infiniband_mad", _NODES):
        shutil.rmtree(os.path.join(root, directory), ignore_errors=True)
        os.makedirs(os.path.join(root, directory))
    for path, text in files(nics).items():
        place = os.path.join(root, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="utf-8") as file:
            file.write(text)
    for nic in nics:
        if "missing" not in nic["faults"]:
            link = os.path.join(root, _CLASSES, "infiniband", nic["name"], "device")
            os.symlink(f"../../../bus/pci/devices/{nic['address']}", link)
            os.symlink("../../../../bus/pci/drivers/mlx5_core", os.path.join(root, _DEVICES, nic["address"], "driver"))

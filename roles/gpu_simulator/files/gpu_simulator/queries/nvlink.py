# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvlink``: the links of every GPU, their speed, capabilities, error counters and remote device."""

from __future__ import annotations

from typing import NamedTuple

from ..command_line import subcommand
from ..command_line.options import INVALID_ARGUMENT, NotSimulatedError
from ..state import catalogue, nvml
from . import listing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Collection, Mapping

    from ..command_line.subcommand import Grammar
    from ..command_line.verbs import Call
    from ..state.shapes import Gpu, Model, Reply

GRAMMAR: Grammar = {
    "id": ("-i", True),
    "link": ("-l", subcommand.NUMBER),
    "status": ("-s", False),
    "capabilities": ("-c", False),
    "pcibusid": ("-p", False),
    "remotelinkinfo": ("-R", False),
    "errorcounters": ("-e", False),
    "crcerrorcounters": ("-ec", False),
    "getthroughput": ("-gt", True),
    "setcontrol": ("-sc", False),
    "getcontrol": ("-gc", False),
    "getcounters": ("-g", False),
    "resetcounters": ("-r", False),
    "reseterrorcounters": ("-re", False),
    "setLowPowerThreshold": ("-sLowPwrThres", True),
    "getLowPowerInfo": ("-gLowPwrInfo", False),
    "setBandwidthMode": ("-sBwMode", True),
    "getBandwidthMode": ("-gBwMode", False),
    "checkBridge": ("-cBridge", False),
    "setLinkWidth": ("-sLWidth", True),
    "getLinkWidth": ("-gLWidth", False),
    "info": ("-info", False),
    "help": ("-h", False),
}

CAPABILITIES = (
    "P2P is supported",
    "Access to system memory supported",
    "P2P atomics supported",
    "System memory atomics supported",
    "SLI is supported",
    "Link is supported",
)
COUNTERS = ("Replay", "Recovery", "CRC")
LANES = (0, 1)
THROUGHPUT = {"d": "Data", "r": "Raw"}
FAR_END = "FFFFFFFF:FF:FF.0"
"""A switch is not a PCI device that a guest can see."""


DEPRECATED = {
    "setcontrol": "Setting counter control is deprecated!\n",
    "getcontrol": "Getting counter control is deprecated!\n",
    "getcounters": "Getting counters using option -g is deprecated.\n       Please use option -gt instead.\n",
    "resetcounters": "Resetting counters is deprecated!\n",
}
ALL_INACTIVE = "NVML: Unable to retrieve NVLink information as all links are inActive\n"
LINK_WIDTH = ("setLinkWidth", "getLinkWidth")
CHANGES = ("reseterrorcounters", "setLowPowerThreshold", "setBandwidthMode")


class _State(NamedTuple):
    """One link: its speed in GB/s, and the errors of all links of the GPU."""

    speed: str
    errors: Mapping[str, int]


def nvlink(call: Call) -> Reply:
    """Handle ``nvlink``; several kinds of output are printed in the order of ``_LINES``."""
    options = subcommand.parse(call.arguments, GRAMMAR)
    if not options or "help" in options:
        return listing.help_text("help-nvlink")
    refusal = subcommand.select(call, options)
    if refusal:
        return refusal
    if set(options) & set(CHANGES) or options.get("setLinkWidth", "values") not in ("values", "1"):
        raise NotSimulatedError("changing the settings of NVLink")
    if "getBandwidthMode" in options:
        known = call.root_user
        return ("GPU NVLINK bandwidth mode: FULL\n", 0) if known else ("Unable to read nvlink bandwidth mode\n", 4)
    text = ""
    for index, gpu in call.gpus:
        model = catalogue.load(gpu["model"])
        if not model["nvlink"] or not call.state["host"]["fabric"]:
            continue
        text += "GPU {}: {} (UUID: {})\n".format(index, model["name"], gpu["uuid"])
        if gpu["mig_mode"] and gpu["mig_mode"]["current"]:
            text += "Nvlink queries are not supported for Devices in MIG mode\n"
            continue
        if options.get("getthroughput", "d") not in THROUGHPUT:
            return text + "Failed to get throughput counters\n", INVALID_ARGUMENT
        inactive = gpu.get("inactive_nvlinks", [])
        if len(inactive) == model["nvlink"]["links"]:
            text += ALL_INACTIVE
            continue
        lines, status = _facts(options, model["nvlink"], inactive, gpu)
        text += "".join(line + "\n" for line in lines)
        if status:
            return text, status
    return text, 0


def _facts(options: Mapping[str, str], model: Model, inactive: Collection[int], gpu: Gpu) -> tuple[list[str], int]:
    """Return the lines about one GPU and the exit status; they end at the first unsupported function."""
    links, speed = model["links"], model["gb_s"]
    slow: Mapping[str, str] = gpu.get("slow_nvlinks", {})
    numbers = [int(options["link"] or "0")] if "link" in options else range(links)
    found: list[str] = []
    for kind in _LINES:
        for link in numbers if kind in options else ():
            if link >= links:
                return ["\t Invalid Link"], 0
            if kind == "status" and link in inactive:
                found.append(f"\t Link {link}: <inactive>")
            else:
                state = _State(slow.get(str(link), speed), gpu.get("nvlink_errors", {}))
                found.extend(_LINES[kind](link, state, options))
        if kind == "remotelinkinfo":
            warnings = [text for name, text in DEPRECATED.items() if name in options]
            if warnings:
                return [*found, f"Warning: {warnings[0]}"], nvml.NOT_SUPPORTED
    if "getLowPowerInfo" in options:
        found += [
            "\t Low Power Threshold are in units of 100 us",
            "\t Range of Low Power Threshold values are 1 to 8191",
        ]
        for link in numbers:
            found += ["", f"\t Link {link}: Low Power Mode: Low Power State"]
            found += [f"\t Link {link}: Low Power Threshold: 50000 us"]
        found.append("")
    if set(options) & set(LINK_WIDTH):
        return [*found, "Not supported"], nvml.NOT_SUPPORTED
    if "info" in options:
        found += ["\t NVLE: disabled", "\t Firmware Version: N/A"]
    return found, 0


def _status(link: int, state: _State, options: Mapping[str, str]) -> list[str]:
    return [f"\t Link {link}: {state.speed} GB/s"]


def _capabilities(link: int, state: _State, options: Mapping[str, str]) -> list[str]:
    return [f"\t Link {link}, {words}: true" for words in CAPABILITIES]


def _errors(link: int, state: _State, options: Mapping[str, str]) -> list[str]:
    return [f"\t Link {link}: {name} Errors: {state.errors.get(f'{link} {name}', 0)}" for name in COUNTERS] + [""]


def _corrections(link: int, state: _State, options: Mapping[str, str]) -> list[str]:
    return [f"\t Link {link}:", *(f"\t\t Lane {lane} ECC Correction Count: 0 (Overflow=0)" for lane in LANES), ""]


def _throughput(link: int, state: _State, options: Mapping[str, str]) -> list[str]:
    kind = THROUGHPUT[options["getthroughput"]]
    return [f"\t Link {link}: {kind} {way}: 0 KiB" for way in ("Tx", "Rx")]


def _far_end(link: int, state: _State, options: Mapping[str, str]) -> list[str]:
    return [f"\t Link {link}: {FAR_END}"]


def _far_link(link: int, state: _State, options: Mapping[str, str]) -> list[str]:
    return [f"\t Link {link}: Remote Device {FAR_END}: Link 0"]


def _bridge(link: int, state: _State, options: Mapping[str, str]) -> list[str]:
    return []  # No GPU that is simulated has a bridge; a link that it does not have is refused.


_LINES: Mapping[str, Callable[[int, _State, Mapping[str, str]], list[str]]] = {
    "status": _status,
    "capabilities": _capabilities,
    "pcibusid": _far_end,
    "remotelinkinfo": _far_link,
    "getthroughput": _throughput,
    "errorcounters": _errors,
    "crcerrorcounters": _corrections,
    "checkBridge": _bridge,
}

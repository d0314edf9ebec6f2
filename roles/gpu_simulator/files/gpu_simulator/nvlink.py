# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvlink``: the links of every GPU, their speed, capabilities, error counters and the other end."""

from __future__ import annotations

from . import catalogue, listing, subcommand
from .options import INVALID_ARGUMENT, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Mapping

    from .shapes import Answer
    from .verbs import Call

GRAMMAR = {
    "id": ("-i", True),
    "link": ("-l", True),
    "status": ("-s", False),
    "capabilities": ("-c", False),
    "pcibusid": ("-p", False),
    "remotelinkinfo": ("-R", False),
    "errorcounters": ("-e", False),
    "crcerrorcounters": ("-ec", False),
    "getthroughput": ("-gt", True),
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
"""A switch is no PCI device that a guest can see."""


def nvlink(call: Call) -> Answer:
    """Answer ``nvlink``; several kinds of facts come one after the other, in the order of ``_LINES``."""
    options = subcommand.parse(call.arguments, GRAMMAR)
    if not options or "help" in options:
        return listing.help_text("help-nvlink")
    link = options.get("link", "")
    if link and not link.isdigit():
        raise UsageError(f'Option "{link}" is invalid for "-l".\n', INVALID_ARGUMENT)
    refusal = subcommand.select(call, options)
    if refusal:
        return refusal
    lines: list[str] = []
    for index, gpu in call.gpus:
        model = catalogue.load(gpu["model"])
        if not model["nvlink"] or not call.state["host"]["fabric"]:
            continue
        lines.append("GPU {}: {} (UUID: {})".format(index, model["name"], gpu["uuid"]))
        if gpu["mig_mode"] and gpu["mig_mode"]["current"]:
            lines.append("Nvlink queries are not supported for Devices in MIG mode")
        elif options.get("getthroughput", "d") not in THROUGHPUT:
            return "".join(line + "\n" for line in [*lines, "Failed to get throughput counters"]), INVALID_ARGUMENT
        else:
            lines.extend(_facts(options, model["nvlink"]["links"], model["nvlink"]["gb_s"]))
    return "".join(line + "\n" for line in lines), 0


def _facts(options: Mapping[str, str], links: int, speed: str) -> list[str]:
    if "info" in options:
        return ["\t NVLE: disabled", "\t Firmware Version: N/A"]
    numbers = [int(options["link"])] if "link" in options else range(links)
    found: list[str] = []
    for kind in _LINES:
        for link in numbers if kind in options else ():
            if link >= links:
                return ["\t Invalid Link"]
            found.extend(_LINES[kind](link, speed, options))
    return found


def _status(link: int, speed: str, options: Mapping[str, str]) -> list[str]:
    return [f"\t Link {link}: {speed} GB/s"]


def _capabilities(link: int, speed: str, options: Mapping[str, str]) -> list[str]:
    return [f"\t Link {link}, {words}: true" for words in CAPABILITIES]


def _errors(link: int, speed: str, options: Mapping[str, str]) -> list[str]:
    return [f"\t Link {link}: {counter} Errors: 0" for counter in COUNTERS] + [""]


def _corrections(link: int, speed: str, options: Mapping[str, str]) -> list[str]:
    return [f"\t Link {link}:", *(f"\t\t Lane {lane} ECC Correction Count: 0 (Overflow=0)" for lane in LANES), ""]


def _throughput(link: int, speed: str, options: Mapping[str, str]) -> list[str]:
    kind = THROUGHPUT[options["getthroughput"]]
    return [f"\t Link {link}: {kind} {way}: 0 KiB" for way in ("Tx", "Rx")]


def _far_end(link: int, speed: str, options: Mapping[str, str]) -> list[str]:
    return [f"\t Link {link}: {FAR_END}"]


def _far_link(link: int, speed: str, options: Mapping[str, str]) -> list[str]:
    return [f"\t Link {link}: Remote Device {FAR_END}: Link 0"]


_LINES: Mapping[str, Callable[[int, str, Mapping[str, str]], list[str]]] = {
    "status": _status,
    "capabilities": _capabilities,
    "pcibusid": _far_end,
    "remotelinkinfo": _far_link,
    "getthroughput": _throughput,
    "errorcounters": _errors,
    "crcerrorcounters": _corrections,
}

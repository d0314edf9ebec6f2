# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvlink``: the links of every GPU, their speed, capabilities, error counters and the other end."""

from __future__ import annotations

from . import catalogue, listing, subcommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

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
FAR_END = "FFFFFFFF:FF:FF.0"
"""A switch is no PCI device that a guest can see."""


def nvlink(call: Call) -> Answer:
    """Answer ``nvlink``."""
    options = subcommand.parse(call.arguments, GRAMMAR)
    chosen = next((name for name in options if name in _LINES), None)
    if chosen is None:
        return listing.help_text("help-nvlink")
    refusal = subcommand.select(call, options)
    if refusal:
        return refusal
    lines: list[str] = []
    for index, gpu in call.gpus:
        model = catalogue.load(gpu["model"])
        links = model["nvlink"] or {"links": 0, "gb_s": ""}
        if not links["links"] or not call.state["host"]["fabric"]:
            continue
        lines.append("GPU {}: {} (UUID: {})".format(index, model["name"], gpu["uuid"]))
        if gpu["mig_mode"] and gpu["mig_mode"]["current"]:
            lines.append("Nvlink queries are not supported for Devices in MIG mode")
            continue
        for link in range(links["links"]):
            if options.get("link") in (None, str(link)):
                lines.extend(_LINES[chosen](link, links["gb_s"]))
    return "".join(line + "\n" for line in lines), 0


def _status(link: int, speed: str) -> list[str]:
    return [f"\t Link {link}: {speed} GB/s"]


def _capabilities(link: int, speed: str) -> list[str]:
    return [f"\t Link {link}, {words}: true" for words in CAPABILITIES]


def _errors(link: int, speed: str) -> list[str]:
    return [f"\t Link {link}: {counter} Errors: 0" for counter in COUNTERS] + [""]


def _far_end(link: int, speed: str) -> list[str]:
    return [f"\t Link {link}: {FAR_END}"]


def _far_link(link: int, speed: str) -> list[str]:
    return [f"\t Link {link}: Remote Device {FAR_END}: Link 0"]


_LINES: dict[str, Callable[[int, str], list[str]]] = {
    "status": _status,
    "capabilities": _capabilities,
    "errorcounters": _errors,
    "pcibusid": _far_end,
    "remotelinkinfo": _far_link,
}

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table, ``-q``, ``-q -x`` and ``-q -d``: their preconditions, and the functions that render them."""

from __future__ import annotations

from ..command_line import verbs
from ..state import branches, catalogue, health
from . import readings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..command_line.verbs import Call
    from ..state.shapes import Reply, Version


DISPLAY_WORDS = frozenset(
    (
        "MEMORY",
        "UTILIZATION",
        "ECC",
        "TEMPERATURE",
        "POWER",
        "CLOCK",
        "COMPUTE",
        "PIDS",
        "PERFORMANCE",
        "SUPPORTED_CLOCKS",
        "PAGE_RETIREMENT",
        "ACCOUNTING",
        "ENCODER_STATS",
        "SUPPORTED_GPU_TARGET_TEMP",
        "VOLTAGE",
        "FBC_STATS",
        "ROW_REMAPPER",
        "GSP_FIRMWARE_VERSION",
    )
)
SINCE_570 = frozenset(("POWER_SMOOTHING", "POWER_PROFILES"))
UNTIL_580 = frozenset(("RESET_STATUS",))


def refusal(call: Call) -> Reply | None:
    """Return the error output for values that nvidia-smi checks before it looks for GPUs."""
    if not display_words(call.options.get("display", "")) <= _known_words(call.version):
        return "Failed to parse --display/-d flags\n", 2
    unit = call.options.get("id")
    if "unit" not in call.options or unit is None:
        return None
    return (
        f"Specified unit index {unit} is not valid\n"
        if unit.isdecimal()
        else f"Invalid format for Unit index id: {unit}\n"
    ), 2


def query(call: Call) -> Reply:
    """Handle a call without ``--query-*``."""
    options = call.options
    if "dtd" in options and "query" not in options:
        return catalogue.read_text("text", catalogue.DOCUMENT_TYPE), 0
    if "unit" in options:
        return _units(call), 0
    if not call.gpus:
        return health.NO_DEVICES
    lost = health.lost(call.gpus)
    if lost:
        return lost
    view = "table" if "query" not in options else "xml" if "xml-format" in options else "text"
    return verbs.find(verbs.VIEWS[view])(call)


def display_words(text: str) -> frozenset[str]:
    """Split the value of ``-d``, whose words are case-insensitive."""
    return frozenset(word for word in text.upper().split(",") if word)


def _units(call: Call) -> str:
    """Report no units (S-class systems), which no current host has."""
    now = readings.timestamp()
    if "xml-format" in call.options:
        return (
            '<?xml version="1.0" ?>\n'
            f'<!DOCTYPE nvidia_smi_log SYSTEM "{branches.document_type(call.driver_version, "unit")}">\n'
            f"<nvidia_smi_log>\n\t<timestamp>{now}</timestamp>\n"
            + "".join(f"\t<{tag}>{value}</{tag}>\n" for tag, value in branches.version_tags(call.driver_version))
            + "\t<hic_info>\n\t</hic_info>\n\t<attached_units>0</attached_units>\n</nvidia_smi_log>\n"
        )
    lines = [("Timestamp", now), *branches.versions(call.driver_version)]
    return (
        "\n==============NVSMI LOG==============\n\n"
        + "".join(f"{name:<55}: {value}\n" for name, value in lines)
        + f"\n{'HIC Info':<55}: N/A\n{'Attached Units':<55}: 0\n\n"
    )


LED_NOTE = (
    "Please Note: Current S-Class products don't provide unique LEDs for each unit.\n"
    "             As such, both front and back LEDs will be toggled in unison\n"
    "             regardless of which unit is specified with this command\n\n"
)
LED_STATES = ("0", "1", "GREEN", "AMBER")


def toggle_led(call: Call) -> Reply:
    """Handle ``-t``: no host has a unit."""
    if "id" not in call.options:
        return "No units found in system\n", health.NO_DEVICES[1]
    state, unit = call.options["toggle-led"], call.options["id"]
    wrong = f"Unable to determine unit handle for unit {unit}: Invalid Argument"
    if state not in LED_STATES:
        wrong = f"Invalid LED state: {state}"
    return f"{LED_NOTE}{wrong}\nTerminating early due to previous errors.\n", 2


def _known_words(version: Version) -> frozenset[str]:
    """Return the words that ``-d`` accepts with this driver."""
    words = DISPLAY_WORDS
    if version >= (570,):
        words = words | SINCE_570
    if version < (580,):
        words = words | UNTIL_580
    return words

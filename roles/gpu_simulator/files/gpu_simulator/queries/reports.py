# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The small subcommands: help, usage errors, and a GPU's default report.

Their order of checks differs and was observed on H200 with driver 580.159.04. Changes of settings are not simulated,
which is reported.
"""

from __future__ import annotations

import re

from ..command_line import subcommand
from ..command_line.options import INVALID_ARGUMENT, MISUSE, NotSimulatedError, UsageError
from ..command_line.subcommand import NUMBER, UNSIGNED
from ..state import catalogue, nvml
from . import listing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Mapping, Tuple

    from ..command_line.subcommand import Grammar
    from ..command_line.verbs import Call
    from ..state.shapes import Gpu, Reply

    Options = Mapping[str, str]
    Handler = Callable[[Call, Options], Reply]
    Report = Tuple[Grammar, Handler]

HELP: Grammar = {"help": ("-h", False)}
FOR_A_GPU: Grammar = {**HELP, "id": ("-i", True)}
HIGH_PERFORMANCE = ("Hopper", "Blackwell")

ID_ALONE_IS_HELP = (
    "clocks",
    "conf-compute",
    "power-smoothing",
    "power-profiles",
    "compute-policy",
    "boost-slider",
    "gpm",
)
"""Subcommands that print their help for ``-i 0`` without a command, and nothing when ``-i`` is given twice."""

ONE_COMMAND_ONLY = ("conf-compute", "compute-policy", "boost-slider", "gpm")


def report(call: Call) -> Reply:
    """Handle one of the small subcommands, named by the call's value."""
    name = str(call.value)
    grammar, handler = REPORTS[name]
    given = subcommand.scan(call.arguments, grammar)
    options = {long: value for long, _spelled, value in given}
    alone = name in ID_ALONE_IS_HELP and [long for long, _spelled, _value in given] == ["id"]
    if "help" in options or alone or (not given and name != "base-clocks"):
        return listing.help_text("help-" + name)
    commands = len(given) - ("id" in options)
    if name == "clocks" and commands != 1:
        return subcommand.select(call, options) or listing.help_text("help-clocks")
    if name in ONE_COMMAND_ONLY and commands > 1:
        raise UsageError(f"One, and only one, {name} command allowed at a time\n", INVALID_ARGUMENT)
    return handler(call, options)


def _on_gpus(handler: Handler) -> Handler:
    """Narrow the call to the GPUs of ``-i`` first."""

    def result(call: Call, options: Options) -> Reply:
        return subcommand.select(call, options) or handler(call, options)

    return result


def _fact(gpu: Gpu, name: str, what: str) -> str:
    """Look up an entry of a model's file under ``reports``; raises NotSimulatedError where there is none."""
    model = catalogue.load(gpu["model"])
    known = model.get("reports", {}).get(name)
    if known is None:
        raise NotSimulatedError("{} of {}".format(what, model["name"]))
    return str(known)


def _architectures(call: Call) -> set[str]:
    return {catalogue.load(gpu["model"])["architecture"] for _index, gpu in call.gpus}


def _title(index: int, gpu: Gpu) -> str:
    return "GPU {}: {} (UUID: {})\n".format(index, catalogue.load(gpu["model"])["name"], gpu["uuid"])


CLOCKS: Grammar = {
    **FOR_A_GPU,
    "sync-boost-list": ("", False),
    "sync-boost-add": ("", False),
    "sync-boost-remove": ("", True),
    "sparse-operation-mode": ("-som", NUMBER),
}


def _clocks(call: Call, options: Options) -> Reply:
    if set(options) <= {"id"}:
        return listing.help_text("help-clocks")
    if set(options) - {"id"} != {"sync-boost-list"}:
        raise NotSimulatedError("changing the groups of synchronous boost and the sparse operation mode")
    return "No synchronous boost groups are currently configured.\n", 0


PCI: Grammar = {
    **FOR_A_GPU,
    "getErrorCounters": ("-gErrCnt", False),
    "clearErrorCounters": ("-cErrCnt", False),
    "getCounters": ("-gCnt", False),
}
PCI_ERRORS = (
    ("REPLAY_COUNTER", "0"),
    ("REPLAY_ROLLOVER_COUNTER", "0"),
    ("L0_TO_RECOVERY_COUNTER", "14"),
    ("CORRECTABLE_ERRORS", "0"),
    ("NAKS_RECEIVED", "0"),
    ("RECEIVER_ERROR", "0"),
    ("BAD_TLP", "0"),
    ("NAKS_SENT", "0"),
    ("BAD_DLLP", "0"),
    ("NON_FATAL_ERROR", "0"),
    ("FATAL_ERROR", "0"),
    ("UNSUPPORTED_REQ", "0"),
    ("LCRC_ERROR", "0"),
    ("LANE_ERROR", ""),
)
PCI_LANES = 13
PCI_TRAFFIC = (("TX_BYTES", "448500000"), ("RX_BYTES", "1729500000"))


def _pci(call: Call, options: Options) -> Reply:
    if "clearErrorCounters" in options:
        raise NotSimulatedError("clearing the error counters of PCI")
    text = ""
    for index, gpu in call.gpus:
        text += _title(index, gpu)
        if "getErrorCounters" in options:
            text += "".join(f"    {name + ':':<24} {value}\n" for name, value in PCI_ERRORS)
            text += "".join(f"\t lane {lane:>2}: 0\n" for lane in range(PCI_LANES))
        if "getCounters" in options:
            text += "".join(f"    {name + ':':<24} {value}\n" for name, value in PCI_TRAFFIC)
    return text, 0


CONF_COMPUTE: Grammar = {
    **FOR_A_GPU,
    "get-cpu-caps": ("-gc", False),
    "get-gpus-caps": ("-gg", False),
    "get-devtools-mode": ("-d", False),
    "get-environment": ("-e", False),
    "get-cc-feature": ("-f", False),
    "get-mem-size-info": ("-gm", False),
    "set-unprotected-mem-size": ("-sm", True),
    "set-gpus-ready-state": ("-srs", True),
    "get-gpus-ready-state": ("-grs", False),
    "set-key-rotation-max-attacker-advantage": ("-skr", True),
    "get-key-rotation-threshold-info": ("-gkr", False),
    "get-multigpu-mode": ("-mgm", False),
    "query-conf-compute": ("-q", False),
}
CONFIDENTIAL_FACTS = {
    "get-cpu-caps": "CPU CC capabilities: None\n",
    "get-gpus-caps": "GPU CC capabilities: CC Capable\n",
    "get-devtools-mode": "DevTools Mode: OFF\n",
    "get-environment": "CC Environment: UNAVAILABLE\n",
    "get-cc-feature": "CC status: OFF\n",
    "get-gpus-ready-state": "\nConfidential Compute GPUs Ready state: not-ready\n\n",
    "get-key-rotation-threshold-info": "\nConfidential Compute Key Rotation Threshold Attacker Advantage: 60\n\n",
    "get-multigpu-mode": "Multi-GPU Mode: None\n",
    "query-conf-compute": (
        "\n==============NVSMI CONF-COMPUTE LOG==============\n\n"
        "    CC State                   : OFF\n"
        "    Multi-GPU Mode             : None\n"
        "    CPU CC Capabilities        : None\n"
        "    GPU CC Capabilities        : CC Capable\n"
        "    CC GPUs Ready State        : Not Ready\n\n"
    ),
}


def _conf_compute(call: Call, options: Options) -> Reply:
    command = next((name for name in options if name != "id"), None)
    if command is None:
        return "", 0
    if command.startswith("set-"):
        raise NotSimulatedError("changing the settings of confidential computing")
    if not _architectures(call) <= set(HIGH_PERFORMANCE):
        raise NotSimulatedError("confidential computing on GPUs older than Hopper")
    if command != "get-mem-size-info":
        return CONFIDENTIAL_FACTS[command], 0
    text = ""
    for index, gpu in call.gpus:
        size = _fact(gpu, "unprotected_memory_kib", "the unprotected memory")
        text += _title(index, gpu) + f"Protected memory size:   0 KiB\nUnprotected memory size: {size} KiB\n"
    return text, 0


POWER_SMOOTHING: Grammar = {
    **FOR_A_GPU,
    "profile": ("-p", UNSIGNED),
    "set-preset-profile": ("-spp", UNSIGNED),
    "percent-tmp-floor": ("-ptf", NUMBER),
    "ramp-up-rate": ("-rur", UNSIGNED),
    "ramp-down-rate": ("-rdr", UNSIGNED),
    "ramp-down-hysteresis": ("-rdh", UNSIGNED),
    "print-profile-definitions": ("-ppd", False),
    "state": ("-s", True),
    "secondary-power-floor": ("-spf", UNSIGNED),
    "primary-floor-act-win-mult": ("-pfawm", UNSIGNED),
    "primary-floor-tar-win-mult": ("-pftwm", UNSIGNED),
    "primary-floor-act-offset": ("-pfao", UNSIGNED),
}


def _power_smoothing(call: Call, options: Options) -> Reply:
    asked = set(options) - {"id"}
    if "print-profile-definitions" in asked and len(asked) > 1:
        text = "Option '--print-profile-definitions' cannot be combined with configuraiton commands.\n"
        return text, INVALID_ARGUMENT
    if asked <= {"profile"}:
        return "", 0
    if asked != {"print-profile-definitions"} or "Blackwell" in _architectures(call):
        raise NotSimulatedError("power smoothing")
    return "Power Smoothing is not supported on this device.\n" * len(call.gpus), 0


POWER_PROFILES: Grammar = {
    **FOR_A_GPU,
    "list": ("-l", False),
    "list-detailed": ("-ld", False),
    "get-requested": ("-gr", False),
    "set-requested": ("-sr", True),
    "clear-requested": ("-cr", True),
    "get-enforced": ("-ge", False),
}


def _power_profiles(call: Call, options: Options) -> Reply:
    if set(options) <= {"id"}:
        return "", 0
    if "Blackwell" in _architectures(call):
        raise NotSimulatedError("the power profiles of Blackwell")
    return "Workload Power Profiles feature is not supported on this device.\n", nvml.NOT_SUPPORTED


COMPUTE_POLICY: Grammar = {**FOR_A_GPU, "list": ("-l", False), "set-timeslice": ("", NUMBER)}
BOOST_SLIDER: Grammar = {**FOR_A_GPU, "list": ("-l", False), "vboost": ("", NUMBER)}


def _compute_policy(call: Call, options: Options) -> Reply:
    if "set-timeslice" in options:
        raise NotSimulatedError("changing the time slice")
    rows = [f"|{index:>4}   Timeslice       Default       |" for index, _gpu in call.gpus]
    titles = ("| GPU compute policies:               |", "| GPU     Name           Value        |")
    return _box(titles, rows) if "list" in options else "", 0


def _boost_slider(call: Call, options: Options) -> Reply:
    if "vboost" in options:
        raise NotSimulatedError("moving the boost slider")
    if "list" not in options:
        return "", 0
    rows = []
    for index, gpu in call.gpus:
        highest = _fact(gpu, "boost_slider_max", "the boost slider")
        rows.append(f"|{index:>4}     vboost           {highest:<2}             0       |")
    titles = (
        "| GPU Boost Slider                                |",
        "| GPU     Slider       Max Value    Current Value |",
    )
    return _box(titles, rows), 0


def _box(titles: tuple[str, str], rows: list[str]) -> str:
    """Frame rows of equal width, with a line after each."""
    width = len(titles[0]) - 2
    line = "+" + "-" * width + "+\n"
    return line + "\n".join(titles) + "\n|" + "=" * width + "|\n" + "".join(row + "\n" + line for row in rows)


C2C: Grammar = {
    **FOR_A_GPU,
    "link": ("-l", NUMBER),
    "status": ("-s", False),
    "errorCounters": ("-e", False),
    "getLowPowerInfo": ("-gLowPwrInfo", False),
}


def _c2c(call: Call, options: Options) -> Reply:
    if any(catalogue.load(gpu["model"])["c2c_mode"] == "Enabled" for _index, gpu in call.gpus):
        raise NotSimulatedError("the links of C2C")
    return "No Devices support C2C.\n", nvml.NOT_SUPPORTED


GPM: Grammar = {**FOR_A_GPU, "set-stream-state": ("-s", NUMBER), "get-stream-state": ("-g", False)}


def _gpm(call: Call, options: Options) -> Reply:
    if set(options) <= {"id"}:
        return "", 0
    if "set-stream-state" in options or not _architectures(call) <= set(HIGH_PERFORMANCE):
        raise NotSimulatedError("GPU performance monitoring, but for its state on Hopper and newer")
    return "GPM stream state: DISABLED\n", 0


POWER_HINT: Grammar = {
    **FOR_A_GPU,
    "list-info": ("-l", False),
    "graphics-clock": ("-gc", NUMBER),
    "memory-clock": ("-mc", NUMBER),
    "temperature": ("-t", True),
    "profile": ("-p", NUMBER),
}


def _power_hint(call: Call, options: Options) -> Reply:
    asked = set(options) - {"id"}
    if not asked:
        return listing.help_text("help-power-hint")
    if "list-info" in asked:
        if len(asked) > 1:
            return "Invalid arguments, please use nvidia-smi power-hint -h for usage\n", INVALID_ARGUMENT
        return "No supported devices found\n", 0
    failed = "Failed to get power hint for requested devices : "
    if not asked >= {"graphics-clock", "temperature", "profile"}:
        needed = "Graphics clock, temperature and profile ID must be provided to estimate power usage\n"
        return f"{needed}{failed}Invalid Argument\n", INVALID_ARGUMENT
    lines = [f"Failed to get power hint for GPU {index} : Not Supported\n" for index, _gpu in call.gpus]
    return "".join(lines) + failed + "Not Supported\n", nvml.NOT_SUPPORTED


def _base_clocks(call: Call, options: Options) -> Reply:
    text = ""
    for index, gpu in call.gpus:
        text += "GPU {}:\n\tGraphics: \t{}MHz\n".format(index, _fact(gpu, "base_clock_mhz", "the base clock"))
    return text, 0


PRM: Grammar = {
    **HELP,
    "index": ("-i", UNSIGNED),
    "list": ("-l", False),
    "name": ("-n", True),
    "info": ("-f", False),
    "params": ("-p", True),
    "counters": ("-c", subcommand.OPTIONAL),
}


def _prm(call: Call, options: Options) -> Reply:
    if {"list", "name", "counters"} & set(options):
        raise NotSimulatedError("PRM registers")
    return 'ERROR: one of "-n", "-c" or "-l" must be specified!\n' + listing.help_text("help-prm")[0], 0


DRAIN: Grammar = {
    **HELP,
    "pciid": ("-p", True),
    "modify": ("-m", NUMBER),
    "query": ("-q", False),
    "remove": ("-r", False),
    "discover": ("-d", False),
}


def _drain(call: Call, options: Options) -> Reply:
    if "discover" in options:
        raise NotSimulatedError("discovering GPUs that were removed")
    if "pciid" not in options:
        return "Must specify -p with this option.\n", INVALID_ARGUMENT
    place = options["pciid"].lower()
    named = [gpu for _index, gpu in call.visible if gpu["bus_id"][4:].lower() == place]
    if not re.match(r"[0-9a-f]{1,5}:[0-9a-f]{1,2}:[0-9a-f]{1,2}[.]0$", place):
        return "Failed to parse device specified at the command-line\n", INVALID_ARGUMENT
    if "query" not in options or len(options) > 2:
        raise NotSimulatedError("draining and removing GPUs")
    if not named:
        return "Failed to query the GPU drain state.\n", MISUSE
    return "The current drain state of GPU {} is: not draining.\n".format(named[0]["bus_id"]), 0


REPORTS: Mapping[str, Report] = {
    "clocks": (CLOCKS, _on_gpus(_clocks)),
    "pci": (PCI, _on_gpus(_pci)),
    "conf-compute": (CONF_COMPUTE, _on_gpus(_conf_compute)),
    "power-smoothing": (POWER_SMOOTHING, _on_gpus(_power_smoothing)),
    "power-profiles": (POWER_PROFILES, _on_gpus(_power_profiles)),
    "compute-policy": (COMPUTE_POLICY, _on_gpus(_compute_policy)),
    "boost-slider": (BOOST_SLIDER, _on_gpus(_boost_slider)),
    "c2c": (C2C, _on_gpus(_c2c)),
    "gpm": (GPM, _on_gpus(_gpm)),
    "power-hint": (POWER_HINT, _on_gpus(_power_hint)),
    "base-clocks": (FOR_A_GPU, _on_gpus(_base_clocks)),
    "prm": (PRM, _prm),
    "drain": (DRAIN, _drain),
}

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The subcommands that repeat until Ctrl-C: ``dmon``, ``pmon``, sessions, and ``vgpu``."""

from __future__ import annotations

from ..command_line import subcommand
from ..command_line.options import MISUSE, NotSimulatedError, UsageError, looks_like_number
from ..command_line.subcommand import OPTIONAL
from . import listing, readings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Sequence

    from ..command_line.subcommand import Given, Grammar
    from ..command_line.verbs import Call
    from ..state.shapes import Process, Reply

SAMPLED_S = 1.0
VGPU_S = 5.0

DMON: Grammar = {
    "id": ("-i", True),
    "delay": ("-d", True),
    "count": ("-c", True),
    "select": ("-s", True),
    "gpm-metrics": ("", True),
    "gpm-options": ("", True),
    "options": ("-o", True),
    "filename": ("-f", True),
    "help": ("-h", False),
    "format": ("", True),
}
PMON: Grammar = {long: DMON[long] for long in ("id", "delay", "count", "select", "options", "filename", "help")}
SESSIONS: Grammar = {"help": ("-h", False), "id": ("-i", True), "loop": ("-l", OPTIONAL)}
SIMULATED = ("id", "delay", "count", "select")

DMON_METRICS: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "p": (
        ("pwr", "W", "gpu_power_readings/instant_power_draw"),
        ("gtemp", "C", "temperature/gpu_temp"),
        ("mtemp", "C", "temperature/memory_temp"),
    ),
    "u": (
        ("sm", "%", "utilization/gpu_util"),
        ("mem", "%", "utilization/memory_util"),
        ("enc", "%", "utilization/encoder_util"),
        ("dec", "%", "utilization/decoder_util"),
        ("jpg", "%", "utilization/jpeg_util"),
        ("ofa", "%", "utilization/ofa_util"),
    ),
    "c": (("mclk", "MHz", "clocks/mem_clock"), ("pclk", "MHz", "clocks/graphics_clock")),
    "m": (
        ("fb", "MB", "fb_memory_usage/used"),
        ("bar1", "MB", "bar1_memory_usage/used"),
        ("ccpm", "MB", "cc_protected_memory_usage/used"),
    ),
}
"""Title, unit and reading of the columns by the letter of ``-s``."""
NOT_SIMULATED_METRICS = "vet"
DMON_DEFAULT = "puc"
PMON_TITLES = (
    "# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command \n"
    "# Idx           #    C/G      %      %      %      %      %      %    name \n"
)
ENCODER_TITLES = (
    "# GPU Session    Process   Codec       H       V Average     Average\n"
    "# Idx      Id         Id    Type     Res     Res     FPS Latency(us)\n"
)
FBC_TITLES = (
    "# GPU   Session   Process   Display   Session Diff. Map  Class. Map       Capture"
    "   Max H   Max V     H     V   Average       Average\n"
    "# Idx        Id        Id   Ordinal      Type     State       State          Mode"
    "     Res     Res   Res   Res       FPS   Latency(us)\n"
)
NO_ENCODER_SESSION = "{:>5}       -          -       -       -       -       -           -\n"
NO_FBC_SESSION = (
    "{:>5}         -         -         -         -         -           -             -"
    "       -       -     -     -         -             -\n"
)


def dmon(call: Call) -> Reply:
    """Handle ``dmon``: one sample of each GPU."""
    refusal = _monitor(call, DMON)
    if refusal:
        return refusal
    chosen = dict.fromkeys(call.options.get("select", DMON_DEFAULT))
    if any(letter in NOT_SIMULATED_METRICS for letter in chosen):
        raise NotSimulatedError("columns of dmon other than of -s pucm")
    if not set(chosen) <= set(DMON_METRICS):
        return "Failed to find any metric to display\nFailed to process command line \n\n", MISUSE
    columns = [column for letter in chosen for column in DMON_METRICS[letter]]
    titles = [(f"{title:>7}", f"{unit:>7}") for title, unit, _path in columns]
    head = "# gpu" + "".join(title for title, _unit in titles) + " \n# Idx" + "".join(unit for _title, unit in titles)
    rows = (_device_row(view, [path for _title, _unit, path in columns]) for view in readings.views(call))
    return head + " \n" + "".join(rows), 0


def pmon(call: Call) -> Reply:
    """Handle ``pmon``: the processes of each GPU."""
    refusal = _monitor(call, PMON)
    if refusal:
        return refusal
    if "select" in call.options:
        raise NotSimulatedError("pmon -s")
    rows = [_process_row(index, process) for index, gpu in call.gpus for process in gpu["processes"] or [NO_PROCESS]]
    return PMON_TITLES + "".join(rows), 0


def _monitor(call: Call, grammar: Grammar) -> Reply | None:
    """Parse the command line and select the GPUs; a mistake prints the usage, with exit status 0."""
    name, arguments = str(call.value), call.arguments
    text = listing.help_text("help-" + name)[0]
    if "-h" in arguments or "--help" in arguments:
        return text, 0
    usage = text[text.index("\n    Usage:") :]
    try:
        options = subcommand.parse(arguments, grammar)
    except UsageError as error:
        return error.text + usage, 0
    refusal = subcommand.select(call, options)
    if "count" in options and not _is_count(options["count"]):
        return "Invalid value for number of samples to be displayed\n" + usage, 0
    if refusal:
        return refusal
    if set(options) - set(SIMULATED):
        raise NotSimulatedError(f"options of {name} other than -i, -d, -c and -s")
    call.options = options
    return None


def _is_count(text: str) -> bool:
    return looks_like_number(text) and text not in ("", "0")


def _device_row(view: readings.View, paths: Sequence[str]) -> str:
    cells = [str(view.index)]
    for path in paths:
        number = str(view.readings.get(path, "-")).split()[0]
        try:
            cells.append(str(int(float(number))))
        except ValueError:
            cells.append("-")
    return f"{cells[0]:>5}" + "".join(f"{cell:>7}" for cell in cells[1:]) + " \n"


NO_PROCESS: Process = {
    "pid": 0,
    "name": "-",
    "type": "-",
    "used_memory_mib": 0,
    "gpu_instance_id": None,
    "compute_instance_id": None,
}


def _process_row(index: int, process: Process) -> str:
    pid, name = (str(process["pid"]) if process["pid"] else "-"), process["name"].rpartition("/")[2]
    return f"{index:>5}{pid:>11}{process['type']:>6}" + "      -" * 6 + f"    {name:<15}\n"


def encoder_sessions(call: Call) -> Reply:
    """Handle ``encodersessions``: no GPU has one."""
    return _sessions(call, ENCODER_TITLES, NO_ENCODER_SESSION)


def fbc_sessions(call: Call) -> Reply:
    """Handle ``fbcsessions``: no GPU has one."""
    return _sessions(call, FBC_TITLES, NO_FBC_SESSION)


def _sessions(call: Call, titles: str, row: str) -> Reply:
    options = subcommand.parse(call.arguments, SESSIONS)
    if "help" in options:
        return listing.help_text("help-" + str(call.value))
    refusal = subcommand.select(call, options)
    return refusal or (titles + "".join(row.format(index) for index, _gpu in call.gpus), 0)


def persistent(call: Call) -> Reply:
    """Handle ``daemon`` and ``replay``, of which only the help is simulated."""
    if "-h" in call.arguments or "--help" in call.arguments:
        return listing.help_text("help-" + str(call.value))
    raise NotSimulatedError(str(call.value))


VGPU: Grammar = {
    "help": ("-h", False),
    "id": ("-i", True),
    "gpu-instance-id": ("-gi", True),
    "query": ("-q", OPTIONAL),
    "utilization": ("-u", OPTIONAL),
    "pmon": ("-p", OPTIONAL),
    "supported": ("-s", OPTIONAL),
    "creatable": ("-c", OPTIONAL),
    "encodersessions": ("-es", OPTIONAL),
    "migrationcap": ("-m", OPTIONAL),
    "schedulerstate": ("-ss", OPTIONAL),
    "schedulercaps": ("-sc", OPTIONAL),
    "schedulerlogs": ("-sl", OPTIONAL),
    "verbose": ("-v", False),
    "loop": ("-l", OPTIONAL),
    "clear-accounted-apps": ("-caa", False),
    "fbcsessions": ("-fs", OPTIONAL),
    "get-heterogeneous-mode": ("-ghm", OPTIONAL),
    "set-heterogeneous-mode": ("-shm", True),
    "set-mig-timeslice-mode": ("-smts", True),
}
VGPU_LOOPS = ("utilization", "pmon", "encodersessions", "schedulerlogs", "fbcsessions", "loop")


def vgpu(call: Call) -> Reply:
    """Handle ``vgpu`` on a host without a vGPU manager."""
    options = {long: value for long, _spelled, value in _vgpu_options(call.arguments)}
    if "help" in options:
        return listing.help_text("help-vgpu")
    if "clear-accounted-apps" in options:
        raise NotSimulatedError("vgpu -caa")
    return subcommand.select(call, options) or ("No supported devices in vGPU mode\n", 0)


def _vgpu_options(arguments: Sequence[str]) -> list[Given]:
    """Parse the options of ``vgpu``, with its own message for ``-i`` without a value; raises UsageError."""
    for argument, following in zip(arguments, [*arguments[1:], None]):
        if argument in ("-i", "--id") and following in (None, "-i", "--id", "-l", "--loop"):
            text = f"ERROR: Option {argument} is missing its value. Please run 'nvidia-smi vgpu -h' for help.\n\n"
            raise UsageError(text, MISUSE)
    return subcommand.scan(arguments, VGPU)


def pause(arguments: Sequence[str]) -> tuple[float, float] | None:
    """Return the seconds between two samples, and the number of samples; None when the call ends after one."""
    name, rest = arguments[0], arguments[1:]
    grammars: Mapping[str, Grammar] = {"dmon": DMON, "pmon": PMON, "encodersessions": SESSIONS, "fbcsessions": SESSIONS}
    if name not in grammars and name != "vgpu":
        return None
    try:
        options = (
            {long: value for long, _spelled, value in _vgpu_options(rest)}
            if name == "vgpu"
            else subcommand.parse(rest, grammars[name])
        )
    except UsageError:
        return None
    if "help" in options or (name == "vgpu" and not set(options) & set(VGPU_LOOPS)):
        return None
    given = options.get("delay", "") or options.get("loop", "")
    seconds = float(given) if given.isdecimal() else VGPU_S if name == "vgpu" else SAMPLED_S
    count = options.get("count", "")
    return seconds, float(count) if count.isdecimal() and _is_count(count) else float("inf")

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table that nvidia-smi prints without arguments: GPUs, MIG devices, processes.

A row has three cells. Driver 535 has a narrower middle cell; 535 and 550 a narrower PID column; 610 another header.
"""

from __future__ import annotations

from ..queries import readings
from ..state import branches, health

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from ..command_line.verbs import Call
    from ..mig.devices import MigDevice
    from ..queries.readings import View
    from ..state.shapes import Process, Reply, Version

LEFT, RIGHT = 41, 22
NAME = 27
OLD_GAP = 89
"""Spaces between the boxes up to driver 550, also where the boxes are wider."""
PROCESS_LINE_OF_NOTHING = "  No running processes found"


def table(call: Call) -> Reply:
    """Handle a call without arguments."""
    layout = _Layout(call.version)
    views = readings.views(call)
    lines = [readings.timestamp() + " " * 7, *layout.header(call.driver_version)]
    for view in views:
        lines.extend(layout.gpu(view))
    if any(view.in_mig_mode for view in views):
        lines.extend(layout.mig(views))
    lines.extend(layout.processes(views))
    return health.after_table("\n".join(lines) + "\n", call.gpus)


class _Layout:
    """The widths and wording of one driver branch."""

    def __init__(self, version: Version) -> None:
        wide = version >= (545,)
        self._version = version
        self._middle = 24 if wide else 22
        self._inner = LEFT + self._middle + RIGHT + 2
        self._used, self._total, self._watts = (11, 9, 5) if wide else (10, 8, 4)
        self._bus_indent = 3 if wide else 1
        self._pid = 16 if version >= (560,) else 10
        self._renamed = version >= (610,)
        self._rule = "-" * self._inner
        self._corner = "+" if version >= (560,) else "|"
        self._gap = "" if version >= (560,) else " " * OLD_GAP

    def _row(self, left: str, middle: str, right: str) -> str:
        return f"|{left}|{middle}|{right}|"

    def _separator(self, first: str, line: str, last: str) -> str:
        return first + "+".join(line * width for width in (LEFT, self._middle, RIGHT)) + last

    def _full(self, text: str) -> str:
        return f"|{text:<{self._inner}}|"

    def header(self, driver_version: str) -> list[str]:
        """The box at the top and the titles of the columns."""
        gap = 14 if self._middle == 24 else 12
        cuda = branches.cuda_version(driver_version)
        if self._renamed:
            title = f" NVIDIA-SMI {driver_version:<22} KMD Version: {driver_version:<13} CUDA UMD Version: {cuda}"
        else:
            title = f" NVIDIA-SMI {driver_version:<22} Driver Version: {driver_version:<{gap}} CUDA Version: {cuda}"
        return [
            f"+{self._rule}+",
            self._full(title),
            self._separator(self._corner, "-", "+"),
            self._row(
                " GPU  Name                 Persistence-M ",
                " Bus-Id".ljust(self._middle - 7) + "Disp.A ",
                " Volatile Uncorr. ECC ",
            ),
            self._row(
                " Fan  Temp   Perf          Pwr:Usage/Cap ",
                "Memory-Usage ".rjust(self._middle),
                " GPU-Util  Compute M. ",
            ),
            self._row(" " * LEFT, " " * self._middle, "MIG M. ".rjust(RIGHT)),
            self._separator("|", "=", "|"),
        ]

    def gpu(self, view: View) -> list[str]:
        """Three lines and a rule for one GPU."""
        value = _Cells(view)
        mig = view.gpu["mig_mode"]
        mig_text = "N/A" if mig is None else "Enabled" if mig["current"] else "Disabled"
        if mig and mig["current"] != mig["pending"]:
            mig_text += "*"
        ecc = value.ecc()
        if view.in_mig_mode and ecc.isdigit():
            ecc = "On"
        persistence = "On" if view.gpu["persistence_mode"] else "Off"
        usage, cap = value("gpu_power_readings/power_draw", "W"), value("gpu_power_readings/current_power_limit", "W")
        power = f"{usage:>{17 - self._watts + 3}} / {cap:>{self._watts}}"
        used, total = value("fb_memory_usage/used", "MiB"), value("fb_memory_usage/total", "MiB")
        memory = f"{used:>{self._used}} / {total:>{self._total}} "
        display = "On" if view.readings["display_active"] == "Enabled" else "Off"
        util, mode = value("utilization/gpu_util", "%"), _compute_mode(view.gpu["compute_mode"])
        return [
            self._row(
                f"{view.index:>4}  {_shorten(view.readings['product_name']):<{NAME}}    {persistence:<3} ",
                f"{'':{self._bus_indent}}{view.readings['pci/pci_bus_id']}{display:>4} ".ljust(self._middle),
                f"{ecc:>21} ",
            ),
            self._row(
                f"{value('fan_speed', '%'):>4}{value('temperature/gpu_temp', 'C'):>6}"
                f"{view.readings['performance_state']:>6}{power:>24} ",
                memory,
                f"{util:>8}{mode:>13} ",
            ),
            self._row(" " * LEFT, " " * self._middle, f"{mig_text:>21} "),
            self._separator("+", "-", "+"),
        ]

    def mig(self, views: Sequence[View]) -> list[str]:
        """The box of the MIG devices of all GPUs in MIG mode."""
        widths = (18, self._middle + 10, 11, 23)
        rule = "+" + "+".join("-" * width for width in widths) + "+"
        shared = "Shared " if self._version >= (580,) else ""
        if self._version >= (560,):
            engines = ("        Shared         ", " CE ENC  DEC  OFA  JPG ")
        else:
            engines = ("      Shared           ", " CE ENC DEC OFA JPG    ")
        lines = [
            "",
            f"+{self._rule}+",
            self._full(" MIG devices:"),
            rule,
            f"| GPU  GI  CI  MIG |{shared + 'Memory-Usage ':>{widths[1]}}|        Vol|{engines[0]}|",
            f"|      ID  ID  Dev |{shared + 'BAR1-Usage ':>{widths[1]}}| SM     Unc|{engines[1]}|",
            f"|                  |{'':{widths[1]}}|        ECC|                       |",
            "|" + "+".join("=" * width for width in widths) + "|",
        ]
        shown = [(view, device) for view in views for device in view.mig_devices]
        for view, device in shown:
            lines.extend(self._mig_rows(view, device, widths[1]))
            lines.append(rule)
        if not shown:
            lines += [self._full("  No MIG devices found"), f"+{self._rule}+"]
        return lines

    def _mig_rows(self, view: View, device: MigDevice, width: int) -> list[str]:
        engines = device.profile["engines"]
        bar1_column = 19 if self._version >= (580,) or self._version < (545,) else 21
        memory = "{:>19} / {:>8}".format(f"{device.used_mib}MiB", f"{device.total_mib}MiB")
        bar1 = "{:>{}} / {:>8}".format("0MiB", bar1_column, f"{device.bar1_mib}MiB")
        counts = "{ce:>3}{enc:>4}{dec:>5}{ofa:>5}{jpeg:>5} ".format(**engines)
        return [
            (
                f"|{view.index:>3}{device.gpu_instance_id:>5}{device.compute_instance_id:>4}{device.index:>4}  "
                f"|{memory:<{width}}| {device.compute['sm']:<4}{0:>5} |{counts}|"
            ),
            f"|{'':18}|{bar1:<{width}}|{'':11}|{'':23}|",
        ]

    def processes(self, views: Sequence[View]) -> list[str]:
        """The box of the processes."""
        shift = self._pid - 10
        name_width = 42 - shift
        lines = [
            self._gap,
            f"+{self._rule}+",
            self._full(" Processes:"),
            self._full(f"  GPU   GI   CI{'PID':>{self._pid + 1}}   Type   {self._process_title(name_width)}"),
            self._full(f"        ID   ID{'':{self._inner - 26}}Usage"),
            f"|{'=' * self._inner}|",
        ]
        rows = [(view, process) for view in views for process in view.gpu["processes"]]
        for view, process in rows:
            lines.append(self._full(self._process(view, process, name_width)))
        if not rows:
            lines.append(self._full(PROCESS_LINE_OF_NOTHING))
        lines.append(f"+{self._rule}+")
        return lines

    def _process_title(self, name_width: int) -> str:
        return f"{'Process name':<{name_width - (2 if self._middle == 22 else 0)}}GPU Memory"

    def _process(self, view: View, process: Process, name_width: int) -> str:
        width = name_width - (2 if self._middle == 22 else 0)
        gi, ci = process["gpu_instance_id"], process["compute_instance_id"]
        # Both are eleven columns wide, but nvidia-smi aligns them differently.
        instances = "   N/A  N/A" if gi is None else f"{gi:>5}{ci:>5} "
        memory = f"{process['used_memory_mib']}MiB"
        return (
            f"{view.index:>5}{instances}{process['pid']:>{self._pid}}{process['type']:>7}   "
            f"{_shorten_path(process['name'], width):<{width}}{memory:>10} "
        )


class _Cells:
    """Readings as the cells show them: without decimals, ``ERR!`` for a failed one."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __call__(self, path: str, unit: str) -> str:
        text = self._view.readings.get(path, "N/A")
        if text == "Unknown Error":
            return "ERR!"
        if not text.endswith(" " + unit):
            return "N/A"
        return f"{int(float(text[: -len(unit) - 1]))}{unit}"

    def ecc(self) -> str:
        """The count of uncorrected volatile errors, or ``Off``."""
        mode = self._view.gpu["ecc_mode"]
        if mode is None:
            return "N/A"
        if not mode["current"]:
            return "Off"
        counters = self._view.gpu["ecc_errors"]["volatile"]
        return str(sum(count for name, count in counters.items() if "uncorrectable" in name))  # type: ignore[misc]


def _compute_mode(mode: str) -> str:
    return {"Exclusive_Process": "E. Process", "Exclusive_Thread": "E. Thread"}.get(mode, mode)


def _shorten(name: str) -> str:
    return name if len(name) <= NAME else name[: NAME - 3] + "..."


def _shorten_path(name: str, width: int) -> str:
    """Keep the end of a long process name, with four spaces before the next column."""
    room = width - 4
    return name if len(name) <= room else "..." + name[-(room - 3) :]

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The request of ``nvidia-smi mig``, and one run of it over the GPUs in MIG mode."""

from __future__ import annotations

from ..command_line import subcommand
from ..state import nvml
from . import instances as mig_instances

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..command_line.selection import Selected
    from ..command_line.subcommand import Grammar
    from ..command_line.verbs import Call
    from ..state.shapes import Gpu, GpuInstance, Reply
    from .profiles import Profile

ALIASES = {
    "--help": "-h",
    "--id": "-i",
    "--gpu-instance-id": "-gi",
    "--compute-instance-id": "-ci",
    "--list-gpu-instance-profiles": "-lgip",
    "--list-gpu-instance-possible-placements": "-lgipp",
    "--default-compute-instance": "-C",
    "--create-gpu-instance": "-cgi",
    "--destroy-gpu-instance": "-dgi",
    "--list-gpu-instances": "-lgi",
    "--list-compute-instance-profiles": "-lcip",
    "--list-compute-instance-possible-placements": "-lcipp",
    "--create-compute-instance": "-cci",
    "--destroy-compute-instance": "-dci",
    "--list-compute-instances": "-lci",
}
GRAMMAR: Grammar = {
    long[2:]: (short, short in ("-i", "-gi", "-ci", "-cgi") or (subcommand.OPTIONAL if short == "-cci" else False))
    for long, short in ALIASES.items()
}
FILTERS = ("-h", "-i", "-gi", "-ci", "-C")


class Request:
    """A parsed command line; ``options`` maps the short names of the given options to their values."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        actions = [name for name in options if name not in FILTERS]
        # Of several actions the profile lists win, in any order, as observed.
        first = [name for name in ("-lgip", "-lgipp") if name in actions]
        self.action = next(iter([*first, *actions]), None)

    @property
    def value(self) -> str:
        """Return the value of the action."""
        return self.options[self.action] if self.action else ""

    def selects(self, option: str, number: int) -> bool:
        """Return whether ``-gi`` or ``-ci`` selects the instance with this id."""
        chosen = self.options.get(option)
        return chosen is None or str(number) in [part.lstrip("0") or "0" for part in chosen.split(",")]


def parse(arguments: list[str]) -> Request:
    """Parse the arguments after ``mig``; raises UsageError."""
    return Request({GRAMMAR[long][0]: value for long, _spelled, value in subcommand.scan(arguments, GRAMMAR)})


class Session:
    """One run of an action: the GPUs in MIG mode, and the output so far."""

    def __init__(self, call: Call, request: Request, gpus: Selected) -> None:
        self.request = request
        self.gpus = gpus
        self.version = call.version
        self.text = ""
        self._call = call

    def begin(self, operation: str, index: int) -> None:
        """Begin a driver operation; raises NvmlError."""
        nvml.begin(self._call.state, self._call.root_user, operation, index)

    def log(self, line: str) -> None:
        """Print a line."""
        self.text += line + "\n"

    def fail(self, error: nvml.NvmlError, line: str) -> Reply:
        """End with a last line about an error."""
        self.log(line.format(error))
        return self.text, error.exit_status

    def instances(self) -> list[tuple[int, Gpu, Profile, GpuInstance]]:
        """List the GPU instances that ``-i`` and ``-gi`` select; raises NvmlError when there is none."""
        if not self._call.root_user:
            raise nvml.NvmlError(nvml.NO_PERMISSION)
        found = [
            (index, gpu, profile, instance)
            for index, gpu in self.gpus
            for profile, instance in mig_instances.listed(gpu, self.version)
            if self.request.selects("-gi", instance["id"])
        ]
        if not found:
            raise nvml.NvmlError(nvml.NOT_FOUND)
        return found

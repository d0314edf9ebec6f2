# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the simulated program that the first argument names: `python3 -IS /usr/lib/gpu-simulator nvidia-smi -L`."""

from __future__ import annotations

import sys
from importlib import import_module

HOST_COMMANDS = ("up", "down", "refresh", "modprobe", "rmmod")


def main(program: str, arguments: list[str]) -> int:
    """Run the program; returns its exit status. Modules are imported by name: nvidia-smi, called often, needs few."""
    status: int
    if program == "nvidia-cdi-hook":
        program, arguments = "nvidia-ctk", ["hook", *arguments]
    if program == "nvidia-smi":
        status = import_module("gpu_simulator.cli").main(arguments)
    elif program == "dcgmi":
        status = import_module("gpu_simulator.control.dcgmi").main(arguments)
    elif program == "nvidia-cuda-mps-control":
        status = import_module("gpu_simulator.control.mps").main(arguments)
    elif program != "gpu-simulator":
        status = import_module("gpu_simulator.containers.toolkit").main(program, arguments)
    elif arguments and arguments[0] in HOST_COMMANDS:
        status = import_module("gpu_simulator.host.kernel").main(arguments)
    else:
        status = import_module("gpu_simulator.control.command").main(arguments)
    return status


sys.exit(main(sys.argv[1], sys.argv[2:]))

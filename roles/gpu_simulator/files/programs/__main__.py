# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the simulated program that the first argument names: `python3 -IS /usr/lib/gpu-simulator nvidia-smi -L`."""

from __future__ import annotations

import sys


def main(program: str, arguments: list[str]) -> int:
    """Give the exit status of the program. Each imports only what it needs: nvidia-smi is called often."""
    if program == "nvidia-smi":
        from gpu_simulator import cli

        return cli.main(arguments)
    if program == "gpu-simulator":
        from gpu_simulator import control, host

        if arguments and arguments[0] in host.COMMANDS:
            return host.main(arguments)
        return control.main(arguments)
    from gpu_simulator import container

    return container.main(program, arguments)


sys.exit(main(sys.argv[1], sys.argv[2:]))

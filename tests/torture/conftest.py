# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints the figures of a torture run as a table at its end."""

from __future__ import annotations

from typing import Any

from tests.torture.figures import FIGURES, SEED

_ROWS = (
    ("walks", "random walks of MIG requests"),
    ("steps", "their steps, each predicted, made, read back and made again"),
    ("kept", "instances that a step kept, with the same identity"),
    ("kills", "processes killed while they changed GPUs"),
    ("conflicts", "runs at the same moment on one host"),
    ("faults", "calls that went wrong"),
    ("reported", "of them, runs that failed and reported the actual state"),
    ("defects", "defects"),
)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the figures, unless this is a worker of pytest-xdist, whose output nobody sees."""
    if not FIGURES:
        return
    terminalreporter.section(f"torture, GPU_FLEET_TORTURE_SEED={SEED}")
    for name, text in _ROWS:
        terminalreporter.write_line(f"{FIGURES[name]:>8}  {text}")
    for name in sorted(set(FIGURES) - {row[0] for row in _ROWS}):
        terminalreporter.write_line(f"{FIGURES[name]:>8}  {name}")

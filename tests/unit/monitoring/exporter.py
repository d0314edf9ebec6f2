# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exporter below a directory, with the programs that announce its verdict."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._roles import gpu_monitoring


def install(root: Path, health: Mapping[str, Any], textfile: Path, max_drained: str = "10%") -> None:
    """Write its files below `root`, with the verdict in `root`/verdict.json."""
    verdict = str(root / "verdict.json")
    made = gpu_monitoring.exporter_files(
        str(textfile), 300, sys.executable, health, max_drained=max_drained, verdict=verdict
    )
    directory = str(root / gpu_monitoring.PROGRAM.lstrip("/"))
    for path, text in {**made["files"], **made["programs"]}.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        is_program = path in made["programs"]
        target.write_text(text.replace(gpu_monitoring.PROGRAM, directory) if is_program else text, encoding="utf-8")
        target.chmod(0o755 if is_program else 0o644)


def check(root: Path) -> subprocess.CompletedProcess[str]:
    """A run of the program below `root`, as the unit runs it."""
    directory = str(root / gpu_monitoring.PROGRAM.lstrip("/"))
    command = [sys.executable, "-I", "-S", "-B", directory, f"{directory}/options.json"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")

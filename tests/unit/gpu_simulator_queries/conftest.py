# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated hosts in temporary directories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_simulator import cli
from gpu_simulator.state import store


class Host:
    """A simulated host below a directory."""

    def __init__(self, root: Path, description: dict[str, Any]) -> None:
        self.root = str(root)
        store.initialise(description, self.root, device_nodes=True)  # type: ignore[arg-type]

    def smi(self, *arguments: str, root_user: bool = True) -> tuple[str, int]:
        """Run nvidia-smi; return its output and exit status."""
        text, status = cli.reply(arguments, self.root, root_user)
        return text, status

    def change(self, change: Callable[[Any], object]) -> None:
        """Change the state."""
        with store.transaction(self.root) as state:
            change(state)


MakeHost = Callable[..., Host]


@pytest.fixture
def make_host(tmp_path: Path) -> MakeHost:
    """Create a host from GPU models and a driver version, or from a whole description."""

    def make(*models: str, driver: str = "580.159.04", **description: Any) -> Host:
        whole = {"driver_version": driver, "gpus": [{"model": model} for model in models], **description}
        return Host(tmp_path / f"host{len(list(tmp_path.iterdir()))}", whole)

    return make

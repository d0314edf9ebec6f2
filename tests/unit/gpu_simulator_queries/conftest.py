# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated hosts in temporary folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_simulator import cli, store

Smi = Callable[..., "tuple[str, int]"]


@pytest.fixture
def make_host(tmp_path: Path) -> Callable[[dict[str, Any]], Smi]:
    """Make a host from a description; gives a function that runs nvidia-smi there as root."""

    def make(description: dict[str, Any]) -> Smi:
        root = str(tmp_path / f"host{len(list(tmp_path.iterdir()))}")
        store.initialise(description, root, device_nodes=True)

        def smi(*arguments: str, root_user: bool = True) -> tuple[str, int]:
            return cli.answer(arguments, root, root_user)

        smi.root = root  # type: ignore[attr-defined]
        return smi

    return make

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of the tests of the facts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import pci as pci_bus

from tests.unit.nvidia_smi.facts_support import Replay


@pytest.fixture
def replay(tmp_path: Path) -> Callable[[dict[str, dict[str, Any]]], Replay]:
    """Make an nvidia-smi that replays recorded output."""
    return lambda results: Replay(tmp_path, results)


@pytest.fixture
def pci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Make a PCI bus: `pci("0000:00:06.0", ...)` has an H200 at each address; without addresses it is empty."""
    devices = tmp_path / "pci"
    devices.mkdir()
    monkeypatch.setattr(pci_bus, "DEVICES", str(devices))

    def add(*addresses: str, driver: str | None = "nvidia", **values: str) -> Path:
        for address in addresses:
            directory = devices / address
            directory.mkdir()
            content = {"vendor": "0x10de", "device": "0x2335", "class": "0x030200", "numa_node": "-1", **values}
            for name, value in content.items():
                (directory / name).write_text(value + "\n")
            if driver is not None:
                (directory / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        return devices

    return add

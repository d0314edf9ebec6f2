# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the modules that change GPUs on a host of the simulator, as Ansible does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._change import context as change_context

from tests.unit.module_runs import executable, run_module


class SimulatedHost(Protocol):
    """A host whose simulated GPUs are in the files below `root`."""

    root: Path


def runner_of(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, directory: Path, caches: Mapping[ModuleType, str]
) -> Callable[..., dict[str, Any]]:
    """A function that runs a module on a host of the simulator with options; lock and caches are in `directory`.

    caches: file names by the module that has CACHE_FILE.
    """
    monkeypatch.setattr(change_context, "LOCK", str(directory / "lock"))
    for owner, name in caches.items():
        monkeypatch.setattr(owner, "CACHE_FILE", str(directory / name))

    def run(host: SimulatedHost, check: bool = False, **options: Any) -> dict[str, Any]:
        return run_module(module, monkeypatch, {"executable": str(executable(host.root)), **options}, check)

    return run

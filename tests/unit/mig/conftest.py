# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module mig_profile as Ansible runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._change import context as change_context
from ansible_collections.gpu.fleet.plugins.module_utils._mig import run as mig_run
from ansible_collections.gpu.fleet.plugins.modules import mig_profile

from tests.unit import module_runs
from tests.unit.mig.mig_host import RunModule, SimulatedHost
from tests.unit.module_runs import executable


@pytest.fixture
def run_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunModule:
    """Run the module with options; its lock and its cache are in the test's directory."""
    monkeypatch.setattr(change_context, "LOCK", str(tmp_path / "run" / "mig.lock"))
    monkeypatch.setattr(mig_run, "CACHE_FILE", str(tmp_path / "run" / "mig.json"))

    def run(host: SimulatedHost, check: bool = False, **options: Any) -> dict[str, Any]:
        arguments = {"executable": str(executable(host.root)), **options}
        return module_runs.run_module(mig_profile, monkeypatch, arguments, check)

    return run

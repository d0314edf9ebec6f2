# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module mig_profile as Ansible runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._mig import run as mig_run
from ansible_collections.gpu.fleet.plugins.modules import mig_profile

from tests.unit.changing_modules import runner_of
from tests.unit.mig.mig_host import RunModule


@pytest.fixture
def run_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunModule:
    """Run the module with options; its lock and its cache are in the test's directory."""
    return runner_of(mig_profile, monkeypatch, tmp_path / "run", {mig_run: "mig.json"})

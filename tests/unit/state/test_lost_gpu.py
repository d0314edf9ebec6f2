# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_state on a host that has lost a GPU: the message is that of the other modules, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.remedies import REMEDIES
from gpu_simulator import control

from tests.unit.state.state_host import StateHost, in_this_process


def test_a_lost_gpu_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = StateHost.with_gpus(tmp_path, "h200", "h200")
    assert control.main(["fault", "lost", "--gpu", "1"], str(tmp_path)) == 0
    with in_this_process(monkeypatch, host):
        outcome = host.state_run(power_limit_w="500")
    assert outcome.error is not None
    assert REMEDIES["gpu_lost"] in outcome.error

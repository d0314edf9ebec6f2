# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real PyTorch of Debian, which is built for the CPU: tested twice by the role gpu_workload, and removed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.full.conftest import INVENTORY
from tests.system.support import Result, run

HOST = "full-deb12"
PLAY = {
    "hosts": HOST,
    "gather_facts": False,
    "tasks": [
        {"ansible.builtin.apt": {"name": "python3-torch", "install_recommends": False, "update_cache": True}},
        {"ansible.builtin.include_role": {"name": "gpu.fleet.gpu_workload"}},
    ],
    "vars": {"gpu_workload_tests": [{"framework": "pytorch"}]},
}


def _play(directory: Path, *extra: str) -> Result:
    path = directory / "frameworks.json"
    path.write_text(json.dumps([PLAY]))
    result = run(["ansible-playbook", "-i", INVENTORY, str(path), *extra])
    assert result.status == 0, result.output[-6000:]
    return result


def test_debians_pytorch_computes_on_the_cpu(tmp_path: Path) -> None:
    first = _play(tmp_path)
    assert "the host has no GPU, so it computed on the CPU only" in first.output
    assert first.changed[HOST] > 0
    assert _play(tmp_path).changed[HOST] == 0
    assert _play(tmp_path, "--extra-vars", "gpu_workload_state=absent").changed[HOST] > 0
    assert _play(tmp_path, "--extra-vars", "gpu_workload_state=absent").changed[HOST] == 0

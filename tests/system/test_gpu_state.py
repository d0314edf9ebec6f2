# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cost of the role gpu_state: module runs on hosts that already have the declared state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.support import Result, playbook

# The facts are one module run and fill the fleet table. The demo has three GPU models, one of them without MIG.
_PLAY = """
- name: Declare the GPUs
  hosts: all
  gather_facts: false
  tasks:
    - name: Read the GPUs
      gpu.fleet.nvidia_smi_facts:

    - name: Bring them to their state
      ansible.builtin.include_role:
        name: gpu.fleet.gpu_state
      vars:
        gpu_state_ecc: true
        gpu_state_persistence_mode: true
        gpu_state_compute_mode: default
        gpu_state_power_limit: 95%
        gpu_state_gpu_clocks: default
        gpu_state_accounting_mode: false
        gpu_state_mig: false
        gpu_state_on_unsupported: skip
"""
_FACTS = 1


@pytest.fixture(scope="module")
def play(demo: Result, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Path of the playbook; the hosts' state is restored afterwards."""
    assert demo.status == 0
    path = tmp_path_factory.mktemp("gpu_state") / "play.yml"
    path.write_text(_PLAY, encoding="utf-8")
    yield str(path)
    assert playbook(str(path), "-e", "gpu_state_state=absent").status == 0


def test_declaring_everything_costs_one_module_run_on_hosts_that_are_as_declared(play: str) -> None:
    first = playbook(play)
    assert first.status == 0, first.output[-6000:]
    assert all(changed > 0 for changed in first.changed.values())
    for arguments in ((), ("--check",)):
        again = playbook(play, *arguments)
        assert again.changed == dict.fromkeys(first.recap, 0), again.output[-6000:]
        assert again.module_runs == dict.fromkeys(first.recap, _FACTS + 1)


def test_nothing_declared_costs_one_module_run(play: str, tmp_path: Path) -> None:
    bare = tmp_path / "bare.yml"
    bare.write_text(_PLAY[: _PLAY.index("      vars:")], encoding="utf-8")
    assert playbook(str(bare)).status == 0
    again = playbook(str(bare))
    assert set(again.changed.values()) == {0}, again.output[-6000:]
    assert set(again.module_runs.values()) == {_FACTS + 1}

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's own rollback after a failure: nouveau may load again where this run had blacklisted it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.stages import PLANNER

from tests.unit.driver.plans import stage
from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

_BLACKLIST = "# Of a site.\nblacklist nouveau\n"


def roll_back(directory: Path, part: str, written_by_this_run: bool) -> str:
    """Let a task fail and the role roll it back, changing nothing outside the directory; returns its message."""
    facts = {
        "distribution": "Rocky",
        "distribution_version": "9.6",
        "distribution_major_version": "9",
        "os_family": "RedHat",
        "architecture": "x86_64",
        "kernel": "5.14.0-570.el9.x86_64",
        "packages": {},
        "nvidia_smi": {"pci_gpus": [], "reason": "no_nvidia_smi", "available": False},
        "cuda": {
            "driver": {
                "loaded": False,
                "library_version": None,
                "module_version": None,
                "loaded_version": None,
                "reboot_required": False,
            }
        },
        "gpu_fleet_managed": {"nvidia_driver": {"inputs": "", "drift": [], "data": {"begun": True, "source": part}}},
    }
    variables: dict[str, Any] = {
        "ansible_facts": facts,
        "nvidia_driver_source": "runfile" if part == "runfile" else "cuda_repository",
        "nvidia_driver_version": "580.159.04",
        "__nvidia_driver_selection": {
            "version": "580.159.04",
            "requested": "580.159.04",
            "runfile": {"previous": []},
            "packages": {"probe": "nvidia-driver", "driver": [], "others": []},
            "kernels": {"boot": facts["kernel"], "all": [facts["kernel"]]},
            "observed": {},
        },
        "__nvidia_driver_blacklist_file": str(directory / "nouveau.conf"),
        "__nvidia_driver_blacklist": {"changed": written_by_this_run},
        "__nvidia_driver_program_directories": [str(directory)],
    }
    given = {name: value for name, value in variables.items() if name.startswith("nvidia_driver_")}
    plan = stage("plan", facts, **given, nvidia_driver_runfile_sha256="0" * 64)
    read = {**RoleData.read().defaults(["nvidia_driver"]), **given, "nvidia_driver_module_build": "precompiled"}
    variables["__nvidia_driver_plan"] = {**plan, "variables": {name: read[name] for name in PLANNER.reads}}
    include = {"name": "gpu.fleet.nvidia_driver", "tasks_from": f"rollback/{part}.yml"}
    message = {"content": "{{ ansible_failed_result.msg }}", "dest": str(directory / "message"), "mode": "0644"}
    change = {
        "block": [{"ansible.builtin.fail": {"msg": "no space left on device"}}],
        "rescue": [{"ansible.builtin.include_role": include, "vars": variables}],
    }
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": [{"block": [change], "rescue": [{"ansible.builtin.copy": message}]}],
    }
    run_play(directory, play)
    return (directory / "message").read_text()


@pytest.mark.parametrize("part", ["packages", "runfile"])
def test_nouveau_may_load_again(part: str, tmp_path: Path) -> None:
    (tmp_path / "nouveau.conf").write_text("blacklist nouveau\n")
    assert "no space left on device" in roll_back(tmp_path, part, written_by_this_run=True)
    assert not (tmp_path / "nouveau.conf").exists()


def test_a_blacklist_of_an_earlier_run_stays(tmp_path: Path) -> None:
    (tmp_path / "nouveau.conf").write_text(_BLACKLIST)
    assert "nothing was changed" in roll_back(tmp_path, "packages", written_by_this_run=False)
    assert (tmp_path / "nouveau.conf").read_text() == _BLACKLIST

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's own tasks ask apt on Ubuntu's real index; nothing else of the machine is read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.plays import run_play
from tests.unit.real_indexes.apt_root import AptRoot

pytestmark = pytest.mark.plays

Roots = Callable[[str], AptRoot]
FACTS = {
    "distribution": "Ubuntu",
    "distribution_version": "24.04",
    "distribution_major_version": "24",
    "os_family": "Debian",
    "architecture": "x86_64",
    "kernel": "6.8.0-151-generic",
    "packages": {},
    "nvidia_smi": {"pci_gpus": [{"device_id": "0x2335"}], "available": False, "reason": "no_nvidia_smi"},
    "cuda": {
        "driver": dict.fromkeys(("library_version", "module_version", "loaded_version", "module_kind", "loaded_kind"))
        | {"loaded": False, "reboot_required": False}
    },
}
# Version, kernel modules, series; the branch that comes, or a part of the refusal.
CASES: dict[str, tuple[dict[str, str], str]] = {
    "a real branch": ({"nvidia_driver_version": "580"}, "580"),
    "the newest": ({"nvidia_driver_version": "newest"}, "615"),
    "the newest with proprietary modules": (
        {"nvidia_driver_version": "newest", "nvidia_driver_kernel_modules": "proprietary"},
        "595",
    ),
    "535": (
        {"nvidia_driver_version": "535", "nvidia_driver_kernel_modules": "open"},
        "of distribution cannot be installed on Ubuntu 24.04, and no package was changed: branch 535 is not there",
    ),
    "590": ({"nvidia_driver_version": "590"}, "nvidia-utils-590-server installs nvidia-utils-595-server"),
    "610 for a desktop": (
        {"nvidia_driver_version": "610", "nvidia_driver_ubuntu_series": "desktop"},
        "it has the branches 580, 595, 615",
    ),
}


@pytest.fixture(scope="module")
def outcomes(roots: Roots, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The branch or the refusal of each case, from one run of Ansible."""
    directory = tmp_path_factory.mktemp("role")
    fixed: dict[str, Any] = {
        "ansible_facts": FACTS,
        "nvidia_driver_source": "distribution",
        "nvidia_driver_boot_kernel": FACTS["kernel"],
        "nvidia_driver_preflight": False,
    }
    tasks = [
        {
            "block": [
                {
                    "ansible.builtin.include_role": {
                        "name": "gpu.fleet.nvidia_driver",
                        "tasks_from": f"{part}.yml",
                    },
                    "vars": {**fixed, **variables},
                }
                for part in ("plan", "select/main")
            ]
            + [{"ansible.builtin.set_fact": {f"case{number}": "{{ __nvidia_driver_selection.branch }}"}}],
            "rescue": [{"ansible.builtin.set_fact": {f"case{number}": "{{ ansible_failed_result.msg }}"}}],
        }
        for number, (variables, _expected) in enumerate(CASES.values())
    ]
    write = {
        "ansible.builtin.copy": {
            "content": "{{ [" + ", ".join(f"case{number}" for number in range(len(CASES))) + "] | to_json }}",
            "dest": str(directory / "outcomes.json"),
            "mode": "0644",
        }
    }
    play: dict[str, Any] = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [*tasks, write],
    }
    play["vars"] = {"ansible_python_interpreter": sys.executable}
    run_play(directory, play, env=roots("noble").environment)
    return dict(zip(CASES, json.loads((directory / "outcomes.json").read_text()), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_the_branch_or_its_refusal(case: str, outcomes: dict[str, str]) -> None:
    expected = CASES[case][1]
    assert outcomes[case] == expected if expected.isdecimal() else expected in outcomes[case]

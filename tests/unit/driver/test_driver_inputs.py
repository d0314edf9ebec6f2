# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What decides the state of a host's driver: each variable that does makes the role run again when it changes."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.unit.plays import LOAD_FILTERS, run_play

pytestmark = pytest.mark.plays

ROLE = ROOT / "roles" / "nvidia_driver"
OPTIONS = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
RUN_ONLY = {
    "nvidia_driver_disk_space_mib": "what this run checks",
    "nvidia_driver_imex_address": "an entry of the list that all hosts of the domain have, see imex_domain",
    "nvidia_driver_lock_timeout": "how long this run waits",
    "nvidia_driver_mok_password": "a secret of one run",
    "nvidia_driver_preflight": "what this run checks",
    "nvidia_driver_reboot": "what this run does at its end",
    "nvidia_driver_reboot_timeout": "how long this run waits",
    "nvidia_driver_reload": "what this run does at its end",
    "nvidia_driver_replace_unmanaged": "leave to remove what no record has",
    "nvidia_driver_rollback": "what this run does after a failure",
    "nvidia_driver_state": "the plan decides by it",
    "nvidia_driver_when_busy": "what this run does with GPUs that are in use",
    "nvidia_driver_upgrade": "work of each run",
}
FACTS = {
    "distribution": "Debian",
    "distribution_version": "13",
    "distribution_major_version": "13",
    "distribution_release": "trixie",
    "os_family": "Debian",
    "architecture": "x86_64",
    "kernel": "6.12.48+deb13-amd64",
    "nvidia_smi": {"pci_gpus": [{"device_id": "0x2335"}, {"device_id": "0x2335"}]},
}


def other(option: dict[str, Any]) -> Any:
    """A value of the option's type that is not its default."""
    if "choices" in option:
        value = next(choice for choice in option["choices"] if choice != option.get("default"))
        return [value] if option.get("type") == "list" else value
    if option.get("type", "str") == "bool":
        return not option["default"]
    return {"dict": {"other": 1}, "list": ["other"], "int": 7}.get(option.get("type", "str"), "other")


def inputs(directory: Path, given: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The hash of the inputs with each of these sets of variables."""
    tasks = [
        {
            "ansible.builtin.copy": {"content": "{{ __nvidia_driver_inputs }}", "dest": str(directory / name)},
            "vars": variables,
        }
        for name, variables in given.items()
    ]
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable, "ansible_facts": FACTS},
        "vars_files": [str(ROLE / "defaults" / "main.yml"), str(ROLE / "vars" / "main.yml")],
        "tasks": [LOAD_FILTERS, *tasks],
    }
    run_play(directory, play)
    return {name: (directory / name).read_text() for name in given}


def test_each_variable_that_decides_makes_the_role_run_again(tmp_path: Path) -> None:
    changed = {name: {name: other(option)} for name, option in OPTIONS.items()}
    found = inputs(tmp_path, {"defaults": {}, **changed})
    same = {name for name, value in found.items() if value == found["defaults"]} - {"defaults"}
    assert (same - {*RUN_ONLY}, {*RUN_ONLY} - same) == (set(), set())


def test_another_member_of_the_nvlink_domain_makes_the_role_run_again(tmp_path: Path) -> None:
    domain = ["10.0.7.1", "10.0.7.2"]
    tray = {"nvidia_driver_imex": "present"}
    facts = {"one": [], "two": domain, "three": [*domain, "10.0.7.3"]}
    given = {name: {**tray, "ansible_facts": {**FACTS, "imex_domain": nodes}} for name, nodes in facts.items()}
    assert len(set(inputs(tmp_path, given).values())) == 3


def test_a_host_that_version_1_0_0_recorded_is_converged(tmp_path: Path) -> None:
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    value = {name.removeprefix("nvidia_driver_"): of for name, of in defaults.items()}
    recorded = {
        "source": value["source"],
        "version": value["version"],
        "kernel_modules": value["kernel_modules"],
        "build": value["module_build"],
        "headless": value["headless"],
        "series": value["ubuntu_series"],
        "parts": [value["fabric_manager"], value["imex"], value["nvlink5"], value["imex_nodes"]],
        "persistence_daemon": value["persistence_daemon"],
        "pin": value["pin"],
        "hold_kernel": value["hold_kernel"],
        "runfile": [value["runfile_base_url"], value["runfile_url"], value["runfile_sha256"]],
        "local_repository": [value["local_repository"], value["local_repository_sha256"]],
        "secure_boot": [value["secure_boot"], value["mok_key"], value["mok_certificate"]],
        "repository": [{}, {}],
        "image_build": value["image_build"],
        "boot_kernel": value["boot_kernel"],
        "module_options": value["module_options"],
        "platform": ["Debian 13", "x86_64", FACTS["kernel"]],
        "gpus": ["0x2335"],
    }
    expected = hashlib.sha256(json.dumps(recorded, sort_keys=True).encode()).hexdigest()
    assert inputs(tmp_path, {"defaults": {}})["defaults"] == expected

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role refuses by its variables, the playbook refuses in the same words, and no module runs on the host."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import variables_of

from tests.unit.driver.plans import DEBIAN, EL, UBUNTU, facts
from tests.unit.plays import run_play
from tests.unit.site.known import check, known

pytestmark = pytest.mark.plays

JAMMY = {**UBUNTU, "distribution_version": "22.04", "distribution_major_version": "22"}
KEY = {"nvidia_driver_mok_key": "/etc/mok/mok.priv", "nvidia_driver_mok_certificate": "/etc/mok/mok.der"}
# Facts, variables, and a part of each refusal.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "version": (EL, {"nvidia_driver_version": "latest"}, ["nvidia_driver_version is latest; it has to be newest"]),
    "recommended": (DEBIAN, {"nvidia_driver_version": "recommended"}, ["source distribution on Ubuntu"]),
    "recommended of another source": (
        UBUNTU,
        {"nvidia_driver_version": "recommended"},
        ["nvidia_driver_source distribution on Ubuntu"],
    ),
    "no checksum": (
        UBUNTU,
        {"nvidia_driver_source": "runfile", "nvidia_driver_version": "580.95.05"},
        ["nvidia_driver_source is runfile, so nvidia_driver_runfile_url"],
    ),
    "no runfile": (
        UBUNTU,
        {"nvidia_driver_source": "runfile", "nvidia_driver_runfile_sha256": "0" * 64},
        ["or an exact nvidia_driver_version, and nvidia_driver_runfile_sha256 (64 hexadecimal digits) have to be set"],
    ),
    "no local repository": (
        EL,
        {"nvidia_driver_source": "local_repository", "nvidia_driver_local_repository_sha256": "0" * 64},
        ["nvidia_driver_local_repository and nvidia_driver_local_repository_sha256 (64 hexadecimal digits)"],
    ),
    "precompiled modules of a runfile": (
        EL,
        {
            "nvidia_driver_source": "runfile",
            "nvidia_driver_version": "580.95.05",
            "nvidia_driver_runfile_sha256": "0" * 64,
            "nvidia_driver_module_build": "precompiled",
        },
        ["a runfile always builds its modules on the host"],
    ),
    "a key that DKMS does not use": (JAMMY, KEY, ["the dkms of Ubuntu 22.04 signs modules with /var/lib/shim-signed"]),
    "options": (
        DEBIAN,
        {"nvidia_driver_module_options": {"debug": 1, "NVreg_X": "a b"}},
        ["nvidia_driver_module_options: debug is not the name", "nvidia_driver_module_options: NVreg_X is 'a b'"],
    ),
    "several": (
        JAMMY,
        {**KEY, "nvidia_driver_version": "58", "nvidia_driver_module_options": {"debug": 1}},
        ["nvidia_driver_version is 58;", "takes no other key", "debug is not the name"],
    ),
}


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the role ends with in each case, from one run of Ansible."""
    directory = tmp_path_factory.mktemp("refusals")
    hosts = {
        f"host{number}": {
            # Any module would fail with it.
            "ansible_python_interpreter": "/nonexistent",
            "ansible_connection": "local",
            "known": facts(system),
            **variables,
        }
        for number, (system, variables, _parts) in enumerate(CASES.values())
    }
    (directory / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    role = {"name": "gpu.fleet.nvidia_driver"}
    output = {"dest": str(directory / "{{ inventory_hostname }}"), "mode": "0644"}
    message = {"content": "{{ ansible_failed_result.msg }}", **output}
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars": {"ansible_facts": "{{ known }}", "__common_facts_are_read": True},
        "tasks": [
            {
                "block": [{"ansible.builtin.include_role": role}],
                "rescue": [
                    {"ansible.builtin.copy": message, "vars": {"ansible_python_interpreter": sys.executable}},
                ],
            }
        ],
    }
    run_play(directory, play, inventory=directory / "hosts.json")
    return {name: (directory / f"host{number}").read_text() for number, name in enumerate(CASES)}


@pytest.mark.parametrize("case", CASES)
def test_the_role_and_the_playbook_refuse_in_the_same_words(case: str, messages: dict[str, str]) -> None:
    system, variables, parts = CASES[case]
    host, _colon, message = messages[case].partition(": ")
    assert host.startswith("host")
    assert [part for part in parts if part not in message] == []
    files, roles = RoleData.read(), ["nvidia_driver"]
    found = check(roles, {**files.defaults(variables_of(roles)), **variables}, known(system))
    assert "; ".join(found.refusals) == message

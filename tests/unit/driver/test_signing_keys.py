# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Only a key that DKMS really signs with counts: that of shim-signed on Ubuntu 22.04, whatever is configured."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

OWN = {"nvidia_driver_mok_key": "/etc/mok/mok.priv", "nvidia_driver_mok_certificate": "/etc/mok/mok.der"}
SHIM_CERTIFICATE = "/var/lib/shim-signed/mok/MOK.der"
SHIM = {
    "nvidia_driver_mok_key": "/var/lib/shim-signed/mok/MOK.priv",
    "nvidia_driver_mok_certificate": SHIM_CERTIFICATE,
}
# Release of Ubuntu, variables; the certificates that are looked for in the firmware, whether DKMS is configured, and
# a part of the refusal.
CASES: dict[str, tuple[str, dict[str, str], list[str], bool, str]] = {
    "22.04 and a key of its own": (
        "22.04",
        OWN,
        [SHIM_CERTIFICATE],
        False,
        "the dkms of Ubuntu 22.04 signs modules with /var/lib/shim-signed/mok/MOK.priv and takes no other key",
    ),
    "22.04 and the key of shim": ("22.04", SHIM, [SHIM_CERTIFICATE], False, ""),
    "22.04 and no key": ("22.04", {}, [SHIM_CERTIFICATE], False, ""),
    "24.04 and a key of its own": ("24.04", OWN, ["/etc/mok/mok.der"], True, ""),
    "24.04 and no key": ("24.04", {}, ["/var/lib/dkms/mok.pub", SHIM_CERTIFICATE], False, ""),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the role decides for each case, from one run of Ansible."""
    directory = tmp_path_factory.mktemp("keys")
    hosts = {
        f"host{number}": {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "found": {
                "distribution": "Ubuntu",
                "distribution_version": release,
                "os_family": "Debian",
                "packages": {},
            },
            **variables,
        }
        for number, (release, variables, *_expected) in enumerate(CASES.values())
    }
    (directory / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    decided = (
        "{{ {'certificates': __nvidia_driver_signing_certificates, 'configures': __nvidia_driver_configures_signing,"
        " 'refusal': refusal | default('')} | to_json }}"
    )
    check = {
        "ansible.builtin.include_role": {"name": "gpu.fleet.nvidia_driver", "tasks_from": "check.yml", "public": True}
    }
    keep = {"ansible.builtin.set_fact": {"refusal": "{{ ansible_failed_result.msg }}"}}
    output = {"dest": str(directory / "{{ inventory_hostname }}.json"), "mode": "0644"}
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars": {"ansible_facts": "{{ found }}"},
        "tasks": [
            {"block": [check], "rescue": [keep]},
            {"ansible.builtin.copy": {"content": decided, **output}},
        ],
    }
    run_play(directory, play, inventory=directory / "hosts.json")
    return {name: json.loads((directory / f"host{number}.json").read_text()) for number, name in enumerate(CASES)}


@pytest.mark.parametrize("case", CASES)
def test_the_key_that_signs(case: str, outcomes: dict[str, dict[str, Any]]) -> None:
    _release, _variables, certificates, configures, refusal = CASES[case]
    found = outcomes[case]
    assert found["certificates"] == certificates
    assert found["configures"] is configures
    assert refusal in found["refusal"]
    assert bool(found["refusal"]) is bool(refusal)

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Under Secure Boot only a key that was really used counts: that of the module which DKMS built."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.module_signatures import (
    signature_problems as module_signatures,
)

from tests.unit.driver.plans import UBUNTU, facts
from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

# The form in which kmod prints a signature; the bytes of `signature` go on for lines.
SIGNED = """filename:       /lib/modules/6.8.0-60-generic/updates/dkms/nvidia.ko.zst
version:        580.95.05
sig_id:         PKCS#7
signer:         node17 Secure Boot Module Signature key
sig_key:        0A:2B:3C:4D
sig_hashalgo:   sha512
signature:      5C:1E:00:7F:
\t\tA0:01
"""
UNSIGNED = "filename:       /lib/modules/6.8.0-60-generic/updates/dkms/nvidia.ko\nversion:        580.95.05\n"
# A kmod that was built without OpenSSL.
KEY_UNKNOWN = SIGNED.replace("node17 Secure Boot Module Signature key", "").replace("0A:2B:3C:4D", "")
KERNEL = "6.8.0-60-generic"

CASES = {
    "signed with the trusted key": (SIGNED, ["serial=0A2B3C4D"], []),
    "a serial without its leading zero, in small letters": (SIGNED, ["serial=a2b3c4d"], []),
    "one of two keys": (SIGNED, ["serial=77", "serial=0A2B3C4D"], []),
    "another key": (
        SIGNED,
        ["serial=77"],
        [f"for kernel {KERNEL} is signed by node17 Secure Boot Module Signature key with the key 0A:2B:3C:4D"],
    ),
    "not signed": (UNSIGNED, ["serial=77"], [f"for kernel {KERNEL} is not signed"]),
    "not signed, and no certificate could be read": (UNSIGNED, [""], [f"for kernel {KERNEL} is not signed"]),
    "no certificate could be read": (SIGNED, [""], []),
    "kmod does not name the key": (KEY_UNKNOWN, ["serial=77"], []),
}


@pytest.mark.parametrize("case", CASES)
def test_signatures(case: str) -> None:
    printed, serials, problems = CASES[case]
    assert module_signatures({KERNEL: printed}, serials) == problems


def _program(path: Path, output: str) -> None:
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n")
    path.chmod(0o755)


def test_the_role_refuses_a_module_that_another_key_signed(tmp_path: Path) -> None:
    """DKMS of Ubuntu 22.04 signs with the key of shim-signed; the one that is enrolled is the user's."""
    hosts = {
        f"host{number}": {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "programs": str(tmp_path / f"bin{number}"),
            "expected": "; ".join(CASES[case][2]),
        }
        for number, case in enumerate(CASES)
    }
    for number, (printed, serials, _problems) in enumerate(CASES.values()):
        programs = tmp_path / f"bin{number}"
        programs.mkdir()
        _program(programs / "modinfo", printed)
        _program(programs / "openssl", serials[-1])
        _program(programs / "dkms", f"nvidia/580.95.05, {KERNEL}, x86_64: installed")
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    verify = {"name": "gpu.fleet.nvidia_driver", "tasks_from": "install/verify.yml"}
    refused = "ansible_failed_result.msg"
    play = {
        "hosts": "all",
        "gather_facts": False,
        "environment": {"PATH": "{{ programs }}:/usr/bin:/bin"},
        "vars": {
            "__nvidia_driver_selection": {
                "kernels": {"boot": KERNEL, "all": [KERNEL]},
                "secure_boot": {"is_on": True, "trusted": ["/etc/mok/mok.der"]},
                "packages": {"probe": "nvidia-utils-580", "driver": ["nvidia-utils-580"], "others": []},
                "version": "580.95.05",
                "requested": "580",
                "observed": {},
            },
            "ansible_facts": facts(UBUNTU, packages={"nvidia-utils-580": [{"version": "580.95.05-1"}]}),
        },
        "tasks": [
            {
                "block": [
                    {"ansible.builtin.include_role": verify},
                    {"ansible.builtin.assert": {"that": "expected == ''"}},
                ],
                "rescue": [
                    {
                        "ansible.builtin.assert": {
                            "that": ["expected != ''", f"expected in {refused}", f"'/etc/mok/mok.der' in {refused}"]
                        }
                    }
                ],
            },
        ],
    }
    run_play(tmp_path, play, inventory=tmp_path / "hosts.json")

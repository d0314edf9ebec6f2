# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of nvidia_driver's preflight on output of various hosts, evaluated in Ansible's own templates."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.plays import ansible_playbook

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles" / "nvidia_driver"

# Compiler in the kernel configuration of the header packages: gcc 12.3 of Ubuntu's newer kernel, 12.2 of Debian's,
# 11.4 of Rocky's, and a kernel built with clang.
UBUNTU_HWE, DEBIAN, ROCKY, CLANG = (f"CONFIG_GCC_VERSION={number}" for number in (120300, 120200, 110400, 0))

GPU = {"pci_bus_id": "00000000:06:00.0", "device_id": "0x2335", "class_id": "0x030200", "driver": None}
ENROLL = {
    "nvidia_driver_secure_boot": "enroll",
    "nvidia_driver_mok_key": "/k",
    "nvidia_driver_mok_certificate": "/c",
    "nvidia_driver_mok_password": "p",
}


def results(**changed: Any) -> dict[str, Any]:
    """Variables of a host without problems, with some changed; `kernel`, `gcc` and `free` are command output."""
    free = {"/usr": 90000, "/var": 90000, "/boot": 900, **changed.pop("free", {})}
    kernel, gcc = changed.pop("kernel", DEBIAN), changed.pop("gcc", "12")
    more = [{"path": f"/usr/bin/{name}"} for name in changed.pop("more", ())]
    needed = {"/usr": "3000", "/var": "1000", "/boot": "200"}
    variables = {
        "__nvidia_driver_gpus": [GPU],
        "__nvidia_driver_kernel_options": {"results": [{"stdout": "", "rc": 2}, {"stdout": kernel, "rc": 0}]},
        "__nvidia_driver_gcc": {"stdout": gcc},
        "__nvidia_driver_gcc_paths": {"files": more},
        "__nvidia_driver_disks": {
            "results": [
                {"item": {"key": place, "value": needed[place]}, "rc": 1, "stdout_lines": []}
                if space is None
                else {"item": {"key": place, "value": needed[place]}, "rc": 0, "stdout_lines": ["Avail", f" {space}"]}
                for place, space in free.items()
            ]
        },
        "__nvidia_driver_secure_boot_is_on": False,
        "__nvidia_driver_modules_are_trusted": False,
        "__nvidia_driver_download": {},
    }
    return {**variables, **changed}


# Variables of the host, and the expected problems: a part of each message.
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": (results(), []),
    "no GPU": (results(__nvidia_driver_gpus=[]), ["no NVIDIA GPU is on the PCI bus"]),
    "an image needs none": (results(__nvidia_driver_gpus=[], nvidia_driver_image_build=True), []),
    "older compiler": (
        results(kernel=UBUNTU_HWE, gcc="11"),
        ["missing: gcc 12"],
    ),
    "same compiler": (results(kernel=UBUNTU_HWE, gcc="12"), []),
    "newer compiler": (results(kernel=ROCKY, gcc="13"), []),
    "older compiler on Rocky": (results(kernel=ROCKY, gcc="8.5.0"), ["missing: gcc 11"]),
    "two digits are a number": (results(kernel=DEBIAN, gcc="9"), ["missing: gcc 12"]),
    "no compiler yet": (results(kernel=UBUNTU_HWE, gcc=""), []),
    "kernel of another compiler": (results(kernel=CLANG), []),
    "another compiler as well": (results(kernel=UBUNTU_HWE, gcc="11", more=("gcc-11", "gcc-12")), []),
    "precompiled modules": (
        results(__nvidia_driver_kernel_options={"skipped": True}, __nvidia_driver_gcc={}, __nvidia_driver_gcc_paths={}),
        [],
    ),
    "no headers yet": (results(kernel="", gcc="9"), []),
    "full /var": (results(free={"/var": 12}), ["/var has 12 MiB free, and 1000 are needed"]),
    "no /boot": (results(free={"/boot": None}), []),
    "full /boot and /usr": (
        results(free={"/usr": 2999, "/boot": 199}),
        ["/usr has 2999 MiB free, and 3000 are needed", "/boot has 199 MiB free, and 200 are needed"],
    ),
    "Secure Boot": (
        results(__nvidia_driver_secure_boot_is_on=True),
        ["Secure Boot is on, and the kernel loads no module that is not signed with an enrolled key; set"],
    ),
    "Secure Boot on Ubuntu": (
        results(__nvidia_driver_secure_boot_is_on=True, ansible_facts={"distribution": "Ubuntu"}),
        ["with nvidia_driver_module_build precompiled, whose modules Canonical signs, or set"],
    ),
    "Secure Boot on AlmaLinux": (
        results(__nvidia_driver_secure_boot_is_on=True, ansible_facts={"distribution": "AlmaLinux"}),
        ["use nvidia_driver_source distribution with nvidia_driver_module_build precompiled, whose modules AlmaLinux"],
    ),
    "Secure Boot, trusted": (
        results(__nvidia_driver_secure_boot_is_on=True, __nvidia_driver_modules_are_trusted=True),
        [],
    ),
    "Secure Boot, a key": (results(__nvidia_driver_secure_boot_is_on=True, **ENROLL), []),
    "Secure Boot, half a key": (
        results(__nvidia_driver_secure_boot_is_on=True, **{**ENROLL, "nvidia_driver_mok_password": ""}),
        ["nvidia_driver_mok_key, nvidia_driver_mok_certificate and nvidia_driver_mok_password have to be set"],
    ),
    "Secure Boot, a key for modules of others": (
        results(__nvidia_driver_secure_boot_is_on=True, nvidia_driver_module_build="precompiled", **ENROLL),
        ["set nvidia_driver_module_build to dkms"],
    ),
    "download is gone": (
        results(
            __nvidia_driver_download={"status": 404, "msg": "HTTP Error 404: Not Found"},
            __nvidia_driver_source_file="https://mirror.example.org/driver.run",
        ),
        ["https://mirror.example.org/driver.run cannot be downloaded: HTTP Error 404: Not Found"],
    ),
    "all at once": (
        results(__nvidia_driver_gpus=[], gcc="11", free={"/usr": 1}, __nvidia_driver_secure_boot_is_on=True),
        ["no NVIDIA GPU", "gcc 12", "/usr has 1 MiB", "Secure Boot"],
    ),
}


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The problems that the templates report for each case, from one Ansible run."""
    directory = tmp_path_factory.mktemp("preflight")
    # The plan refuses a compiler that cannot be had, or installs it: tests/unit/driver/test_driver_plan.py.
    missing = "{{ ['missing: gcc ' ~ __nvidia_driver_missing_compiler] if __nvidia_driver_missing_compiler else [] }}"
    common = {"__nvidia_driver_selection": {"reasons": missing}, "ansible_facts": {"distribution": "Debian"}}
    hosts = {f"case{number}": {**common, **variables} for number, (variables, _parts) in enumerate(CASES.values())}
    (directory / "inventory.json").write_text(json.dumps({"all": {"hosts": {name: {} for name in hosts}}}))
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars_files": [
            str(ROLE / "defaults/main.yml"),
            str(ROLE / "vars/main.yml"),
            str(ROLE / "vars/preflight.yml"),
            "{{ inventory_hostname }}.json",
        ],
        # base64, so that no callback can fold the message.
        "tasks": [{"ansible.builtin.debug": {"msg": "<{{ __nvidia_driver_problems | to_json | b64encode }}>"}}],
    }
    (directory / "play.yml").write_text(json.dumps([play]))
    for host, variables in hosts.items():
        (directory / f"{host}.json").write_text(json.dumps(variables))
    (directory / "ansible.cfg").touch()
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
        "ANSIBLE_CONFIG": str(directory / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "HOME": str(directory),
    }
    arguments = ("-c", "local", "-f", "1", "-i", "inventory.json", "play.yml")
    done = ansible_playbook(*arguments, env=environment, cwd=directory)
    assert done.returncode == 0, done.stdout + done.stderr
    message = dict(re.findall(r"^ok: \[case(\d+)\] => \{\s+\"msg\": \"<(.*)>\"", done.stdout, re.MULTILINE))
    return {name: json.loads(base64.b64decode(message[str(number)])) for number, name in enumerate(CASES)}


@pytest.mark.plays
@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong(case: str, problems: dict[str, list[str]]) -> None:
    parts = CASES[case][1]
    message = problems[case]
    assert [sentence for sentence in message if "\n" in sentence or "  " in sentence] == []
    assert len(message) == len(parts), message
    assert [part for part, sentence in zip(parts, message, strict=True) if part not in sentence] == [], message

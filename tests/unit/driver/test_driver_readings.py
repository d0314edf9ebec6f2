# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stages of the driver ask for before they plan, and what they make of failed readings."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Ask, RequestError

from tests.unit.driver.plans import DEBIAN, EL, UBUNTU, asked, facts
from tests.unit.plays import run_play

_ON = {"content": "BgAAAAE="}
"""SecureBoot with a value of 1."""


def words(one: Any) -> str:
    """A reading in words: the program with its arguments, or the module with its path."""
    if isinstance(one, list):
        return ", ".join(map(words, one))
    module, arguments = one
    return " ".join(arguments["argv"][2:]) if module == "command" else f"{module} {arguments.get('path') or arguments}"


def readings(
    name: str, host: dict[str, Any], found: Mapping[str, Any] | None = None, **variables: Any
) -> dict[str, str]:
    result = asked(name, host, dict(found or {}), **variables)
    assert isinstance(result, Ask)
    return {one: words(reading) for one, reading in result.readings.items()}


def test_only_what_the_system_has_is_read() -> None:
    assert {*readings("observed", facts(DEBIAN))} == {"sources", "boot"}
    assert {*readings("observed", facts(EL))} == {"grubby", "boot"}
    assert {*readings("observed", facts(DEBIAN), nvidia_driver_boot_kernel="6.1")} == {"sources"}
    assert {*readings("observed", facts(DEBIAN), nvidia_driver_state="absent")} == {"sources"}


def test_a_driver_that_is_only_loaded_may_have_been_removed_by_the_role() -> None:
    host = facts(DEBIAN, "580.95.05")
    host["cuda"]["driver"] |= {"library_version": None, "module_version": None}
    host["nvidia_smi"] |= {"available": False, "reason": "no_nvidia_smi"}
    assert readings("observed", host)["removal"] == "stat /run/gpu-fleet/nvidia_driver-580.95.05.removed"


def test_compilers_follow_the_kernels() -> None:
    kernel = "6.12.60+deb13-amd64"
    found = {"sources": {"stdout_lines": ["bash\tbash"]}, "boot": {"files": [{"path": f"/boot/vmlinuz-{kernel}"}]}}
    then = readings("observed", facts(DEBIAN), found)
    assert then["kernel_options"].count("grep ^CONFIG_GCC_VERSION=") == 2
    assert f"/lib/modules/{kernel}/build/.config" in then["kernel_options"]
    assert then["gcc"] == "gcc -dumpversion"
    result = asked("observed", facts(DEBIAN), {**found, "kernel_options": {}, "gcc": {}, "compilers": {}})
    assert (result["boot"], result["observed"]["boot_kernel"]) == (kernel, kernel)
    assert result["observed"]["sources"] == ["bash\tbash"]
    precompiled = asked("observed", facts(DEBIAN), found, nvidia_driver_module_build="precompiled")
    assert precompiled["all"] == [DEBIAN["kernel"], kernel]


@pytest.mark.parametrize("name", ["sources", "boot"])
def test_packages_that_cannot_be_read_are_no_reason_to_remove_any(name: str) -> None:
    found: dict[str, Any] = {"sources": {}, "boot": {}, "kernel_options": {}, "gcc": {}, "compilers": {}}
    with pytest.raises(RequestError, match="packages and kernels cannot be read: dpkg-query: error"):
        asked("observed", facts(DEBIAN), {**found, name: {"failed": True, "stderr": "dpkg-query: error\n"}})


def test_a_recommendation_is_asked_for_with_the_packages() -> None:
    given = {"nvidia_driver_source": "distribution", "nvidia_driver_version": "recommended"}
    found = {"is_complete": False, "with_companions": True}
    read = readings("select", facts(UBUNTU), found, **given)
    assert read["recommended"] == "ubuntu-drivers list --recommended --gpgpu"
    # Of a driver that is there, the role first decides whether it stays.
    assert "recommended" not in readings("select", facts(UBUNTU), {**found, "with_companions": False}, **given)


def test_what_is_listed_follows_from_what_is_shown() -> None:
    found = {"is_complete": True, "with_companions": True}
    first = readings("select", facts(DEBIAN), found, nvidia_driver_version="580")
    assert first["shown"].startswith("apt-cache show ")
    shown = {"stdout": "Package: nvidia-driver-cuda\n\nPackage: nvidia-kernel-open-dkms\n"}
    then = readings("select", facts(DEBIAN), {**found, "shown": shown}, nvidia_driver_version="580")
    assert then == {"listed": "apt-cache policy nvidia-driver-cuda nvidia-kernel-open-dkms"}
    # With dnf only modules that a kernel has to fit are asked for.
    own = {"nvidia_driver_source": "distribution", "nvidia_driver_module_build": "precompiled"}
    of_dnf = readings("select", facts({**EL, "distribution": "AlmaLinux"}), found, **own)
    assert of_dnf["listed"].startswith("dnf --quiet repoquery ")


def test_keys_are_tested_only_with_secure_boot() -> None:
    found: dict[str, Any] = {"directory": "/sys/firmware/efi/efivars"}
    assert "/sys/firmware/efi/efivars/SecureBoot-8be4df61" in readings("secure_boot", facts(DEBIAN), found)["variable"]
    keys = readings("secure_boot", facts(DEBIAN), {**found, "variable": _ON})["keys"]
    assert keys.startswith("mokutil --test-key /var/lib/dkms/mok.pub, mokutil --test-key /")
    results = [{"stdout": "/var/lib/dkms/mok.pub is already enrolled", "rc": 1}, {"stdout": "", "rc": 0}]
    state = asked("secure_boot", facts(DEBIAN), {**found, "variable": _ON, "keys": {"results": results}})
    assert (state["is_trusted"], state["trusted"]) == (True, ["/var/lib/dkms/mok.pub"])
    without = {"results": [{"stderr": "env: mokutil: No such file or directory", "failed": True}]}
    state = asked("secure_boot", facts(DEBIAN), {**found, "variable": _ON, "keys": without})
    assert (state["is_trusted"], state["lacks_mokutil"]) == (False, True)


def test_a_host_without_uefi_has_no_secure_boot_and_one_that_cannot_be_read_is_refused() -> None:
    state = asked("secure_boot", facts(DEBIAN), {"variable": {"failed": True, "msg": "file not found: /sys/x"}})
    assert state["is_on"] is False
    with pytest.raises(RequestError, match="SecureBoot cannot be read: Permission denied"):
        asked("secure_boot", facts(DEBIAN), {"variable": {"failed": True, "msg": "Permission denied"}})


def test_a_download_is_tried_before_the_first_change() -> None:
    free = ", ".join(f"df --output=avail --block-size=1M {path}" for path in ("/usr", "/var", "/boot"))
    assert readings("preflight", facts(DEBIAN)) == {"disks": free}
    given = {"nvidia_driver_source": "runfile", "nvidia_driver_version": "580.95.05"}
    url = readings("preflight", facts(DEBIAN), {}, **given)["download"]
    assert "https://us.download.nvidia.com/tesla/580.95.05/NVIDIA-Linux-x86_64-580.95.05.run" in url
    found = {
        "disks": {"results": [{"rc": 1}] * 3},
        "secure_boot": {"is_on": False, "is_trusted": False},
        "selection": {"reasons": [], "unknowns": [], "notes": []},
        "download": {"failed": True, "msg": "unknown url type"},
    }
    result = asked("preflight", facts(DEBIAN), found, **given)
    assert "cannot be downloaded: unknown url type" in result["problems"][0]


def test_an_upgrade_is_simulated_where_packages_have_to_stay() -> None:
    assert readings("upgrade", facts(DEBIAN), {"names": ["nvidia-driver"]}) == {
        "simulation": "apt-get --simulate dist-upgrade"
    }
    assert asked("upgrade", facts(DEBIAN), {"names": []}) == {"changed_packages": []}


@pytest.mark.parametrize(("name", "found"), [("dkms", {}), ("upgrade", {"names": ["nvidia-driver"]})])
def test_a_program_that_fails_proves_nothing(name: str, found: dict[str, Any]) -> None:
    (reading,) = readings(name, facts(DEBIAN), found)
    for failed in ({"rc": 100, "stderr": "E: broken packages"}, {"failed": True, "msg": "E: broken packages"}):
        with pytest.raises(RequestError, match="fails: E: broken packages"):
            asked(name, facts(DEBIAN), {**found, reading: failed})


def test_headers_and_options_are_read_by_the_kernel() -> None:
    read = readings("headers", facts(DEBIAN), {"kernels": ["6.1", "6.12"]})
    assert read == {"headers": "stat /lib/modules/6.1/build/Makefile, stat /lib/modules/6.12/build/Makefile"}
    given = {"nvidia_driver_module_options": {"NVreg_EnableGpuFirmware": 0}}
    assert readings("options", facts(DEBIAN), {"boot": "6.12"}, **given) == {"known": "modinfo -k 6.12 -F parm nvidia"}
    assert asked("options", facts(DEBIAN), {"boot": "6.12"}) == {"unknown": []}


class _Mirror(BaseHTTPRequestHandler):
    """Has one runfile."""

    def do_HEAD(self) -> None:
        self.send_response(200 if "580.95.05" in self.path else 404)
        self.end_headers()

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.mark.plays
@pytest.mark.parametrize("check_mode", [False, True])
def test_role_plan_reads_what_stages_ask_for(check_mode: bool, tmp_path: Path) -> None:
    """Secure Boot is on and the key is enrolled; of two versions one can be downloaded."""
    programs, efi = tmp_path / "bin", tmp_path / "efi"
    programs.mkdir()
    efi.mkdir()
    (efi / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(b"\x06\0\0\0\x01")
    for name, lines in {
        "mokutil": '[ "$LC_ALL" = C.UTF-8 ] && echo "$2 is already enrolled"',
        "gcc": "echo 14",
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{lines}\n")
        (programs / name).chmod(0o755)
    mirror = ThreadingHTTPServer(("127.0.0.1", 0), _Mirror)
    Thread(target=mirror.serve_forever, daemon=True).start()
    given = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "nvidia_driver_source": "runfile",
        "nvidia_driver_runfile_base_url": f"http://127.0.0.1:{mirror.server_address[1]}",
        "nvidia_driver_runfile_sha256": "0" * 64,
        "nvidia_driver_kernel_modules": "open",
        "nvidia_driver_disk_space_mib": 0,
        "nvidia_driver_boot_kernel": "6.12.60+deb13-amd64",
        "result": str(tmp_path / "{{ inventory_hostname }}.json"),
    }
    versions = {"there": "580.95.05", "gone": "580.105.08"}
    hosts = {name: {**given, "nvidia_driver_version": version} for name, version in versions.items()}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    role = {"name": "gpu.fleet.nvidia_driver", "public": True}
    parts = ("plan", "select/observe", "select/plan", "select/preflight")
    names = {
        "kernels": "__nvidia_driver_kernels.all",
        "gcc": "__nvidia_driver_observed.gcc.stdout",
        "trusted": "__nvidia_driver_secure_boot.trusted",
        "version": "__nvidia_driver_selection.version",
    }
    found = "{{ {" + ", ".join(f"'{name}': {value}" for name, value in names.items()) + "} | to_json }}"
    output = {"dest": "{{ result }}", "mode": "0644"}
    play = {
        "hosts": "all",
        "gather_facts": False,
        "environment": {"PATH": f"{programs}:/usr/bin:/bin"},
        "vars": {"ansible_facts": facts(DEBIAN), "__common_facts_are_read": True},
        "tasks": [
            {
                "block": [
                    *({"ansible.builtin.include_role": {**role, "tasks_from": f"{part}.yml"}} for part in parts),
                    {"ansible.builtin.copy": {"content": found, **output}, "check_mode": False},
                ],
                "rescue": [
                    {
                        "ansible.builtin.copy": {"content": "{{ ansible_failed_result.msg }}", **output},
                        "check_mode": False,
                    }
                ],
            }
        ],
    }
    try:
        options = ["-e", f"__nvidia_driver_efi_variables={efi}", *(["--check"] if check_mode else [])]
        run_play(tmp_path, play, *options, inventory=tmp_path / "hosts.json")
    finally:
        mirror.shutdown()
    assert json.loads((tmp_path / "there.json").read_text()) == {
        "kernels": [DEBIAN["kernel"], "6.12.60+deb13-amd64"],
        "gcc": "14",
        "trusted": ["/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der"],
        "version": "580.95.05",
    }
    message = (tmp_path / "gone.json").read_text()
    assert "580.105.08.run cannot be downloaded: HTTP Error 404: Not Found" in message

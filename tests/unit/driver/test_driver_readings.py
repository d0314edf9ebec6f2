# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stages of the driver ask for before they plan, and what they make of failed readings."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Ask, RequestError

from tests.unit.driver.plans import CONFIGURED, DEBIAN, EL, UBUNTU, asked, facts, removed
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
    assert {*readings("select", facts(DEBIAN))} == {"sources", "boot"}
    assert {*readings("select", facts(EL))} == {"grubby", "boot"}
    assert {*readings("select", facts(DEBIAN), nvidia_driver_boot_kernel="6.1")} == {"sources"}
    assert {*removed(facts(DEBIAN), {}).readings} == {"sources"}


def test_a_driver_that_is_only_loaded_may_have_been_removed_by_the_role() -> None:
    host = facts(DEBIAN, "580.95.05")
    host["cuda"]["driver"] |= {"library_version": None, "module_version": None}
    host["nvidia_smi"] |= {"available": False, "reason": "no_nvidia_smi"}
    assert readings("select", host)["removal"] == "stat /run/gpu-fleet/nvidia_driver-580.95.05.removed"


def through(name: str, host: dict[str, Any], found: Mapping[str, Any], **variables: Any) -> tuple[list[str], Any]:
    """What a stage asks for, with nothing as result of what `found` does not have, and what it returns."""
    known, read = dict(found), []
    result = asked(name, host, known, **variables)
    while isinstance(result, Ask):
        read += [words(one) for one in result.readings.values()]
        known |= dict.fromkeys(result.readings, _NOTHING)
        result = asked(name, host, known, **variables)
    return read, result


_NOTHING: dict[str, Any] = {"results": [{}] * 3}
_KERNEL = "6.12.60+deb13-amd64"
_READ: dict[str, Any] = {
    "sources": {"stdout_lines": ["bash\tbash"]},
    "boot": {"files": [{"path": f"/boot/vmlinuz-{_KERNEL}"}]},
    "directory": "/sys/firmware/efi/efivars",
    "variable": {"failed": True, "msg": "file not found: /sys/x"},
}


def test_compilers_follow_the_kernels() -> None:
    then = readings("select", facts(DEBIAN), _READ)
    assert then["kernel_options"].count("grep ^CONFIG_GCC_VERSION=") == 2
    assert f"/lib/modules/{_KERNEL}/build/.config" in then["kernel_options"]
    assert then["gcc"] == "gcc -dumpversion"
    _read, result = through("select", facts(DEBIAN), _READ)
    assert (result["kernels"]["boot"], result["observed"]["boot_kernel"]) == (_KERNEL, _KERNEL)
    assert result["observed"]["sources"] == ["bash\tbash"]
    read, _refused = through("select", facts(DEBIAN), _READ, nvidia_driver_module_build="precompiled")
    assert "gcc -dumpversion" not in read
    assert result["kernels"]["all"] == [DEBIAN["kernel"], _KERNEL]


@pytest.mark.parametrize("name", ["sources", "boot"])
def test_packages_that_cannot_be_read_are_no_reason_to_remove_any(name: str) -> None:
    found: dict[str, Any] = {"sources": {}, "boot": {}, "kernel_options": {}, "gcc": {}, "compilers": {}}
    failed = {**found, name: {"failed": True, "stderr": "dpkg-query: error\n"}}
    for stage in (partial(asked, "select"), removed):
        with pytest.raises(RequestError, match="packages and kernels cannot be read: dpkg-query: error"):
            stage(facts(DEBIAN), failed)


@pytest.mark.parametrize("name", ["fabric", "containers"])
def test_a_module_that_fails_is_a_refusal(name: str) -> None:
    with pytest.raises(RequestError, match=r"^the switches do not respond$"):
        through("select", facts(DEBIAN), {**_READ, name: {"failed": True, "msg": "the switches do not respond"}})


def test_a_driver_that_is_there_is_read_without_companions_first() -> None:
    host = facts(UBUNTU, "570.95.05")
    given = {"nvidia_driver_source": "distribution", "nvidia_driver_version": "570"}
    read, kept = through("select", host, _READ, **given)
    assert (kept["is_kept"], kept["report"]) == (True, [kept["note"]])
    assert not [one for one in read if one.startswith(("gpu.fleet.", "df ", "slurp "))], "it is left alone"
    refused = through("select", host, _READ, **{**given, "nvidia_driver_version": "580"})[1]
    assert "does not fit: version 580 with auto kernel modules is requested" in refused.refusals[0]
    replaced = through("select", host, _READ, **given, nvidia_driver_replace_unmanaged=True)[1]
    assert (replaced["is_kept"], replaced["loaded_before"]) == (False, "570.95.05")


def test_a_recommendation_is_asked_for_with_the_packages() -> None:
    given = {"nvidia_driver_source": "distribution", "nvidia_driver_version": "recommended"}
    recommended = "ubuntu-drivers list --recommended --gpgpu"
    assert recommended in through("select", facts(UBUNTU), _READ, **given)[0]
    # Of a driver that is there, the role first decides whether it stays.
    read, _result = through("select", facts(UBUNTU, "570.95.05"), _READ, **given)
    assert recommended not in read


def test_what_is_listed_follows_from_what_is_shown() -> None:
    found = {"check_mode": False, "selection": {"observed": {}}}
    first = readings("change", facts(DEBIAN), found, nvidia_driver_version="580")
    assert first["shown"].startswith("apt-cache show ")
    shown = {"stdout": "Package: nvidia-driver-cuda\n\nPackage: nvidia-kernel-open-dkms\n"}
    then = readings("change", facts(DEBIAN), {**found, "shown": shown}, nvidia_driver_version="580")
    assert then == {"listed": "apt-cache policy nvidia-driver-cuda nvidia-kernel-open-dkms"}
    # With dnf only modules that a kernel has to fit are asked for.
    own = {"nvidia_driver_source": "distribution", "nvidia_driver_module_build": "precompiled"}
    of_dnf = readings("change", facts({**EL, "distribution": "AlmaLinux"}), found, **own)
    assert of_dnf["listed"].startswith("dnf --quiet repoquery ")


_ENROLL = {
    "nvidia_driver_secure_boot": "enroll",
    "nvidia_driver_mok_key": "/k",
    "nvidia_driver_mok_certificate": "/c",
    "nvidia_driver_mok_password": "p",
}


def secure_boot(**found: Any) -> dict[str, Any]:
    return through("select", facts(DEBIAN), {**_READ, **found}, **_ENROLL)[1]["secure_boot"]  # type: ignore[no-any-return]


def test_keys_are_tested_only_with_secure_boot() -> None:
    read, _result = through("select", facts(DEBIAN), _READ)
    assert not [one for one in read if one.startswith("mokutil")]
    read, _result = through("select", facts(DEBIAN), {**_READ, "variable": _ON}, **_ENROLL)
    assert [one for one in read if one.startswith("mokutil --test-key ")]
    state = secure_boot(variable=_ON, keys={"results": [{"stdout": "/c is already enrolled", "rc": 1}]})
    assert (state["is_trusted"], state["trusted"]) == (True, ["/c"])
    without = {"results": [{"stderr": "env: mokutil: No such file or directory", "failed": True}]}
    state = secure_boot(variable=_ON, keys=without)
    assert (state["is_trusted"], state["lacks_mokutil"]) == (False, True)
    assert state["awaits_enrollment"]


def test_a_host_without_uefi_has_no_secure_boot_and_one_that_cannot_be_read_is_refused() -> None:
    assert secure_boot()["is_on"] is False
    unread = {key: value for key, value in _READ.items() if key != "variable"}
    assert any("efivars/SecureBoot-8be4df61" in one for one in through("select", facts(DEBIAN), unread)[0])
    with pytest.raises(RequestError, match="SecureBoot cannot be read: Permission denied"):
        secure_boot(variable={"failed": True, "msg": "Permission denied"})


def test_a_download_is_tried_before_the_first_change() -> None:
    free = ", ".join(f"df --output=avail --block-size=1M {path}" for path in ("/usr", "/var", "/boot"))
    assert through("select", facts(DEBIAN), _READ)[0][-1] == free
    given = {"nvidia_driver_source": "runfile", "nvidia_driver_version": "580.95.05"}
    given["nvidia_driver_runfile_sha256"] = "0" * 64
    gone = {**_READ, "download": {"failed": True, "msg": "unknown url type"}}
    read, result = through("select", facts(DEBIAN), _READ, **given)
    assert "https://us.download.nvidia.com/tesla/580.95.05/NVIDIA-Linux-x86_64-580.95.05.run" in read[-1]
    (refusal,) = through("select", facts(DEBIAN), gone, **given)[1].refusals
    assert refusal.startswith("the driver cannot be installed, and nothing was changed: ")
    assert "cannot be downloaded: unknown url type" in refusal
    read, result = through("select", facts(DEBIAN), gone, **given, nvidia_driver_preflight=False)
    assert free not in read and not result["refusals"]


_JOB = {"name": "python3", "pid": 4711, "device": "/dev/nvidia0", "stop": None}


def test_what_uses_the_driver_is_read_only_where_it_is_replaced() -> None:
    host = facts(UBUNTU, "570.95.05", packages={"nvidia-utils-570-server": [{"version": "570.95.05-1"}]})
    host["gpu_fleet_managed"] = {"nvidia_driver": {"drift": [], "data": {"source": "distribution"}}}
    selection = {
        **through("select", host, _READ, nvidia_driver_version="580", nvidia_driver_source="distribution")[1],
        "observed": {},
    }
    undo = {"install": ["nvidia-utils-570-server=570.95.05-1"]}
    given = {"check_mode": True, "selection": selection, "preview": {"undo": undo, "removed": []}}
    assert readings("change", host, given) == {"in_use": "gpu.fleet.driver_reload {}"}
    refused = asked("change", host, {**given, "in_use": {"users": [_JOB]}})
    assert refused.refusals[0].startswith(
        "GPUs are in use, and the driver was not changed: python3 (PID 4711) holds /dev/nvidia0; would be replaced or "
        "removed: nvidia-utils-570-server. Stop what uses the GPUs"
    )
    deferred = asked("change", host, {**given, "in_use": {"users": [_JOB]}}, nvidia_driver_when_busy="defer")
    assert (deferred["is_made"], "is deferred to a later run" in deferred["deferral"]) == (False, True)
    nothing = {**given, "preview": {"undo": {"install": []}, "removed": []}}
    assert asked("change", host, nothing)["deferral"] == ""
    failed = {**given, "preview": {"refused": True, "msg": "no room", "unavailable": ["a"]}}
    (refusal,) = asked("change", host, failed).refusals
    assert refusal == (
        "the driver was not changed: no room; to change the driver without a rollback, set nvidia_driver_rollback to "
        "if_possible"
    )


def test_an_upgrade_is_simulated_where_packages_have_to_stay() -> None:
    """And refused where it changes them, in one message with what the kernel module does not know."""
    held = {**CONFIGURED["installation"], "held": ["nvidia-driver"], "kernel_held": ["linux-image-amd64"]}
    found = {**CONFIGURED, "installation": held}
    assert readings("configured", facts(DEBIAN), found) == {"upgrade": "apt-get --simulate dist-upgrade"}
    lines = ["Inst nvidia-driver [1] (2)", "Inst bash [1] (2)", "Remv linux-image-amd64 [1]"]
    refused = asked("configured", facts(DEBIAN), {**found, "upgrade": {"rc": 0, "stdout_lines": lines}}).refusals
    assert "the driver is pinned, but an upgrade would change nvidia-driver; check" in refused[0]
    assert "hold_kernel is set, but an upgrade would change linux-image-amd64; see `apt-mark showhold`" in refused[1]
    assert {*readings("configured", facts(DEBIAN), CONFIGURED)} == {"units"}


def test_locks_of_dnf_are_read_back() -> None:
    found = {**CONFIGURED, "installation": {**CONFIGURED["installation"], "held": ["nvidia-driver", "kmod-nvidia"]}}
    assert readings("configured", facts(EL), found) == {"upgrade": "dnf --quiet check-update nvidia-driver kmod-nvidia"}
    newer = {"rc": 100, "failed": True, "stdout_lines": ["", "nvidia-driver.x86_64 3:590 cuda"]}
    (refusal,) = asked("configured", facts(EL), {**found, "upgrade": newer}).refusals
    assert refusal.startswith("the driver is locked, but an upgrade would change it: nvidia-driver.x86_64 3:590 cuda; ")
    with pytest.raises(RequestError, match="`dnf check-update` fails: no network"):
        asked("configured", facts(EL), {**found, "upgrade": {"rc": 1, "failed": True, "stderr": "no network"}})


_INSTALLED: dict[str, Any] = {
    "is_built": False,
    "selection": {
        **CONFIGURED["selection"],
        "observed": {},
        "packages": {"probe": "nvidia-driver-cuda", "driver": ["nvidia-driver-cuda"], "others": []},
        "version": "580.95.05",
        "requested": "580",
        "kernels": {"boot": "6.12", "all": ["6.12"]},
        "secure_boot": {"is_on": False, "trusted": ["/c"]},
    },
}


def test_modules_are_built_once_and_verified() -> None:
    host = facts(DEBIAN, packages={"nvidia-driver-cuda": [{"version": "580.95.05-1"}]})
    status = {"rc": 0, "stdout_lines": ["nvidia/580.95.05, 6.11, x86_64: installed"]}
    found = {**_INSTALLED, "status": status}
    assert asked("installed", host, found)["missing"] == ["6.12"]
    (refusal,) = asked("installed", host, {**found, "is_built": True}).refusals
    assert refusal == (
        "DKMS did not build the modules of driver 580.95.05 for kernel 6.12 (dkms status: nvidia/580.95.05, 6.11, "
        "x86_64: installed)"
    )
    built = {**_INSTALLED, "status": {"rc": 0, "stdout_lines": ["nvidia/580.95.05, 6.12, x86_64: installed"]}}
    assert readings("installed", host, built) == {"driver": "gpu.fleet.cuda_facts {}"}
    own = {"library_version": "570.1", "library_path": "/usr/lib/libcuda.so.570.1"}
    other = {"ansible_facts": {"cuda": {"driver": own}}}
    (refusal,) = asked("installed", host, {**built, "driver": other}).refusals
    assert refusal.startswith(
        "the libraries are of driver 570.1 (/usr/lib/libcuda.so.570.1), the packages of 580.95.05"
    )
    mixed = {**host, "packages": {"nvidia-driver-cuda": [{"version": "570.1-1"}]}}
    (refusal,) = asked("installed", mixed, _INSTALLED).refusals
    assert refusal.startswith("the packages installed 570.1 instead of 580.95.05")


@pytest.mark.parametrize(
    ("name", "reading", "found"),
    [
        ("installed", "status", _INSTALLED),
        (
            "configured",
            "upgrade",
            {**CONFIGURED, "installation": {**CONFIGURED["installation"], "held": ["nvidia-driver"]}},
        ),
    ],
)
def test_a_program_that_fails_proves_nothing(name: str, reading: str, found: dict[str, Any]) -> None:
    host = facts(DEBIAN, packages={"nvidia-driver-cuda": [{"version": "580.95.05-1"}]})
    assert [*readings(name, host, found)] == [reading]
    for failed in ({"rc": 100, "stderr": "E: broken packages"}, {"failed": True, "msg": "E: broken packages"}):
        with pytest.raises(RequestError, match="fails: E: broken packages"):
            asked(name, host, {**found, reading: failed})


def test_options_are_read_by_the_kernel_that_boots_next() -> None:
    given = {"nvidia_driver_module_options": {"NVreg_EnableGpuFirmware": 0}}
    assert readings("configured", facts(DEBIAN), CONFIGURED, **given) == {"known": "modinfo -k 6.12 -F parm nvidia"}


def test_what_the_build_needs_is_read_before_the_change() -> None:
    host, state = facts(EL), {"is_on": True, "checks_key": True, "configures_signing": True, "has_dkms": True}
    read, selection = through("select", host, {**_READ, "boot": {"files": []}}, nvidia_driver_version="580")
    known = {"check_mode": False, "selection": {**selection, "observed": {}, "secure_boot": state}}
    known["preview"] = {"undo": {"install": []}, "removed": []}
    known["headers"] = {"results": [{"stat": {"exists": False}}]}
    given = {"nvidia_driver_version": "580"}
    read, _result = through("change", host, {**known, "status": {"rc": 0}}, **given)
    assert read[-1] == "dnf {'list': 'dkms'}"
    status = {"rc": 0, "stdout_lines": ["nvidia/580.1, 6.1, x86_64: installed"]}
    none = asked("change", host, {**known, "listed": {}, "dkms_offered": {"results": []}, "status": status}, **given)
    assert (none["adds_epel"], none["builds"]) == (True, [["nvidia", "580.1", "6.1"]])
    assert none["headers"]["packages"] == [f"kernel-devel-{EL['kernel']}"]
    own = {"results": [{"repo": "epel"}]}
    assert not asked("change", host, {**known, "listed": {}, "dkms_offered": own, "status": status}, **given)[
        "adds_epel"
    ]


def test_the_build_log_is_part_of_the_failure() -> None:
    found = {**_INSTALLED, "host": "gpu1", "with_stderr": False, "transaction": {"changed": True, "undo": {"a": 1}}}
    found["error"] = {"msg": "gpu1: DKMS did not build"}
    host = facts(DEBIAN)
    assert [*readings("failure", host, found)] == ["logs"]
    found["logs"] = {"files": [{"path": "/new", "mtime": 2}, {"path": "/old", "mtime": 1}]}
    assert readings("failure", host, found)["end"] == "tail --lines=15 /new"
    result = asked("failure", host, {**found, "errors": {}, "end": {"stdout_lines": [" a ", "", "b", "a"]}})
    assert result["output"] == "; output of the last module build: a / b"
    assert (result["why"], result["undo"], result["was_changed"]) == ("DKMS did not build", {"a": 1}, True)
    assert asked("failure", host, {**found, "logs": {"files": []}})["output"] == ""
    begun = {"msg": "no space", "begun": False, "undo": {}, "stderr": "x " * 250}
    result = asked("failure", host, {**found, "logs": {}, "error": begun, "with_stderr": True})
    assert (result["was_changed"], result["undo"]) == (False, {})
    assert result["why"].startswith("no space x x ") and result["why"].endswith(" x...") and len(result["why"]) < 410
    assert result["as_is"] == ""


def test_nothing_is_rolled_back_after_a_module_that_did_not_report() -> None:
    """As ansible-core reports a module that the kernel has killed: of what it has changed nothing is known."""
    killed = {"failed": True, "msg": "No start of json char found", "module_stdout": "", "module_stderr": "Killed\n"}
    found = {**_INSTALLED, "host": "gpu1", "with_stderr": False, "transaction": {"changed": False}, "logs": {}}
    result = asked("failure", facts(DEBIAN), {**found, "error": {**killed, "rc": 137}})
    assert result["why"] == "a module was killed or crashed (status 137)"
    assert result["as_is"].startswith("nothing was rolled back")
    crashed = {"failed": True, "msg": "'NoneType' has no len()"}
    result = asked("failure", facts(DEBIAN), {**found, "transaction": crashed, "error": crashed})
    assert result["as_is"].startswith("nothing was rolled back")
    refused = {**crashed, "begun": False}
    assert asked("failure", facts(DEBIAN), {**found, "transaction": refused, "error": refused})["as_is"] == ""


def test_a_reboot_that_cannot_help_is_refused() -> None:
    host = facts(DEBIAN, "580.95.05")
    assert readings("reboot", host) == {"previous": "slurp {'src': '/var/lib/gpu-fleet/nvidia_driver.reboot'}"}
    found: dict[str, Any] = {"why": "a job", "previous": {"failed": True, "msg": "file not found: /x"}}
    found["boot"] = {"files": [{"path": "/boot/vmlinuz-6.1"}]}
    assert readings("reboot", host, found)["module"] == "modinfo -k 6.1 -F version nvidia"
    assert asked("reboot", host, {**found, "module": {"rc": 0}}).refusals == ()
    (refusal,) = asked("reboot", host, {**found, "module": {"rc": 1}}).refusals
    assert "the kernel that boots next, 6.1, has no module of this driver" in refusal
    again = {**found, "previous": {"content": base64.b64encode(b"driver 580.95.05\n").decode()}}
    (refusal,) = asked("reboot", host, again).refusals
    assert refusal.startswith("driver 580.95.05 is not loaded (a job) although the host was rebooted for it; see ")
    with pytest.raises(RequestError, match="the previous reboot cannot be read: denied"):
        asked("reboot", host, {**found, "previous": {"failed": True, "msg": "denied"}})


def test_users_and_containers_are_read_before_a_removal_of_all() -> None:
    assert readings("in_use", {}) == {"processes": "gpu.fleet.driver_reload {}"}
    assert readings("in_use", {}, {"processes": {"users": []}}) == {"containers": "gpu.fleet.systemd_reload {}"}
    containers = {"containers": [{"engine": "docker", "name": "training"}]}
    (refusal,) = asked("in_use", {}, {"processes": {"users": [_JOB]}, "containers": containers}).refusals
    assert "python3 (PID 4711) holds /dev/nvidia0; docker container training; stop what uses them" in refusal


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
    parts = ("plan", "select/main")
    names = {
        "kernels": "__nvidia_driver_selection.kernels.all",
        "gcc": "__nvidia_driver_selection.observed.gcc.stdout",
        "trusted": "__nvidia_driver_selection.secure_boot.trusted",
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

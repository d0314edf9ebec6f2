# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""package_pin on a host that is a directory, with mock dpkg-query, apt-mark, rpm and dnf."""

from __future__ import annotations

import inspect
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.modules import apt as apt_module
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._packages import pins, pins_run
from ansible_collections.gpu.fleet.plugins.modules import package_pin

from tests.unit.module_runs import COMMON, check_documented, run_module

OURS = "/etc/apt/preferences.d/gpu-fleet-example"
LIST, CONF = "/etc/dnf/plugins/versionlock.list", "/etc/dnf/plugins/versionlock.conf"
HOLD = ["docker-ce", "containerd.io"]
PIN = {"packages": "cuda-config", "version": "13.0.*"}
PREFERENCES = """\
# Written by the role gpu.fleet.example, which alone changes these versions.
Package: docker-ce
Pin: version 5:28.5.1-1
Pin-Priority: 1000

Package: containerd.io
Pin: version 1.7.27-1
Pin-Priority: 1000
"""
LOCKS = ["docker-ce-3:28.5.1-1.el9.*", "containerd.io-0:1.7.27-1.el9.*"]


@dataclass
class Host:
    """The packages of a host by name, what apt holds, and what its programs did."""

    root: Path
    monkeypatch: pytest.MonkeyPatch
    packages: dict[str, str] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)
    replies: dict[str, list[CommandResult]] = field(default_factory=dict)
    """By program: results before it works."""

    def file(self, path: str) -> Path:
        """A file of the host."""
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str | bytes) -> None:
        """Write a file of the host."""
        self.file(path).parent.mkdir(parents=True, exist_ok=True)
        self.file(path).write_bytes(text.encode() if isinstance(text, str) else text)

    def run_all(self, commands: Sequence[Sequence[str]], _timeout: float) -> tuple[CommandResult, ...]:
        """Run mock programs."""
        return tuple(self._run(list(argv)) for argv in commands)

    def _run(self, argv: list[str]) -> CommandResult:
        self.commands.append(argv)
        if self.replies.get(argv[0]):
            return self.replies[argv[0]].pop(0)
        out, rc = "", 0
        if argv[0] == "dpkg-query":
            rows = [("dpkg", "1.22", "amd64"), *((name, *text.split()) for name, text in self.packages.items())]
            out = "".join(
                f"{'h' if name in self.held else 'i'}i \t{name.partition(':')[0]}\t{version}\t{architecture}\n"
                for name, version, architecture in ((*row, "amd64")[:3] for row in rows)
            )
        elif argv[0] == "apt-mark":
            assert set(argv[2:]) <= set(self.packages)
            self.held = [name for name in (*self.held, *argv[2:]) if argv[1] == "hold" or name not in argv[2:]]
        elif argv[0] == "rpm":
            found = [name for name in argv[4:] if name in self.packages]
            out = "".join(f"{self.packages[name]}\n" for name in found)
            rc = len(argv[4:]) - len(found)
        elif argv[0] == "dnf":
            assert argv == ["dnf", "--assumeyes", "install", pins.PLUGIN]
            self.packages[pins.PLUGIN] = f"{pins.PLUGIN}\t0\t4\t1.el9\tnoarch"
        return CommandResult(tuple(argv), rc, out.encode(), b"", 0.1)

    def __call__(self, check: bool = False, **options: Any) -> dict[str, Any]:
        """One run of the module."""
        return run_module(package_pin, self.monkeypatch, {"host": "gpu7", **options}, check)

    def programs(self) -> list[list[str]]:
        """The commands that change the host."""
        return [argv for argv in self.commands if argv[0] in ("apt-mark", "dnf")]


def _host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str) -> Host:
    host = Host(tmp_path, monkeypatch)
    host.write("/etc/os-release", release)
    monkeypatch.setattr(package_pin, "HOST", HostFiles(str(tmp_path)))
    monkeypatch.setattr(pins_run, "run_all", host.run_all)
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    return host


@pytest.fixture(name="apt")
def _apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = _host(tmp_path, monkeypatch, "ID=debian\n")
    host.packages = {"docker-ce": "5:28.5.1-1", "containerd.io": "1.7.27-1", "linux-image-amd64": "6.12-1"}
    return host


@pytest.fixture(name="dnf")
def _dnf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = _host(tmp_path, monkeypatch, 'ID="rocky"\nID_LIKE="rhel centos fedora"\n')
    host.packages = {
        "docker-ce": "docker-ce\t3\t28.5.1\t1.el9\tx86_64",
        "containerd.io": "containerd.io\t(none)\t1.7.27\t1.el9\tx86_64",
        pins.PLUGIN: f"{pins.PLUGIN}\t0\t4\t1.el9\tnoarch",
    }
    host.write(LIST, "")
    return host


def _failed(text: str, rc: int = 100) -> CommandResult:
    return CommandResult(("apt-mark",), rc, b"", text.encode(), 0.1)


# apt


def test_apt_holds_packages_and_prefers_their_version(apt: Host) -> None:
    options: dict[str, Any] = {"role": "example", "hold": HOLD, "preferences_file": OURS}
    predicted = apt(check=True, **options)
    assert (predicted["changed"], predicted["held"], predicted["pinned"]) == (True, HOLD, {})
    assert apt.programs() == [] and not apt.file(OURS).exists()
    os.umask(0o077)
    result = apt(**options)
    os.umask(0o022)
    assert result["pinned"] == {"docker-ce": "5:28.5.1-1", "containerd.io": "1.7.27-1"}
    assert {**result, "pinned": {}} == predicted
    assert apt.file(OURS).read_text() == PREFERENCES and apt.file(OURS).stat().st_mode & 0o777 == 0o644
    assert [one["after"] for one in result["diff"]] == [PREFERENCES, "docker-ce\ncontainerd.io\n"]
    assert apt.programs() == [["apt-mark", "hold", *HOLD]]
    for check in (True, False):
        again = apt(check=check, **options)
        assert not again["changed"] and again["diff"] == [] and again["pinned"] == result["pinned"]


def test_apt_releases_what_earlier_runs_have_held(apt: Host) -> None:
    apt.held = ["docker-ce", "containerd.io", "linux-image-amd64"]
    apt.write(OURS, PREFERENCES)
    # One that is gone, as apt-mark knows no such package.
    result = apt(hold=["containerd.io"], release=[*HOLD, "gone"], preferences_file="")
    assert (result["released"], result["held"], result["removed"]) == (["docker-ce"], [], [])
    result = apt(release=[*HOLD, "gone"], preferences_file=OURS)
    assert (result["released"], result["removed"]) == (["containerd.io"], [OURS])
    assert apt.held == ["linux-image-amd64"] and not apt.file(OURS).exists()
    assert result["others"] == ["hold of linux-image-amd64"]
    assert not apt(release=HOLD, preferences_file=OURS)["changed"]
    apt(hold=HOLD, pins=[PIN], preferences_file=OURS)
    result = apt(state="absent", hold=HOLD, pins=[PIN], preferences_file=OURS)
    assert (result["released"], result["removed"], apt.held) == (HOLD, [OURS], ["linux-image-amd64"])


def test_a_task_can_leave_the_pin_of_the_last_run() -> None:
    """apt takes the highest priority, and of equal ones the newer version: a pin at that of the task kept 1.20.0."""
    (requested,) = re.findall(r"create_pin\('Version', pkgname, version, (\d+)\)", inspect.getsource(apt_module))
    # From 1000 on apt takes an older version, see apt_preferences(5).
    assert 1000 <= pins.PRIORITY < int(requested)


def test_a_version_is_preferred_before_its_package_is_there(apt: Host) -> None:
    pins_ = [PIN, {"packages": "nvidia-* libnvidia-*", "version": "580.1-*", "priority": -1}]
    assert apt(pins=pins_, preferences_file=OURS)["written"] == [OURS]
    assert apt.file(OURS).read_text() == (
        "# Written by gpu.fleet.package_pin, which alone changes these versions.\n"
        "Package: cuda-config\nPin: version 13.0.*\nPin-Priority: 1000\n\n"
        "Package: nvidia-* libnvidia-*\nPin: version 580.1-*\nPin-Priority: -1\n"
    )
    # Without holds nothing asks for packages.
    assert apt.commands == []


def test_a_package_of_another_architecture_is_held_by_its_own_name(apt: Host) -> None:
    apt.packages["docker-ce:i386"] = "5:28.5.1-1 i386"
    assert apt(hold=["docker-ce"])["held"] == ["docker-ce"]
    assert apt(hold=["docker-ce", "docker-ce:i386"])["held"] == ["docker-ce:i386"]


def test_preferences_of_others_stay_and_are_named(apt: Host) -> None:
    others: dict[str, str | bytes] = {
        "/etc/apt/preferences": "Package: docker-ce\nPin: version 5:27*\nPin-Priority: 990\n",
        # Continued lines, carriage returns, several names, comments between fields, a field twice.
        "/etc/apt/preferences.d/a": "PACKAGE: x\r\n docker-*\r\n# x\r\npin: origin x\r\nPin: y\r\nPin-Priority: 1\r\n",
        "/etc/apt/preferences.d/b": "Explanation: mine\n\n\n \nPackage: src:docker-ce:any\n\nPackage: /^docker-/ /(\n",
        "/etc/apt/preferences.d/c": "Package: *\nPin: release o=NVIDIA\nPin-Priority: 600\n",
        "/etc/apt/preferences.d/d": b"\xff\xfe\0Package docker-ce\nPackage:\n:\n\x1b[2J: docker-ce\n",
        "/etc/apt/preferences.d/e": f"Package: docker-ce\nPin: version \x1b[2J{'9' * 999}\n",
        # Takes for ever as an expression.
        "/etc/apt/preferences.d/f": f"Package: /(.+)+X/ {'*?' * 40}X\n",
    }
    for path, text in others.items():
        apt.write(path, text)
    apt.file("/etc/apt/preferences.d/g").mkdir()
    os.mkfifo(apt.file("/etc/apt/preferences.d/h"))
    result = apt(hold=["docker-ce"], preferences_file=OURS)
    assert result["others"] == [
        "/etc/apt/preferences: docker-ce, version 5:27*, priority 990",
        "/etc/apt/preferences.d/a: docker-*, origin x, priority 1",
        "/etc/apt/preferences.d/b: src:docker-ce:any, no pin, priority none",
        "/etc/apt/preferences.d/b: /^docker-/, no pin, priority none",
        f"/etc/apt/preferences.d/e: docker-ce, version [2J{'9' * 175}...",
    ]
    for path, text in others.items():
        assert apt.file(path).read_bytes() == (text if isinstance(text, bytes) else text.encode())


def test_a_link_at_our_file_is_replaced_and_its_target_stays(apt: Host) -> None:
    apt.write("/etc/site", "Package: x\n")
    apt.file(OURS).parent.mkdir(parents=True)
    apt.file(OURS).symlink_to(apt.file("/etc/site"))
    apt(hold=HOLD, preferences_file=OURS)
    assert not apt.file(OURS).is_symlink() and apt.file("/etc/site").read_text() == "Package: x\n"
    apt.file(OURS).unlink()
    apt.file(OURS).mkdir()
    result = apt(hold=HOLD, preferences_file=OURS)
    assert result["failed"] and result["msg"].startswith("gpu7: the pins of packages: ")


def test_what_is_not_installed_cannot_be_held(apt: Host) -> None:
    assert apt(check=True, hold=["docker-ce", "gone"])["held"] == ["docker-ce", "gone"]
    result = apt(hold=["docker-ce", "gone"], preferences_file=OURS)
    assert result["msg"] == "gpu7: gone cannot be held, as it is not installed"
    assert not result["changed"] and apt.programs() == [] and not apt.file(OURS).exists()


def test_dpkg_that_is_locked_is_waited_for(apt: Host) -> None:
    locked = _failed("dpkg: error: dpkg frontend lock was locked by another process with pid 7\nE: x failed")
    apt.replies["apt-mark"] = [locked, locked]
    assert apt(hold=HOLD)["held"] == HOLD
    apt.held, apt.replies["apt-mark"] = [], [locked] * 99
    result = apt(hold=HOLD, preferences_file=OURS)
    assert result["msg"] == (
        "gpu7: cannot hold docker-ce, containerd.io: dpkg: error: dpkg frontend lock was locked by another process "
        "with pid 7"
    )
    assert (result["changed"], result["written"], result["held"]) == (True, [OURS], [])


def test_a_hold_that_has_no_effect_fails(apt: Host) -> None:
    apt.replies["apt-mark"] = [CommandResult(("apt-mark",), 0, b"", b"", 0.1)]
    result = apt(hold=HOLD)
    assert result["msg"] == "gpu7: the pins are not as requested, read back: docker-ce, containerd.io"


# dnf


def test_dnf_locks_the_installed_versions(dnf: Host) -> None:
    del dnf.packages[pins.PLUGIN]
    predicted = dnf(check=True, hold=HOLD, preferences_file=OURS)
    assert predicted["installed"] == [pins.PLUGIN] and dnf.programs() == []
    result = dnf(hold=HOLD, preferences_file=OURS)
    assert (result["installed"], result["written"]) == ([pins.PLUGIN], [LIST])
    assert {**result, "pinned": {}} == predicted
    assert result["pinned"] == {"docker-ce": "3:28.5.1-1.el9", "containerd.io": "1.7.27-1.el9"}
    assert dnf.file(LIST).read_text().splitlines() == LOCKS and not dnf.file(OURS).exists()
    for check in (True, False):
        assert not dnf(check=check, hold=HOLD)["changed"]


def test_a_new_version_takes_the_place_of_the_locked_one(dnf: Host) -> None:
    dnf(hold=HOLD)
    dnf.packages["docker-ce"] = "docker-ce\t3\t29.0.0\t1.el9\tx86_64"
    dnf(hold=HOLD)
    assert dnf.file(LIST).read_text().splitlines() == [LOCKS[1], "docker-ce-3:29.0.0-1.el9.*"]
    # Kernels: several versions at once.
    dnf.packages["kernel-core"] = "kernel-core\t0\t5.14\t1.el9\tx86_64\nkernel-core\t0\t5.14\t2.el9\tx86_64"
    dnf(hold=["kernel-core"], release=HOLD)
    assert dnf.file(LIST).read_text().splitlines() == ["kernel-core-0:5.14-1.el9.*", "kernel-core-0:5.14-2.el9.*"]


def test_a_version_is_locked_before_its_package_is_there(dnf: Host) -> None:
    dnf.write(LIST, "cuda-config-0:12.9.*\n")
    result = dnf(pins=[PIN, {**PIN, "priority": -1, "version": "580-*"}], release=["cuda-config-0:12.9.*"])
    assert result["changed"] and dnf.file(LIST).read_text() == "cuda-config-0:13.0.*\n"
    assert not dnf(pins=[PIN])["changed"]
    assert dnf(state="absent", pins=[PIN])["changed"]
    assert dnf.file(LIST).read_text() == ""
    assert not dnf(release=["cuda-config-0:13.0.*"])["changed"]
    dnf(pins=[{**PIN, "version": "1:4.5.*-*"}])
    assert dnf.file(LIST).read_text() == "cuda-config-1:4.5.*-*\n"


def test_locks_of_others_stay_and_are_named(dnf: Host) -> None:
    others = (
        b"\n# Added lock on Mon Nov 24 10:00:00 2025\n"
        b"docker-ce-3:27*\n!docker-ce-3:28.0*\ndocker-ce-cli-1:2-3.*\n  docker-ce-*  \r\n"
        b"docker-ce-3:26-1.el9.x86_64\n#docker-ce-3:28.5.1-1.el9.*\nbash\n"
        b"\xff\xfe-docker-ce\0\x1b[2J\ncontainerd.io"
    )
    dnf.write(LIST, others)
    dnf.file(LIST).chmod(0o640)
    result = dnf(hold=["docker-ce"])
    assert dnf.file(LIST).read_bytes() == others + b"\ndocker-ce-3:28.5.1-1.el9.*\n"
    assert dnf.file(LIST).stat().st_mode & 0o777 == 0o640
    assert result["others"] == [
        *("lock docker-ce-3:27*", "lock !docker-ce-3:28.0*", "lock docker-ce-*", "lock docker-ce-3:26-1.el9.x86_64"),
    ]
    dnf(release=["docker-ce"])
    assert dnf.file(LIST).read_bytes() == others + b"\n"


def test_a_version_that_the_user_has_locked_is_not_locked_again(dnf: Host) -> None:
    dnf.write(LIST, "docker-ce-3:28.5.1-1.el9.x86_64\n")
    result = dnf(hold=["docker-ce"])
    assert not result["changed"] and result["pinned"] == {"docker-ce": "3:28.5.1-1.el9"}


def test_the_list_is_where_the_plugin_reads_it(dnf: Host) -> None:
    dnf.write(CONF, "[main]\nlocklist = /etc/site.list\n")
    assert dnf(hold=HOLD)["written"] == ["/etc/site.list"]
    dnf.file("/etc/site.list").rename(dnf.file("/etc/real.list"))
    dnf.file("/etc/site.list").symlink_to("/etc/real.list")
    assert not dnf(hold=HOLD)["changed"]
    assert dnf(release=HOLD)["written"] == ["/etc/real.list"]
    assert dnf.file("/etc/site.list").is_symlink() and dnf.file("/etc/real.list").read_text() == ""


@pytest.mark.parametrize(
    ("path", "text"), [("/etc/dnf/dnf.conf", "[main]\nplugins=0\n"), (CONF, "[main]\nEnabled = False\n")]
)
def test_locks_that_are_disabled_are_no_pins(dnf: Host, path: str, text: str) -> None:
    dnf(hold=HOLD)
    dnf.write(path, text)
    result = dnf(hold=HOLD)
    assert result["msg"] == (
        f"gpu7: dnf would not keep the version of docker-ce, containerd.io: {path} disables the locks"
    )
    # What goes needs no plugin.
    assert dnf(release=HOLD)["changed"]


def test_a_plugin_that_cannot_be_installed_fails_before_the_list_changes(dnf: Host) -> None:
    del dnf.packages[pins.PLUGIN]
    dnf.replies["dnf"] = [_failed(f"Error: Unable to find a match: {pins.PLUGIN}", 1)]
    result = dnf(hold=HOLD)
    assert result["msg"] == f"gpu7: cannot install {pins.PLUGIN}: Error: Unable to find a match: {pins.PLUGIN}"
    assert not result["changed"] and dnf.file(LIST).read_text() == ""


@pytest.mark.parametrize("program", ["dpkg-query", "rpm"])
def test_packages_that_cannot_be_read_are_no_missing_ones(program: str, request: pytest.FixtureRequest) -> None:
    host: Host = request.getfixturevalue("apt" if program == "dpkg-query" else "dnf")
    host.replies[program] = [CommandResult((program,), None, b"", b"", 0.1, start_error=2)]
    result = host(check=True, hold=HOLD)
    assert result["msg"].startswith(f"gpu7: cannot read the installed packages: {program} cannot be started")


# Options


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"hold": ["--purge"]}, "hold: '--purge' is not the name of a package"),
        ({"hold": ["a\nb"]}, "hold: 'a\\nb' is not the name of a package"),
        ({"release": ["x y"]}, "release: 'x y' is not the name of a package, or a lock of dnf"),
        ({"role": "x\n#"}, "role: "),
        ({"preferences_file": "/etc/apt/preferences.d/../x"}, "preferences_file: "),
        ({"preferences_file": "/etc/passwd"}, "preferences_file: "),
        ({"pins": [{**PIN, "version": "1\nPin-Priority: 1"}]}, "pins.version: "),
        ({"pins": [{**PIN, "packages": "a\nb"}]}, "pins.packages: "),
        ({"pins": [{**PIN, "packages": ""}]}, "pins.packages: "),
        ({"pins": [{**PIN, "priority": 99999}]}, "priority"),
    ],
)
def test_options_of_another_form_fail_by_their_name(apt: Host, options: dict[str, Any], named: str) -> None:
    result = apt(**options)
    assert result["failed"] and named in result["msg"] and apt.commands == []


def test_results_are_documented(apt: Host, dnf: Host) -> None:
    documented = yaml.safe_load(package_pin.RETURN)
    results = [apt(hold=HOLD, preferences_file=OURS), apt(release=HOLD, check=True), dnf(hold=HOLD)]
    for result in results:
        check_documented({name: one for name, one in result.items() if name not in COMMON}, documented, "package_pin")

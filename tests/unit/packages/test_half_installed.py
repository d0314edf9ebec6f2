# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is advised for a package that dpkg was killed with, carried out by dpkg and apt in a root of its own."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._packages import apt, dnf
from ansible_collections.gpu.fleet.plugins.module_utils._packages.plan import PackageError, PackageRequest, RefusedError

NAME = "gpufleetexample"
CONTROL = f"Package: {NAME}\nVersion: 1\nArchitecture: all\nMaintainer: A <a@example.com>\nDescription: an example\n"


class Root:
    """A directory with a dpkg and an apt of its own, whose repository has one package."""

    def __init__(self, directory: Path) -> None:
        self.root, self.repository, tree = directory / "root", directory / "repository", directory / "tree"
        for name in (
            *("var/lib/dpkg/updates", "var/lib/dpkg/info", "var/lib/dpkg/triggers", "var/lib/apt/lists/partial"),
            *("var/cache/apt/archives/partial", "var/log/apt", "etc/apt/apt.conf.d", "etc/apt/preferences.d"),
            *("etc/apt/sources.list.d", "etc/apt/trusted.gpg.d"),
        ):
            (self.root / name).mkdir(parents=True)
        (self.root / "var/lib/dpkg/status").touch()
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(CONTROL)
        (tree / "usr/share").mkdir(parents=True)
        (tree / "usr/share" / NAME).write_text("a file\n")
        self.repository.mkdir()
        self.file = self.repository / f"{NAME}_1_all.deb"
        self.run("dpkg-deb", "--root-owner-group", "--build", str(tree), str(self.file))
        digest = hashlib.sha256(self.file.read_bytes()).hexdigest()
        stanza = f"{CONTROL}Filename: ./{self.file.name}\nSize: {self.file.stat().st_size}\nSHA256: {digest}\n\n"
        (self.repository / "Packages").write_text(stanza)
        (self.root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{self.repository} ./\n")
        self.carry_out("apt-get update")

    def run(self, *argv: str) -> str:
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout

    def carry_out(self, command: str) -> None:
        """Run what a message advises, here instead of on the host."""
        program, *arguments = command.split()
        dpkg = [f"--root={self.root}", "--force-not-root"]
        options = {
            "Dir": str(self.root),
            "Dir::State::status": f"{self.root}/var/lib/dpkg/status",
            "Dir::Etc::parts": f"{self.root}/etc/apt/apt.conf.d",
            "Dir::Bin::methods": "/usr/lib/apt/methods",
            "Debug::NoLocking": "1",
            "APT::Sandbox::User": "root",
        }
        own = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        own += [part for one in dpkg for part in ("-o", f"Dpkg::Options::={one}")]
        self.run(program, *(dpkg if program == "dpkg" else [*own, "--yes", "--quiet"]), *arguments)

    def set(self, status: str) -> None:
        """Leave the package as a killed dpkg does."""
        self.carry_out(f"dpkg --unpack {self.file}")
        (self.root / "var/lib/dpkg/status").write_text(CONTROL.replace("Version", f"Status: {status}\nVersion", 1))

    def broken(self) -> dict[str, str]:
        asked = list(apt.QUERY)
        return apt.parse_status(self.run(asked[0], f"--admindir={self.root}/var/lib/dpkg", *asked[1:]))[1]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("install reinstreq half-installed", "iHR"),
        ("install reinstreq installed", "iiR"),
        ("install reinstreq half-configured", "iFR"),
        ("install ok half-installed", "iH"),
        ("install ok half-configured", "iF"),
        ("install ok unpacked", "iU"),
        ("deinstall reinstreq half-installed", "rHR"),
        ("deinstall ok half-installed", "rH"),
        ("purge ok half-configured", "pF"),
    ],
)
def test_each_advice_repairs_the_package_that_it_is_for(status: str, state: str, tmp_path: Path) -> None:
    if not all(map(shutil.which, ("dpkg", "apt-get", "dpkg-deb"))):
        pytest.skip("the host has no dpkg and apt")
    root = Root(tmp_path)
    root.set(status)
    assert root.broken() == {NAME: state}
    advice = apt.repair_advice(root.broken())
    commands, *otherwise = re.findall(r"`([^`]+)`", advice.partition("; run ")[2])
    for command in commands.split("; "):
        root.carry_out(command)
    assert root.broken() == {}, advice
    for command in otherwise:
        root.set(status)
        root.carry_out(command)
        assert root.broken() == {}, command


def test_the_first_command_alone_does_nothing_for_a_package_without_all_its_files() -> None:
    assert "run `dpkg --configure -a` on the host" in apt.repair_advice({"docker.io": "iF"})
    assert "`dpkg --configure -a; apt-get --fix-broken --reinstall install docker.io`" in apt.repair_advice(
        {"docker.io": "iHR", "containerd": "iU"}
    )
    assert str(PackageError(apt.repair_advice({"docker.io": "iHR"}))).startswith(
        "docker.io is only half installed (iHR in"
    )


_TWICE = (
    "bash\t0:5.1-9.el9\tx86_64\n"
    "docker-ce\t3:28.5.1-1.el9\tx86_64\n"
    "docker-ce\t3:28.5.2-1.el9\tx86_64\n"
    "mesa-libGL\t0:24.1-1.el9\tx86_64\n"
    "mesa-libGL\t0:24.1-2.el9\ti686\n"
    "kernel-core\t0:5.14.0-1.el9\tx86_64\n"
    "kernel-core\t0:5.14.0-2.el9\tx86_64\n"
    "gpg-pubkey\t0:1-1\t(none)\n"
    "gpg-pubkey\t0:2-2\t(none)\n"
)


def _rpm(listed: str) -> Callable[[Sequence[str]], CommandResult]:
    def run(argv: Sequence[str]) -> CommandResult:
        assert tuple(argv) == dnf._QUERY, argv
        return CommandResult(tuple(argv), 0, listed.encode(), b"", 0.0)

    return run


def test_what_an_interrupted_dnf_left_twice_is_refused_with_its_repair() -> None:
    assert dnf.duplicates(_TWICE) == {"docker-ce": ["3:28.5.1-1.el9", "3:28.5.2-1.el9"]}
    with pytest.raises(RefusedError) as caught:
        dnf.plan(PackageRequest(install=("docker-ce",)), _rpm(_TWICE))
    message = str(caught.value)
    assert message.startswith("docker-ce (3:28.5.1-1.el9 and 3:28.5.2-1.el9) is installed in several versions")
    assert "`dnf --assumeyes remove --duplicates`" in message


def test_packages_of_others_and_a_rollback_are_not_held_up_by_it() -> None:
    request = PackageRequest(install=("bash",))
    assert dnf.plan(request, _rpm(_TWICE)).install == {}
    assert dnf.plan(PackageRequest(install=("docker-ce",), repair=True), _rpm(_TWICE)).install == {}
    once = _TWICE.replace("docker-ce\t3:28.5.1-1.el9\tx86_64\n", "")
    assert dnf.plan(PackageRequest(install=("docker-ce",)), _rpm(once)).install == {}


def test_a_rebuilt_database_of_rpm_is_in_order_again(tmp_path: Path) -> None:
    """The advice for a damaged one, carried out by rpm where the machine has it."""
    if not shutil.which("rpm"):
        pytest.skip("the host has no rpm")
    for option in ("--initdb", "--rebuilddb"):
        subprocess.run(["rpm", "--dbpath", tmp_path, option], check=True)
    done = subprocess.run(["rpm", "--dbpath", tmp_path, "--query", "--all"], capture_output=True, text=True, check=True)
    assert done.stderr == ""

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rollback of an update on Ubuntu, whose archive has one version of a branch: real apt over its real index."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._packages import apt
from ansible_collections.gpu.fleet.plugins.module_utils._packages.plan import PackageError, PackageRequest

from tests.unit.real_indexes.apt_root import AptRoot

Roots = Callable[[str], AptRoot]
OLD, NEW = "580.65.06", "580.178.04"
DRIVER = ("libnvidia-compute-580-server", "nvidia-utils-580-server")
# What changes with them.
FAMILY = ("libnvidia-compute-580-server", "nvidia-kernel-common-580-server", "nvidia-utils-580-server")
# As Debian and Ubuntu have it.
_OFFERED = "dpkg-repack | 1.52 | http://archive.ubuntu.com/ubuntu noble/universe amd64 Packages\n"


class Host:
    """A host whose driver has left the archive; dpkg-repack is scripted and makes real package files."""

    def __init__(self, root: AptRoot, has_repack: bool = True, repack_status: int = 0) -> None:
        self.root = root
        self.has_repack = has_repack
        self.repack_status = repack_status
        self.changes: list[str] = []
        root.install(*DRIVER)
        self.status = (root.dpkg / "status").read_text()
        (root.dpkg / "status").write_text(self.status.replace(NEW, OLD))

    def run(self, argv: Sequence[str]) -> CommandResult:
        command = " ".join(argv)
        if command == "apt-cache madison dpkg-repack":
            return _result(_OFFERED if self.has_repack else "")
        if argv[0] == "env":
            self.changes.append("dpkg-repack")
            names = [name for name in argv[3:] if not name.startswith("-")]
            for name in names if self.repack_status == 0 else ():
                build(Path(argv[1].partition("=")[2]), name, OLD)
            return _result("dpkg-deb: error: No space left on device\n", self.repack_status)
        if argv[0] == "apt-get" and "--simulate" not in argv:
            return self._change(argv)
        return self.root.run(argv)

    def _change(self, argv: Sequence[str]) -> CommandResult:
        """Nothing is downloaded here; a change of the driver installs the new version."""
        if "--download-only" not in argv:
            self.changes.append(" ".join(argv[argv.index("install") :]))
            if "dpkg-repack" not in argv:
                (self.root.dpkg / "status").write_text(self.status)
        return _result("")


def _result(text: str, status: int = 0) -> CommandResult:
    return CommandResult((), status, text.encode(), b"", 0.0)


def build(directory: Path, name: str, version: str) -> None:
    """A package file as dpkg-repack names it."""
    parts = directory / name / "DEBIAN"
    parts.mkdir(parents=True)
    fields = {"Package": name, "Version": f"{version}-0ubuntu0.24.04.1", "Architecture": "amd64"}
    fields |= {"Maintainer": "-", "Description": "-"}
    (parts / "control").write_text("".join(f"{field}: {value}\n" for field, value in fields.items()))
    subprocess.run(["dpkg-deb", "--build", directory / name, directory], check=True, capture_output=True)


def update(directory: Path, rollback: str = "required") -> PackageRequest:
    return PackageRequest(
        install=tuple(f"{name}={NEW}-*" for name in DRIVER), rollback=rollback, save_directory=str(directory / "saved")
    )


def test_packages_that_left_the_archive_are_saved_and_come_back(roots: Roots, tmp_path: Path) -> None:
    host = Host(roots("noble"))
    request = update(tmp_path)
    plan = apt.plan(request, host.run)
    assert plan.unavailable == FAMILY
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/nvidia-utils-570-server_570.1_amd64.deb").touch()
    found = apt.save(request, plan, host.run)
    assert host.changes == ["install dpkg-repack", "dpkg-repack"]
    files = sorted(path.name for path in (tmp_path / "saved").glob("*.deb"))
    assert files == [f"{name}_{OLD}-0ubuntu0.24.04.1_amd64.deb" for name in FAMILY], "and none of an earlier change"

    done = found.done(apt.apply(request, found, host.run))
    undo = done.undo()
    assert undo["sources"] == [str(tmp_path / "saved" / file) for file in files]
    # The archive does not have them, apt takes them from the files.
    back = PackageRequest(
        install=tuple(f"{name}={OLD}-0ubuntu0.24.04.1" for name in FAMILY),
        repair=True,
    )
    with pytest.raises(PackageError, match="was not found"):
        apt.plan(back, host.run)
    restored = apt.plan(replace(back, sources=tuple(map(str, (tmp_path / "saved").glob("*.deb")))), host.run)
    assert {name: restored.install[name] for name in FAMILY} == dict.fromkeys(FAMILY, f"{OLD}-0ubuntu0.24.04.1")


def test_without_a_rollback_nothing_begins(roots: Roots, tmp_path: Path) -> None:
    host = Host(roots("noble"), has_repack=False)
    with pytest.raises(
        PackageError, match=r"is in no repository any more, and dpkg-repack, .* is not available"
    ) as caught:
        apt.plan(update(tmp_path), host.run)
    assert all(name in str(caught.value) for name in FAMILY)
    allowed = update(tmp_path, "if_possible")
    plan = apt.plan(allowed, host.run)
    assert plan.unavailable == FAMILY
    # Where nothing is to be saved, nothing is looked up.
    assert apt.plan(update(tmp_path, "ignore"), host.run).unavailable == ()


def test_a_package_that_cannot_be_saved_is_a_refusal(roots: Roots, tmp_path: Path) -> None:
    host = Host(roots("noble"), repack_status=1)
    request = update(tmp_path)
    with pytest.raises(PackageError, match=r"cannot be saved: .*No space left on device") as caught:
        apt.save(request, apt.plan(request, host.run), host.run)
    assert not caught.value.begun
    assert host.changes[-1] == "dpkg-repack"
    allowed = update(tmp_path, "if_possible")
    assert apt.save(allowed, apt.plan(allowed, host.run), host.run).saved == ()


def test_a_version_that_the_archive_has_is_not_saved(roots: Roots, tmp_path: Path) -> None:
    root = roots("noble")
    root.install(*DRIVER)
    request = PackageRequest(
        install=("nvidia-utils-595-server", "libnvidia-compute-595-server"),
        remove=FAMILY,
        rollback="required",
        save_directory=str(tmp_path / "saved"),
    )
    plan = apt.plan(request, root.run)
    assert set(DRIVER) <= set(plan.remove)
    assert plan.unavailable == ()
    assert apt.save(request, plan, root.run) is plan


def test_a_version_that_the_archive_no_longer_delivers_is_a_refusal(roots: Roots, tmp_path: Path) -> None:
    """Its index is older than its files: what is to be restored can be listed, and is not there."""
    host = Host(roots("noble"))
    plan = replace(apt.plan(update(tmp_path), host.run), unavailable=())

    def gone(argv: Sequence[str]) -> CommandResult:
        is_previous = "--reinstall" in argv
        return (
            _result("E: Failed to fetch http://archive.ubuntu.com/x.deb  404", 100) if is_previous else host.run(argv)
        )

    with pytest.raises(PackageError, match=rf"nvidia-utils-580-server={OLD}.* cannot be downloaded: .*404") as caught:
        apt.apply(update(tmp_path), plan, gone)
    assert not caught.value.begun
    assert host.changes == []
    assert apt.apply(update(tmp_path, "if_possible"), plan, gone)["nvidia-utils-580-server"].startswith(NEW)

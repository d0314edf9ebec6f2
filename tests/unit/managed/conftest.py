# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host made of files, with mock rpm and systemctl programs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.common import warnings
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._managed import observe as managed_observe
from ansible_collections.gpu.fleet.plugins.module_utils._managed import restart as managed_restart
from ansible_collections.gpu.fleet.plugins.module_utils._managed import start
from ansible_collections.gpu.fleet.plugins.modules import managed_facts, managed_record, systemd_reload, unit_restart

DEBIAN = 'ID=debian\nVERSION_ID="13"\n'
BOOT = 1_700_000_000.0
"""When the host was booted, in seconds since 1970."""
ROCKY = 'ID="rocky"\nID_LIKE="rhel centos fedora"\n'

Run = Callable[..., dict[str, Any]]


class ManagedHost:
    """A host below a directory, booted at BOOT.

    `units`: (LoadState, ActiveState, UnitFileState, seconds from boot to start) by name; `packages`: dpkg stanzas.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, programs: Path) -> None:
        self.root = root
        self.files = HostFiles(str(root))
        self.units: dict[str, tuple[str, str, str, float]] = {}
        self.packages: dict[str, tuple[str, str]] = {}
        self.programs = programs
        programs.mkdir()
        self.log = programs / "calls"
        self.log.touch()
        self.write("/etc/os-release", DEBIAN)
        for module in (managed_facts, managed_record, systemd_reload, unit_restart):
            monkeypatch.setattr(module, "HOST", self.files)
        monkeypatch.setattr(managed_observe, "find_executable", lambda name: str(programs / name))
        monkeypatch.setattr(managed_restart, "find_executable", lambda name: str(programs / name))
        monkeypatch.setattr(start, "epoch_of_monotonic", lambda: BOOT)

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).write_text(text)
        self.path(path).chmod(mode)

    def link(self, path: str, target: str) -> None:
        self.path(path).unlink(missing_ok=True)
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).symlink_to(target)

    def package(
        self, name: str, version: str, status: str = "install ok installed", architecture: str = "amd64"
    ) -> None:
        """Add a package to dpkg's status file, or change it."""
        stanza = f"Package: {name}\nStatus: {status}\nPriority: optional\nArchitecture: {architecture}\n"
        self.packages[f"{name}:{architecture}"] = (name, stanza + f"Version: {version}\nDescription: it\n more\n")
        self.write("/var/lib/dpkg/status", "\n".join(text for _name, text in self.packages.values()))

    def remove_package(self, name: str) -> None:
        self.packages = {key: item for key, item in self.packages.items() if item[0] != name}
        self.write("/var/lib/dpkg/status", "\n".join(text for _name, text in self.packages.values()))

    def unit(
        self, name: str, load: str = "loaded", active: str = "active", enabled: str = "enabled", started: float = 10.0
    ) -> None:
        """Add a unit; the mock prints what `systemctl show` does, also for unknown names."""
        self.units[name] = (load, active, enabled, started)
        cases = "".join(
            f"{name}) printf 'ExecMainStartTimestampMonotonic={started * 1e6:.0f}\\n"
            f"LoadState={load}\\nActiveState={active}\\nUnitFileState={enabled}\\n';;\n"
            for name, (load, active, enabled, started) in self.units.items()
        )
        cases += "*) printf 'LoadState=not-found\\nActiveState=inactive\\nUnitFileState=\\n';;\n"
        self.program("systemctl", f'shift 3\nfor unit; do case "$unit" in\n{cases}esac\necho; done')

    def modify(self, path: str, seconds: float) -> None:
        """Set the time of modification of a file, in seconds after the boot."""
        os.utime(self.path(path), (BOOT + seconds, BOOT + seconds))

    def program(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\nprintf '%s\\n' '{name}'\" $*\" >> {self.log}\n{text}\n")
        path.chmod(0o755)

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ManagedHost:
    return ManagedHost(tmp_path / "host", monkeypatch, tmp_path / "programs")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run one of the two modules as Ansible does; return its result."""
    # With the controller's plugins in the same process, Ansible would display a module's warnings and drop them.
    monkeypatch.setattr("ansible.module_utils._internal.is_controller", False)
    monkeypatch.setattr(warnings, "_global_warnings", {})

    def run_module(main: Callable[[], None], check_mode: bool = False, **arguments: Any) -> dict[str, Any]:
        with (
            patch_module_args({**arguments, "_ansible_check_mode": check_mode, "_ansible_remote_tmp": "/tmp"}),
            pytest.raises(SystemExit),
        ):
            main()
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return run_module


@pytest.fixture
def record(run: Run) -> Run:
    """Record something for a role, by default `example`."""
    return lambda role="example", **arguments: run(managed_record.main, role=role, **arguments)


@pytest.fixture
def facts(run: Run) -> Run:
    """The facts by name of the record."""

    def read() -> dict[str, Any]:
        managed: dict[str, Any] = run(managed_facts.main)["ansible_facts"]["gpu_fleet_managed"]
        return managed

    return read

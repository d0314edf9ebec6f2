# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-persistenced keeps GPUs initialised with each unit that is really shipped, and without one."""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import RequestError
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.persistence_daemon import (
    UNIT_DIRECTORIES,
    daemon_files,
)

from tests.unit.driver.plans import CONFIGURED, EL, facts, stage

PACKAGED = "/usr/lib/systemd/system/nvidia-persistenced.service"
OWN = "/etc/systemd/system/nvidia-persistenced.service"
RULE = "/etc/udev/rules.d/71-gpu-fleet-nvidia-persistenced.rules"
# Ubuntu's nvidia-compute-utils of 580 and 595 (canonical/nvidia-graphics-drivers@24d7353e, @8116b261).
UBUNTU = """\
[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target
StopWhenUnneeded=true
Before=systemd-backlight@backlight:nvidia_0.service

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""
# Debian's nvidia-persistenced 550.163.01-1.
DEBIAN = """\
[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvpd
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced

[Install]
WantedBy=multi-user.target
"""
# NVIDIA/yum-packaging-nvidia-persistenced@fe5d7c8.
NVIDIA_RPM = """\
[Unit]
Description=NVIDIA Persistence Daemon
After=syslog.target

[Service]
Type=forking
PIDFile=/var/run/nvidia-persistenced/nvidia-persistenced.pid
Restart=always
ExecStart=/usr/bin/nvidia-persistenced --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced/*
TimeoutSec=300

[Install]
WantedBy=multi-user.target
"""
CONDITION = "# Managed by Ansible (gpu.fleet.nvidia_driver).\n[Unit]\nConditionPathExists=/proc/driver/nvidia/version\n"


def persistence_daemon(units: Mapping[str, str]) -> dict[str, str]:
    """The files of the role for a host with these units."""
    return asdict(daemon_files(units))


def test_ubuntus_unit_keeps_gpus_initialised_and_can_be_enabled() -> None:
    found = persistence_daemon({PACKAGED: UBUNTU})
    assert found["unit"] == ""
    assert found["dropin"] == (
        f"{CONDITION}StopWhenUnneeded=false\n"
        "[Service]\n"
        "# An empty value first, or both commands would be run.\n"
        "ExecStart=\n"
        "ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --verbose\n"
        "[Install]\n"
        "WantedBy=multi-user.target\n"
    )


@pytest.mark.parametrize("unit", [DEBIAN, NVIDIA_RPM], ids=["Debian", "NVIDIA's rpm"])
def test_the_others_get_a_condition_only(unit: str) -> None:
    assert persistence_daemon({PACKAGED: unit}) == {"unit": "", "dropin": CONDITION}


def test_a_runfile_gets_a_unit() -> None:
    found = persistence_daemon({})
    assert found["dropin"] == CONDITION
    assert "ExecStart=/usr/bin/nvidia-persistenced --verbose\n" in found["unit"]
    assert "WantedBy=multi-user.target\n" in found["unit"]
    assert persistence_daemon({OWN: found["unit"]}) == found, "the next run knows its own unit"
    assert persistence_daemon({OWN: found["unit"], PACKAGED: UBUNTU})["unit"] == "", "packages replaced the runfile"


def test_the_unit_of_an_administrator_goes_first() -> None:
    custom = DEBIAN.replace("--user nvpd", "--user gpu --no-persistence-mode")
    dropin = persistence_daemon({PACKAGED: UBUNTU, OWN: custom})["dropin"]
    assert "ExecStart=/usr/bin/nvidia-persistenced --user gpu\n" in dropin
    assert "[Install]" not in dropin


@pytest.mark.parametrize(
    ("unit", "start"),
    [
        ("[Service]\nExecStart = /bin/d \\\n  --no-persistence-mode \\\n  -V\n", "ExecStart=/bin/d -V\n"),
        ("[Service]\nExecStart=/bin/a --no-persistence-mode\nExecStart=\nExecStart=/bin/b\n", None),
        ("[Service]\n#ExecStart=/bin/d --no-persistence-mode\nExecStart=/bin/d\n", None),
        ('[Service]\nExecStart=/bin/d "--no-persistence-mode"\n', "ExecStart=/bin/d\n"),
        ("[Service]\nType=simple\n", None),
    ],
    ids=["several lines", "reset", "comment", "quotes", "no command"],
)
def test_the_command_of_a_unit(unit: str, start: str | None) -> None:
    dropin = persistence_daemon({PACKAGED: unit})["dropin"]
    assert start in dropin if start else "ExecStart" not in dropin


@pytest.mark.skipif(shutil.which("systemctl") is None, reason="systemd is not installed here")
@pytest.mark.parametrize("unit", [UBUNTU, DEBIAN, NVIDIA_RPM, None], ids=["Ubuntu", "Debian", "rpm", "runfile"])
def test_systemd_enables_it(unit: str | None, tmp_path: Path) -> None:
    """Ubuntu's own unit cannot be enabled; with the drop-in it can."""

    def systemctl(command: str) -> str:
        argv = ["systemctl", f"--root={tmp_path}", command, "nvidia-persistenced.service"]
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()

    found = persistence_daemon({PACKAGED: unit} if unit else {})
    path = Path(f"{tmp_path}{PACKAGED if unit else OWN}")
    path.parent.mkdir(parents=True)
    path.write_text(unit or found["unit"])
    assert systemctl("is-enabled") == ("static" if unit == UBUNTU else "disabled")
    dropin = Path(f"{tmp_path}{OWN}.d/50-gpu-fleet.conf")
    dropin.parent.mkdir(parents=True)
    dropin.write_text(found["dropin"])
    systemctl("enable")
    assert systemctl("is-enabled") == "enabled"


def configured(units: dict[str, str], records: dict[str, Any] | None = None) -> dict[str, Any]:
    """The files for a host with these units by their directories."""
    there = {name: {"content": base64.b64encode(text.encode()).decode()} for name, text in units.items()}
    results = [there.get(name, {"failed": True, "msg": "file not found"}) for name in UNIT_DIRECTORIES]
    found = {**CONFIGURED, "units": {"results": results}}
    host = facts(EL, gpu_fleet_managed=records or {})
    daemon: dict[str, Any] = stage("configured", host, found)["daemon"]
    return daemon


def test_a_command_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(RequestError, match=r"ExecStart of /lib/systemd/system/nvidia-persistenced\.service cannot"):
        configured({"/lib/systemd/system": '[Service]\nExecStart=/bin/d "a\n'})


@pytest.mark.parametrize(("written", "removes"), [([], False), ([OWN], True)])
def test_the_unit_of_a_runfile_goes_when_a_package_brings_one(written: list[str], removes: bool) -> None:
    records = {"nvidia_driver": {"drift": [], "data": {"written": written}}}
    found = configured({"/usr/lib/systemd/system": DEBIAN}, records)
    assert found["removes_unit"] is removes
    assert [one["path"] for one in found["files"]] == [f"{OWN}.d/50-gpu-fleet.conf", RULE]
    without = configured({}, records)
    assert [one["path"] for one in without["files"]] == [OWN, f"{OWN}.d/50-gpu-fleet.conf", RULE]
    assert (without["has_unit"], without["removes_unit"]) == (True, False)

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mock container toolkit by version: files, units, configuration files, relations, as in NVIDIA's sources.

The facts are those of NVIDIA/nvidia-container-toolkit at the tags v1.14.6, v1.17.8, v1.18.0, v1.18.1, v1.19.0 and
v1.20.0 (deployments/systemd, packaging/debian, packaging/rpm), and the real `nvidia-ctk config` of 1.14.6, 1.17.8,
1.18.2 and 1.20.0.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_container_toolkit.plan import (
    Host,
    Refresh,
    Request,
    toolkit_plan,
)

from testbed.mock_repositories.description import Package, read_places
from tests.conftest import COUNT, ROOT

BASE = "nvidia-container-toolkit-base"
ETC, LIB = "/etc/systemd/system/", "/usr/lib/systemd/system/"
NAMES = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
# By version: directory of the units, the pattern of the condition, and what else distinguishes the service.
UNITS = {
    "1.14.6": ("", "", ()),
    "1.17.8": ("", "", ()),
    "1.18.0": (ETC, r"/nvidia.ko", ()),
    "1.18.1": (ETC, r"/(nvidia|nvidia-current)\.ko[:]", ()),
    "1.19.0": (ETC, r"/(nvidia|nvidia-current)\\.ko", ("After=multi-user.target",)),
    "1.20.0": (
        LIB,
        r"/(nvidia|nvidia-current)[.]ko",
        (
            "ConditionPathExists=|/usr/lib/wsl/lib/nvidia-smi",
            "ExecStartPre=/usr/bin/nvidia-smi -L",
            "Restart=on-failure",
            "RestartSec=1s",
            "StartLimitBurst=5",
            "StartLimitIntervalSec=10s",
        ),
    ),
}
ALL_SERVICES = (
    "ConditionPathExists=|/usr/bin/nvidia-smi",
    "ConditionPathExists=|/usr/sbin/nvidia-smi",
    "ConditionPathExists=/usr/bin/nvidia-ctk",
    "Type=oneshot",
    "Environment=NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/var/run/cdi/nvidia.yaml",
    "EnvironmentFile=-/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env",
    "ExecStart=/usr/bin/nvidia-ctk cdi generate",
    "CapabilityBoundingSet=CAP_SYS_MODULE CAP_SYS_ADMIN CAP_MKNOD",
    "WantedBy=multi-user.target",
)
PATH_UNIT = (
    "PathChanged=/lib/modules/%v/modules.dep",
    "PathChanged=/lib/modules/%v/modules.dep.bin",
    "PathChanged=/usr/bin/nvidia-ctk",
    "WantedBy=multi-user.target",
)
MODULES = {
    "Ubuntu": "updates/dkms/nvidia.ko: kernel/drivers/video/video.ko",
    "Debian": "updates/dkms/nvidia-current.ko:",
    "compressed": "kernel/nvidia-580/nvidia.ko.zst:",
    "compressed on Debian": "updates/dkms/nvidia-current.ko.xz:",
    "none": "kernel/drivers/gpu/drm/nouveau/nouveau.ko:",
}


@cache
def packages(layout: str = "apt-flat") -> dict[tuple[str, str], Package]:
    places = (one for one in read_places() if one.id.startswith("container-toolkit/") and one.layout == layout)
    return {(package.name, package.upstream): package for package in next(places).packages}


def lines(text: str) -> set[str]:
    return {line for line in text.splitlines() if "=" in line and not line.startswith("Description=")}


def unit_files(version: str, directory: str) -> set[str]:
    return {directory + name for name in NAMES} if directory else set()


def test_each_version_has_its_files(record_property: Callable[[str, dict[str, int]], None]) -> None:
    for layout in ("apt-flat", "rpm"):
        for version, (directory, _pattern, _more) in UNITS.items():
            expected = {"/usr/bin/nvidia-ctk", "/usr/bin/nvidia-container-runtime"}
            expected |= {"/usr/bin/nvidia-cdi-hook"} if version != "1.14.6" else set()
            expected |= unit_files(version, directory)
            expected |= {"/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"} if directory else set()
            assert set(packages(layout)[BASE, version].files) == expected, (layout, version)
            hook = packages(layout)["nvidia-container-toolkit", version].files
            assert set(hook) == {"/usr/bin/nvidia-container-runtime-hook"}
    record_property(f"{COUNT}mock container toolkit", {"versions": len(UNITS)})
    assert {version for name, version in packages() if name == BASE} == set(UNITS)


@pytest.mark.parametrize("version", UNITS)
def test_units_are_those_of_the_version(version: str) -> None:
    directory, pattern, more = UNITS[version]
    found = {path: file.value for path, file in packages()[BASE, version].files.items() if path.endswith(NAMES)}
    assert set(found) == unit_files(version, directory)
    if directory:
        service = lines(found[f"{directory}nvidia-cdi-refresh.service"])
        (condition,) = [line for line in service if line.startswith("ExecCondition=")]
        assert pattern in condition
        assert service - {condition} == {*ALL_SERVICES, *more}
        assert lines(found[f"{directory}nvidia-cdi-refresh.path"]) == set(PATH_UNIT)


@pytest.mark.parametrize("version", UNITS)
def test_only_the_last_version_disables_its_units_when_it_goes(version: str) -> None:
    scripts = packages()[BASE, version].scripts
    assert ("systemctl enable" in scripts["postinst"]) is bool(UNITS[version][0])
    assert ("prerm" in scripts) is (UNITS[version][0] == LIB)


@pytest.mark.parametrize("version", UNITS)
def test_the_tools_have_the_very_version_since_1_18(version: str) -> None:
    relation = "=" if UNITS[version][0] else ">="
    depends = packages()["nvidia-container-toolkit", version].relations["depends"]
    assert set(depends) == {f"{BASE} (= {version}-1)", f"libnvidia-container-tools ({relation} {version}-1)"}


@pytest.mark.parametrize("modules", MODULES)
@pytest.mark.parametrize("version", [version for version, facts in UNITS.items() if facts[0]])
def test_the_plan_predicts_the_condition_of_the_unit(version: str, modules: str, tmp_path: Path) -> None:
    """The command of the unit itself, as systemd would run it, on the lines of modules.dep."""
    directory = UNITS[version][0]
    text = packages()[BASE, version].files[f"{directory}nvidia-cdi-refresh.service"].value
    (command,) = re.findall(r"^ExecCondition=(.*)$", text, re.MULTILINE)
    (tmp_path / "modules.dep").write_text(MODULES[modules] + "\n")
    command = (
        command.replace("/lib/modules/%v", str(tmp_path)).replace("\\\\", "\\").replace("/dev/dxg", "/nonexistent")
    )
    met = subprocess.run(shlex.split(command), check=False).returncode == 0
    refresh = Refresh(tuple(sorted(unit_files(version, directory))), modules=MODULES[modules])
    assert toolkit_plan(Request(), Host(packages={BASE: f"{version}-1"}, refresh=refresh)).units is met


# What the real `nvidia-ctk config` prints; those in between print what the one before does.
CONFIGURATIONS = dict(zip(UNITS, ("1.14.6", "1.17.8", "1.18.2", "1.18.2", "1.18.2", "1.20.0"), strict=True))


@pytest.mark.parametrize("version", UNITS)
def test_the_postinst_writes_the_default_configuration_of_its_version(version: str, tmp_path: Path) -> None:
    fixtures = ROOT / "tests" / "unit" / "containers" / "fixtures" / "nvidia-ctk"
    script = packages()[BASE, version].scripts["postinst"].partition("case $(systemctl")[0]
    for _again in range(2):
        subprocess.run(["sh", "-euc", script.replace("/etc/", f"{tmp_path}/")], check=True)
        written = (tmp_path / "nvidia-container-runtime/config.toml").read_text().replace(f"{tmp_path}/", "/etc/")
        assert written == (fixtures / f"config-{CONFIGURATIONS[version]}.toml").read_text()

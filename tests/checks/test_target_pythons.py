# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Code for target hosts, run by every Python of this machine: each gives the same output as the newest one."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checks.conftest import Reported
from tests.checks.controllers import Minor, target_pythons
from tests.checks.tools import ROOT, VENV, check

SIMULATOR = ROOT / "roles" / "gpu_simulator" / "files"
TARGETS = target_pythons()
NEWEST = max(TARGETS)
OTHERS = [minor for minor in TARGETS if minor != NEWEST]
QUERIES = (
    ["-L"],
    ["-q"],
    ["-q", "-x"],
    ["--query-gpu=index,name,uuid,memory.total,ecc.mode.current,mig.mode.current", "--format=csv"],
    ["mig", "-lgip"],
    ["mig", "-lgipp"],
    ["--no-such-option"],
)


class SimulatedHost:
    """Two A100 in MIG mode below a directory; `smi` is an nvidia-smi that the given Python runs."""

    def __init__(self, directory: Path, python: Path) -> None:
        program, root = directory / "gpu-simulator", directory / "root"
        program.mkdir(parents=True)
        (program / "gpu_simulator").symlink_to(SIMULATOR / "gpu_simulator")
        (program / "__main__.py").symlink_to(SIMULATOR / "programs" / "__main__.py")
        (root / "etc" / "gpu-simulator").mkdir(parents=True)
        gpus = [{"model": "a100_40gb", "count": 2}]
        description = {"driver_version": "580.159.04", "seed": "one", "gpus": gpus}
        (root / "etc/gpu-simulator/host.json").write_text(json.dumps(description), encoding="utf-8")
        (root / "dev").mkdir()
        for minor in range(2):
            (root / "dev" / f"nvidia{minor}").touch()
        run = f"GPU_SIMULATOR_ROOT={shlex.quote(str(root))} exec {python} -IS {shlex.quote(str(program))}"
        self.smi = self._command(directory / "nvidia-smi", f'{run} nvidia-smi "$@"')
        control = self._command(directory / "control", f'{run} gpu-simulator "$@"')
        check([control, "init"])
        check([self.smi, "-i", "0", "-mig", "1"])
        check([control, "boot"])

    @staticmethod
    def _command(path: Path, line: str) -> Path:
        path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def reply(self, query: list[str]) -> str:
        """Output of nvidia-smi without timestamps, whatever its exit status."""
        printed = check(["sh", "-c", '"$@" || echo "status $?"', "sh", self.smi, *query])
        return re.sub(r"(?im)^.*timestamp.*$", "", printed)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> dict[Minor, SimulatedHost]:
    """A simulated host for each Python."""
    return {minor: SimulatedHost(tmp_path_factory.mktemp("host"), python) for minor, python in TARGETS.items()}


@pytest.mark.parametrize("query", QUERIES, ids=shlex.join)
def test_simulator_replies_the_same(hosts: dict[Minor, SimulatedHost], query: list[str], reported: Reported) -> None:
    reported("code for target hosts", f"run by Python {', '.join(f'{major}.{minor}' for major, minor in TARGETS)}")
    expected = hosts[NEWEST].reply(query)
    assert expected.strip()
    assert [minor for minor in OTHERS if hosts[minor].reply(query) != expected] == []


def _run_module(hosts: dict[Minor, SimulatedHost], inventory: Path, module: str, **options: object) -> dict[Minor, Any]:
    """Run a module as Ansible does, once by each Python, on that Python's simulated host."""
    names = {f"python{major}.{minor}": (major, minor) for major, minor in TARGETS}
    variables = {
        name: {
            "ansible_connection": "local",
            "ansible_python_interpreter": str(TARGETS[key]),
            "smi": str(hosts[key].smi),
        }
        for name, key in names.items()
    }
    inventory.write_text(json.dumps({"all": {"hosts": variables}}), encoding="utf-8")
    arguments = json.dumps({"executable": "{{ smi }}", **options})
    printed = check([VENV / "bin" / "ansible", "all", "-i", inventory, "-m", module, "-a", arguments, "--one-line"])
    found = re.findall(r"^(\S+) \| (?:SUCCESS|CHANGED) *=> (.*)$", printed, re.MULTILINE)
    return {names[name]: _without_times_of_day(json.loads(result)) for name, result in found}


def _without_times_of_day(result: Any) -> Any:
    if isinstance(result, dict):
        return {k: _without_times_of_day(v) for k, v in result.items() if k not in ("timestamp", "commands")}
    return [_without_times_of_day(item) for item in result] if isinstance(result, list) else result


def test_nvidia_smi_facts_reads_the_same(hosts: dict[Minor, SimulatedHost], tmp_path: Path) -> None:
    results = _run_module(hosts, tmp_path / "hosts.json", "gpu.fleet.nvidia_smi_facts")
    assert results.keys() == TARGETS.keys()
    assert results[NEWEST]["ansible_facts"]["nvidia_smi"]["gpu_count"] == 2
    assert [minor for minor in OTHERS if results[minor] != results[NEWEST]] == []


@pytest.fixture
def run_directory() -> Iterator[None]:
    """Remove /run/gpu-fleet, which holds the module's lock and cache, if it did not exist before."""
    if os.geteuid() != 0:
        pytest.skip("the lock of the modules is in /run/gpu-fleet, where only root can write")
    directory = Path("/run/gpu-fleet")
    existed = directory.exists()
    yield
    if not existed:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.usefixtures("run_directory")
def test_mig_profile_makes_the_same(hosts: dict[Minor, SimulatedHost], tmp_path: Path) -> None:
    desired = {"gpus": [0], "profiles": ["3g.20gb", "1g.5gb"]}
    first = _run_module(hosts, tmp_path / "hosts.json", "gpu.fleet.mig_profile", **desired)
    second = _run_module(hosts, tmp_path / "hosts.json", "gpu.fleet.mig_profile", **desired)
    assert {minor: result["changed"] for minor, result in first.items()} == dict.fromkeys(TARGETS, True)
    assert {minor: result["changed"] for minor, result in second.items()} == dict.fromkeys(TARGETS, False)
    for minor in OTHERS:
        assert hosts[minor].reply(["-L"]) == hosts[NEWEST].reply(["-L"])


@pytest.mark.usefixtures("run_directory")
def test_ecc_mode_and_gpu_settings_make_the_same(hosts: dict[Minor, SimulatedHost], tmp_path: Path) -> None:
    desired: dict[str, dict[str, object]] = {
        "gpu.fleet.ecc_mode": {"gpus": [1], "enabled": False},
        "gpu.fleet.gpu_settings": {"gpus": [1], "persistence_mode": True, "gpu_clocks_mhz": [1000, 1200]},
    }
    for module, options in desired.items():
        first = _run_module(hosts, tmp_path / "hosts.json", module, **options)
        second = _run_module(hosts, tmp_path / "hosts.json", module, **options)
        assert {minor: result["changed"] for minor, result in first.items()} == dict.fromkeys(TARGETS, True)
        assert {minor: result["changed"] for minor, result in second.items()} == dict.fromkeys(TARGETS, False)
        assert [minor for minor in OTHERS if first[minor]["gpus"] != first[NEWEST]["gpus"]] == []
    for minor in OTHERS:
        assert hosts[minor].reply(["-q", "-x"]) == hosts[NEWEST].reply(["-q", "-x"])

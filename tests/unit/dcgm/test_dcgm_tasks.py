# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tasks of nvidia_dcgm in site.yml on mock hosts: their modules, in their order, with what they were given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_dcgm import (
    COUNTERS_FILE,
    DROP_IN,
    EXPORTER_DROP_IN,
    EXPORTER_UNIT,
    PREFERENCES_FILE,
    UNIT,
)

from tests.unit.dcgm.test_dcgm_plan import (
    EXEC_START,
    EXPORTER_START,
    FIRST,
    LISTED,
    NO_ENGINE,
    OLD,
    SERVICE,
    facts,
    installed,
)
from tests.unit.driver.plans import EL
from tests.unit.site.converged import CUDA, NVIDIA_SMI
from tests.unit.site.mock_host import DEBIAN_12, NO_CUDA, NO_DRIVER, MockHost, SiteRun, run_site

pytestmark = pytest.mark.plays

_SYSTEM = {name.removeprefix("ansible_"): value for name, value in DEBIAN_12.items()}
_EL = {**DEBIAN_12, "ansible_pkg_mgr": "dnf", **{f"ansible_{name}": value for name, value in EL.items()}}
_MODULES = (
    *("apt", "copy", "dnf", "file", "managed_record", "package_pin", "signed_repository", "systemd_reload"),
    *("systemd_service", "systemd", "unit_restart", "command", "uri"),
)
_LISTS = "".join(f" {name} | 1:4.5.3-1 | https://x Packages\n" for name in FIRST)
_RESULTS: Mapping[str, Any] = {
    **{name: {"changed": True} for name in _MODULES},
    "signed_repository": {"changed": True, "fingerprints": [], "files": [], "key_file": "", "source_file": ""},
    "managed_facts": {"ansible_facts": {"gpu_fleet_managed": {}}},
    "stat": {"changed": False, "stat": {"exists": False}},
    "command apt-cache madison": {"changed": True, "rc": 0, "stdout": _LISTS, "stderr": ""},
    "command systemctl show": {"changed": True, "rc": 0, "stdout": EXEC_START, "stderr": ""},
    "command dcgmi discovery": {"changed": True, "rc": 0, "stdout": LISTED, "stderr": ""},
}


class Run:
    """A run of the playbook with this role alone."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        variables: Mapping[str, Any] | None = None,
        results: Mapping[str, Any] | None = None,
        **host: Any,
    ) -> None:
        found = {"nvidia_smi": NVIDIA_SMI, "cuda": CUDA, "results": {**_RESULTS, **(results or {})}, **host}
        given = {"gpu_fleet_roles": ["nvidia_dcgm"], **(variables or {})}
        log = directory / "log"
        self.done: SiteRun = run_site(
            directory, {"one": (MockHost(**found), given)}, *arguments, env={"GPU_FLEET_MOCK_LOG": str(log)}
        )
        calls = (line.split("\t", 1) for line in log.read_text().splitlines())
        self.calls = [(name, json.loads(text)) for name, text in calls]

    def given(self, module: str, option: str) -> list[Any]:
        """What the calls of a module were given."""
        return [arguments.get(option) for name, arguments in self.calls if name == module]

    def order(self, *modules: str) -> list[str]:
        """Calls of these modules, one after the other."""
        return [name for name, _arguments in self.calls if name in modules]


def test_a_host_gets_dcgm(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.done.rc == 0, run.done.output
    assert [names for names in run.given("apt", "name") if names] == [[f"{name}=1:4.*-*" for name in FIRST]]
    assert run.given("copy", "dest") == [DROP_IN]
    assert run.given("package_pin", "preferences_file") == [PREFERENCES_FILE]
    assert run.given("unit_restart", "started_after") == [[DROP_IN]]
    # Nothing is stopped where there is no unit.
    assert run.given("systemd_service", "state") == ["started"]
    last = run.calls[-1][1]
    assert (last["role"], last["units"], last["pinned_packages"]) == (
        "nvidia_dcgm",
        {UNIT: {"enabled": True, "active": True, "started_after": [DROP_IN]}},
        FIRST,
    )
    # The intended state comes before what it is about, and the inputs after what proves them.
    own = [arguments for _name, arguments in _records(run)]
    assert ["inputs" in one for one in own] == [False, True]


def _records(run: Run) -> list[tuple[str, Any]]:
    return [(name, given) for name, given in run.calls if name == "managed_record" and given["role"] == "nvidia_dcgm"]


def test_a_running_engine_stops_after_the_package_lists_were_read_and_before_packages_change(tmp_path: Path) -> None:
    run = Run(
        tmp_path,
        variables={"nvidia_dcgm_replace_old": True},
        packages={"dpkg": "1.21", **OLD},
        cuda={**CUDA, "services": {"dcgm": SERVICE}},
    )
    assert run.done.rc == 0, run.done.output
    order = run.order("apt", "systemd_service", "command apt-cache", "command apt-cache madison")
    removed = [given.get("name") for name, given in run.calls if name == "apt" and given.get("state") == "absent"]
    assert removed == [["datacenter-gpu-manager", "datacenter-gpu-manager-config"]]
    assert run.given("systemd_service", "state") == ["stopped", "started"]
    stop = order.index("systemd_service")
    assert order[stop - 1] == "command apt-cache madison" and order[stop + 1 : stop + 3] == ["apt", "apt"]


def test_of_dnf_versions_are_locked_before_they_are_installed(tmp_path: Path) -> None:
    listed = "".join(f"{name} | 1:4.5.3-1\n" for name in FIRST)
    run = Run(
        tmp_path,
        variables={"nvidia_dcgm_version": "4.5.3"},
        results={"command dnf --quiet": {"changed": True, "rc": 0, "stdout": listed, "stderr": ""}},
        system=_EL,
    )
    assert run.done.rc == 0, run.done.output
    (pins,) = run.given("package_pin", "pins")
    assert {"packages": "nv-hostengine", "version": "1:4.5.3-*"} in pins
    assert run.order("dnf", "package_pin") == ["package_pin", "dnf"]
    assert run.given("dnf", "name")[-1] == [f"{name}-1:4.5.3-*" for name in FIRST]


def test_check_mode_reports_and_changes_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, "--check")
    assert run.done.rc == 0, run.done.output
    assert f"one: would install {', '.join(FIRST)}" in run.done.output
    assert run.order("apt", "copy", "systemd_service", "unit_restart") == []


def test_check_mode_of_a_bare_host_leaves_it_out(tmp_path: Path) -> None:
    """The driver that decides the packages is not there."""
    variables = {"gpu_fleet_roles": ["nvidia_driver", "nvidia_dcgm"]}
    run = Run(tmp_path, "--check", variables=variables, nvidia_smi=NO_DRIVER, cuda=NO_CUDA)
    assert "DCGM needs the driver" not in run.done.output
    (tmp_path / "alone").mkdir()
    alone = Run(tmp_path / "alone", "--check", nvidia_smi=NO_DRIVER, cuda=NO_CUDA)
    assert "one: DCGM needs the driver" in alone.done.failure("one")


def test_an_engine_that_does_not_respond_fails_the_run_and_records_no_success(tmp_path: Path) -> None:
    silent = {"changed": True, "rc": 255, "stdout": NO_ENGINE + "nothing was found", "stderr": ""}
    run = Run(tmp_path, results={"command dcgmi discovery": silent})
    assert "one: `dcgmi discovery -l` lists no GPUs: Error: unable to establish" in run.done.failure("one")
    assert ["inputs" in given for _name, given in _records(run)] == [False]


def test_a_version_that_the_repository_does_not_have_stops_before_a_change(tmp_path: Path) -> None:
    run = Run(tmp_path, variables={"nvidia_dcgm_version": "4.4.9"})
    assert "does not have datacenter-gpu-manager-4-core; it has 4.5.3-1" in run.done.failure("one")
    assert run.order("managed_record", "signed_repository", "copy") == []


def test_a_removal_takes_the_packages_of_the_role(tmp_path: Path) -> None:
    record = installed(facts(_SYSTEM))
    run = Run(
        tmp_path,
        variables={"nvidia_dcgm_state": "absent"},
        records={"nvidia_dcgm": record},
        packages={"dpkg": "1.21", **dict.fromkeys(FIRST, "1:4.5.3-1")},
        cuda={**CUDA, "services": {"dcgm": SERVICE}},
    )
    assert run.done.rc == 0, run.done.output
    assert run.given("apt", "name") == [record["data"]["packages"]]
    assert run.given("systemd_service", "enabled") == [None, False]
    assert run.given("systemd_service", "state") == ["stopped", None]
    assert DROP_IN in run.given("file", "path")
    assert run.given("package_pin", "state") == ["absent"]
    assert run.calls[-1][1]["state"] == "absent"


def test_an_exporter_starts_after_the_engine_and_is_read(tmp_path: Path) -> None:
    counters = [{"field": "DCGM_FI_DEV_GPU_TEMP", "type": "gauge", "help": "Temperature."}]
    given = {"nvidia_dcgm_exporter": True, "nvidia_dcgm_exporter_counters": counters}
    lists = _LISTS + " datacenter-gpu-manager-exporter | 4.8.2-1 | https://x Packages\n"
    found = {"command apt-cache madison": {"changed": True, "rc": 0, "stdout": lists, "stderr": ""}}
    shown = {"changed": True, "rc": 0, "stdout": f"{EXEC_START} {EXPORTER_START}", "stderr": ""}
    responds = {"changed": False, "status": 200}
    run = Run(tmp_path, variables=given, results={**found, "command systemctl show": shown, "uri": responds})
    assert run.done.rc == 0, run.done.output
    assert run.given("copy", "dest") == [DROP_IN, EXPORTER_DROP_IN, COUNTERS_FILE]
    assert run.given("systemd_service", "name") == [UNIT, EXPORTER_UNIT]
    assert run.given("uri", "url") == ["http://127.0.0.1:9400/metrics"]
    assert [*run.calls[-1][1]["units"]] == [UNIT, EXPORTER_UNIT]
    (tmp_path / "silent").mkdir()
    silent = Run(tmp_path / "silent", variables=given, results={**found, "command systemctl show": shown, "uri": {}})
    assert "dcgm-exporter does not respond at http://127.0.0.1:9400/metrics" in silent.done.failure("one")
    assert ["inputs" in arguments for _name, arguments in _records(silent)] == [False]

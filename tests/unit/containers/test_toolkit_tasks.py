# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tasks of nvidia_container_toolkit hand to modules, from a first run to the removal, on mock hosts."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles import nvidia_repository

from tests.unit.containers.test_docker_tasks import APT, DNF, DONE, MODULES, Calls
from tests.unit.site.mock_host import NO_CUDA, NO_DRIVER, MockHost, run_site

pytestmark = pytest.mark.plays

TOOLKIT = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
ENGINES = {"docker.io": "26.1.5", "containerd": "1.7.24", "podman": "5.4.2", "cri-o": "1.31.5"}
GPU, SECOND = "GPU-c17fb1f0-eab0-50ac-8ca7-5a0f88ae4bfd", "GPU-c17fb1f1-eab0-50ac-8ca7-5a0f88ae4bfd"
SMI = {
    **NO_DRIVER,
    "available": True,
    "message": None,
    "driver_version": "580.159.04",
    "gpu_count": 2,
    "gpus": [
        {"index": index, "uuid": uuid, "mig_mode_current": "disabled", "mig_devices": []}
        for index, uuid in enumerate((GPU, SECOND))
    ],
}
UNITS = tuple(f"/usr/lib/systemd/system/nvidia-cdi-refresh.{kind}" for kind in ("path", "service"))
LEFT = tuple(f"/etc/systemd/system/nvidia-cdi-refresh.{kind}" for kind in ("path", "service"))
PROGRAMS = ("/usr/bin/nvidia-container-runtime", "/usr/bin/nvidia-container-runtime-hook")
K3S = "/var/lib/rancher/k3s"
WRITTEN = (f"{K3S}/agent/etc/containerd/config.toml", f"{K3S}/server/manifests")
MISSING = {"failed": True, "msg": "file not found: /x"}
CHANGED = {"changed": True, "previous": "", "reason": "", "program": "/usr/libexec/crio/crun", "config": "x"}


def packages(version: str = "1.18.2-1", **engines: str) -> dict[str, str]:
    """The packages of engines, and those of the toolkit where it has a version."""
    return {**(engines or ENGINES), **(dict.fromkeys(TOOLKIT, version) if version else {})}


def text(content: str) -> dict[str, Any]:
    """The result of slurp."""
    return {**DONE, "content": base64.b64encode(content.encode()).decode()}


SPECIFICATION = {**DONE, "stat": {"exists": True, "isdir": False, "checksum": "1234"}}
CONFIG = text("/nvidia-container-runtime runtimes = []")


def cuda(version: str = "1.18.2", *paths: str) -> dict[str, Any]:
    """The facts of CUDA with CDI specifications of both GPUs."""
    specifications = [
        {"path": path, "kind": "nvidia.com/gpu", "devices": ["0", "1", "all"]}
        for path in paths or ("/run/cdi/nvidia.yaml", "/etc/cdi/nvidia.yaml")
    ]
    toolkit = {"installed": bool(version), "version": version or None, "cdi_specifications": specifications}
    return {**NO_CUDA, "container_toolkit": toolkit}


@dataclass(frozen=True)
class Case:
    """A host, the variables of the role without their prefix, and what modules return."""

    variables: Mapping[str, Any] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=packages)
    later: Mapping[str, str] | None = None
    cuda: Mapping[str, Any] = field(default_factory=cuda)
    later_cuda: Mapping[str, Any] | None = None
    smi: Mapping[str, Any] = field(default_factory=lambda: SMI)
    record: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[str] = (*UNITS, *PROGRAMS, *WRITTEN)
    results: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)
    system: Mapping[str, Any] = field(default_factory=lambda: APT)
    tasks: str = "main"
    arguments: Sequence[str] = ()


REPOSITORY = RoleData.read().defaults(["nvidia_repository"])


def _facts(system: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("ansible_"): value for name, value in system.items()}


def role(directory: Path, case: Case) -> Calls:
    """Run tasks of the role alone."""
    playbook, log = directory / "playbook.json", directory / "log"
    include = {
        "ansible.builtin.include_role": {
            "name": "gpu.fleet.nvidia_container_toolkit",
            "tasks_from": case.tasks,
        }
    }
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [include]}]))
    # The repository is there.
    plan = nvidia_repository.plan(
        nvidia_repository.Request.read(REPOSITORY, "container_toolkit"),
        nvidia_repository.Host.of({**_facts(case.system), "gpu_fleet_managed": {}}),
        RoleData.read().tables.keys,
    )
    done = {"inputs": plan.inputs, "drift": [], "data": {"needed_by": ["nvidia_container_toolkit"]}}
    record: dict[str, Any] = {"nvidia_repository.container_toolkit": done}
    if case.record:
        record["nvidia_container_toolkit"] = {"drift": [], "data": {}, **case.record}
    host = MockHost(case.system, case.smi, case.cuda, packages=case.packages, records=record)
    first = host.modules()["host_facts"]
    after = MockHost(case.system, case.smi, case.later_cuda or case.cuda, case.later or case.packages, record).modules()
    known = {
        **dict.fromkeys((*MODULES, "lineinfile", "replace"), DONE),
        "find": {**DONE, "matched": len(case.files), "files": [{"path": path} for path in case.files]},
        "slurp": MISSING,
        "stat": SPECIFICATION,
        "containerd_runtime": CHANGED,
        "crio_runtime": CHANGED,
        "daemon_json": {"changed": True, "differs": True, "backup_file": "/etc/docker/daemon.json.1~"},
        "unit_restart": {"changed": False, "reason": ""},
        "systemd_reload": {"changed": False, "containers": []},
        "systemd_service": {"changed": True, "status": {}},
        "replace": {"changed": True, "msg": "1 replacement"},
        "command nvidia-ctk cdi": {**DONE, "stdout": "kind: nvidia.com/gpu"},
        "command cat /etc/nvidia-container-toolkit/nvidia-cdi-refresh.env": {**DONE, "rc": 1},
        "command grep --extended-regexp": {**DONE, "stdout": "updates/dkms/nvidia.ko:"},
        "command systemctl is-enabled": {**DONE, "rc": 1, "stdout_lines": ["enabled", "disabled"]},
        # Facts, room, and the packages after the installation.
        "host_facts": [first, after["host_facts"]],
        "managed_facts": {"ansible_facts": {"gpu_fleet_managed": record}},
        "cuda_facts": {"ansible_facts": {"cuda": case.later_cuda or case.cuda}},
        **case.results,
    }
    given = {f"nvidia_container_toolkit_{name}": value for name, value in case.variables.items()}
    mock = MockHost(case.system, case.smi, case.cuda, packages=case.packages, records=record, results=known)
    run = run_site(
        directory,
        {"host": (mock, {**given, **case.others})},
        *case.arguments,
        playbook=playbook,
        env={"GPU_FLEET_MOCK_LOG": str(log)},
    )
    lines = log.read_text().splitlines() if log.exists() else []
    return Calls(run, [(line.partition("\t")[0], json.loads(line.partition("\t")[2])) for line in lines])


RECORD: dict[str, Any] = {
    "inputs": "x",
    "data": {
        "docker_options": {"features": {"cdi": True}},
        "runtimes": ["docker", "containerd", "crio", "k3s", "podman"],
        "crio_program": "/usr/libexec/crio/crun",
        "spec_file": "/run/cdi/nvidia.yaml",
        "refreshed": True,
        "management_spec": "/etc/cdi/nvidia-management.yaml",
        "version": "1.18.2",
        "nvidia_docker": True,
    },
}
ALL: dict[str, Any] = {
    "runtimes": ["docker", "containerd", "crio", "podman", "k3s"],
    "default_runtime": True,
    "runtime_class": True,
    "management_device": True,
    "nvidia_docker": True,
}
# The repository is another role's, which is there.
OF_HOST: dict[str, Any] = {"source": "host"}
SLURPED = {"slurp": [CONFIG, CONFIG]}
CDI_REFRESH = ["nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"]


@pytest.mark.parametrize("system", [APT, DNF], ids=["apt", "dnf"])
def test_engines_specification_and_record_are_as_planned(system: Mapping[str, Any], tmp_path: Path) -> None:
    found = role(tmp_path, Case({**ALL, **OF_HOST}, system=system, results=SLURPED))
    assert found.run.rc == 0, found.run.output[-3000:]
    assert {(one["cdi"], one["default"]) for one in (*found.of("containerd_runtime"), *found.of("crio_runtime"))} == {
        (True, True)
    }
    assert [one["name"] for one in found.of("unit_restart")] == [
        *("docker.service", "containerd.service", "crio.service", "k3s.service", "k3s-agent.service")
    ]
    options = {
        "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},
        "features": {"cdi": True},
        "default-runtime": "nvidia",
    }
    assert [one["options"] for one in found.of("daemon_json")] == [options, options]
    assert found.of("replace")[0]["replace"] == '\\1, "/usr/libexec/crio/crun"]'
    lines = [one["line"] for one in found.of("lineinfile")]
    assert lines[0] == "accept-nvidia-visible-devices-envvar-when-unprivileged = false"
    assert ["systemctl", "enable", "--no-reload", *CDI_REFRESH] in found.argv()
    # The other one would hide it.
    assert "/etc/cdi/nvidia.yaml" in [one["path"] for one in found.of("file") if one["state"] == "absent"]
    begun, record = found.of("managed_record")
    # Before the first change, so that also what a killed run leaves is removed: all but the program that CRI-O has.
    ours = ("docker_options", "runtimes", "management_spec", "nvidia_docker")
    assert {name: begun["data"][name] for name in ours} == {name: record["data"][name] for name in ours}
    names = [
        name for name, _arguments in found.calls if name in ("managed_record", "daemon_json", "containerd_runtime")
    ]
    assert names[:2] == ["containerd_runtime", "managed_record"], "the first one previews"
    assert record["data"] == {
        **RECORD["data"],
        "docker_options": options,
        "runtimes": ALL["runtimes"],
        "version": "",
    }
    assert record["json_values"] == {"/etc/docker/daemon.json": options}
    assert record["files"][-2:] == ["/etc/cdi/nvidia-management.yaml", "/run/cdi/nvidia.yaml"]
    assert record["units"]["crio.service"] == {"started_after": ["/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*"]}
    assert record["units"]["nvidia-cdi-refresh.path"] == {"enabled": True, "active": True}
    assert (record["packages"], record["held_packages"]) == ([], [])


PINNED: dict[str, Any] = {"version": "1.18.2"}


@pytest.mark.parametrize(("system", "manager"), [(APT, "apt"), (DNF, "dnf")], ids=["apt", "dnf"])
def test_a_version_is_installed_pinned_and_recorded(system: Mapping[str, Any], manager: str, tmp_path: Path) -> None:
    later = packages("1.18.2-1")
    case = Case(PINNED, packages=packages(""), later=later, cuda=cuda(""), later_cuda=cuda(), system=system)
    found = role(tmp_path, case)
    assert found.run.rc == 0, found.run.output[-3000:]
    sign = "=" if manager == "apt" else "-"
    assert found.of(manager)[0]["name"] == [f"{name}{sign}1.18.2-*" for name in TOOLKIT]
    (pin,) = found.of("package_pin")
    preferences = "/etc/apt/preferences.d/gpu-fleet-nvidia-container-toolkit"
    assert (pin["state"], pin["hold"], pin["preferences_file"]) == ("present", [*TOOLKIT], preferences)
    begun, record = found.of("managed_record")
    names = [name for name, _arguments in found.calls]
    assert begun["data"]["version"] == "1.18.2" and names.index("managed_record") < names.index(manager)
    assert record["packages"] == record["held_packages"] == [*TOOLKIT]
    assert (preferences in record["files"]) is (manager == "apt")


def test_what_a_killed_run_has_configured_is_removed(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    killed = {"failed": True, "msg": "killed"}
    first = role(
        tmp_path / "first", Case({**ALL, **OF_HOST}, results={**SLURPED, "containerd_runtime": [CHANGED, killed]})
    )
    (begun, *_later) = first.of("managed_record")
    record = {"inputs": "", "data": begun["data"]}
    # The packages may be gone meanwhile.
    found = role(tmp_path, Case({"state": "absent"}, packages=packages(""), cuda=cuda(""), record=record))
    assert found.run.rc == 0, found.run.output[-3000:]
    assert "absent" in [one["state"] for one in found.of("containerd_runtime")]
    assert found.of("daemon_json")[-1]["earlier"] == begun["data"]["docker_options"] != {}


def test_another_version_than_the_requested_one_is_refused(tmp_path: Path) -> None:
    case = Case(PINNED, packages=packages(""), later=packages("1.18.0-1"), cuda=cuda(""), later_cuda=cuda("1.18.0"))
    found = role(tmp_path, case)
    assert found.run.failure("host").startswith(
        "host: nvidia_container_toolkit_version is 1.18.2, but 1.18.0-1 was installed; see `apt-cache policy`"
    ), found.run.output[-3000:]
    assert ["inputs" in one for one in found.of("managed_record")] == [False]


def test_the_role_keeps_a_specification_that_the_units_did_not_write(tmp_path: Path) -> None:
    results = {
        "stat": {**DONE, "stat": {"exists": False}},
        "command systemctl show": {**DONE, "stdout": "exec-condition\n"},
    }
    found = role(tmp_path, Case(OF_HOST, results=results))
    assert found.run.rc == 0, found.run.output[-3000:]
    assert "its result is exec-condition" in found.run.output
    assert ["mv", "-f", "/etc/cdi/nvidia.yaml.new", "/etc/cdi/nvidia.yaml"] in found.argv()
    data = found.of("managed_record")[-1]["data"]
    assert (data["spec_file"], data["refreshed"]) == ("/etc/cdi/nvidia.yaml", False)


REFUSED: dict[str, tuple[Case, str]] = {
    "no hook": (
        Case({**OF_HOST, "mode": "legacy"}, files=PROGRAMS[:1]),
        "host: nvidia-container-runtime-hook, which legacy mode needs, is not in /usr/bin; set nvidia_container",
    ),
    "old podman": (
        Case({**OF_HOST, "runtimes": ["podman"]}, packages=packages(podman="3.4.4")),
        "host: podman 3.4 does not support CDI, 4.1 and newer does; set nvidia_container_toolkit_mode",
    ),
    "no specification": (
        Case(
            OF_HOST,
            files=(),
            results={"command nvidia-ctk cdi": {**DONE, "rc": 1, "stderr": "first\nno devices\n"}, "slurp": MISSING},
        ),
        "host: `nvidia-ctk cdi generate` failed: no devices; set nvidia_container_toolkit_source to repository",
    ),
    "another one": (
        Case(OF_HOST, later_cuda=cuda("1.18.2", "/run/cdi/other.yaml")),
        "host: /run/cdi/nvidia.yaml does not match the GPUs of the host, although it was just generated; see",
    ),
    "a GPU that is not there": (
        Case({**OF_HOST, "smoke_requests": [[7]]}, tasks="smoke_test"),
        f"host: there is no GPU or MIG device 7; the host has {GPU}, {SECOND}",
    ),
    "no GPUs": (Case(OF_HOST, smi=NO_DRIVER, tasks="smoke_test"), "host: nvidia-smi is not installed"),
    "other GPUs": (
        Case(
            {**OF_HOST, "smoke_requests": ["all", [0]]},
            tasks="smoke_test",
            results={"command docker run": {**DONE, "stdout": f"UUID: {GPU}\nUUID: {SECOND}"}},
        ),
        f"host: a container with [0] by docker (CDI) sees {GPU}, {SECOND}, expected is {GPU}",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_as_requested_is_refused(name: str, tmp_path: Path) -> None:
    case, message = REFUSED[name]
    found = role(tmp_path, case)
    assert found.run.failure("host").startswith(message), found.run.output[-3000:]
    assert [one for one in found.of("managed_record") if "inputs" in one] == []


def test_predecessors_go_and_daemon_json_stays(tmp_path: Path) -> None:
    results = {
        "stat": {**DONE, "stat": {"exists": True, "isdir": False, "uid": 0, "gid": 0, "mode": "0600"}},
        "command ls --directory": {**DONE, "rc": 2, "stdout_lines": ["/etc/apt/sources.list.d/nvidia-docker.list"]},
        "command docker volume": {**DONE, "stdout_lines": ["v"]},
        "command docker ps": {**DONE, "stdout_lines": ["c0ffee"]},
        "slurp": text("{}"),
    }
    there = {**packages(), "nvidia-docker": "1.0.1", "nvidia-docker2": "2.13.0"}
    found = role(tmp_path, Case(OF_HOST, packages=there, later=packages(), results=results))
    assert found.run.rc == 0, found.run.output[-3000:]
    assert ["docker", "rm", "--force", "c0ffee"] in found.argv()
    assert "/etc/apt/sources.list.d/nvidia-docker.list" in [
        one["path"] for one in found.of("file") if one["state"] == "absent"
    ]
    assert [one["name"] for one in found.of("apt")] == [["nvidia-docker", "nvidia-docker2"]]
    (restored,) = [one for one in found.of("copy") if one["dest"] == "/etc/docker/daemon.json"]
    assert restored["mode"] == "0600"


def test_engines_that_are_no_longer_requested_lose_the_runtime(tmp_path: Path) -> None:
    found = role(tmp_path, Case({**OF_HOST, "runtimes": ["podman"]}, record=RECORD))
    assert found.run.rc == 0, found.run.output[-3000:]
    assert [one["state"] for one in (*found.of("containerd_runtime"), *found.of("crio_runtime"))] == ["absent"] * 2
    assert found.of("replace")[0]["regexp"] == ', "/usr/libexec/crio/crun"'
    assert found.of("daemon_json")[-1]["earlier"] == RECORD["data"]["docker_options"]
    assert found.of("managed_record")[-1]["data"]["runtimes"] == ["podman"]


@pytest.mark.parametrize(
    ("case", "manager"),
    [
        (Case({"state": "absent"}, record=RECORD), "apt"),
        (Case({"state": "absent"}, record=RECORD, system=DNF), "dnf"),
        # Docker goes, and no other engine is requested.
        (Case(packages=packages(podman="5.4.2"), record=RECORD, others={"docker_state": "absent"}), "apt"),
    ],
    ids=["apt", "dnf", "with Docker"],
)
def test_all_that_a_run_has_left_is_removed(case: Case, manager: str, tmp_path: Path) -> None:
    found = role(tmp_path, case)
    assert found.run.rc == 0, found.run.output[-3000:]
    assert [*TOOLKIT] in [one["name"] for one in found.of(manager)]
    assert [(one["state"], one["hold"]) for one in found.of("package_pin")] == [("absent", [*TOOLKIT])]
    gone = {one["path"] for one in found.of("file") if one["state"] == "absent"}
    assert {RECORD["data"]["spec_file"], RECORD["data"]["management_spec"], "/usr/local/bin/nvidia-docker"} <= gone
    assert ["systemctl", "disable", "--no-reload", "--now", *CDI_REFRESH] in found.argv()
    assert found.of("managed_record")[-1]["state"] == "absent"


def test_check_mode_takes_the_steps_of_a_removal(tmp_path: Path) -> None:
    """apt simulates no removal of held packages by itself, and the hold is still there: seen on a real host."""
    seen: dict[bool, Counter[str]] = {}
    for check in (False, True):
        (directory := tmp_path / f"{check}").mkdir()
        arguments = ("--check",) if check else ()
        found = role(directory, Case({"state": "absent"}, record=RECORD, arguments=arguments))
        assert found.run.rc == 0, found.run.output[-3000:]
        assert [one["allow_change_held_packages"] for one in found.of("apt")] == [check]
        assert (f"Would remove {', '.join(TOOLKIT)}" in found.run.output) is check
        seen[check] = Counter(name.partition(" ")[0] for name, _arguments in found.calls)
    # Check mode disables no unit.
    assert seen[False] - seen[True] == Counter(command=1)
    assert seen[True] - seen[False] == Counter()


def test_the_site_playbook_removes_it_with_docker_as_the_role_does(tmp_path: Path) -> None:
    """Also where Docker's role does not run: playbook and role read the same variables."""
    record = {"nvidia_container_toolkit": {"drift": [], **RECORD}}
    results = dict.fromkeys((*MODULES, "lineinfile", "replace", "unit_restart", "daemon_json"), DONE)
    results |= {**dict.fromkeys(("containerd_runtime", "crio_runtime"), CHANGED), "find": {**DONE, "matched": 0}}
    host = MockHost(APT, SMI, cuda(), packages=packages(podman="5.4.2"), records=record, results=results)
    given = {"gpu_fleet_roles": ["nvidia_container_toolkit"], "docker_state": "absent"}
    done = run_site(tmp_path, {"host": (host, given)}, "--check")
    assert done.rc == 0, done.output[-3000:]
    assert f"Would remove {', '.join(TOOLKIT)}" in done.output
    assert "apt" in done.modules["host"]


def test_a_host_that_the_role_has_not_configured_has_nothing_to_update(tmp_path: Path) -> None:
    found = role(tmp_path, Case(packages={"dpkg": "1"}, cuda=cuda(""), tasks="refresh_cdi"))
    assert found.run.rc == 0, found.run.output[-3000:]
    assert {name for name, _arguments in found.calls} == {"host_facts"}
    (tmp_path / "configured").mkdir()
    found = role(tmp_path / "configured", Case(OF_HOST, record=RECORD, tasks="refresh_cdi"))
    assert found.run.rc == 0, found.run.output[-3000:]
    assert "nvidia-cdi-refresh.service" in [one["name"] for one in found.of("systemd_service")]


def test_check_mode_of_a_bare_host_names_what_would_be_installed(tmp_path: Path) -> None:
    bare = Case(packages={"dpkg": "1"}, cuda=cuda(""), smi=NO_DRIVER, files=(), arguments=("--check",))
    found = role(tmp_path, bare)
    assert found.run.rc == 0, found.run.output[-3000:]
    assert f"Would install {', '.join(TOOLKIT)}" in found.run.output
    assert found.of("managed_record") == [] and found.of("apt") == []

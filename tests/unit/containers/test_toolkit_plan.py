# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the container toolkit: engines, packages, CDI specification, options, known vulnerabilities, refusals."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Plan, as_lists, in_order
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_container_toolkit.plan import (
    ENVVAR,
    MOUNTS,
    PACKAGES,
    Host,
    Refresh,
    Request,
    toolkit_plan,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_container_toolkit.stages import PLANNER, plan

GPU, SECOND, MIG = "GPU-0", "GPU-1", "MIG-0"
GPUS = [
    {"index": 0, "uuid": GPU, "mig_mode_current": "disabled", "mig_devices": []},
    {"index": 1, "uuid": SECOND, "mig_mode_current": "enabled", "mig_devices": [{"index": 0, "uuid": MIG}]},
]
DEFAULTS = RoleData.read().defaults(["nvidia_container_toolkit"])
ENGINES = {"docker.io": "26.1.5+dfsg1-9", "podman": "5.4.2+ds1-2", "containerd.io": "2.1.5-1", "cri-o": "1.31.5-1.1"}
ETC_UNITS = ["/etc/systemd/system/nvidia-cdi-refresh.path", "/etc/systemd/system/nvidia-cdi-refresh.service"]
LIB_UNITS = ["/usr/lib/systemd/system/nvidia-cdi-refresh.path", "/usr/lib/systemd/system/nvidia-cdi-refresh.service"]
UBUNTU = "updates/dkms/nvidia.ko: kernel/drivers/video/video.ko\nupdates/dkms/nvidia-drm.ko: updates/dkms/nvidia.ko"
DEBIAN = "updates/dkms/nvidia-current.ko:\nupdates/dkms/nvidia-current-drm.ko: updates/dkms/nvidia-current.ko"
COMPRESSED = "kernel/nvidia-580/nvidia.ko.zst:\nkernel/nvidia-580/nvidia-drm.ko.zst: kernel/nvidia-580/nvidia.ko.zst"


def facts(version: str = "1.20.0", engines: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """The facts of a host, with its `record` and its `refresh`, what is known of the units."""
    packages = {**(ENGINES if engines is None else engines), **({name: f"{version}-1" for name in PACKAGES if version})}
    return {
        "os_family": "Debian",
        "kernel": "6.1.0-38-amd64",
        "packages": {name: [{"version": one}] for name, one in packages.items()},
        "nvidia_smi": {"gpus": GPUS, "available": True, "driver_version": "580.159.04"},
        "cuda": {"container_toolkit": {"installed": bool(version), "version": version, "cdi_specifications": []}},
        "record": {},
        "refresh": {},
        **more,
    }


def named(variables: dict[str, Any]) -> dict[str, Any]:
    """The variables of the role by their names."""
    given = {
        name if name == "docker_state" else f"nvidia_container_toolkit_{name}": one for name, one in variables.items()
    }
    return {**DEFAULTS, **given}


def known(host: dict[str, Any]) -> dict[str, Any]:
    """The facts as Ansible has them."""
    return {**host, "gpu_fleet_managed": {"nvidia_container_toolkit": host["record"]} if host["record"] else {}}


def refresh_of(host: dict[str, Any]) -> Refresh | None:
    """What tasks have read of the units, as the planner reads it."""
    if not host["refresh"]:
        return None
    found = {"environment": "", "modules": None, "result": "", **host["refresh"]}
    read = {"rc": 2} if found["modules"] is None else {"rc": 0, "stdout": found["modules"]}
    files = {"files": [{"path": path} for path in found["files"]]}
    return replace(
        Refresh.of(files, {"results": [{"stdout": found["environment"]}, read, {}]}), result=str(found["result"])
    )


def planned(request: dict[str, Any] | None = None, host: dict[str, Any] | None = None) -> dict[str, Any]:
    """What is decided for variables without their prefix."""
    given, on = dict(request or {}), host or facts()
    check_mode = bool(given.pop("check_mode", False))
    read = Request.read(named(given), check_mode)
    found: dict[str, Any] = as_lists(vars(toolkit_plan(read, Host.of(known(on), refresh_of(on)))))
    return {**found, "engines": [vars(one) for one in found["engines"]]}


def stage(
    name: str, request: dict[str, Any] | None = None, host: dict[str, Any] | None = None, **found: Any
) -> dict[str, Any]:
    """What a stage of the planner finds."""
    on = host or facts()
    result = PLANNER.stages[name](named(request or {}), known(on), {"read": {}, "check_mode": False, **found})
    assert isinstance(result, (Plan, dict))
    plain: dict[str, Any] = result.as_dict() if isinstance(result, Plan) else as_lists(result)
    return plain


# Tasks


NO_GPUS = {"nvidia_smi": {"gpus": [], "available": False, "driver_version": None}}


WITH_OLD = {**ENGINES, "nvidia-docker": "1.0"}
BY_REPOSITORY = {"task_files": ["repository", "install"]}
RECORDED = {"runtimes": ["crio", "docker"], "nvidia_docker": True, "management_spec": "/etc/cdi/m.yaml"}


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize(
    ("given", "host", "expected", "predicted"),
    [
        (
            *({}, facts("")),
            {
                **BY_REPOSITORY,
                "changes": ["packages", "configure"],
                "configure": ["docker", "config", "cdi"],
                "specify": ["cdi_generate"],
            },
            # Nothing is configured where packages are predicted, or an engine.
            {**BY_REPOSITORY, "changes": ["packages"]},
        ),
        ({}, facts("1.20.0", {}), {"changes": ["packages", "configure"]}, {"changes": ["packages"]}),
        (
            *({}, facts("1.20.0", WITH_OLD)),
            {"changes": ["remove_old_volumes", "packages", "remove_old_packages", "configure"]},
            {"changes": ["remove_old_volumes", "packages", "configure"]},
        ),
        (
            *({"source": "host", "runtimes": ["containerd"], "nvidia_docker": True}, facts()),
            *[{"changes": ["configure"], "configure": ["containerd", "config", "cdi", "nvidia_docker"]}] * 2,
        ),
        # What an earlier run has left of an engine, the command, and the management device.
        (
            *({"source": "host", "mode": "legacy"}, facts(record={"data": RECORDED})),
            *[
                {
                    "task_files": ["install"],
                    "configure": ["docker", "crio", "config", "nvidia_docker"],
                    "specify": ["cdi_generate", "cdi_management"],
                }
            ]
            * 2,
        ),
        ({"management_device": True}, facts(), *[{"specify": ["cdi_generate", "cdi_management"]}] * 2),
        # Without a driver there is nothing to specify.
        ({"management_device": True}, {**facts(), **NO_GPUS}, *[{**BY_REPOSITORY, "specify": []}] * 2),
        ({}, facts("1.16.2", refresh={"files": ETC_UNITS}), *[{"specify": ["disable_units", "cdi_generate"]}] * 2),
        ({}, facts(refresh={"files": ETC_UNITS}), *[{"specify": ["cdi_refresh"]}] * 2),
        ({"state": "absent"}, facts(), *[{"task_files": ["remove"]}] * 2),
        ({"state": "absent"}, facts(""), *[{"task_files": []}] * 2),
    ],
)
def test_tasks_that_there_is_work_for(
    given: dict[str, Any], host: dict[str, Any], expected: dict[str, Any], predicted: dict[str, Any], check_mode: bool
) -> None:
    made = plan(Request.read(named(given), check_mode), Host.of(known(host), refresh_of(host))).as_dict()
    lists = ("task_files", "changes", "configure", "specify")
    found = {name: [one["name"] for one in made[name]] for name in lists}
    right = predicted if check_mode else expected
    assert {name: found[name] for name in right} == right


def test_a_converged_host_has_nothing_to_do_but_to_look_at_its_repository() -> None:
    inputs = stage("plan")["inputs"]
    found = stage("plan", host=facts(record={"inputs": inputs}))
    assert (found["steps"], found["task_files"], found["is_predicted"]) == ([], in_order(["repository"]), False)


@pytest.mark.parametrize("check_mode", [False, True])
def test_check_mode_predicts_repairs(check_mode: bool) -> None:
    drift = [{"message": "/etc/cdi/nvidia.yaml is gone"}]
    assert stage("plan", host=facts(record={"drift": drift}), check_mode=check_mode)["is_predicted"] is check_mode
    assert not stage("plan", check_mode=check_mode)["is_predicted"]


def test_the_task_that_generates_warns_of_units_that_do_not() -> None:
    refresh = {"files": ETC_UNITS, "output": "", "modules": UBUNTU, "result": ""}
    read: dict[str, Any] = {"made": {"rc": 0, "stdout": "devices: []"}, "spec": {"failed": True, "msg": "not found"}}
    ended = {"stdout": "exec-condition\n"}
    found = stage("generated", host=facts("1.18.2"), read={"refresh": refresh}, units_failed=True, ended=ended, **read)
    (warning,) = found["warnings"]
    assert "its result is exec-condition; the role generates /etc/cdi/nvidia.yaml itself, run it again" in warning
    assert (found["content"], found["differs"], found["spec_file"]) == ("devices: []\n", True, "/etc/cdi/nvidia.yaml")
    assert stage("generated", host=facts("1.18.2"), units_failed=False, **read)["warnings"] == []


@pytest.mark.parametrize(
    ("there", "refusals"),
    [
        ({"content": base64.b64encode(b"devices: []\n").decode()}, []),
        ({"failed": True, "msg": "file is not readable: /x"}, ["file is not readable: /x"]),
    ],
)
def test_a_specification_that_is_there_is_compared(there: dict[str, Any], refusals: list[str]) -> None:
    made = {"rc": 0, "stdout": "devices: []"}
    found = stage("generated", host=facts("1.18.2"), units_failed=False, made=made, spec=there)
    assert found["refusals"] == refusals
    assert refusals or not found["differs"]


# Engines


@pytest.mark.parametrize(
    ("state", "recorded", "left"),
    [
        ("present", ["docker", "crio", "podman"], ["crio"]),
        ("absent", ["docker", "crio", "podman"], ["docker", "crio"]),
        # The record is the host's, and the name becomes that of a task file on the controller.
        ("absent", ["/../../../../../tmp/evil", {"a": 1}, 7, None], []),
        ("absent", "docker", []),
        ("absent", {"docker": 1}, []),
    ],
)
def test_engines_that_an_earlier_run_has_configured(state: str, recorded: Any, left: list[str]) -> None:
    host = facts(record={"inputs": "x", "data": {"runtimes": recorded}, "drift": []})
    assert planned({"state": state}, host)["unconfigure"] == left


def test_the_first_package_of_an_engine_counts() -> None:
    engines = {"docker-ce": "5:29.3.0-1~debian.13~trixie", "docker.io": "26.1.5+dfsg1-9"}
    assert planned(host=facts(engines=engines))["engines"] == [{"name": "docker", "version": "26.1"}]
    assert planned(host=facts(engines={"docker-ce": "5:29.3.0-1"}))["engines"] == [
        {"name": "docker", "version": "29.3"}
    ]


@pytest.mark.parametrize(
    ("engine", "package", "version", "has_cdi"),
    [
        ("docker", "docker.io", "20.10.24+dfsg1-1", False),
        ("docker", "docker.io", "26.1.5+dfsg1-9", True),
        ("docker", "docker-ce", "5:25.0.0-1", True),
        ("containerd", "containerd", "1.6.20~ds1-1", False),
        ("containerd", "containerd.io", "1.7.24-1", True),
        ("containerd", "containerd", "2.1.9+ds1-5", True),
        ("crio", "cri-o", "1.22.1", False),
        ("crio", "cri-o", "1.31.5", True),
        ("podman", "podman", "3.4.4+ds1-1", False),
        ("podman", "podman", "4.3.1+ds1-8", True),
    ],
)
def test_which_engines_read_cdi_specifications(engine: str, package: str, version: str, has_cdi: bool) -> None:
    plan = planned({"runtimes": [engine]}, facts(engines={package: version}))
    assert (plan["engines_with_cdi"], plan["uses_cdi"]) == ([engine] if has_cdi else [], has_cdi)
    refused = planned({"runtimes": [engine], "mode": "cdi"}, facts(engines={package: version}))["refusals"]
    assert bool(refused) is not has_cdi
    assert planned({"runtimes": [engine], "mode": "legacy"}, facts(engines={package: version}))["uses_cdi"] is False


@pytest.mark.parametrize(
    ("request_", "engines", "reason"),
    [
        ({"runtimes": ["docker"]}, {}, "Docker is not installed; run the role gpu.fleet.docker first"),
        ({"runtimes": ["crio", "podman"]}, {}, "CRI-O, podman is not installed"),
        ({"runtimes": ["crio"], "check_mode": True}, {}, "CRI-O is not installed"),
        ({"runtimes": ["podman"]}, {"podman": "3.4.4"}, "podman 3.4 does not support CDI, 4.1 and newer does"),
        ({"mode": "cdi"}, {"docker.io": "20.10.24"}, "Docker 20.10 does not support CDI, 25 and newer does"),
        ({"runtimes": ["podman"], "mode": "legacy"}, ENGINES, "podman supports GPUs through CDI only"),
        (
            {"version": "1.18"},
            ENGINES,
            "nvidia_container_toolkit_version is 1.18; it has to be a version such as 1.18.0",
        ),
        ({"version": "newest"}, ENGINES, "nvidia_container_toolkit_version is newest"),
    ],
)
def test_what_cannot_be_met_is_refused(request_: dict[str, Any], engines: dict[str, str], reason: str) -> None:
    (found,) = planned(request_, facts(engines=engines))["refusals"]
    assert found.startswith(reason)


@pytest.mark.parametrize("name", ["k3s", "rke2"])
def test_an_embedded_containerd_is_in_no_package(name: str) -> None:
    plan = planned({"runtimes": [name], "mode": "cdi"}, facts(engines={}))
    assert (plan["missing_engines"], plan["refusals"], plan["uses_cdi"]) == ([], [], True)


def test_in_check_mode_docker_may_be_about_to_be_installed() -> None:
    assert planned({"check_mode": True}, facts(engines={}))["refusals"] == []


def test_without_any_engine_the_toolkit_goes() -> None:
    assert planned({"docker_state": "absent"})["state"] == "absent"
    assert planned({"docker_state": "absent", "runtimes": ["docker", "podman"]})["runtimes"] == ["podman"]


# Packages


@pytest.mark.parametrize(
    ("source", "version", "package", "expected"),
    [
        ("auto", "", False, "repository"),
        ("auto", "1.18.2", False, "host"),
        ("auto", "1.18.2", True, "repository"),
        ("host", "", False, "host"),
        ("repository", "1.18.2", False, "repository"),
    ],
)
def test_where_the_toolkit_comes_from(source: str, version: str, package: bool, expected: str) -> None:
    host = facts(version if package else "")
    host["cuda"]["container_toolkit"] |= {"installed": bool(version), "version": version or None}
    plan = planned({"source": source}, host)
    assert (plan["source"], plan["version"]) == (expected, version)
    assert plan["missing"] == ([] if package or expected == "host" else list(PACKAGES))


def test_the_four_packages_have_one_version() -> None:
    host = facts("1.17.8")
    assert planned(host=host)["version_matches"]
    assert planned({"version": "1.17.8"}, host)["version_matches"]
    assert not planned({"version": "1.18.0"}, host)["version_matches"]
    assert planned({"version": "1.18.0"}, host)["install"][0] == "nvidia-container-toolkit=1.18.0-*"
    assert (
        planned({"version": "1.18.0"}, {**host, "os_family": "RedHat"})["install"][0]
        == "nvidia-container-toolkit-1.18.0-*"
    )
    host["packages"]["libnvidia-container1"] = [{"version": "1.17.4-1"}]
    mixed = planned(host=host)
    assert (mixed["version_matches"], mixed["package_state"]) == (False, "latest")


# Known vulnerabilities


ALL = [
    *(f"CVE-2024-0{number}" for number in range(132, 138)),
    *("CVE-2025-23359", "CVE-2025-23266", "CVE-2025-23267", "CVE-2026-24260"),
]


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("1.14.6", ALL),
        ("1.16.1", ALL),
        ("1.16.2", ALL[2:]),
        ("1.17.0~rc.1", ALL[3:]),
        ("1.17.3-1", ALL[6:]),
        ("1.17.4", ALL[7:]),
        ("1.17.7", ALL[7:]),
        ("1.17.8", ALL[9:]),
        ("1.19.0", ALL[9:]),
        ("1.19.1", []),
        ("1.20.0", []),
        ("", []),
    ],
)
def test_a_version_with_known_vulnerabilities_is_named(version: str, names: list[str]) -> None:
    plan = planned(host=facts(version))
    assert plan["vulnerabilities"] == names
    assert len(plan["warnings"]) == bool(names)
    assert all("1.19.1 and newer have none of them" in warning and names[0] in warning for warning in plan["warnings"])


def test_a_pin_does_not_hold_such_a_version_in_silence() -> None:
    host = facts("1.17.4")
    first = planned({"version": "1.17.4"}, host)
    assert "which nvidia_container_toolkit_version=1.17.4 holds" in first["warnings"][0]
    converged = planned({"version": "1.17.4"}, {**host, "record": {"inputs": first["inputs"], "data": {}, "drift": []}})
    assert converged["is_converged"]
    assert converged["warnings"] == first["warnings"]
    # Before the first installation the requested version is what will be held.
    assert "CVE-2025-23266" in planned({"version": "1.17.4"}, facts(""))["warnings"][0]


# The CDI specification


@pytest.mark.parametrize(
    ("version", "files", "modules", "units", "because"),
    [
        ("1.17.8", [], UBUNTU, False, ""),
        ("1.18.0", ETC_UNITS, UBUNTU, True, ""),
        ("1.18.0", ETC_UNITS, COMPRESSED, True, ""),
        ("1.18.0", ETC_UNITS, DEBIAN, False, "in toolkit 1.18.0 does not match updates/dkms/nvidia-current.ko"),
        ("1.18.1", ETC_UNITS, UBUNTU, True, ""),
        ("1.18.1", ETC_UNITS, DEBIAN, True, ""),
        ("1.18.1", ETC_UNITS, COMPRESSED, False, "in toolkit 1.18.1 does not match kernel/nvidia-580/nvidia.ko.zst"),
        ("1.18.2", ETC_UNITS, COMPRESSED, True, ""),
        ("1.18.2", ETC_UNITS, DEBIAN, True, ""),
        ("1.19.1", ETC_UNITS, COMPRESSED, True, ""),
        ("1.20.0", LIB_UNITS, DEBIAN, True, ""),
        ("1.20.1", LIB_UNITS, DEBIAN, True, ""),
        ("1.20.1", LIB_UNITS, COMPRESSED, True, ""),
        ("1.20.0", LIB_UNITS, None, True, ""),
        ("1.20.0", LIB_UNITS, "", False, "in toolkit 1.20.0 finds no module nvidia.ko"),
        # Of an image that brought the toolkit without its units.
        ("1.20.0", [], UBUNTU, False, ""),
        # Left behind by a newer version.
        ("1.17.8", ETC_UNITS, UBUNTU, False, ""),
    ],
)
def test_who_keeps_the_specification(
    version: str, files: list[str], modules: str | None, units: bool, because: str
) -> None:
    plan = planned(host=facts(version, refresh={"files": files, "modules": modules}))
    assert (plan["units"], plan["spec_file"]) == (units, "/run/cdi/nvidia.yaml" if units else "/etc/cdi/nvidia.yaml")
    assert because in plan["because"] and bool(because) is bool(plan["because"])


def test_the_role_takes_over_where_the_units_wrote_nothing() -> None:
    plan = planned(host=facts("1.18.2", refresh={"files": ETC_UNITS, "result": "exec-condition"}))
    assert (plan["units"], plan["spec_file"]) == (False, "/etc/cdi/nvidia.yaml")
    assert plan["because"].endswith("its result is exec-condition")


@pytest.mark.parametrize("version", ["1.17.8", "1.14.6"])
def test_units_of_a_newer_toolkit_are_removed(version: str) -> None:
    stale = planned(host=facts(version, refresh={"files": ETC_UNITS}))["stale_files"]
    assert set(ETC_UNITS) < set(stale)
    assert "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env" in stale
    assert "/etc/systemd/system/multi-user.target.wants/nvidia-cdi-refresh.path" in stale
    for own in ("1.18.0", "1.19.1"):
        assert planned(host=facts(own, refresh={"files": ETC_UNITS}))["stale_files"] == []


@pytest.mark.parametrize(
    ("environment", "modules", "spec_file"),
    [
        ("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/etc/cdi/gpus.yaml\n", UBUNTU, "/etc/cdi/gpus.yaml"),
        ('NVIDIA_CTK_CDI_OUTPUT_FILE_PATH="/var/run/cdi/gpus.json"', UBUNTU, "/run/cdi/gpus.json"),
        ("#NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/etc/cdi/gpus.yaml\n", UBUNTU, "/run/cdi/nvidia.yaml"),
        ("NVIDIA_CTK_DEBUG=true\n", UBUNTU, "/run/cdi/nvidia.yaml"),
        # Without the units, nothing writes below /run again at boot.
        ("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/run/cdi/gpus.yaml", "", "/etc/cdi/nvidia.yaml"),
        ("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/etc/cdi/gpus.yaml", "", "/etc/cdi/gpus.yaml"),
    ],
)
def test_an_output_path_in_the_environment_file_counts(environment: str, modules: str, spec_file: str) -> None:
    plan = planned(host=facts("1.18.2", refresh={"files": ETC_UNITS, "environment": environment, "modules": modules}))
    assert (plan["spec_file"], plan["refusals"]) == (spec_file, [])


@pytest.mark.parametrize("path", ["/opt/nvidia.yaml", "/etc/cdi/nvidia"])
def test_an_output_path_where_no_engine_reads_is_refused(path: str) -> None:
    environment = f"NVIDIA_CTK_CDI_OUTPUT_FILE_PATH={path}"
    (reason,) = planned(host=facts("1.18.2", refresh={"files": ETC_UNITS, "environment": environment}))["refusals"]
    assert f"nvidia-cdi-refresh.env is {path}, where no engine reads it" in reason


def specification(*devices: str, path: str = "/etc/cdi/nvidia.yaml", kind: str = "nvidia.com/gpu") -> dict[str, Any]:
    return {"path": path, "kind": kind, "devices": list(devices)}


def with_specifications(*specifications: dict[str, Any]) -> dict[str, Any]:
    host = facts("1.17.8")
    host["cuda"]["container_toolkit"]["cdi_specifications"] = list(specifications)
    return host


@pytest.mark.parametrize(
    ("devices", "matches", "name_of_gpu", "name_of_mig"),
    [
        (["0", GPU, "1:0", MIG, "all"], True, GPU, MIG),
        (["0", "1:0", "all"], True, "0", "1:0"),  # the toolkit 1.14
        ([GPU, MIG, "all"], True, GPU, MIG),
        (["gpu0", "mig1:0", "all"], True, "gpu0", "mig1:0"),
        (["0", "all"], False, "0", MIG),
        (["0", "1", "1:0", "all"], True, "0", "1:0"),
        (["0", "1:0", "1:1", "all"], False, "0", "1:0"),
        ([], False, GPU, MIG),
    ],
)
def test_names_in_the_specification(devices: list[str], matches: bool, name_of_gpu: str, name_of_mig: str) -> None:
    plan = planned(host=with_specifications(specification(*devices)))
    assert plan["spec_matches"] is matches
    assert (plan["device_names"][GPU], plan["device_names"][MIG]) == (name_of_gpu, name_of_mig)
    assert plan["device_names"]["all"] == "all"


def test_another_specification_with_the_same_devices_conflicts() -> None:
    other = specification("all", path="/run/cdi/other.yaml")
    unrelated = [
        specification("all", path="/etc/cdi/nvidia-management.yaml", kind="management.nvidia.com/gpu"),
        specification("0", path="/run/cdi/part.yaml"),
    ]
    plan = planned(host=with_specifications(specification("0", "all"), other, *unrelated))
    assert (plan["conflicting"], plan["is_converged"]) == (["/run/cdi/other.yaml"], False)


# The toolkit's own options


@pytest.mark.parametrize(
    ("request_", "config", "warnings"),
    [
        ({}, {}, 0),
        ({"runtimes": ["podman"]}, {}, 0),
        ({"runtimes": ["containerd"]}, {ENVVAR: False}, 0),
        ({"runtimes": ["docker", "crio"]}, {ENVVAR: False}, 0),
        ({"runtimes": ["k3s"]}, {ENVVAR: False}, 0),
        ({"runtimes": ["docker", "containerd"], "mode": "legacy"}, {}, 1),
        ({"runtimes": ["containerd"], "accept_envvar": "always"}, {}, 0),
        ({"runtimes": ["docker"], "accept_envvar": "never"}, {ENVVAR: False}, 0),
        ({"runtimes": ["containerd"], "accept_volume_mounts": "always"}, {ENVVAR: False, MOUNTS: True}, 0),
        ({"runtimes": ["containerd"], "state": "absent"}, {}, 0),
    ],
)
def test_who_may_request_gpus_by_a_variable(request_: dict[str, Any], config: dict[str, bool], warnings: int) -> None:
    plan = planned(request_)
    assert (plan["config"], len(plan["warnings"])) == (config, warnings)
    assert plan["config_lines"] == {
        ENVVAR: f"{ENVVAR} = false" if ENVVAR in config else f"#{ENVVAR} = true",
        MOUNTS: f"{MOUNTS} = true" if MOUNTS in config else f"#{MOUNTS} = false",
    }


def test_podmans_old_hook_is_removed_where_podman_is_configured() -> None:
    hook = "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"
    assert hook not in planned()["old_files"]
    assert hook in planned({"runtimes": ["podman"]})["old_files"]


# Convergence


@pytest.mark.parametrize(
    "change",
    [
        {"version": "1.19.0"},
        {"mode": "legacy"},
        {"nvidia_docker": True},
        {"management_device": True},
        {"accept_envvar": "never"},
        {"default_runtime": True},
        {"runtime_class": True},
        {"source": "host"},
        {"runtimes": ["docker", "podman"]},
    ],
)
def test_a_change_of_a_variable_is_seen(change: dict[str, Any]) -> None:
    host = facts()
    recorded = {**host, "record": {"inputs": planned(host=host)["inputs"], "data": {}, "drift": []}}
    assert planned(host=recorded)["is_converged"]
    assert not planned(change, recorded)["is_converged"]


@pytest.mark.parametrize(
    "change",
    [
        {"nvidia_smi": {"gpus": GPUS[:1], "available": True, "driver_version": "580.159.04"}},
        {"nvidia_smi": {"gpus": GPUS, "available": True, "driver_version": "595.71.05"}},
        {"packages": facts("1.19.0")["packages"]},
        {"packages": {**facts()["packages"], "nvidia-docker2": [{"version": "2.13.0-1"}]}},
    ],
)
def test_a_change_of_the_host_is_seen(change: dict[str, Any]) -> None:
    host = facts()
    record = {"inputs": planned(host=host)["inputs"], "data": {}, "drift": []}
    assert not planned(host={**host, "record": record, **change})["is_converged"]
    drifted = {**record, "drift": [{"message": "edited"}]}
    assert not planned(host={**host, "record": drifted})["is_converged"]

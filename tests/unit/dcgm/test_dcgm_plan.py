# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role nvidia_dcgm plans, refuses and reads back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.gpu_clients import WATCHERS, clients
from ansible_collections.gpu.fleet.plugins.module_utils._common.services import DAEMONS
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge import dcgm
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Outlook, Plan, Readings, RequestError
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_dcgm import (
    COUNTERS_FILE,
    DROP_IN,
    EXPORTER_DROP_IN,
    EXPORTER_UNIT,
    PLANNER,
    UNIT,
)

from tests.conftest import ROOT
from tests.unit.driver.plans import DEBIAN, EL, UBUNTU
from tests.unit.site.converged import NVIDIA_SMI
from tests.unit.site.mock_host import NO_DRIVER

FILES = RoleData.read()
H200, V100 = ({"device_id": one, "vendor_id": "10de", "name": ""} for one in ("0x2335", "0x1db6"))
SERVICE = {"installed": True, "version": "4.5.3", "unit": UNIT, "state": "active"}
OLD = {"datacenter-gpu-manager": "1:3.3.9", "datacenter-gpu-manager-config": "1:3.3.9"}
FIRST = [
    "datacenter-gpu-manager-4-core",
    "datacenter-gpu-manager-4-cuda13",
    "datacenter-gpu-manager-4-proprietary",
    "datacenter-gpu-manager-4-proprietary-cuda13",
]


def variables(**given: Any) -> dict[str, Any]:
    named = {f"nvidia_dcgm_{name}": value for name, value in given.items()}
    return FILES.planner_values("nvidia_dcgm", {**FILES.defaults(["nvidia_dcgm"]), **named}, PLANNER.tables)


def facts(
    system: Mapping[str, Any] = DEBIAN,
    *,
    smi: Mapping[str, Any] | None = None,
    packages: Mapping[str, str] | None = None,
    service: Mapping[str, Any] | None = None,
    record: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        **system,
        "nvidia_smi": {**NVIDIA_SMI, **(smi or {})},
        "cuda": {"services": {"dcgm": service or {}}},
        "packages": {name: [{"version": version}] for name, version in (packages or {}).items()},
        "gpu_fleet_managed": {"nvidia_dcgm": record} if record else {},
    }


def ps(text: str) -> dict[str, Any]:
    (command,) = PLANNER.needs(variables()).commands
    return {"files": {}, "commands": [{"argv": [*command], "stdout": text}]}


def planned(host: Mapping[str, Any] | None = None, stage: str = "plan", found: Any = None, **given: Any) -> Plan:
    result = PLANNER.stages[stage](variables(**given), host or facts(), found or {})
    assert isinstance(result, Plan)
    return result


def refusal(host: Mapping[str, Any] | None = None, found: Any = None, **given: Any) -> str:
    (text,) = planned(host, found=found, **given).refusals
    return text


def installed(host: Mapping[str, Any], **given: Any) -> dict[str, Any]:
    """The record after the role has run on the host."""
    plan = planned(host, **given)
    assert (plan.refusals, plan.steps) == ((), ("install",))
    return {"inputs": plan.inputs, "drift": [], "data": plan.tasks["record"]["data"]}


# Packages


def test_packages_are_those_of_the_cuda_of_the_driver() -> None:
    tasks = planned().tasks
    assert tasks["installed"] == [f"{name}=1:4.*-*" for name in FIRST]
    assert {"packages": "nv-hostengine", "version": "1:4.*-*"} in tasks["pins"]
    assert (tasks["record"]["data"]["version_locks"], tasks["record"]["lines"]) == ([], {})
    twelve = facts(smi={"driver_version": "570.195.03", "cuda_version": "12.8"})
    assert [name.partition("=")[0][-6:] for name in planned(twelve).tasks["installed"]][1::2] == ["cuda12", "cuda12"]


def test_of_dnf_they_are_locked() -> None:
    tasks = planned(facts(EL), version="4.5.3").tasks
    assert tasks["installed"] == [f"{name}-1:4.5.3-*" for name in FIRST]
    locks = tasks["record"]["data"]["version_locks"]
    assert locks == [f"{pin['packages']}-{pin['version']}" for pin in tasks["pins"]]
    assert locks[0] == "datacenter-gpu-manager-4-core-1:4.5.3-*"
    assert tasks["record"]["lines"] == {"/etc/dnf/plugins/versionlock.list": locks}
    assert "/etc/apt/preferences.d/gpu-fleet-dcgm" not in tasks["record"]["files"]


@pytest.mark.parametrize(
    ("version", "pin"), [("4", "1:4.*-*"), ("4.5", "1:4.5.*-*"), ("4.5.3", "1:4.5.3-*")], ids=["major", "minor", "all"]
)
def test_the_version_is_pinned_as_far_as_it_is_given(version: str, pin: str) -> None:
    assert {one["version"] for one in planned(version=version).tasks["packages"]} == {pin}


def test_a_gpu_that_cuda_13_has_left_out_gets_the_packages_that_it_runs() -> None:
    """DCGM issue 254: V100 with driver 580 needs both."""
    mixed = planned(facts(smi={"pci_gpus": [H200, V100]}))
    assert mixed.tasks["record"]["data"]["cuda"] == ["12", "13"]
    assert planned(facts(smi={"pci_gpus": [H200]})).tasks["record"]["data"]["cuda"] == ["13"]
    assert planned(facts(smi={"pci_gpus": [V100]}), cuda=["13"]).tasks["record"]["data"]["cuda"] == ["13"]


def test_another_cuda_of_the_driver_is_work_and_removes_the_packages_of_the_other() -> None:
    twelve = facts(smi={"driver_version": "570.195.03", "cuda_version": "12.8"})
    record = installed(twelve)
    assert planned({**twelve, "gpu_fleet_managed": {"nvidia_dcgm": record}}).steps == ()
    newer = planned(facts(record=record))
    assert newer.steps == ("install",)
    assert newer.tasks["obsolete"]["packages"][:2] == [
        "datacenter-gpu-manager-4-cuda12",
        "datacenter-gpu-manager-4-proprietary-cuda12",
    ]


def test_a_driver_that_does_not_respond_for_the_moment_is_no_other_one() -> None:
    record = installed(facts())
    silent = facts(smi=NO_DRIVER, record=record)
    assert (planned(silent).steps, planned(silent).refusals) == ((), ())
    drifted = {**record, "drift": [{"message": "nvidia-dcgm.service is not active"}]}
    repaired = planned(facts(smi=NO_DRIVER, record=drifted))
    assert (repaired.steps, repaired.refusals, repaired.reasons) == (
        ("install",),
        (),
        ("nvidia-dcgm.service is not active",),
    )
    assert repaired.inputs == record["inputs"]


def test_a_host_as_requested_has_no_work_whatever_runs_there() -> None:
    host = facts(record=installed(facts()), packages=dict.fromkeys(FIRST, "1:4.5.3-1"), service=SERVICE)
    assert planned(host, found={"readings": ps("nv-hostengine 0::/kubepods.slice/a\n")}) == planned(host)
    assert planned(host).steps == ()
    assert planned(host, replace_old=True).steps == ()


# The service


def test_the_host_engine_listens_on_the_loopback_address_alone() -> None:
    tasks = planned().tasks
    (drop_in,) = tasks["files"]
    lines = drop_in["content"].splitlines()
    commands = [line for line in lines if line.startswith("ExecStart=")]
    # The first takes the command of the package away.
    assert commands == [
        "ExecStart=",
        "ExecStart=/usr/bin/nv-hostengine -n --service-account nvidia-dcgm --bind-interface 127.0.0.1",
    ]
    assert tasks["record"]["units"] == {UNIT: {"enabled": True, "active": True, "started_after": [drop_in["dest"]]}}
    assert drop_in["dest"] == "/etc/systemd/system/nvidia-dcgm.service.d/zz-gpu-fleet.conf"


def test_its_unit_is_one_that_is_stopped_while_gpus_have_to_be_idle() -> None:
    assert UNIT in WATCHERS
    assert UNIT in next(one.units for one in DAEMONS if one.name == "dcgm")


def test_a_running_engine_is_stopped_before_its_libraries_change() -> None:
    assert planned(facts(service=SERVICE, packages=dict.fromkeys(FIRST, "1:4.4.1-1"))).tasks["stopped_units"] == [UNIT]
    # There is no unit that systemd could stop.
    assert planned().tasks["stopped_units"] == []


EXEC_START = (
    "{ path=/usr/bin/nv-hostengine ; argv[]=/usr/bin/nv-hostengine -n --service-account nvidia-dcgm "
    "--bind-interface 127.0.0.1 ; ignore_errors=no ; start_time=[n/a] }"
)
# As DCGM 4.7.0 prints it (https://github.com/NVIDIA/DCGM/issues/314), and 3.x and 4.2 its first line.
LISTED = """\
2 GPUs found (Active).
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
"""
NO_ENGINE = (
    "Error: unable to establish a connection to the specified host: localhost\n"
    "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.\n"
)


@pytest.mark.parametrize("discovery", [LISTED, "2 GPUs found.\n", "3 GPUs found.\n0 NvSwitches found.\n"])
def test_what_was_read_back_is_as_declared(discovery: str) -> None:
    assert (
        planned(
            stage="verify", found={"commands": {"results": [{"stdout": EXEC_START}]}, "discovery": discovery}
        ).refusals
        == ()
    )


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"discovery": "1 GPU found.\n"}, "lists 1 of the 2 GPUs that nvidia-smi lists"),
        ({"discovery": NO_ENGINE}, "lists no GPUs: Error: unable to establish a connection"),
        ({"discovery": ""}, "lists no GPUs: it printed nothing"),
        ({"discovery": "No 2 GPUs found\n"}, "lists no GPUs: No 2 GPUs found"),
        ({"discovery": "²2 GPUs found.\n"}, "lists no GPUs"),
        ({"discovery": "x" * 10_000}, "lists no GPUs: xxx"),
        (
            {"commands": {"results": [{"stdout": EXEC_START.replace("127.0.0.1", "0.0.0.0")}]}},
            "does not start nv-hostengine with",
        ),
        (
            {"commands": {"results": [{"stdout": EXEC_START.replace("127.0.0.1", "127.0.0.100")}]}},
            "does not start nv-hostengine with",
        ),
        (
            {"commands": {"results": [{"stdout": ""}]}},
            "see `systemctl cat nvidia-dcgm.service` for a drop-in that counts after",
        ),
    ],
)
def test_another_service_than_declared_is_refused(found: dict[str, Any], words: str) -> None:
    (text,) = planned(
        stage="verify", found={"commands": {"results": [{"stdout": EXEC_START}]}, "discovery": LISTED, **found}
    ).refusals
    assert words in text and len(text) < 400


def test_a_gpu_that_does_not_respond_is_not_expected_of_dcgm() -> None:
    gpus = [NVIDIA_SMI["gpus"][0], {**NVIDIA_SMI["gpus"][1], "error": "GPU is lost"}]
    found = {"commands": {"results": [{"stdout": EXEC_START}]}, "discovery": "1 GPU found (Active).\n"}
    assert planned(facts(smi={"gpus": gpus}), "verify", found).refusals == ()


# The exporter


EXPORTER = "datacenter-gpu-manager-exporter"
TENSOR = {"field": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "type": "gauge", "help": "Ratio of cycles of the tensor cores."}
WITH_EXPORTER: Mapping[str, Any] = {"exporter": True, "exporter_counters": [TENSOR]}
EXPORTER_START = (
    "{ path=/usr/bin/dcgm-exporter ; argv[]=/usr/bin/dcgm-exporter --remote-hostengine-info 127.0.0.1:5555 "
    f"--address 127.0.0.1:9400 -f {COUNTERS_FILE} ; ignore_errors=no ; start_time=[n/a] }}"
)


def test_an_exporter_uses_the_engine_of_the_host() -> None:
    tasks = planned(**WITH_EXPORTER).tasks
    assert tasks["installed"][-1] == f"{EXPORTER}=4.*-*"
    files = {one["dest"]: one["content"] for one in tasks["files"]}
    assert [*files] == [DROP_IN, EXPORTER_DROP_IN, COUNTERS_FILE]
    commands = [line for line in files[EXPORTER_DROP_IN].splitlines() if line.startswith("ExecStart=")]
    assert commands == ["ExecStart=", f"ExecStart={EXPORTER_START.partition('argv[]=')[2].partition(' ;')[0]}"]
    assert "PartOf=nvidia-dcgm.service" in files[EXPORTER_DROP_IN]
    assert files[COUNTERS_FILE].splitlines()[1:] == [
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, gauge, Ratio of cycles of the tensor cores."
    ]
    assert [*tasks["record"]["units"]] == [UNIT, EXPORTER_UNIT]
    assert tasks["record"]["units"][EXPORTER_UNIT]["started_after"] == [*files]
    of_package = planned(exporter=True).tasks["files"][-1]["content"]
    assert "-f /etc/dcgm-exporter/default-counters.csv\n" in of_package
    assert planned(facts(EL), exporter=True, exporter_version="4.8.2").tasks["record"]["data"]["version_locks"][-1] == (
        f"{EXPORTER}-0:4.8.2-*"
    )


def test_an_exporter_stops_before_the_engine_and_starts_after_it() -> None:
    host = facts(service=SERVICE, packages={**dict.fromkeys(FIRST, "1:4.5.2-1"), EXPORTER: "4.8.1-1"})
    tasks = planned(host, **WITH_EXPORTER).tasks
    assert tasks["stopped_units"] == [EXPORTER_UNIT, UNIT]
    assert [one["unit"] for one in tasks["services"]] == [UNIT, EXPORTER_UNIT]
    # One of others goes on.
    assert planned(host).tasks["stopped_units"] == [UNIT]
    order = list(WATCHERS)
    assert order.index(UNIT) < order.index(EXPORTER_UNIT)
    stopped = clients(())
    assert stopped.index(EXPORTER_UNIT) < stopped.index(UNIT) < stopped.index("nvidia-persistenced.service")


def test_an_exporter_that_is_no_longer_requested_is_removed() -> None:
    record = installed(facts(), **WITH_EXPORTER)
    packages = {**dict.fromkeys(FIRST, "1:4.5.3-1"), EXPORTER: "4.8.2-1"}
    host = facts(service=SERVICE, packages=packages, record=record)
    assert planned(host, **WITH_EXPORTER).steps == ()
    plan = planned(host)
    assert plan.steps == ("install",)
    assert plan.tasks["obsolete"]["packages"] == [EXPORTER]
    assert plan.tasks["obsolete"]["files"] == [EXPORTER_DROP_IN, COUNTERS_FILE]
    assert plan.tasks["obsolete_directories"] == [EXPORTER_DROP_IN.rpartition("/")[0], "/etc/dcgm-exporter"]
    assert plan.tasks["disabled_units"] == [EXPORTER_UNIT]
    gone = planned(host, state="absent").tasks
    assert gone["disabled_units"] == gone["stopped_units"] == [EXPORTER_UNIT, UNIT]
    assert gone["obsolete"]["files"] == [DROP_IN, EXPORTER_DROP_IN, COUNTERS_FILE]


def test_an_exporter_of_others_loses_the_drop_in_of_the_role_alone() -> None:
    there = facts(service=SERVICE, packages={EXPORTER: "4.8.2-1"})
    record = installed(there, **WITH_EXPORTER)
    packages = {**dict.fromkeys(FIRST, "1:4.5.3-1"), EXPORTER: "4.8.2-1"}
    plan = planned(facts(service=SERVICE, packages=packages, record=record))
    assert plan.tasks["obsolete"]["packages"] == plan.tasks["disabled_units"] == []
    assert plan.tasks["restarted_units"] == [EXPORTER_UNIT]


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1:9400", "http://127.0.0.1:9400/metrics"),
        (":9401", "http://127.0.0.1:9401/metrics"),
        ("0.0.0.0:9400", "http://127.0.0.1:9400/metrics"),
        ("10.0.0.7:9400", "http://10.0.0.7:9400/metrics"),
        ("[::]:9400", "http://[::1]:9400/metrics"),
        ("[2001:db8::7]:9400", "http://[2001:db8::7]:9400/metrics"),
    ],
)
def test_the_address_of_an_exporter_is_declared_and_read_back(address: str, url: str) -> None:
    tasks = planned(exporter=True, exporter_address=address).tasks
    assert tasks["exporter_url"] == url
    assert f" --address {address} " in tasks["files"][-1]["content"]


@pytest.mark.parametrize(
    "address",
    [
        *("9400", "localhost:9400", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "::1:9400", "127.0.0.1:9400 -k"),
        *("", 9400, "[fe80::1%eth0]:9400", "127.0.0.1:٩٤٠٠", "010.0.0.1:9400", "127.0.0.1:9400\n"),
    ],
)
def test_another_address_of_an_exporter_is_refused_by_name(address: object) -> None:
    with pytest.raises(RequestError, match=r"^nvidia_dcgm_exporter_address is "):
        planned(exporter=True, exporter_address=address)
    assert planned(exporter_address=address).refusals == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"field": "DCGM_FI_DEV_GPU_TEMP, gauge"}, "has the field"),
        ({"field": "gpu_temp"}, "has the field"),
        ({"help": "one, two"}, "has the help"),
        ({"help": " "}, "has the help"),
        ({"help": "a\nDCGM_FI_DEV_GPU_TEMP"}, "has the help"),
    ],
)
def test_a_counter_that_the_exporter_does_not_understand_is_refused_by_name(change: dict[str, str], words: str) -> None:
    with pytest.raises(RequestError, match=rf"^nvidia_dcgm_exporter_counters {words}"):
        planned(exporter=True, exporter_counters=[{**TENSOR, **change}])


@pytest.mark.parametrize(
    ("commands", "status", "words"),
    [
        ([EXEC_START, EXPORTER_START], 200, ""),
        ([EXEC_START, EXPORTER_START], -1, "dcgm-exporter does not respond at http://127.0.0.1:9400/metrics"),
        ([EXEC_START, EXPORTER_START.replace("--remote-hostengine-info 127.0.0.1:5555 ", "")], 200, "does not start"),
        ([EXEC_START, EXPORTER_START.replace("127.0.0.1:9400", ":9400")], 200, "does not start"),
    ],
)
def test_an_exporter_is_read_back(commands: list[str], status: int, words: str) -> None:
    found = {"commands": {"results": [{"stdout": one} for one in commands]}, "discovery": LISTED, "status": status}
    refusals = planned(None, "verify", found, **WITH_EXPORTER).refusals
    assert [words in one for one in refusals] == ([True] if words else [])


def test_a_second_exporter_is_refused() -> None:
    packages = {"datacenter-gpu-manager-4-core": "1:4.5.3-1"}
    host = facts(service=SERVICE, packages=packages)
    engine = "nv-hostengine 0::/system.slice/nvidia-dcgm.service\n"
    elsewhere = {"readings": ps(f"{engine}dcgm-exporter 0::/kubepods.slice/a.scope\n")}
    assert planned(host, found=elsewhere).refusals == ()
    (text,) = planned(host, found=elsewhere, exporter=True).refusals
    assert text.startswith("dcgm-exporter runs in a pod, and a host has one; set dcgm.enabled=false and")
    assert text.endswith("or set nvidia_dcgm_exporter to false")
    own = {"readings": ps(f"{engine}dcgm-exporter 0::/system.slice/nvidia-dcgm-exporter.service\n")}
    assert planned(host, found=own, exporter=True).refusals == ()


def test_versions_that_nvidia_has_not_tested_with_each_other_are_warned_of() -> None:
    (text,) = planned(version="4.6.0", exporter=True, exporter_version="4.8.2").warnings
    assert text.startswith("nvidia_dcgm_exporter_version is 4.8.2, which NVIDIA has tested with DCGM 4.5.3, and")
    for version, exporter in ("4.5.3", "4.8.2"), ("4.5", "4.8.2"), ("4.7.1", "4.9.0"), ("4.6.0", "4.8"):
        assert planned(version=version, exporter=True, exporter_version=exporter).warnings == ()
    assert {pair.exporter for pair in dcgm.PAIRS} >= {one.exporter for one in dcgm.OPERATORS}


# Refusals


@pytest.mark.parametrize(
    "version", ["3.3.9", "5", "4.", "4.5.3-1", "4.5.3.1", "latest", "", "4*", "4\n", "٤", 4, 4.5, None]
)
def test_another_version_than_one_of_dcgm_4_is_refused_by_name(version: object) -> None:
    with pytest.raises(RequestError, match=r"^nvidia_dcgm_version is "):
        planned(version=version)


def test_a_host_without_a_driver_is_refused_unless_it_comes() -> None:
    host = facts(smi=NO_DRIVER)
    assert refusal(host).startswith("DCGM needs the driver, and nvidia-smi prints no version")
    assert PLANNER.refuses is not None
    for coming, count in ({}, 1), ({"nvidia_driver": ("install",)}, 0):
        outlook = Outlook(Readings.of(ps("")), coming)
        assert len([*PLANNER.refuses(variables(), host, outlook)]) == count


def test_a_cuda_without_packages_is_refused_and_one_that_the_driver_does_not_run() -> None:
    text = refusal(facts(smi={"cuda_version": "14.1"}))
    assert text.startswith("the driver runs CUDA 14, and DCGM 4 has packages for CUDA 11, 12, 13")
    assert planned(facts(smi={"cuda_version": "14.1"}), cuda=["13"]).refusals == ()
    twelve = facts(smi={"driver_version": "570.195.03", "cuda_version": "12.8"})
    assert "nvidia_dcgm_cuda has 13, and the driver runs CUDA 12" in refusal(twelve, cuda=["13", "12"])
    assert planned(cuda=["12", "13", "12"]).tasks["record"]["data"]["cuda"] == ["12", "13"]


@pytest.mark.parametrize("version", ["N/A", "", None, "²", "1³.0"])
def test_a_cuda_of_another_form_is_none(version: object) -> None:
    assert "DCGM needs the driver" in refusal(facts(smi={"cuda_version": version}))


def test_dcgm_3_is_replaced_on_request_only() -> None:
    host = facts(packages=OLD, service={**SERVICE, "version": "3.3.9"})
    assert refusal(host).startswith(
        "datacenter-gpu-manager 1:3.3.9, datacenter-gpu-manager-config 1:3.3.9 is installed"
    )
    tasks = planned(host, replace_old=True).tasks
    assert tasks["obsolete"]["packages"] == ["datacenter-gpu-manager", "datacenter-gpu-manager-config"]
    assert tasks["would"].endswith(" and remove datacenter-gpu-manager, datacenter-gpu-manager-config")
    assert (tasks["stopped_units"], tasks["removes_packages"]) == ([UNIT], True)


def test_a_host_engine_of_no_package_is_refused() -> None:
    built = {**SERVICE, "unit": "dcgm.service"}
    assert refusal(facts(service=built)).startswith("DCGM is on the host (dcgm.service), and of no package of NVIDIA's")
    assert planned(facts(service=SERVICE, packages={"nv-hostengine": "1:4.7.0-1"})).refusals == ()


ENGINES: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "of the GPU Operator": (
        "nv-hostengine   0::/kubepods.slice/kubepods-besteffort.slice/cri-containerd-1f2e.scope\n",
        SERVICE,
        "runs in a pod and has a host engine of its own, and two of them on a host disturb each other; set dcgm",
    ),
    "an exporter of a pod": ("dcgm-exporter 0::/kubepods.slice/a.scope\n", {}, "dcgm-exporter runs in a pod"),
    "an exporter in Docker": (
        "dcgm-exporter 0::/system.slice/docker-1f2e.scope\n",
        {},
        "runs in a container and has a host engine of its own, and two of them on a host disturb each other; stop it",
    ),
    "an engine by hand": ("nv-hostengine 0::/user.slice/user-0.slice\n", {}, "runs in 0::/user.slice/user-0.slice"),
    "a unit of others": ("nv-hostengine 0::/system.slice/dcgm.service\n", SERVICE, "runs in 0::/system.slice/dcgm"),
    "cgroups of version 1": ("nv-hostengine 12:pids:/docker/1f2e,1:name=systemd:/docker/1f2e\n", {}, "in a container"),
}


@pytest.mark.parametrize("case", ENGINES)
def test_a_second_host_engine_is_refused(case: str) -> None:
    text, service, words = ENGINES[case]
    host = facts(service=service, packages={"datacenter-gpu-manager-4-core": "1:4.5.3-1"})
    assert words in refusal(host, {"readings": ps(text)})


@pytest.mark.parametrize(
    "text",
    [
        "nv-hostengine   0::/system.slice/nvidia-dcgm.service\n",
        # It uses the engine that runs.
        "nv-hostengine 0::/system.slice/nvidia-dcgm.service\ndcgm-exporter 0::/system.slice/docker-1f2e.scope\n",
        "error: process ID list syntax error\n",
        "train 0::/kubepods.slice/nv-hostengine\n",
        "",
    ],
)
def test_the_own_one_and_its_exporter_are_not(text: str) -> None:
    host = facts(service=SERVICE, packages={"datacenter-gpu-manager-4-core": "1:4.5.3-1"})
    assert planned(host, found={"readings": ps(text)}).refusals == ()


def test_a_removal_refuses_nothing_and_reads_no_processes() -> None:
    assert PLANNER.needs(variables(state="absent")).commands == ()
    host = facts(smi=NO_DRIVER, packages=OLD, record={"inputs": "x", "drift": [], "data": {}})
    assert (planned(host, state="absent").refusals, planned(host, state="absent").steps) == ((), ("remove",))


def test_an_unsupported_distribution_is_refused() -> None:
    text = refusal({**facts(), "distribution": "Debian", "distribution_major_version": "11"})
    assert text.startswith("Debian 11 is not supported by the role gpu.fleet.nvidia_dcgm; use one of: ")


# What the repositories have. Versions as in lists of 4.5.2 and 4.7.0.


def offers(*versions: str, fresh: bool = True, rc: int = 0, **given: Any) -> tuple[str, ...]:
    text = "".join(f" {name} | 1:{version}-1 | https://x Packages\n" for name in FIRST for version in versions)
    found = {"offers": {"stdout": text, "rc": rc}, "lists": "fresh" if fresh else "cached"}
    return planned(facts(UBUNTU), found=found, **given).refusals


def test_a_version_that_the_repository_has_is_planned() -> None:
    assert offers("4.5.2", "4.7.0") == offers("4.5.2", "4.7.0", version="4.5") == ()


def test_one_that_it_does_not_have_is_refused_with_those_that_it_has() -> None:
    (text,) = offers("4.5.2", "4.7.0", version="4.5.9")
    assert text.endswith("does not have datacenter-gpu-manager-4-core; it has 4.5.2-1, 4.7.0-1")
    assert offers(version="4.5")[0].endswith("does not have datacenter-gpu-manager-4-core; it has none")


def test_old_package_lists_are_no_reason_unless_they_have_something_newer() -> None:
    assert offers(fresh=False) == offers("4.5.2", version="4.7", fresh=False) == ()
    assert len(offers("4.7.0", version="4.5.9", fresh=False)) == 1
    # A command that failed has read nothing.
    assert offers(rc=100) == ()


# Removal


def test_only_what_the_role_has_installed_is_removed() -> None:
    there = {"datacenter-gpu-manager-4-core": "1:4.5.3-1", "datacenter-gpu-manager-4-cuda13": "1:4.5.3-1"}
    record = installed(facts(packages=there, service=SERVICE))
    assert not {*there} & {*record["data"]["packages"]}
    later = facts(packages=dict.fromkeys(FIRST, "1:4.5.3-1"), service=SERVICE, record=record)
    # A second run does not make them its own.
    assert planned(later).tasks["record"]["data"]["packages"] == record["data"]["packages"]
    tasks = planned(later, state="absent").tasks
    assert tasks["obsolete"]["packages"][:2] == FIRST[2:]
    assert not {*there} & {*tasks["obsolete"]["packages"]}
    # The service of others goes on, without the drop-in.
    assert (tasks["stopped_units"], tasks["restarted_units"]) == ([], [UNIT])


def test_all_of_it_goes_where_the_role_has_installed_it() -> None:
    record = installed(facts(EL))
    host = facts(EL, packages=dict.fromkeys(FIRST, "4.5.3-1"), service=SERVICE, record=record)
    tasks = planned(host, state="absent").tasks
    assert tasks["obsolete"]["packages"] == record["data"]["packages"]
    assert tasks["obsolete"]["version_locks"] == record["data"]["version_locks"]
    assert (tasks["stopped_units"], tasks["restarted_units"]) == ([UNIT], [])
    assert tasks["would"].startswith("remove datacenter-gpu-manager-4-core, ")
    assert planned(state="absent").steps == ()


def test_what_a_killed_run_has_left_is_its_own() -> None:
    intended = planned().tasks["record"]["intended"]
    partly = facts(packages={FIRST[0]: "1:4.5.3-1"}, record={"inputs": "", "drift": [], "data": intended})
    assert FIRST[0] in planned(partly).tasks["record"]["data"]["packages"]
    assert FIRST[0] in planned(partly, state="absent").tasks["obsolete"]["packages"]


# Vulnerabilities


def test_a_whole_version_with_known_vulnerabilities_is_warned_of() -> None:
    (text,) = planned(version="4.5.2").warnings
    assert text.startswith(
        "nvidia_dcgm_version is 4.5.2, which has known vulnerabilities (NVIDIA's security bulletin 5857"
    )
    assert planned(version="4.5.3").warnings == planned(version="4.5").warnings == ()
    assert planned(facts(record=installed(facts(), version="4.5.2")), version="4.5.2").warnings == ()


def test_the_pairs_are_those_of_the_guide() -> None:
    guide = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8").partition("## DCGM and its exporter")[2]
    rows = [line for line in guide.splitlines() if line.startswith("|") and line[2].isdigit()]
    assert rows == [
        *(f"| {one.exporter} | {', '.join(one.dcgm)} |" for one in dcgm.PAIRS),
        *(f"| {one.version} | {one.dcgm} | {one.exporter} |" for one in dcgm.OPERATORS),
    ]

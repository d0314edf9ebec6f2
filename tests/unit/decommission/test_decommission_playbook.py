# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/decommission.yml on mock hosts: what it refuses, and in which order it removes."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import REMOVED_ROLES, removed_in_loop

from tests.conftest import ROOT
from tests.unit.site.converged import CUDA, NVIDIA_SMI, STATE, WITHOUT_CONTAINER, converged
from tests.unit.site.mock_host import MockHost, SiteRun, run_site

pytestmark = pytest.mark.plays

PLAYBOOK = ROOT / "playbooks" / "decommission.yml"
READING = ["host_facts", "driver_reload", "systemd_reload"]
IDLE: Mapping[str, Any] = {"users": [], "changed": False}
TRAINING: Mapping[str, Any] = {"users": [{"name": "python3", "pid": 4711, "device": "/dev/nvidia0", "stop": None}]}
CONFIRMED: Mapping[str, Any] = {
    **WITHOUT_CONTAINER,
    "gpu_fleet_decommission_confirm": True,
    # What the inventory declares does not count.
    "nvidia_driver_when_busy": "defer",
    "gpu_fleet_expected_gpus": 8,
}
KEPT = ("nvidia_driver", "cuda", "nvidia_repository.cuda")
DONE: Mapping[str, Any] = {"changed": True}


def host(**results: Any) -> MockHost:
    """A host with a driver and CUDA of this collection, from which every removal succeeds."""
    found = converged(WITHOUT_CONTAINER)
    records = {name: found.records[name] for name in KEPT}
    records["nvidia_repository.cuda"] = {**records["nvidia_repository.cuda"], "data": {"needed_by": ["cuda"]}}
    removing = ("file", "managed_record", "package_transaction", "apt", "file_set", "systemd_service")
    return replace(
        found,
        records=records,
        packages={"dpkg": "1.21.22"},
        results={
            **dict.fromkeys((*removing, "kernel_blacklist", "copy", "package_pin", "signed_repository"), DONE),
            "command": {**DONE, "rc": 0, "stdout": "", "stderr": ""},
            "find": {"files": [], "matched": 0},
            "slurp": {"failed": True, "msg": "file not found: /var/lib/gpu-fleet/state/plan.json"},
            "stat": {"stat": {"exists": False}},
            "gpu_state": STATE,
            "cuda_facts": {"ansible_facts": {"cuda": {**CUDA, "default_toolkit": None}}},
            "driver_reload": IDLE,
            "systemd_reload": {"containers": []},
            "managed_facts": {"ansible_facts": {"gpu_fleet_managed": {}}},
            **results,
        },
    )


def decommission(directory: Path, hosts: Mapping[str, tuple[MockHost, Mapping[str, Any]]], *arguments: str) -> SiteRun:
    return run_site(directory, hosts, *arguments, playbook=PLAYBOOK)


def test_what_was_not_confirmed_or_is_in_use_is_not_touched(tmp_path: Path) -> None:
    done = decommission(tmp_path, {"one": (host(), WITHOUT_CONTAINER), "two": (host(), CONFIRMED)})
    assert done.rc != 0 and done.modules == {"one": [], "two": []}, done.output
    assert "on 2 hosts (one, two); nothing was changed" in done.failure("one")
    assert "-e gpu_fleet_decommission_confirm=true" in done.failure("one")


def test_packages_that_a_killed_run_has_not_configured_are_no_removed_ones(tmp_path: Path) -> None:
    names = ["cuda-nvcc-13-0", "libnvidia-cfg1"]
    killed = replace(host(), system={**host().system, "gpu_fleet_unfinished_packages": names})
    done = decommission(tmp_path, {"one": (killed, CONFIRMED), "two": (host(), CONFIRMED)})
    text = done.failure("one")
    assert "dpkg has not configured cuda-nvcc-13-0, libnvidia-cfg1, as after a run that was killed" in text
    assert "run `dpkg --configure -a` on the host" in text
    assert "managed_record" not in done.modules["one"] and "managed_record" in done.modules["two"]


def test_idle_hosts_are_returned_to_what_they_were(tmp_path: Path) -> None:
    mig = {**NVIDIA_SMI, "gpus": [{**gpu, "mig_mode_current": "enabled"} for gpu in NVIDIA_SMI["gpus"]]}
    layout = {"enabled": True, "profiles": ["1g.18gb"], "devices": []}
    plan = {
        "gpus": [{"uuid": "GPU-0", "mig": layout}, {"uuid": "GPU-1", "mig": None}, {"uuid": "GPU-9", "mig": layout}]
    }
    with_mig = host(
        slurp={"content": base64.b64encode(json.dumps(plan).encode()).decode()},
        nvidia_smi_facts={"ansible_facts": {"nvidia_smi": NVIDIA_SMI}},
    )
    still = {"ansible_facts": {"gpu_fleet_managed": {"nvidia_driver": {"inputs": "", "data": {}, "drift": []}}}}
    hosts = {
        "training": host(driver_reload=TRAINING),
        "serving": host(systemd_reload={"containers": [{"engine": "docker", "name": "triton"}]}),
        "idle": host(),
        "mig": replace(with_mig, nvidia_smi=mig),
        "remaining": host(managed_facts=still),
        # The last run of ansible-pull has failed.
        "pulling": host(
            stat={"stat": {"exists": True, "isdir": True}}, command={**DONE, "rc": 0, "stdout": "failed", "stderr": ""}
        ),
    }
    done = decommission(tmp_path, {name: (found, CONFIRMED) for name, found in hosts.items()})
    assert done.modules["training"] == done.modules["serving"] == READING, done.output
    assert "GPUs are in use, and nothing was removed: python3 (PID 4711)" in done.failure("training")
    assert "nothing was removed: docker container triton; stop" in done.failure("serving")
    assert done.failure("idle") == done.failure("mig") == "", done.output
    assert "idle: driver 580.95.05 stays loaded until the next boot" in done.output
    # Settings to their defaults, MIG off, and the boot service of that removed again.
    assert [done.modules[name].count("gpu_state") for name in ("idle", "mig")] == [1, 3]
    assert done.modules["idle"][-2:] == ["managed_facts", "file"]
    # Its directory has no record of what was made there, and is empty.
    pull = [*["stat"] * 4, "systemd_service", "command", "slurp", "find", "command", *["file"] * 3, "systemd_reload"]
    pull.append("command")
    assert done.modules["pulling"][len(READING) :][: len(pull)] == pull
    assert "remaining: nvidia_driver was not removed, see above" in done.failure("remaining")
    assert done.modules["remaining"][-2:] == ["managed_facts", "systemd_reload"], "the records stay"


def declared_mig(modes_after: str) -> MockHost:
    """A host whose GPUs have MIG on as this collection had declared, and the given mode after it was turned off."""
    before, after = (
        {**NVIDIA_SMI, "gpus": [{**gpu, "mig_mode_current": mode} for gpu in NVIDIA_SMI["gpus"]]}
        for mode in ("enabled", modes_after)
    )
    plan = {"gpus": [{"uuid": gpu["uuid"], "mig": {"enabled": True}} for gpu in NVIDIA_SMI["gpus"]]}
    found = host(
        slurp={"content": base64.b64encode(json.dumps(plan).encode()).decode()},
        nvidia_smi_facts={"ansible_facts": {"nvidia_smi": after}},
    )
    return replace(found, nvidia_smi=before)


def test_mig_that_is_still_on_is_a_failure_before_the_driver_goes(tmp_path: Path) -> None:
    hosts = {"off": declared_mig("disabled"), "on": declared_mig("enabled")}
    done = decommission(tmp_path, {name: (found, CONFIRMED) for name, found in hosts.items()})
    assert done.failure("off") == "", done.output
    assert "MIG is still on for GPU-0, GPU-1; the driver and the records stay" in done.failure("on"), done.output
    assert "package_transaction" not in done.modules["on"]


@pytest.mark.parametrize("given", ["gpu_state_mig=all-1g.18gb", "docker_state=present", '{"gpu_state_ecc": true}'])
def test_variables_of_the_command_line_against_the_removal_are_refused_by_name(given: str, tmp_path: Path) -> None:
    inventory = {**CONFIRMED, "gpu_state_mig": "all-1g.18gb", "docker_state": "present"}
    done = decommission(tmp_path, {"one": (host(), inventory)}, "-e", given)
    name = given.strip('{"').partition("=")[0].partition('"')[0]
    assert f"one: {name} of the command line (-e) would keep what gpu.fleet.decommission removes" in done.failure("one")
    assert done.modules["one"] == []


def test_roles_are_removed_in_the_reverse_order() -> None:
    play = yaml.safe_load(PLAYBOOK.read_text())[0]
    own = [task.get("ansible.builtin.include_role", {}).get("name", "") for task in play["tasks"]]
    of_own = [name.removeprefix("gpu.fleet.") for name in own if "{{" not in name]
    # The part of gpu_monitoring that is on no GPU host.
    rest = [name for name in dict.fromkeys(of_own) if name in REMOVED_ROLES and name != "gpu_monitoring"]
    assert [*removed_in_loop(REMOVED_ROLES), *rest] == list(reversed(REMOVED_ROLES))
    # Health is only read, and what Slurm knows of a node is the operator's.
    assert not {"gpu_health", "slurm_gres"} & {*REMOVED_ROLES}
    assert {f"{name}_state" for name in REMOVED_ROLES} <= {*play["vars"]}

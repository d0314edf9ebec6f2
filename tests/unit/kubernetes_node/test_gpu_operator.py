# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Next to NVIDIA's GPU Operator: recognised on the host, its parts left to it, its operands paused and restored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._host.facts import gpu_operator
from ansible_collections.gpu.fleet.plugins.module_utils._kubernetes.pods import Leave, remaining
from ansible_collections.gpu.fleet.plugins.plugin_utils._gpu_operator import (
    KEPT,
    PAUSED,
    UPGRADE_STATE,
    OnHost,
    host_refusals,
    node_refusal,
    pause,
    resume,
)

from tests.unit.kubernetes_node.test_kubernetes_manifests import H200, plan, smi
from tests.unit.site.test_variables import host, preflight
from tests.unit.upgrade.test_kubernetes_drain import OWN, node, planned, pod

# What the validator writes into driver-ready: https://github.com/NVIDIA/gpu-operator, cmd/nvidia-validator/main.go.
OF_HOST = "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH=/host\n"
OF_CONTAINER = "IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\nDRIVER_ROOT_CTR_PATH=/driver-root\n"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, set()),
        # Mount points that the operator's other DaemonSets create, with the driver of the host.
        ({"driver/": "", "validations/driver-ready": OF_HOST, "validations/toolkit-ready": ""}, set()),
        ({"driver/usr/bin/nvidia-smi": "", "validations/driver-ready": OF_CONTAINER}, {"driver"}),
        # While it builds its modules.
        ({"nvidia-driver.pid": "4711"}, {"driver"}),
        ({"validations/.driver-ctr-ready": ""}, {"driver"}),
        # Its root stays mounted for a while where the driver has become one of the host.
        ({"driver/usr/bin/nvidia-smi": "", "validations/driver-ready": OF_HOST}, set()),
        ({"toolkit/toolkit.pid": "", "validations/plugin-ready": ""}, {"container_toolkit", "device_plugin"}),
    ],
)
def test_the_operator_is_recognised_on_the_host(tmp_path: Path, files: Mapping[str, str], found: set[str]) -> None:
    for name, text in files.items():
        path = tmp_path / "run" / "nvidia" / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text(text)
    assert {name for name, is_there in gpu_operator(HostFiles(str(tmp_path))).items() if is_there} == found


@pytest.mark.parametrize(
    ("role", "part", "setting"),
    [
        ("nvidia_driver", "driver", "driver.enabled=false"),
        ("nvidia_container_toolkit", "container_toolkit", "toolkit.enabled=false"),
        ("kubernetes_node", "device_plugin", "devicePlugin.enabled=false"),
    ],
)
def test_a_role_that_would_fight_it_is_refused_before_a_change(role: str, part: str, setting: str) -> None:
    on = host(operator=OnHost(**{part: True}), packages=("containerd",))
    engine = {"nvidia_container_toolkit_runtimes": ["containerd"]}
    [refusal] = preflight(engine, on, (role,)).refusals
    assert setting in refusal and f"take {role} out of gpu_fleet_roles" in refusal
    # Another role, and the removal, are none of its business.
    assert preflight({}, on, ("gpu_state",)).refusals == ()
    assert list(host_refusals((), OnHost(True, True, True))) == []
    removed = preflight({f"{role}_state": "absent", **engine}, on, (role,)).refusals
    assert not any("Operator" in text for text in removed)


def test_the_role_alone_refuses_it_as_well() -> None:
    [refusal] = plan(smi(H200), operator={"device_plugin": True})["refusals"]
    assert "devicePlugin.enabled=false" in refusal


def deploy(**values: str) -> dict[str, str]:
    return {f"nvidia.com/gpu.deploy.{name.replace('_', '-')}": value for name, value in values.items()}


def patched(metadata: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as the API server has them after a patch."""
    return {
        kind: {
            name: value
            for name, value in {**metadata.get(kind, {}), **patch.get(kind, {})}.items()
            if value is not None
        }
        for kind in ("labels", "annotations")
    }


# The label of each operand; values of its own are those of whoever pauses one by hand.
LABELS = {
    **deploy(driver="true", vgpu_manager="true", operands="true", device_plugin="true", dcgm="true", client=""),
    **deploy(mig_manager="false", dcgm_exporter="v2", dra_driver="true"),
    "nvidia.com/gpu.present": "true",
}


def test_operands_are_paused_as_nvidia_does_and_restored_as_they_were() -> None:
    before = {"labels": LABELS, "annotations": {"other": "kept"}}
    first = patched(before, pause(before, dra_driver=False))
    assert first["labels"] == {
        **LABELS,
        **deploy(device_plugin=PAUSED, dcgm=PAUSED, dcgm_exporter=f"v2_{PAUSED}"),
    }
    assert pause(first, dra_driver=False) == {}
    # The DRA driver after the others: without it no pod with a claim ends.
    second = patched(first, pause(first, dra_driver=True))
    assert second["labels"] == {**first["labels"], **deploy(dra_driver=PAUSED)}
    assert json.loads(second["annotations"][KEPT]) == deploy(
        device_plugin="true", dcgm="true", dcgm_exporter="v2", dra_driver="true"
    )
    assert node_refusal(second) == ""
    for paused in (first, second):
        assert patched(paused, resume(paused)) == before
    assert resume(before) == {}


def test_what_others_have_changed_meanwhile_stays() -> None:
    paused = {"labels": LABELS, "annotations": {}}
    paused = patched(paused, pause(paused, dra_driver=False))
    changed = {**paused, "labels": {**paused["labels"], **deploy(dcgm="false")}}
    del changed["labels"]["nvidia.com/gpu.deploy.dcgm-exporter"]
    back = patched(changed, resume(changed))
    assert back["labels"] == {
        name: value
        for name, value in {**LABELS, **deploy(dcgm="false")}.items()
        if name != "nvidia.com/gpu.deploy.dcgm-exporter"
    }
    for text in ("no JSON", "[]", json.dumps({"kubernetes.io/hostname": PAUSED, "zone": "a"})):
        assert resume({"labels": {"zone": PAUSED}, "annotations": {KEPT: text}})["labels"] == {}


@pytest.mark.parametrize("state", ["upgrade-required", "cordon-required", "pod-restart-required", "upgrade-failed"])
def test_a_node_in_the_operators_own_upgrade_is_refused_by_name(state: str) -> None:
    found = node()
    found["metadata"]["labels"] = {UPGRADE_STATE: state}
    for action in ("check", "drain", "confirm"):
        refusal = planned(action, found).refusal
        assert f"{UPGRADE_STATE} is {state}" in refusal and "driver.upgradePolicy.autoUpgrade=false" in refusal
    found["metadata"]["labels"] = {UPGRADE_STATE: "upgrade-done"}
    assert planned("check", found).refusal == ""


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ({"nvidia.com/mig.config": "all-1g.18gb", **deploy(mig_manager="true")}, "all-1g.18gb"),
        # As the operator sets it by default, and while another upgrade of ours has the MIG manager paused.
        ({"nvidia.com/mig.config": "all-disabled", **deploy(mig_manager=PAUSED)}, "all-disabled"),
        # The MIG manager is not on the node, or has no layout to apply.
        ({"nvidia.com/mig.config": "all-1g.18gb", **deploy(mig_manager="false")}, ""),
        ({"nvidia.com/mig.config": "all-1g.18gb", "nvidia.com/mig.config.state": "success"}, ""),
        ({"nvidia.com/mig.config": "", **deploy(mig_manager="true")}, ""),
        (deploy(mig_manager="true"), ""),
    ],
)
def test_a_mig_layout_has_one_owner(labels: dict[str, str], named: str) -> None:
    found = node()
    found["metadata"]["labels"] = labels
    refusal = planned("check", found, mig=True).refusal
    assert ("gpu_state_mig would fight it; set migManager.enabled=false" in refusal) is bool(named)
    assert f"its layout {named} to it" in refusal if named else refusal == ""
    # Without a layout of ours.
    assert "migManager" not in planned("check", found, mig=False).refusal + planned("check", found).refusal


def test_operands_that_the_driver_container_has_paused_are_not_ours() -> None:
    found = node()
    found["metadata"]["labels"] = deploy(dcgm=PAUSED)
    refusal = planned("check", found).refusal
    assert "k8s-driver-manager has paused operands on it: nvidia.com/gpu.deploy.dcgm;" in refusal


def test_a_node_has_its_operands_back_with_its_service() -> None:
    found = node()
    found["metadata"]["labels"] = deploy(device_plugin="true", dra_driver="true")
    drain = planned("drain", found)
    assert drain.cordon and drain.dra_driver and drain.patch["spec"] == {"unschedulable": True}
    assert drain.patch["metadata"]["labels"] == deploy(device_plugin=PAUSED)
    assert drain.patch["metadata"]["annotations"].keys() == {"gpu.fleet/upgrade", KEPT}
    last = {**found, **node(cordoned=True, note=OWN)}
    last["metadata"] |= patched(found["metadata"], drain.patch["metadata"])
    assert planned("pause", last).patch["metadata"]["labels"] == deploy(dra_driver=PAUSED)
    assert planned("fail", last, reason="GPU 0 is lost").patch["metadata"].keys() == {"name", "annotations"}
    back = planned("return", last)
    assert not back.cordon and back.patch["metadata"]["labels"] == deploy(device_plugin="true")
    assert back.patch["metadata"]["annotations"] == {"gpu.fleet/upgrade": None, KEPT: None}
    # One that an operator had cordoned stays so, one that another run has drained is left alone.
    last["metadata"]["annotations"].pop("gpu.fleet/upgrade")
    back = planned("return", last)
    assert back.cordon and "spec" not in back.patch and back.patch["metadata"]["annotations"] == {KEPT: None}
    last["metadata"]["annotations"]["gpu.fleet/upgrade"] = "gpu.fleet 20250101T000000Z: upgrade"
    assert planned("return", last).patch == planned("pause", last).patch == {}


def test_a_node_is_not_idle_before_its_paused_operands_have_ended() -> None:
    operand = pod("dcgm", "DaemonSet", nodeSelector=deploy(dcgm="true"))
    other = pod("exporter", "DaemonSet", nodeSelector={"gpu": "true"})
    pods = (operand, other)
    assert remaining(pods, ["ml/dcgm", "ml/exporter"], {}, Leave(), {}, labels=deploy(dcgm="true")) == []
    [left] = remaining(pods, ["ml/dcgm", "ml/exporter"], {}, Leave(), {}, labels=deploy(dcgm=PAUSED))
    assert (left.pod, left.reason) == ("ml/dcgm", "paused")

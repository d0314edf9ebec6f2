# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role kubernetes_node on a real control plane: GPUs that are shared by time-slicing, MPS and the DRA driver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.test_node import OF_DRA, RULES, bodies, path_of
from tests.unit.kubernetes_node.test_kubernetes_manifests import H200, plan, smi, split
from tests.unit.kubernetes_node.test_kubernetes_tasks import TAINT, play
from tests.unit.plays import run_play

# "The same verbs for roles and rolebindings there": docs/sharing.md.
OF_SHARING: list[dict[str, Any]] = json.loads(json.dumps(OF_DRA[2:]).replace("clusterrole", "role"))


@pytest.mark.parametrize(
    ("name", "gpu", "given"),
    [
        ("time-slicing", H200, {"time_slicing": {"nvidia.com/gpu": 4}, "time_slicing_rename": True}),
        (
            "time-slicing-mig",
            split("1g.18gb", "3g.71gb"),
            {"time_slicing": {"nvidia.com/mig-1g.18gb": 2}, "time_slicing_fail_requests_greater_than_one": False},
        ),
        ("mps", H200, {"mps": {"nvidia.com/gpu": 4}, "mps_fail_requests_greater_than_one": False}),
        ("mps-rename", H200, {"mps": {"nvidia.com/gpu": 2}, "mps_rename": True}),
        ("dra", H200, {"gpus_by": "dra_driver", "dra_sharing": ["time_slicing", "mps"]}),
    ],
)
def test_manifests_of_shared_gpus_are_accepted_and_stay(
    tmp_path: Path, cluster: ControlPlane, name: str, gpu: dict[str, Any], given: dict[str, Any]
) -> None:
    cluster.add_node("gpu1", labels={"kubernetes.io/hostname": "gpu1"})
    token = cluster.account(f"of-{name}", [*RULES, *OF_DRA, *OF_SHARING])
    found = plan(smi(gpu), node="gpu1", taint=TAINT, directory_host="localhost", **given)
    kinds = {"Role", "RoleBinding"} if "gpus_by" in given else {"ConfigMap"}
    assert not found["refusals"] and {body["kind"] for body in bodies(found)} > kinds
    for body in bodies(found):
        asked = f"{path_of(body)}?fieldManager=strict&fieldValidation=Strict&dryRun=All"
        cluster.request("PATCH", asked, body, kind="application/apply-patch+yaml")
    variables = {
        "kubernetes_node_name": "gpu1",
        "kubernetes_node_kubeconfig": str(cluster.kubeconfig(tmp_path / "config", token=token)),
        "__kubernetes_node_plan": found,
    }
    role = play(tmp_path, "check.yml", "files.yml", "apply.yml", **variables)
    first = run_play(tmp_path, role)
    assert "rescued=0 " in first and "changed=0 " not in first, first
    # Status is of controllers and kubelets, and counts in no generation.
    generations = {path: cluster.get(path)["metadata"].get("generation") for path in map(path_of, bodies(found))}
    with cluster.reporting("gpu1"):
        second = run_play(tmp_path, role)
    assert "changed=0 " in second and "rescued=0 " in second, second
    assert {path: cluster.get(path)["metadata"].get("generation") for path in generations} == generations
    labels = cluster.node("gpu1")["metadata"]["labels"]
    assert labels.items() >= found["labels"].items()
    for body in bodies(found):
        if body["kind"] == "ConfigMap":
            assert cluster.get(path_of(body))["data"] == body["data"]

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/upgrade.yml next to NVIDIA's GPU Operator: real DaemonSets with its selectors, on a real control plane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._gpu_operator import KEPT, PAUSED, UPGRADE_STATE

from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.nodes import kill_at, note, upgrade_nodes
from tests.unit.upgrade.test_upgrade_playbook import steps

DEPLOY = "nvidia.com/gpu.deploy."
LABELS = {f"{DEPLOY}{name}": "true" for name in ("driver", "device-plugin", "dra-driver")}
DAEMON_SETS = "/apis/apps/v1/namespaces/default/daemonsets"


def add_operand(cluster: ControlPlane, name: str) -> None:
    """A DaemonSet that selects its nodes as the operator's do."""
    labels = {"app": name}
    template: dict[str, Any] = {
        "metadata": {"labels": labels},
        "spec": {
            "nodeSelector": {f"{DEPLOY}{name}": "true"},
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "none"}],
        },
    }
    spec = {"selector": {"matchLabels": labels}, "template": template}
    cluster.create(DAEMON_SETS, {"metadata": {"name": name}, "spec": spec})


def operands(cluster: ControlPlane, node: str) -> set[str]:
    """The DaemonSets that have a pod on a node."""
    return {name.rpartition("-")[0] for name in cluster.pods(node)}


def deployed(cluster: ControlPlane, node: str) -> dict[str, str]:
    """The labels of the operands."""
    labels = cluster.node(node)["metadata"]["labels"]
    return {name: value for name, value in labels.items() if name.startswith(DEPLOY)}


def test_operands_are_paused_and_restored_also_after_a_kill(tmp_path: Path, cluster: ControlPlane, token: str) -> None:
    cluster.add_node("gpu1", labels=LABELS)
    # Off for this node, and so it stays.
    cluster.add_node("gpu2", labels={**LABELS, f"{DEPLOY}device-plugin": "false"})
    for name, state in (
        ("theirs", {UPGRADE_STATE: "drain-required"}),
        ("halfway", {f"{DEPLOY}dcgm": PAUSED}),
        ("split", {f"{DEPLOY}mig-manager": "true", "nvidia.com/mig.config": "all-1g.18gb"}),
    ):
        cluster.add_node(name, labels={**LABELS, **state})
    before = {name: deployed(cluster, name) for name in ("gpu1", "gpu2", "theirs", "halfway", "split")}
    for name in ("driver", "device-plugin", "dra-driver"):
        add_operand(cluster, name)
    cluster.wait_for(lambda: operands(cluster, "gpu1") == {"driver", "device-plugin", "dra-driver"})
    # After the change, before its health is judged.
    kill, killed = kill_at(tmp_path, "'gpu1'")
    given = {"idle_timeout_s": 600}
    nodes: dict[str, dict[str, Any]] = {name: dict(given) for name in before}
    hooks = {name: {**given, "hooks": {"before_health": [kill]}} for name in before}
    hooks["split"] = {**given, "gpu_state_mig": False}
    done = upgrade_nodes(tmp_path, cluster, token, hooks)
    assert done.rc == -9 and killed.exists(), done.output
    for name, cause in (
        ("theirs", f"NVIDIA's GPU Operator is upgrading its driver ({UPGRADE_STATE} is drain-required)"),
        ("halfway", f"NVIDIA's k8s-driver-manager has paused operands on it: {DEPLOY}dcgm"),
        ("split", "gpu_state_mig would fight it; set migManager.enabled=false in the values of the operator's chart"),
    ):
        assert cause in done.failure(name), done.output
    # The driver container is the operator's own affair, and what was off is off.
    assert operands(cluster, "gpu1") == operands(cluster, "gpu2") == {"driver"}
    paused = {f"{DEPLOY}device-plugin": PAUSED, f"{DEPLOY}dra-driver": PAUSED}
    assert deployed(cluster, "gpu1") == {**before["gpu1"], **paused}
    assert deployed(cluster, "gpu2") == {**before["gpu2"], f"{DEPLOY}dra-driver": PAUSED}

    done = upgrade_nodes(tmp_path, cluster, token, {name: nodes[name] for name in ("gpu1", "gpu2")})
    assert done.rc == 0, done.output
    assert steps(tmp_path) == {"gpu1": "in_service", "gpu2": "in_service"}
    assert {name: deployed(cluster, name) for name in before} == before
    assert cluster.cordoned(*before) == set() and note(cluster, "gpu1") == ""
    assert KEPT not in cluster.node("gpu1")["metadata"].get("annotations", {})
    cluster.wait_for(lambda: operands(cluster, "gpu1") == {"driver", "device-plugin", "dra-driver"})
    cluster.wait_for(lambda: operands(cluster, "gpu2") == {"driver", "dra-driver"})
    for name in ("driver", "device-plugin", "dra-driver"):
        cluster.delete(f"{DAEMON_SETS}/{name}")

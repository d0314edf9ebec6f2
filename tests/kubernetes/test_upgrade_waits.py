# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/upgrade.yml on nodes of Kubernetes: what happens while a run waits, lost hosts, the guide."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_run import PREFIX

from tests.kubernetes.control_plane import ENDS_AFTER, ControlPlane
from tests.kubernetes.nodes import BLOCKS, RULES, meanwhile, note, state_of, upgrade_nodes
from tests.unit.plays import unreachable
from tests.unit.upgrade.test_upgrade_playbook import steps

# By node what its pods claim: the class of NVIDIA's DRA driver, and what else the request has.
CLAIMED: dict[str, tuple[str, dict[str, Any]]] = {
    "claimed": ("gpu", {}),
    "unread": ("gpu", {}),
    "shared": ("mig", {}),
    "domain": ("compute-domain", {}),
    "watched": ("gpu", {"adminAccess": True}),
    "batch": ("gpu", {}),
}


def claim_gpus(cluster: ControlPlane) -> None:
    """Let NVIDIA's DRA driver offer devices on nodes, and make a pod of a DaemonSet on each that claims one.

    The pod on `batch` is one of a Job. The device of `shared` is claimed by name, by two pods; others by a template.
    """
    group = "/apis/resource.k8s.io/v1"
    # Whoever may use this namespace may have administrative access, for example to watch GPUs that others use.
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    cluster.patch("/api/v1/namespaces/default", label)
    for kind in dict.fromkeys(kind for kind, _request in CLAIMED.values()):
        driver = "compute-domain.nvidia.com" if kind == "compute-domain" else "gpu.nvidia.com"
        expression = f"device.driver == '{driver}' && device.attributes['{driver}'].type == '{kind}'"
        selected = {"selectors": [{"cel": {"expression": expression}}]}
        cluster.create(f"{group}/deviceclasses", {"metadata": {"name": f"{kind}.nvidia.com"}, "spec": selected})
    for node, (kind, request) in CLAIMED.items():
        driver = "compute-domain.nvidia.com" if kind == "compute-domain" else "gpu.nvidia.com"
        device = {"name": f"{kind}-0", "attributes": {"type": {"string": kind}}}
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        offered = {"driver": driver, "nodeName": node, "pool": pool, "devices": [device]}
        cluster.create(f"{group}/resourceslices", {"metadata": {"name": node}, "spec": offered})
        requests = [{"name": "gpu", "exactly": {"deviceClassName": f"{kind}.nvidia.com", **request}}]
        claim = {"metadata": {"name": node}, "spec": {"devices": {"requests": requests}}}
        is_shared = node == "shared"
        if is_shared:
            cluster.create(f"{group}/namespaces/default/resourceclaims", claim)
        else:
            template = {"metadata": {"name": node}, "spec": {"spec": claim["spec"]}}
            cluster.create(f"{group}/namespaces/default/resourceclaimtemplates", template)
        named = "resourceClaimName" if is_shared else "resourceClaimTemplateName"
        claims: dict[str, Any] = {"resourceClaims": [{"name": "gpu", named: node}]}
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
        place: dict[str, Any] = {
            "nodeName": None,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [container],
        }
        for pod in (f"claim-{node}", f"also-{node}")[: 1 + is_shared]:
            cluster.add_pod(node, pod, "Job" if node == "batch" else "DaemonSet", **claims, **place)


def test_what_happens_while_a_run_waits(tmp_path: Path, cluster: ControlPlane, token: str) -> None:
    """A node is deleted, a token is revoked, hosts beyond the forks have their pods evicted at once, GPUs claimed."""
    for name in CLAIMED:
        cluster.add_node(name, labels={"kubernetes.io/hostname": name})
    claim_gpus(cluster)
    unread = cluster.account("unread", [rule for rule in RULES if rule["resources"] != ["resourceclaims"]])
    names = ("deleted", "first", "revoked", "second", "third")
    for name in names:
        cluster.add_node(name)
        cluster.add_pod(name, f"train-{name}", annotations={ENDS_AFTER: "3600" if name in names[:3] else "1"})
    own = cluster.account("brief", RULES)
    revoked = {"kubernetes_kubeconfig": str(cluster.kubeconfig(tmp_path / "brief", token=own)), "idle_timeout_s": 8}

    def work() -> None:
        def ends(name: str) -> bool:
            pod = cluster.pod(f"train-{name}")
            return pod is None or "deletionTimestamp" in pod["metadata"]

        cluster.wait_for(lambda: all(ends(name) for name in names))
        cluster.delete("/api/v1/nodes/deleted")
        cluster.delete("/api/v1/namespaces/default/serviceaccounts/brief")
        # All others were asked to end while this one had not ended.
        cluster.patch("/api/v1/namespaces/default/pods/train-first", {"metadata": {"annotations": {ENDS_AFTER: "0"}}})

    began = time.monotonic()
    with meanwhile(work):
        done = upgrade_nodes(
            tmp_path,
            cluster,
            token,
            {
                **{name: revoked if name == "revoked" else {"idle_timeout_s": 3600} for name in names},
                **{name: {"idle_timeout_s": 3600 if name == "batch" else 1} for name in CLAIMED},
                "unread": {"kubernetes_kubeconfig": str(cluster.kubeconfig(tmp_path / "unread", token=unread))},
            },
            "--forks=2",
        )
    assert time.monotonic() - began < 3000, "the limits of an hour were waited for"
    in_service = dict.fromkeys(("first", "second", "third", "batch"), "in_service")
    busy = [name for name in CLAIMED if name not in ("unread", "batch")]
    failed = dict.fromkeys((*busy, "deleted", "revoked"), "failed")
    assert steps(tmp_path) == {**in_service, **failed}, done.output
    assert cluster.pods("batch") == set()
    for name in busy:
        named = f"default/claim-{name}" if name != "shared" else "default/also-shared, default/claim-shared"
        assert f"pods with GPUs are still on it: {named}; " in state_of(tmp_path, name)["reason"]
    assert "the account may not get resourceclaims; give it the rights" in done.failure("unread")
    gone = "node deleted of Kubernetes: it has been deleted from the cluster meanwhile, so it is left alone"
    assert state_of(tmp_path, "deleted")["reason"].endswith(gone)
    assert "not idle" not in state_of(tmp_path, "deleted")["reason"]
    reason = state_of(tmp_path, "revoked")["reason"]
    assert "; renew the credentials in the file of gpu_fleet_upgrade_kubernetes_kubeconfig" in reason
    # Nothing could undo it.
    assert cluster.cordoned("revoked") == {"revoked"}


def test_a_node_whose_host_is_lost_has_the_reason(tmp_path: Path, cluster: ControlPlane, token: str) -> None:
    for name in ("sick", "worker7"):
        cluster.add_node(name)
    gone = unreachable(tmp_path, "connect: No route to host")
    lose = {"name": "Lose the host", "ansible.builtin.set_fact": gone, "when": "inventory_hostname != 'sick'"}
    (tmp_path / "lose.yml").write_text(json.dumps([lose]))
    hooks = {"hooks": {"after_change": [str(tmp_path / "lose.yml")]}}
    done = upgrade_nodes(tmp_path, cluster, token, {"sick": hooks, "dying": {**hooks, "kubernetes_node": "worker7"}})
    assert done.rc != 0
    assert steps(tmp_path) == {"sick": "failed", "dying": "failed"}, done.output
    run = json.loads((tmp_path / "states" / "plan.json").read_text())["run"]
    # Given by `sick`, which has a state and a reason of its own.
    assert note(cluster, "sick").startswith(f"gpu.fleet {run}: Refuse a host that is not healthy: fail")
    assert note(cluster, "worker7") == f"gpu.fleet {run}: the host could not be reached after it was changed"
    assert cluster.cordoned("sick", "worker7") == {"sick", "worker7"}


def test_the_guide_is_run_as_written(tmp_path: Path, cluster: ControlPlane, token: str) -> None:
    """Its variables and its hook, with the kubeconfig of the test."""
    blocks = [
        block.replace("/etc/gpu-fleet/kubeconfig", str(tmp_path / "kubeconfig")).replace("production", "real")
        for block in BLOCKS
    ]
    variables: dict[str, Any] = yaml.safe_load(blocks[0])
    for name, word in (("stop", "false"), ("start", "true")):
        (tmp_path / f"{name}.yml").write_text(blocks[2].replace('"false"', f'"{word}"'))
    hooks = {
        f"{when}_change": [str(tmp_path / f"{name}.yml")] for when, name in (("before", "stop"), ("after", "start"))
    }
    cluster.add_node("gpu1", labels={"example.com/gpu-exporter": "true"})
    cluster.add_pod("gpu1", "train", volumes=[{"name": "shm", "emptyDir": {}}])
    given = {name.removeprefix(PREFIX): value for name, value in variables.items() if name.startswith(PREFIX)}
    assert given["scheduler"] == "kubernetes" and given["on_busy"] == "skip"
    done = upgrade_nodes(tmp_path, cluster, token, {"gpu1": {**given, "hooks": hooks}}, "-e", "rack=r1")
    assert done.rc == 0, done.output
    assert steps(tmp_path) == {"gpu1": "in_service"} and cluster.pods("gpu1") == set()
    assert cluster.node("gpu1")["metadata"]["labels"]["example.com/gpu-exporter"] == "true"
    assert cluster.cordoned("gpu1") == set() and note(cluster, "gpu1") == ""

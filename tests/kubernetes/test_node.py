# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role kubernetes_node on a real control plane: refused, applied, read back, removed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_monitoring import PROGRAM

from tests.conftest import ROOT
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.nodes import taints
from tests.kubernetes.proxy import CutError, Proxy, Request
from tests.unit.kubernetes_node.test_kubernetes_manifests import H200, plan, smi, split
from tests.unit.kubernetes_node.test_kubernetes_tasks import TAINT, node_host, play
from tests.unit.plays import run_play
from tests.unit.site.converged import WITHOUT_CONTAINER
from tests.unit.site.mock_host import SiteRun, run_site

CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
RULES: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "docs" / "kubernetes.md").read_text().partition("The account needs:\n\n```yaml\n")[2].partition("```")[0]
)["rules"]
OF_DRA: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "docs" / "kubernetes.md").read_text().partition("needs these rights in addition")[2].split("```")[1][5:]
)["rules"]
DAEMON_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"


def bodies(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects of a plan."""
    return [one["body"] for one in found["manifests"]]


def path_of(body: dict[str, Any]) -> str:
    """Where the API server has an object."""
    version, metadata = body["apiVersion"], body["metadata"]
    namespace = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    plural = f"{body['kind'].lower()}{'es' if body['kind'].endswith('s') else 's'}"
    return f"/{'apis' if '/' in version else 'api'}/{version}{namespace}/{plural}/{metadata['name']}"


def test_manifests_are_checked_applied_read_back_and_removed(tmp_path: Path, cluster: ControlPlane) -> None:
    cluster.add_node("gpu1", labels={"kubernetes.io/hostname": "gpu1"}, cordoned=True)
    cluster.add_node("owned")
    # As gpu-feature-discovery would, where it runs.
    apply = "application/apply-patch+yaml"
    labels = {"nvidia.com/gpu.count": "8"}
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "owned", "labels": labels}}
    cluster.request("PATCH", "/api/v1/nodes/owned?fieldManager=nfd", body, kind=apply)
    configs = {
        name: str(cluster.kubeconfig(tmp_path / name, token=cluster.account(name, rules)))
        for name, rules in (("applier", RULES), ("reader", [{**rule, "verbs": ["get"]} for rule in RULES]))
    }
    # As `-e kubernetes_node_apply=true` gives it.
    given = {"kubernetes_node_kubeconfig": configs["applier"], "kubernetes_node_apply": "true"}

    def tasks(*names: str, node: str = "gpu1", **variables: Any) -> list[Any]:
        found = plan(
            smi(H200, split("1g.18gb", "3g.71gb", index=1)), node=node, taint=TAINT, directory_host="localhost"
        )
        variables = {"kubernetes_node_name": node, "__kubernetes_node_plan": found, **given, **variables}
        made: list[Any] = play(tmp_path, *names, **variables)["tasks"]
        return made

    refused = [
        *tasks("check.yml", node="other"),
        *tasks("check.yml", kubernetes_node_kubeconfig=configs["reader"]),
        *tasks("check.yml", node="owned"),
        *tasks("check.yml", kubernetes_node_kubeconfig=str(tmp_path / "none")),
    ]
    output = run_play(tmp_path, {**play(tmp_path), "tasks": [*refused, *tasks("check.yml", "files.yml", "apply.yml")]})
    assert "rescued=8 " in output, output
    assert "the cluster has no node other; join it first" in output
    assert "node gpu1 of Kubernetes: the account may not create runtimeclasses, patch runtimeclasses" in output
    assert "give it the rights to get and patch nodes, and to get, create and patch runtimeclasses" in output
    assert "node owned of Kubernetes: Apply failed with 1 conflict" in output
    assert "; another manager owns these fields" in output
    assert "set kubernetes_node_kubeconfig to a file" in output

    mixed = plan(smi(H200, split("1g.18gb", "3g.71gb", index=1)), node="gpu1", taint=TAINT)
    files = {path.name: path.read_text() for path in (tmp_path / "manifests").iterdir()}
    assert files.keys() == {"runtime-class-nvidia.yaml", "device-plugin-mixed-cdi-cri.yaml", "node-gpu1.yaml"}
    for manifest in mixed["manifests"]:
        assert yaml.safe_load(files[manifest["file"]]) == manifest["body"]
        kubernetes_validate.validate(manifest["body"], "1.37", strict=True)
    node = cluster.node("gpu1")
    assert node["metadata"]["labels"].items() >= {**mixed["labels"], "kubernetes.io/hostname": "gpu1"}.items()
    assert mixed["taint"] in node["spec"]["taints"] and node["spec"]["unschedulable"]
    # The controller makes the pod of the node that has the label.
    cluster.wait_for(lambda: any(name.startswith("nvidia-device-plugin-mixed") for name in cluster.pods("gpu1")))

    # The ConfigMap as well.
    single = plan(
        smi(split("1g.18gb")), node="gpu1", taint=TAINT, directory_host="localhost", time_slicing={"nvidia.com/gpu": 4}
    )
    absent = tasks("check.yml", "files.yml", "apply.yml", "remove.yml", __kubernetes_node_plan=single)
    # The status of what was applied is none of it.
    with cluster.reporting("gpu1"):
        again = run_play(tmp_path, {**play(tmp_path), "tasks": tasks("check.yml", "files.yml", "apply.yml")})
    assert "changed=0 " in again and "rescued=0 " in again, again
    assert "rescued=0 " in run_play(tmp_path, {**play(tmp_path), "tasks": absent})
    left = cluster.node("gpu1")
    assert left["metadata"]["labels"] == {"kubernetes.io/hostname": "gpu1"}
    assert mixed["taint"] not in left["spec"].get("taints", ()) and left["spec"]["unschedulable"]
    # What other nodes may need stays.
    names = {one["metadata"]["name"] for one in cluster.get(DAEMON_SETS)["items"]}
    assert len(names) == 2 and "nvidia-device-plugin-mixed-cdi-cri" in names
    config = next(body for body in (one["body"] for one in single["manifests"]) if body["kind"] == "ConfigMap")
    path = f"/api/v1/namespaces/kube-system/configmaps/{config['metadata']['name']}"
    assert cluster.get(path)["data"] == config["data"]


def role_alone(directory: Path) -> Path:
    """A playbook with the role and nothing else."""
    playbook = directory / "alone.yml"
    role = {"name": "Run the role", "ansible.builtin.include_role": {"name": "gpu.fleet.kubernetes_node"}}
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [role]}]))
    return playbook


def test_a_run_that_may_not_apply_writes_nothing(tmp_path: Path, cluster: ControlPlane) -> None:
    """By the role alone, which asks the cluster before it writes."""
    cluster.add_node("gpu1", labels={"kubernetes.io/hostname": "gpu1"})
    reader = cluster.account("may-read", [{**rule, "verbs": ["get"]} for rule in RULES])
    configs = {
        "the account may not create runtimeclasses": cluster.kubeconfig(tmp_path / "reader", token=reader),
        "certificate": cluster.kubeconfig(tmp_path / "untrusted", trusted=False),
        "Unauthorized": cluster.kubeconfig(tmp_path / "expired", token="of-yesterday"),
        "set kubernetes_node_kubeconfig to a file": tmp_path / "none",
    }
    before = cluster.node("gpu1")["metadata"]["labels"]
    for number, (reason, config) in enumerate(configs.items()):
        directory, manifests = tmp_path / f"run{number}", tmp_path / f"manifests{number}"
        directory.mkdir()
        given = {
            **WITHOUT_CONTAINER,
            "kubernetes_node_apply": True,
            "kubernetes_node_kubeconfig": str(config),
            "kubernetes_node_directory": str(manifests),
            "kubernetes_node_directory_host": "localhost",
        }
        done = run_site(directory, {"gpu1": (node_host(), given)}, playbook=role_alone(directory))
        assert done.rc != 0 and "gpu1: node gpu1 of Kubernetes: " in done.output and reason in done.output, done.output
        assert "kubernetes_node_kubeconfig" in done.output or "account" in reason, done.output
        assert not manifests.exists() and cluster.node("gpu1")["metadata"]["labels"] == before


def test_whether_to_apply_may_be_given_as_text(tmp_path: Path, cluster: ControlPlane) -> None:
    """By `-e NAME=VALUE`, as Ansible's type bool takes it."""
    cluster.add_node("gpu1", labels={"kubernetes.io/hostname": "gpu1"})
    given = {**WITHOUT_CONTAINER, "gpu_fleet_roles": ["kubernetes_node"], "kubernetes_node_labels": {"tests/own": "x"}}
    configs = {"false": str(tmp_path / "no-such-file"), "true": str(cluster.kubeconfig(tmp_path / "config"))}
    alone = role_alone(tmp_path)

    def run(playbook: Path, word: str, state: str) -> SiteRun:
        directory = tmp_path / f"{playbook.stem}-{state}-{word}"
        directory.mkdir()
        arguments = ("-e", f"kubernetes_node_apply={word}", "-e", f"kubernetes_node_state={state}")
        variables = {**given, "kubernetes_node_kubeconfig": configs.get(word, "")}
        return run_site(directory, {"gpu1": (node_host(), variables)}, *arguments, playbook=playbook)

    def is_labelled() -> bool:
        return "tests/own" in cluster.node("gpu1")["metadata"]["labels"]

    refused = run(ROOT / "playbooks" / "site.yml", "maybe", "present")
    assert 'kubernetes_node_apply is "maybe"; it takes true or false' in refused.failure("gpu1")
    assert refused.modules["gpu1"] == ["host_facts"] and not is_labelled()
    for state, word, labelled in (
        ("present", "false", False),
        ("present", "true", True),
        ("absent", "false", True),
        ("absent", "true", False),
    ):
        done = run(alone, word, state)
        assert done.rc == 0, done.output
        assert is_labelled() is labelled, (state, word)


def test_the_dra_driver_takes_the_place_of_the_device_plugin(tmp_path: Path, cluster: ControlPlane) -> None:
    cluster.add_node("gpu1", labels={"kubernetes.io/hostname": "gpu1"})
    configs = {
        name: str(cluster.kubeconfig(tmp_path / name, token=cluster.account(name, rules)))
        for name, rules in (("plugin-alone", RULES), ("with-dra", [*RULES, *OF_DRA]))
    }

    def tasks(config: str, **given: Any) -> list[Any]:
        found = plan(smi(H200), node="gpu1", taint=TAINT, directory_host="localhost", **given)
        variables = {"kubernetes_node_name": "gpu1", "__kubernetes_node_plan": found}
        names = ("check.yml", "files.yml", "apply.yml")
        made: list[Any] = play(tmp_path, *names, kubernetes_node_kubeconfig=configs[config], **variables)["tasks"]
        return made

    driver = {"gpus_by": "dra_driver"}
    before = run_play(
        tmp_path, {**play(tmp_path), "tasks": [*tasks("plugin-alone"), tasks("plugin-alone", **driver)[0]]}
    )
    assert "rescued=2 " in before and "the account may not get deviceclasses, create deviceclasses" in before, before
    cluster.wait_for(lambda: any(name.startswith("nvidia-device-plugin") for name in cluster.pods("gpu1")))
    after = run_play(
        tmp_path, {**play(tmp_path), "tasks": [*tasks("with-dra", **driver), *tasks("with-dra", **driver)]}
    )
    assert "rescued=0 " in after, after
    # One leaves with its label, the other one comes with its own.
    cluster.wait_for(
        lambda: {name.rpartition("-")[0] for name in cluster.pods("gpu1")} == {"nvidia-dra-driver-kubelet-plugin"}
    )

    # As the driver would publish it; the scheduler reads the attributes by the DeviceClass.
    group = "/apis/resource.k8s.io/v1"
    devices = [{"name": f"{kind}-0", "attributes": {"type": {"string": kind}}} for kind in ("gpu", "mig")]
    pool = {"name": "gpu1", "generation": 1, "resourceSliceCount": 1}
    offered = {"driver": "gpu.nvidia.com", "nodeName": "gpu1", "pool": pool, "devices": devices}
    cluster.create(f"{group}/resourceslices", {"metadata": {"name": "gpu1"}, "spec": offered})
    for kind in ("gpu", "mig"):
        request = {"name": "one", "exactly": {"deviceClassName": f"{kind}.nvidia.com"}}
        body = {"metadata": {"name": kind}, "spec": {"devices": {"requests": [request]}}}
        cluster.create(f"{group}/namespaces/default/resourceclaims", body)
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "one"}]}}
        claims = [{"name": "one", "resourceClaimName": kind}]
        cluster.add_pod("", kind, gpus=0, nodeName=None, resourceClaims=claims, containers=[container])
        claim = cluster.get(f"{group}/namespaces/default/resourceclaims/{kind}")
        [result] = claim["status"]["allocation"]["devices"]["results"]
        assert (result["driver"], result["device"]) == ("gpu.nvidia.com", f"{kind}-0")


def test_no_gpu_pod_lands_on_a_node_with_the_taint_of_its_verdict(tmp_path: Path, cluster: ControlPlane) -> None:
    """As the health check changes its verdict; the account has the rights to get, list and patch nodes alone."""
    cluster.add_node("gpu1", labels={"kubernetes.io/hostname": "gpu1"})
    others = {"key": "example.com/rack", "value": "b", "effect": "PreferNoSchedule"}
    cluster.patch("/api/v1/nodes/gpu1", {"spec": {"taints": [others]}})
    config = str(cluster.kubeconfig(tmp_path / "tainter", token=cluster.account("tainter", RULES[:1])))

    def announce(line: str, *arguments: str, code: int = 0, node: str = "gpu1") -> str:
        return hear(tmp_path, config, line, *arguments, code=code, node=node)

    taint = {"key": "gpu.fleet/unhealthy", "value": "reboot", "effect": "NoSchedule"}
    fault = "FAIL: GPU 1 (00000000:07:00.0): Xid 79; remedy reboot"
    cluster.add_pod("gpu1", "before")
    assert "changed=1 " in announce(fault, "--check", code=2) and taints(cluster, "gpu1") == [others]
    assert "changed=1 " in announce(fault, code=2) and taints(cluster, "gpu1") == [others, taint]
    for line, code in ((fault, 2), ("WARN: hot", 1), ("UNKNOWN: the last verdict is 4000 s old", 3)):
        assert "changed=0 " in announce(line, code=code) and taints(cluster, "gpu1") == [others, taint]
    # The pod that is there goes on; the scheduler has no node for another one.
    pod = {"metadata": {"name": "next"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}  # type: ignore[index]
    cluster.create("/api/v1/namespaces/default/pods", pod)

    def phase() -> str:
        return str((cluster.pod("next") or {})["status"].get("phase"))

    def is_refused() -> bool:
        conditions = (cluster.pod("next") or {})["status"].get("conditions", ())
        return any("untolerated taint" in one.get("message", "") for one in conditions)

    cluster.wait_for(is_refused)
    assert phase() == "Pending" and cluster.pods("gpu1") == {"before"}
    assert "changed=1 " in announce("OK: nothing found") and taints(cluster, "gpu1") == [others]
    cluster.wait_for(lambda: phase() == "Running")
    assert "changed=0 " in announce("OK: nothing found")
    assert "the cluster has no node gpu9; join it first" in announce(fault, node="gpu9")
    # The role with `state: absent` takes it away whatever the verdict is, and no other one.
    assert "changed=1 " in announce(fault, code=2) and taints(cluster, "gpu1") == [others, taint]
    given = {"kubernetes_node_name": "gpu1", "kubernetes_node_kubeconfig": config, "kubernetes_node_apply": True}
    for changes, left in (("changed=1 ", [others]), ("changed=0 ", [others])):
        removed = run_play(tmp_path, play(tmp_path, "remove.yml", **given))
        assert changes in removed and "rescued=0 " in removed and taints(cluster, "gpu1") == left, removed
    assert "rescued=1 " in announce("", code=127) and taints(cluster, "gpu1") == [others]


def hear(directory: Path, config: str, line: str, *arguments: str, code: int = 0, node: str = "gpu1") -> str:
    """Run the part of the role that sets the taint, with what the health check prints; what the run has printed."""
    tasks = directory / "taint"
    tasks.mkdir(exist_ok=True)
    for path in (ROOT / "roles" / "kubernetes_node" / "tasks").glob("*taint.yml"):
        text = path.read_text().replace(f"{PROGRAM}/status", str(tasks / "status"))
        (tasks / path.name).write_text(text.replace("/run/gpu-fleet-health/", f"{tasks}/"))
    assert str(tasks / "status") in (tasks / "taint.yml").read_text()
    (tasks / "status").write_text(f"#!/bin/sh\necho '{line}'\nexit {code}\n")
    (tasks / "status").chmod(0o700)
    given = {"kubernetes_node_name": node, "kubernetes_node_kubeconfig": config}
    included = {"ansible.builtin.include_tasks": str(tasks / "taint.yml")}
    failed = [{"ansible.builtin.debug": {"var": "ansible_failed_result.msg"}}]
    variables = {**given, "ansible_python_interpreter": sys.executable}
    block = {"block": [included], "rescue": failed, "vars": variables}
    return run_play(directory, {**play(directory), "tasks": [block]}, *arguments)


def test_above_the_cap_and_without_a_count_no_node_gets_the_taint(tmp_path: Path, cluster: ControlPlane) -> None:
    for number in range(1, 5):
        cluster.add_node(f"gpu{number}", labels={"kubernetes.io/hostname": f"gpu{number}"})
    own = {"key": "gpu.fleet/unhealthy", "value": "reboot", "effect": "NoSchedule"}
    fault = "FAIL: GPU 1 (00000000:07:00.0): Xid 79; remedy reboot"
    # As it was documented before there was a cap.
    rights = {"uncounted": ["get", "patch"], "counted": RULES[0]["verbs"]}
    configs = {
        name: str(cluster.kubeconfig(tmp_path / name, token=cluster.account(name, [{**RULES[0], "verbs": verbs}])))
        for name, verbs in rights.items()
    }

    def announce(config: str, node: str, line: str = fault) -> str:
        return " ".join(hear(tmp_path, configs[config], line, node=node).split())

    output = announce("uncounted", "gpu1")
    assert "cannot be counted" in output and "list nodes" in output and taints(cluster, "gpu1") == []
    for name in ("gpu1", "gpu2"):
        announce("counted", name)
        assert taints(cluster, name) == [own]
    output = announce("counted", "gpu3")
    assert "verdicts have 2 of 4 nodes out of service" in output and taints(cluster, "gpu3") == []
    announce("uncounted", "gpu1", "OK: nothing found")
    assert taints(cluster, "gpu1") == []
    announce("counted", "gpu3")
    assert taints(cluster, "gpu3") == [own]


def test_a_taint_whose_reply_is_lost_or_whose_node_others_have_changed_is_no_failure(
    tmp_path: Path, cluster: ControlPlane, proxy: Proxy
) -> None:
    """Set by the verdict, and removed with the node's labels: after the patch, before it, and next to another one."""
    others = [{"key": f"example.com/{name}", "effect": "NoExecute"} for name in ("rack", "row")]
    cluster.add_node("gpu1", labels={"kubernetes.io/hostname": "gpu1"})
    token = cluster.account("tainter-by-proxy", RULES[:1])
    config = str(cluster.kubeconfig(tmp_path / "by-proxy", proxy.url, token=token))
    own = {"key": "gpu.fleet/unhealthy", "value": "reboot", "effect": "NoSchedule"}
    happened: list[Request] = []
    ways: dict[str, Callable[[Request], None]] = {}

    def once(way: str) -> Callable[[Request], None]:
        def at(request: Request) -> None:
            if request.method == "PATCH" and isinstance(request.body, list) and not happened:
                happened.append(request)
                ways[way](request)

        return at

    def cut(_request: Request) -> None:
        raise CutError

    def change(_request: Request) -> None:
        cluster.patch("/api/v1/nodes/gpu1", {"spec": {"taints": [*taints(cluster, "gpu1"), others[1]]}})

    def remove(_request: Request) -> None:
        cluster.patch("/api/v1/nodes/gpu1", {"spec": {"taints": others[:1]}})

    ways |= {"after": cut, "before": cut, "change": change, "remove": remove}
    role = {**play(tmp_path), "tasks": play(tmp_path, "remove.yml", kubernetes_node_kubeconfig=config)["tasks"]}
    for way, kept in (("after", 1), ("before", 1), ("change", 2), ("remove", 1)):
        # Of a taint that is gone already only a removal can hear.
        for has_taint in (True,) if way == "remove" else (False, True):
            given = [others[0], *([own] if has_taint else [])]
            cluster.patch("/api/v1/nodes/gpu1", {"spec": {"taints": given}})
            happened.clear()
            proxy.before = once(way) if way != "after" else (lambda _request: None)
            proxy.after = once(way) if way == "after" else (lambda _request: None)
            fault = "FAIL: GPU 1: Xid 79; remedy reboot"
            output = run_play(tmp_path, role) if has_taint else hear(tmp_path, config, fault, code=2)
            assert happened and "failed=0 " in output and "rescued=1 " in output, (way, has_taint, output)
            expected = [*others[:kept], *([] if has_taint else [own])]
            assert taints(cluster, "gpu1") == expected, (way, has_taint, output)

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels and manifests of GPU nodes, against the schemas that Kubernetes publishes and the syntax of its labels."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.releases import PROJECTS
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Ask, Plan
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.kubernetes_node.dra import DRA_LABEL
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.kubernetes_node.manifests import Manifest, reviews
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.kubernetes_node.plan import OTHERS, PLUGIN_LABEL
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.kubernetes_node.stages import PLANNER
from gpu_simulator.state import catalogue
from kubernetes_validate import utils

from tests.unit.mig.mig_host import SimulatedHost, mig_models, table_of
from tests.unit.recordings.recording import load
from tests.unit.site.test_variables import preflight

VERSIONS = ("1.25", "1.37")
"""The oldest and the newest version of Kubernetes whose schemas are at hand; both device list strategies of CDI fit."""
DEFAULTS = RoleData.read().defaults(["kubernetes_node"])
# Variables by their names in these tests, where those differ from that of the role without its prefix.
NAMES = {
    "node": "kubernetes_node_name",
    "image": "kubernetes_node_device_plugin_image",
    "version": "kubernetes_node_device_plugin_version",
    "dra_image": "kubernetes_node_dra_driver_image",
    "dra_version": "kubernetes_node_dra_driver_version",
    "dra_sharing": "kubernetes_node_dra_driver_sharing",
    "accept_envvar": "nvidia_container_toolkit_accept_envvar",
    "accept_volume_mounts": "nvidia_container_toolkit_accept_volume_mounts",
    "host_mps": "gpu_state_mps",
    "compute_mode": "gpu_state_compute_mode",
}
STAGES = PLANNER.stages
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
CDI = {"runtimes": ["containerd"], "spec_file": "/var/run/cdi/nvidia.yaml"}
HOOK = {"runtimes": ["containerd"], "spec_file": ""}
H200 = {
    "index": 0,
    "name": "NVIDIA H200",
    "architecture": "hopper",
    "memory_total_mib": 143771,
    "mig_capable": True,
    "mig_mode_current": "disabled",
    "mig_devices": [],
}
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def smi(*gpus: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    """The facts of a host with these GPUs."""
    classes = [{"class_id": "0x030200"} for _gpu in gpus]
    return {"driver_version": "580.159.04", "cuda_version": "13.0", "gpus": list(gpus), "pci_gpus": classes, **facts}


def split(*profiles: str, **changes: Any) -> dict[str, Any]:
    """A GPU in MIG mode with these MIG devices."""
    return {**H200, "mig_mode_current": "enabled", "mig_devices": [{"profile": each} for each in profiles], **changes}


def named(given: Mapping[str, Any]) -> dict[str, Any]:
    """Variables of these tests by the names that they have in a play."""
    found = {NAMES.get(name, f"kubernetes_node_{name}"): value for name, value in given.items()}
    assert found.keys() <= {*DEFAULTS, *OTHERS}
    return found


def stage(name: str, given: Mapping[str, Any], facts: Mapping[str, Any], /, **found: Any) -> Plan:
    """A stage of the planner."""
    variables = {**DEFAULTS, "kubernetes_node_name": "gpu1.example.com", **named(given)}
    planned = STAGES[name](variables, facts, found)
    assert isinstance(planned, Plan)
    return planned


def plan(
    nvidia_smi: Mapping[str, Any],
    toolkit: Mapping[str, Any] | None = None,
    operator: Mapping[str, bool] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """The plan of a node as its tasks read it."""
    facts = {"nvidia_smi": nvidia_smi, "gpu_fleet_managed": {"nvidia_container_toolkit": {"data": toolkit or {}}}}
    return stage("plan", given, facts, gpus={}, managed={"gpu_operator": operator or {}}).as_dict()


def unapplied(planned: Mapping[str, Any], objects: Sequence[Any]) -> tuple[str, ...]:
    """What the cluster lacks of a plan."""
    read = {"results": [{"resources": [one]} for one in objects]}
    given = {"taint": "{key}={value}:{effect}".format(**planned["taint"])}
    return stage("verify", given, {}, manifests=planned["manifests"], read=read).refusals


def by_kind(planned: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The object of this kind."""
    (found,) = (manifest["body"] for manifest in planned["manifests"] if manifest["body"]["kind"] == kind)
    body: dict[str, Any] = found
    return body


def without_deprecated(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels without their common prefix, and those of versions only once."""
    old = re.compile(r"nvidia[.]com/cuda[.](?:driver|runtime)[.]")
    return {key.removeprefix("nvidia.com/"): value for key, value in labels.items() if not old.match(key)}


def is_label(key: str, value: object) -> bool:
    """Whether Kubernetes accepts it."""
    return bool(KEY.fullmatch(key) and isinstance(value, str) and VALUE.fullmatch(value))


@pytest.fixture(autouse=True, scope="module")
def _schemas_read_once() -> Iterator[None]:
    """They are a megabyte of JSON for each version."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "schema_contents", functools.cache(utils.schema_contents))
        yield


@functools.cache
def validate(text: str) -> None:
    """Validate an object against the schemas, once for equal objects; additional fields are errors as well."""
    for version in VERSIONS:
        kubernetes_validate.validate(json.loads(text), version, strict=True)


def assert_valid(planned: Mapping[str, Any]) -> None:
    assert planned["refusals"] == []
    for manifest in planned["manifests"]:
        validate(json.dumps(manifest["body"], sort_keys=True))
        labels = manifest["body"]["metadata"].get("labels", {})
        assert [key for key, value in labels.items() if not is_label(key, value)] == []


LAYOUTS = {
    "none": smi(H200, {**H200, "index": 1}),
    "single": smi(split("1g.18gb", "1g.18gb"), split("1g.18gb", index=1)),
    "mixed": smi(H200, split("1g.18gb", "1g.18gb+me", "3g.71gb", "1c.2g.35gb", index=1)),
}
TOOLKITS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "cdi-cri": (CDI, {}),
    "cdi-annotations": (CDI, {"device_list_strategy": "cdi-annotations"}),
    "envvar": (HOOK, {"accept_envvar": "always"}),
    "volume-mounts": (HOOK, {"accept_volume_mounts": "always"}),
}


@pytest.mark.parametrize("strategy", LAYOUTS)
@pytest.mark.parametrize("way", TOOLKITS)
def test_every_manifest_of_every_variant_is_valid(strategy: str, way: str) -> None:
    toolkit, given = TOOLKITS[way]
    for runtime_class, version, taint in (("nvidia", "v0.20.1", ""), ("", DIGEST, "example.com/gpu:NoExecute")):
        planned = plan(LAYOUTS[strategy], toolkit, runtime_class=runtime_class, version=version, taint=taint, **given)
        assert_valid(planned)
        assert (planned["mig_strategy"], planned["device_list_strategy"]) == (strategy, way)
        assert len(planned["manifests"]) == (3 if runtime_class else 2)
        pod = by_kind(planned, "DaemonSet")["spec"]["template"]["spec"]
        assert pod.get("runtimeClassName", "") == runtime_class
        # The plugin is on the nodes with these strategies, and on no others.
        node = by_kind(planned, "Node")["metadata"]["labels"]
        assert pod["nodeSelector"].items() <= node.items() and pod["nodeSelector"] == {
            "gpu.fleet/device-plugin": f"{strategy}-{way}"
        }
        assert pod["tolerations"][0] == {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
        assert [each["key"] for each in pod["tolerations"][1:]] == (["example.com/gpu"] if taint else [])
        (container,) = pod["containers"]
        separator = "@" if version == DIGEST else ":"
        assert container["image"] == f"nvcr.io/nvidia/k8s-device-plugin{separator}{version}"
        environment = {each["name"]: each["value"] for each in container["env"]}
        assert (environment["MIG_STRATEGY"], environment["DEVICE_LIST_STRATEGY"]) == (strategy, way)
        # Where NVIDIA's runtime does not give GPUs to all containers, only its capability gets them for the plugin.
        capabilities = container["securityContext"]["capabilities"]
        assert capabilities == ({"drop": ["ALL"]} if (strategy, way) == ("none", "envvar") else {"add": ["SYS_ADMIN"]})
        assert ({"/driver-root", "/var/run/cdi"} <= {each["mountPath"] for each in container["volumeMounts"]}) is (
            "cdi" in way
        )


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("RuntimeClass", ["handler"], None),
        ("RuntimeClass", ["handler"], 5),
        ("DaemonSet", ["spec", "selector"], None),
        ("DaemonSet", ["spec", "template", "spec", "containers"], {}),
        ("DaemonSet", ["spec", "template", "spec", "tolerations"], [{"Key": "nvidia.com/gpu"}]),
        ("DaemonSet", ["spec", "template", "spec", "nodeselector"], {}),
        ("DaemonSet", ["spec", "template", "spec", "containers", 0, "env"], [{"name": "A", "value": True}]),
        ("DaemonSet", ["spec", "template", "spec", "volumes", 0, "name"], None),
        ("Node", ["metadata", "labels"], {"nvidia.com/gpu.count": 8}),
        ("Node", ["labels"], {}),
    ],
)
def test_a_broken_manifest_is_not_valid(kind: str, path: list[Any], value: Any) -> None:
    body = copy.deepcopy(by_kind(plan(LAYOUTS["mixed"]), kind))
    parent = functools.reduce(lambda found, key: found[key], path[:-1], body)
    if value is None:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(json.dumps(body))


@pytest.mark.parametrize(("recording", "count"), [("h200x1-facts-580.159.04", 1), ("h200x4-facts-580.159.04", 4)])
def test_labels_of_real_hosts(recording: str, count: int) -> None:
    result = load(recording).results["nvidia_smi_facts"][0]["result"]
    planned = plan(result["ansible_facts"]["nvidia_smi"], labels={"example.com/rack": 7})
    assert_valid(planned)
    assert planned["manifests"][-1]["file"] == "node-gpu1.example.com.yaml"
    labels = by_kind(planned, "Node")["metadata"]["labels"]
    assert without_deprecated(labels) == {
        "cuda.driver-version.full": "580.159.04",
        "cuda.driver-version.major": "580",
        "cuda.driver-version.minor": "159",
        "cuda.driver-version.revision": "04",
        "cuda.runtime-version.full": "13.0",
        "cuda.runtime-version.major": "13",
        "cuda.runtime-version.minor": "0",
        "example.com/rack": "7",
        "gpu.compute.major": "9",
        "gpu.compute.minor": "0",
        "gpu.count": str(count),
        "gpu.family": "hopper",
        "gpu.memory": "143771",
        "gpu.mode": "compute",
        "gpu.present": "true",
        "gpu.product": "NVIDIA-H200",
        "gpu.fleet/device-plugin": "none-cdi-cri",
        "mig.capable": "true",
    }
    # The deprecated names are still in selectors of pods.
    old = {name: labels[f"nvidia.com/cuda.{name}"] for name in ("driver.major", "driver.rev", "runtime.minor")}
    assert old == {"driver.major": "580", "driver.rev": "04", "runtime.minor": "0"}


# Readings of MIG devices of a real A100-SXM4-80GB, driver 535.54.03.
A100_DEVICE = {
    "profile": "1g.20gb",
    "memory_total_mib": 19968,
    "multiprocessor_count": 14,
    "copy_engine_count": 1,
    "encoder_count": 0,
    "decoder_count": 1,
    "jpeg_count": 0,
    "ofa_count": 0,
}
A100 = {
    "index": 0,
    "name": "NVIDIA A100-SXM4-80GB",
    "architecture": "ampere",
    "memory_total_mib": 81920,
    "mig_capable": True,
    "mig_mode_current": "enabled",
    "mig_devices": [A100_DEVICE] * 4,
}
A100_LABELS = {
    "count": "4",
    "product": "NVIDIA-A100-SXM4-80GB-MIG-1g.20gb",
    "memory": "19968",
    "multiprocessors": "14",
    "slices.gi": "1",
    "slices.ci": "1",
    "engines.copy": "1",
    "engines.decoder": "1",
    "engines.encoder": "0",
    "engines.jpeg": "0",
    "engines.ofa": "0",
}


def test_labels_of_mig_devices_of_a_real_gpu() -> None:
    host = smi(A100, driver_version="535.54.03", cuda_version="12.2")
    mixed, single = (
        without_deprecated(plan(host, mig_strategy=strategy)["labels"]) for strategy in ("mixed", "single")
    )
    of_gpu = {"count": "1", "product": "NVIDIA-A100-SXM4-80GB", "memory": "81920"}
    assert {f"mig-1g.20gb.{name}": value for name, value in A100_LABELS.items()}.items() <= mixed.items()
    assert {f"gpu.{name}": value for name, value in of_gpu.items()}.items() <= mixed.items()
    # With one profile the MIG devices are the node's GPUs.
    assert {f"gpu.{name}": value for name, value in A100_LABELS.items()}.items() <= single.items()
    assert not any(name.startswith("mig-") for name in single)
    assert (mixed["mig.strategy"], single["mig.strategy"]) == ("mixed", "single")
    assert (single["gpu.compute.major"], single["gpu.family"]) == ("8", "ampere")


@pytest.mark.parametrize("model", catalogue.names())
def test_manifests_of_each_model(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SimulatedHost.make(tmp_path / "whole", model, model, mig=False).facts(monkeypatch, "hardware", "mig")
    planned = plan(whole)
    assert_valid(planned)
    labels = without_deprecated(planned["labels"])
    assert (labels["gpu.count"], labels["mig.capable"]) == ("2", str(model in mig_models()).lower())
    assert {"gpu.family", "gpu.compute.major", "gpu.memory"} <= labels.keys()
    if model in mig_models():
        host = SimulatedHost.make(tmp_path / "mig", model, model)
        profile = next(each for each in table_of(model, tmp_path).profiles if each.slices == 1)
        for gpu in ("0", "1"):
            host.call("mig", "-i", gpu, "-cgi", f"{profile.profile_id},{profile.profile_id}", "-C")
        found = host.facts(monkeypatch, "hardware", "mig")
        planned = plan(found)
        assert_valid(planned)
        labels = without_deprecated(planned["labels"])
        assert (labels["mig.strategy"], labels["gpu.count"]) == ("single", "4")
        assert labels["gpu.product"].endswith(f"-MIG-{profile.name}")
        assert "None" not in labels.values()


@pytest.mark.parametrize(
    ("gpus", "strategy"),
    [
        ([H200], "none"),
        ([split("1g.18gb"), H200], "mixed"),
        ([split("1g.18gb"), split("1g.18gb")], "single"),
        ([split("1g.18gb"), split("3g.71gb")], "mixed"),
        ([split("1g.18gb"), split()], "mixed"),
        ([split("1g.18gb", "1g.18gb+me")], "mixed"),
    ],
)
def test_the_strategy_follows_from_the_mig_devices(gpus: list[Any], strategy: str) -> None:
    assert plan(smi(*gpus))["mig_strategy"] == strategy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NVIDIA GeForce RTX 4090 (Laptop)", "NVIDIA-GeForce-RTX-4090-Laptop"),
        ("Tesla  T4 ", "Tesla-T4"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3"),
        ("-Quadro™ RTX/8000_", "Quadro-RTX8000"),
        (" ".join(["NVIDIA"] * 20), "-".join(["NVIDIA"] * 9)),
    ],
)
def test_a_product_is_a_value_that_kubernetes_accepts(name: str, value: str) -> None:
    labels = plan(smi({**H200, "name": name}))["labels"]
    assert labels["nvidia.com/gpu.product"] == value
    assert VALUE.fullmatch(value)


def test_a_node_with_several_models_has_the_labels_of_the_most_frequent() -> None:
    t4 = {**H200, "name": "Tesla T4", "architecture": "turing", "memory_total_mib": 15360, "mig_capable": None}
    labels = plan(smi(H200, t4, t4))["labels"]
    assert [labels[f"nvidia.com/gpu.{name}"] for name in ("product", "count", "family")] == ["Tesla-T4", "2", "turing"]


def test_labels_about_gpus_can_be_left_to_others() -> None:
    labels = plan(LAYOUTS["mixed"], gpu_labels=False, labels={"a": "b"})["labels"]
    assert labels == {"a": "b", "gpu.fleet/device-plugin": "mixed-cdi-cri", "nvidia.com/gpu.present": "true"}


REFUSED: Iterable[tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any], str]] = [
    (smi(), {}, {}, "nvidia-smi lists no GPU"),
    (smi(H200, {**H200, "index": 1, "error": "GPU is lost"}), {}, {}, "GPU 1 does not respond: GPU is lost"),
    (smi(split("1g.18gb", mig_devices=[{"profile": None}])), {}, {}, "GPU 0 has MIG devices whose profiles"),
    (smi(H200, split("1g.18gb", index=1)), {}, {"mig_strategy": "none"}, "these GPUs are in MIG mode: 1;"),
    (smi(H200, split("1g.18gb", index=1)), {}, {"mig_strategy": "single"}, "in MIG mode are 1 with 1g.18gb"),
    (smi(split()), {}, {"mig_strategy": "single"}, "in MIG mode are 0 with no MIG device"),
    (smi(H200), HOOK, {}, "set nvidia_container_toolkit_accept_envvar to always"),
    (smi(H200), CDI, {"device_list_strategy": "volume-mounts"}, "nvidia_container_toolkit_accept_volume_mounts to"),
    (smi(H200), HOOK, {"device_list_strategy": "cdi-cri"}, "set up this host without CDI"),
    (smi(H200), {}, {"node": "GPU_1"}, "kubernetes_node_name is 'GPU_1'"),
    (smi(H200), {}, {"node": "a" * 64}, "kubernetes_node_name is 'aaa"),
    (smi(H200), {}, {"namespace": "Kube"}, "kubernetes_node_namespace is 'Kube'"),
    (smi(H200), {}, {"runtime_class": "a b"}, "kubernetes_node_runtime_class is 'a b'"),
    (
        smi(H200),
        {},
        {"image": "example.com:5000/a/b:v1"},
        "kubernetes_node_device_plugin_image is 'example.com:5000/a/b",
    ),
    (smi(H200), {}, {"image": "Plugin"}, "kubernetes_node_device_plugin_image is 'Plugin'"),
    (smi(H200), {}, {"version": "sha256:12"}, "kubernetes_node_device_plugin_version is 'sha256:12'"),
    (smi(H200), {}, {"labels": {"a/b/c": "d"}}, "kubernetes_node_labels has a/b/c"),
    (smi(H200), {}, {"labels": {"a": "b c"}}, "the value of a is 'b c'"),
    (smi(H200), {}, {"labels": {"a": "b" * 64}}, "the value of a is 'bbb"),
    (smi(H200), {}, {"taint": "nvidia.com/gpu=present"}, "kubernetes_node_taint is 'nvidia.com/gpu=present'"),
    (smi(H200), {}, {"taint": "gpu:NoExec"}, "NoSchedule, PreferNoSchedule or NoExecute"),
    (smi(H200), {}, {"gpus_by": "dra_driver", "dra_image": "a:b"}, "kubernetes_node_dra_driver_image is 'a:b'"),
    (smi(H200), {}, {"gpus_by": "dra_driver", "dra_version": "-"}, "kubernetes_node_dra_driver_version is '-'"),
    (smi(H200), HOOK, {"gpus_by": "dra_driver"}, "which gives devices through CDI"),
    (smi(H200), {}, {"gpus_by": "dra_driver", "time_slicing": {"nvidia.com/gpu": 2}}, "is of the device plugin"),
    # A node would have both.
    (smi(H200), {}, {"gpus_by": "dra_driver", "labels": {PLUGIN_LABEL: "none-cdi-cri"}}, "set kubernetes_node_gpus_by"),
    (smi(H200), {}, {"labels": {DRA_LABEL: "true"}}, "a node has only one of them"),
]


@pytest.mark.parametrize(("nvidia_smi", "toolkit", "given", "refusal"), REFUSED)
def test_what_does_not_fit_is_refused(
    nvidia_smi: Mapping[str, Any], toolkit: Mapping[str, Any], given: Mapping[str, Any], refusal: str
) -> None:
    planned = plan(nvidia_smi, toolkit, **given)
    (found,) = planned["refusals"]
    assert refusal in found
    assert "manifests" not in planned


@pytest.mark.parametrize(("_smi", "_toolkit", "given", "refusal"), REFUSED)
def test_what_variables_alone_have_wrong_is_refused_by_site_and_by_the_role_in_the_same_words(
    _smi: Mapping[str, Any], _toolkit: Mapping[str, Any], given: Mapping[str, Any], refusal: str
) -> None:
    """The role before it has read anything."""
    by_site = preflight(named(given), roles=("kubernetes_node",)).refusals
    found = stage("request", given, {}, host="gpu1")
    assert found.refusals == by_site
    is_of_node = refusal in str(plan(smi(H200), **given)["refusals"])
    assert (refusal in str(by_site)) == is_of_node


def test_a_removal_needs_nothing_but_the_taint() -> None:
    given = {"state": "absent", "namespace": "A", "node": "gpu_1", "taint": "nvidia.com/gpu"}
    found = stage("request", given, {}, host="gpu1")
    assert found.steps == () and not found.refusals
    assert found.tasks["file"] == "/var/lib/gpu-fleet/kubernetes/node-gpu_1.yaml"
    (refusal,) = stage("request", {**given, "apply": "true"}, {}, host="gpu1").refusals
    assert refusal.startswith("kubernetes_node_taint is 'nvidia.com/gpu'")
    taint = {"taint": "nvidia.com/gpu=present:NoSchedule"}
    found = stage("request", {**given, **taint, "apply": True}, {}, host="gpu1")
    assert found.steps == ("unlabel",)
    assert found.tasks["taint"] == {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("given", "steps", "of_plan"),
    [
        ({}, (), ["write", "record"]),
        ({"directory_host": "localhost"}, (), ["write"]),
        # As -e gives it.
        ({"apply": "true", "taint_unhealthy": "true"}, ("announce",), ["write", "record", "apply"]),
        ({"apply": "false", "taint_unhealthy": True}, (), ["write", "record"]),
        ({"apply": True}, (), ["write", "record", "apply"]),
    ],
)
def test_steps_are_those_of_the_variables(given: dict[str, Any], steps: tuple[str, ...], of_plan: list[str]) -> None:
    found = stage("request", given, {}, host="gpu1")
    assert found.steps == steps
    is_own = "directory_host" not in given
    assert (found.tasks["directory_host"], found.tasks["becomes"]) == ("gpu1" if is_own else "localhost", is_own)
    assert plan(smi(H200), **given)["steps"] == of_plan


def test_the_cluster_is_reached_by_what_is_set() -> None:
    given = {"kubeconfig": "/etc/cluster.conf", "context": ""}
    reached = stage("cluster", given, {}).tasks
    assert reached["environment"] == {"K8S_AUTH_KUBECONFIG": "/etc/cluster.conf"}
    assert reached["cluster"] == ["localhost", reached["environment"]]
    assert stage("request", {}, {}, host="gpu1").tasks["environment"] == {}


def test_the_check_asks_for_the_node_and_the_rights_before_a_dry_run() -> None:
    manifests = plan(smi(H200))["manifests"]

    def asked(**found: Any) -> Ask | Plan:
        given = {**DEFAULTS, "kubernetes_node_name": "gpu1"}
        planned = STAGES["check"](given, {}, {"manifests": manifests, **found})
        assert isinstance(planned, (Ask, Plan))
        return planned

    first = asked()
    assert isinstance(first, Ask) and {*first.readings} == {"node", "reviews"}
    node: Mapping[str, Any] = {"resources": [{"metadata": {"name": "gpu1"}}]}
    allowed: Mapping[str, Any] = {"result": {"results": []}}
    refused = asked(node={"resources": []}, reviews={"failed": True, "msg": "no such file: No such file"})
    assert isinstance(refused, Plan) and len(refused.refusals) == 2
    assert "the cluster has no node gpu1; join it first" in refused.refusals[0]
    assert "set kubernetes_node_kubeconfig to a file" in refused.refusals[1]
    second = asked(node=node, reviews=allowed)
    assert isinstance(second, Ask) and isinstance(second.readings["applied"], tuple)
    assert second.readings["applied"][1]["definition"] == [one["body"] for one in manifests]
    conflict = {"failed": True, "msg": "Apply failed with 1 conflict"}
    refused = asked(node=node, reviews=allowed, applied=conflict)
    assert isinstance(refused, Plan) and "another manager owns these fields" in refused.refusals[0]
    assert (
        asked(node=node, reviews=allowed, applied={"result": {"results": [{"result": node["resources"][0]}]}}) == Plan()
    )


@pytest.mark.parametrize("strategy", ["single", "none"])
def test_a_strategy_without_mig_devices_is_no_error(strategy: str) -> None:
    assert plan(smi(H200), mig_strategy=strategy)["refusals"] == []


def test_what_the_cluster_has_is_compared_with_the_plan() -> None:
    planned = plan(LAYOUTS["mixed"], taint="nvidia.com/gpu=present:NoSchedule")
    objects = copy.deepcopy([manifest["body"] for manifest in planned["manifests"]])
    runtime_class, plugin, node = objects
    # What the API server and others add.
    plugin["status"] = {"numberReady": 1}
    plugin["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent"
    node["metadata"]["labels"]["kubernetes.io/hostname"] = "gpu1"
    taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, {**planned["taint"]}]
    node["spec"] = {"taints": taints}
    assert unapplied(planned, objects) == ()

    taints.pop()
    del node["metadata"]["labels"]["nvidia.com/mig-3g.71gb.count"]
    plugin["spec"]["template"]["spec"]["containers"][0]["image"] += "-old"
    (found,) = unapplied(planned, [plugin, node])
    prefix = "node gpu1.example.com of Kubernetes: the cluster did not accept the manifests: "
    assert found.startswith(prefix)
    assert [text.split(" is ")[0] for text in found.removeprefix(prefix).split("; ")] == [
        "RuntimeClass nvidia does not exist",
        "DaemonSet nvidia-device-plugin-mixed-cdi-cri: spec.template.spec.containers[0].image",
        "Node gpu1.example.com: metadata.labels.nvidia.com/mig-3g.71gb.count",
        "Node gpu1.example.com does not have the taint nvidia.com/gpu with the effect NoSchedule",
    ]
    assert runtime_class["handler"] == "nvidia"


def test_shared_gpus_have_a_configuration_and_a_device_plugin_of_their_own() -> None:
    given: dict[str, Any] = {"time_slicing": {"nvidia.com/mig-1g.18gb": "2", "nvidia.com/gpu": 4}}
    planned = plan(LAYOUTS["mixed"], CDI, **given)
    assert_valid(planned)
    config, plugin = by_kind(planned, "ConfigMap"), by_kind(planned, "DaemonSet")
    kinds = [manifest["body"]["kind"] for manifest in planned["manifests"]]
    assert kinds.index("ConfigMap") < kinds.index("DaemonSet")
    # As the plugin's own types have it, api/config/v1 of k8s-device-plugin.
    resources = [{"name": "nvidia.com/gpu", "replicas": 4}, {"name": "nvidia.com/mig-1g.18gb", "replicas": 2}]
    assert yaml.safe_load(config["data"]["config.yaml"]) == {
        "version": "v1",
        "sharing": {
            "timeSlicing": {"renameByDefault": False, "failRequestsGreaterThanOne": True, "resources": resources}
        },
    }
    pod = plugin["spec"]["template"]["spec"]
    assert {"name": "config", "configMap": {"name": config["metadata"]["name"]}} in pod["volumes"]
    (container,) = pod["containers"]
    assert {"name": "CONFIG_FILE", "value": "/config/config.yaml"} in container["env"]
    assert {"name": "config", "mountPath": "/config"} in container["volumeMounts"]
    labels = planned["labels"]
    assert pod["nodeSelector"]["gpu.fleet/device-plugin"] == labels["gpu.fleet/device-plugin"]
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H200-SHARED"
    assert (labels["nvidia.com/gpu.replicas"], labels["nvidia.com/mig-1g.18gb.replicas"]) == ("4", "2")
    assert labels["nvidia.com/gpu.sharing-strategy"] == "time-slicing"
    assert labels["nvidia.com/mig-3g.71gb.product"] == "NVIDIA-H200-MIG-3g.71gb"

    renamed = plan(LAYOUTS["mixed"], CDI, **given, time_slicing_rename=True)
    assert renamed["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H200"
    names = {by_kind(each, "DaemonSet")["metadata"]["name"] for each in (planned, renamed, plan(LAYOUTS["mixed"], CDI))}
    assert len(names) == 3, "a node changes from one to another by its label"


@pytest.mark.parametrize(
    ("layout", "sharing", "refusal"),
    [
        ("none", {"nvidia.com/gpu": 1}, "has 1 for nvidia.com/gpu; it takes a number of replicas from 2 to 9999"),
        ("none", {"nvidia.com/gpu": "many"}, "has 'many' for nvidia.com/gpu; it takes a number"),
        ("none", {"nvidia.com/gpu": True}, "has True for nvidia.com/gpu; it takes a number"),
        ("none", {"nvidia.com/gpu": "4\n"}, "it takes a number"),
        (
            "single",
            {"nvidia.com/mig-1g.18gb": 2},
            "nvidia.com/mig-1g.18gb, which this node does not have; it has nvidia",
        ),
        (
            "mixed",
            {"nvidia.com/mig-7g.141gb": 2},
            "it has nvidia.com/gpu, nvidia.com/mig-1c.2g.35gb, nvidia.com/mig-1g",
        ),
    ],
)
def test_a_resource_that_cannot_be_shared_is_refused(layout: str, sharing: dict[str, Any], refusal: str) -> None:
    planned = plan(LAYOUTS[layout], CDI, time_slicing=sharing)
    assert [text for text in planned["refusals"] if refusal in text], planned["refusals"]


def test_gpus_that_are_shared_by_mps_have_a_daemon_of_their_own() -> None:
    planned = plan(smi(H200, {**H200, "index": 1}), CDI, mps={"nvidia.com/gpu": "10"}, taint="own=x:NoExecute")
    assert planned["refusals"] == []
    assert_valid(planned)
    # As the plugin's own types have it, api/config/v1 of k8s-device-plugin.
    assert yaml.safe_load(by_kind(planned, "ConfigMap")["data"]["config.yaml"]) == {
        "version": "v1",
        "sharing": {
            "mps": {
                "renameByDefault": False,
                "failRequestsGreaterThanOne": True,
                "resources": [{"name": "nvidia.com/gpu", "replicas": 10}],
            }
        },
    }
    daemon, plugin = (each["body"] for each in planned["manifests"] if each["body"]["kind"] == "DaemonSet")
    assert daemon["metadata"]["name"].startswith("nvidia-mps-control-daemon-none-cdi-cri-")
    assert daemon["spec"]["selector"] != plugin["spec"]["selector"]
    for pod in (daemon["spec"]["template"]["spec"], plugin["spec"]["template"]["spec"]):
        (container,) = pod["containers"]
        assert pod["nodeSelector"]["gpu.fleet/device-plugin"] == planned["labels"]["gpu.fleet/device-plugin"]
        assert {"key": "own", "operator": "Exists", "effect": "NoExecute"} in pod["tolerations"]
        # The plugin asks the daemon by its sockets, and in shared memory of its own.
        assert {"name": "mps-root", "mountPath": "/mps"} in container["volumeMounts"]
        assert {"name": "mps-shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
        assert {"name": "CONFIG_FILE", "value": "/config/config.yaml"} in container["env"]
    (container,) = plugin["spec"]["template"]["spec"]["containers"]
    assert "privileged" not in container["securityContext"]
    assert {"name": "MPS_ROOT", "value": "/run/nvidia/mps"} in container["env"]
    labels = planned["labels"]
    assert labels["nvidia.com/mps.capable"] == "true"
    assert labels["nvidia.com/gpu.sharing-strategy"] == "mps"
    assert (labels["nvidia.com/gpu.replicas"], labels["nvidia.com/gpu.product"]) == ("10", "NVIDIA-H200-SHARED")
    renamed = plan(smi(H200), CDI, mps={"nvidia.com/gpu": 2}, mps_rename=True)["labels"]
    assert renamed["nvidia.com/gpu.product"] == "NVIDIA-H200"


V100 = {**H200, "name": "Tesla V100-SXM2-16GB", "architecture": "volta", "mig_capable": False}


@pytest.mark.parametrize(
    ("nvidia_smi", "given", "refusal"),
    [
        (smi(H200), {"time_slicing": {"nvidia.com/gpu": 2}}, "exclude each other"),
        (smi(H200), {"gpus_by": "dra_driver"}, "kubernetes_node_mps is of the device plugin"),
        (smi(H200), {"host_mps": {"gpus": "all"}}, "gpu_state_mps another one"),
        (smi(H200), {"compute_mode": "default"}, "gpu_state_compute_mode is default"),
        (smi(H200), {"mig_strategy": "mixed"}, "does not support MPS with the strategy mixed"),
        (LAYOUTS["single"], {}, "on GPUs in MIG mode (0"),
        (smi(H200), {"mps": {"nvidia.com/mig-1g.18gb": 2}}, "supports MPS for whole GPUs only"),
        (smi(H200), {"mps": {"nvidia.com/gpu": 1}}, "kubernetes_node_mps has 1 for nvidia.com/gpu"),
        (smi(H200), {"mps": {"nvidia.com/gpu": 49}}, "has 49 replicas, and GPU 0 (NVIDIA H200) takes 48"),
        (smi(V100), {"mps": {"nvidia.com/gpu": 17}}, "takes 16"),
    ],
)
def test_what_the_plugin_does_not_do_by_mps_is_refused(
    nvidia_smi: Mapping[str, Any], given: dict[str, Any], refusal: str
) -> None:
    planned = plan(nvidia_smi, CDI, **{"mps": {"nvidia.com/gpu": 4}, **given})
    assert [text for text in planned["refusals"] if refusal in text], planned["refusals"]


def test_a_node_has_the_dra_driver_or_the_device_plugin() -> None:
    found = plan(smi(H200, split("1g.18gb", index=1)), CDI, gpus_by="dra_driver", taint="own=x:NoExecute")
    assert found["labels"][DRA_LABEL] == "true" and PLUGIN_LABEL not in found["labels"]
    kinds = Counter(manifest["body"]["kind"] for manifest in found["manifests"])
    once = ("RuntimeClass", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DaemonSet", "Node")
    assert kinds == {"DeviceClass": 2, **dict.fromkeys(once, 1)}
    for manifest in found["manifests"]:
        kubernetes_validate.validate(manifest["body"], "1.37", strict=True)
    pod = by_kind(found, "DaemonSet")["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {DRA_LABEL: "true"}
    assert [each["key"] for each in pod["tolerations"]] == ["nvidia.com/gpu", "own"]
    assert pod["containers"][0]["image"].endswith("dra-driver-nvidia-gpu:v0.5.1")
    assert DRA_LABEL not in plan(smi(H200))["labels"]


# Of the container `gpus` with the chart's defaults; what prints, measures, or masks a file is left out.
_OF_THE_CHART = {
    *(
        "NVIDIA_DRIVER_ROOT",
        "NVIDIA_VISIBLE_DEVICES",
        "CDI_ROOT",
        "NVIDIA_MIG_CONFIG_DEVICES",
        "NODE_NAME",
        "NAMESPACE",
    ),
    *("SERVICE_ACCOUNT_NAME", "IMAGE_NAME", "IMAGE_PULL_POLICY", "HEALTHCHECK_PORT"),
    *("KUBELET_REGISTRAR_DIRECTORY_PATH", "KUBELET_PLUGINS_DIRECTORY_PATH"),
}


def test_the_dra_driver_has_the_environment_and_the_rights_of_its_chart() -> None:
    found = plan(smi(H200), CDI, gpus_by="dra_driver")
    (container,) = by_kind(found, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    assert {each["name"] for each in container["env"]} == _OF_THE_CHART
    rights = {
        (resource, verb)
        for rule in by_kind(found, "ClusterRole")["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {("events", "create"), ("resourceslices", "update"), ("nodes", "update")} <= rights
    assert ("nodes", "patch") not in rights


def test_claims_of_the_dra_driver_may_set_how_gpus_are_shared() -> None:
    def gates(planned: Mapping[str, Any]) -> list[str]:
        (container,) = by_kind(planned, "DaemonSet")["spec"]["template"]["spec"]["containers"]
        return [each["value"] for each in container["env"] if each["name"] == "FEATURE_GATES"]

    assert gates(plan(smi(H200), CDI, gpus_by="dra_driver")) == []
    slices = plan(smi(H200), CDI, gpus_by="dra_driver", dra_sharing=["time_slicing"])
    assert gates(slices) == ["TimeSlicingSettings=true"]
    assert "Role" not in {each["body"]["kind"] for each in slices["manifests"]}
    both = plan(smi(H200), CDI, gpus_by="dra_driver", dra_sharing=["time_slicing", "mps"])
    assert gates(both) == ["MPSSupport=true,TimeSlicingSettings=true"]
    for manifest in both["manifests"]:
        kubernetes_validate.validate(manifest["body"], "1.37", strict=True)
    role, binding = by_kind(both, "Role"), by_kind(both, "RoleBinding")
    assert role["metadata"] == binding["metadata"] and role["metadata"]["namespace"] == "kube-system"
    assert [rule["resources"] for rule in role["rules"]] == [["deployments"]]
    assert {"verb": "create", "group": "rbac.authorization.k8s.io", "resource": "roles"}.items() <= next(
        each["spec"]["resourceAttributes"].items()
        for each in reviews([Manifest(**one) for one in both["manifests"]])
        if each["spec"]["resourceAttributes"]["resource"] == "roles"
        and each["spec"]["resourceAttributes"]["verb"] == "create"
    )


@pytest.mark.parametrize(
    ("project", "variable"),
    [
        ("NVIDIA/k8s-device-plugin", "kubernetes_node_device_plugin_version"),
        ("kubernetes-sigs/dra-driver-nvidia-gpu", "kubernetes_node_dra_driver_version"),
    ],
)
def test_the_defaults_are_those_of_the_table(project: str, variable: str) -> None:
    (row,) = (one for one in PROJECTS if one.name == project)
    assert DEFAULTS[variable] == f"v{row.newest}"

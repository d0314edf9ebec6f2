# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A GPU node of Kubernetes: its labels and taint, RuntimeClass and device plugin as manifests. Private.

Pure: variables of the role kubernetes_node and facts in, manifests or refusals out. Labels have the names and values
that NVIDIA's gpu-feature-discovery gives them (https://github.com/NVIDIA/k8s-device-plugin, internal/lm, v0.20.0).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any

from ._compatibility import chip_of_name
from ._dra_driver import DRA_LABEL, FEATURE_GATES, dra_driver
from ._gpu_operator import OnHost, host_refusals
from ._kubernetes_drain import review

AUTO = "auto"
NONE, SINGLE, MIXED = "none", "single", "mixed"
CDI_CRI, CDI_ANNOTATIONS, ENVVAR, VOLUME_MOUNTS = "cdi-cri", "cdi-annotations", "envvar", "volume-mounts"
_OF_CDI = (CDI_CRI, CDI_ANNOTATIONS)
# By strategy, the option of the toolkit without which its runtime gives such containers nothing.
_NEEDED_OPTIONS = {
    ENVVAR: "nvidia_container_toolkit_accept_envvar",
    VOLUME_MOUNTS: "nvidia_container_toolkit_accept_volume_mounts",
}
DEVICE_PLUGIN, DRA_DRIVER = "device_plugin", "dra_driver"
_RESOURCES = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "DeviceClass": "deviceclasses",
    "ServiceAccount": "serviceaccounts",
    "ConfigMap": "configmaps",
    "DaemonSet": "daemonsets",
    "Node": "nodes",
    "RuntimeClass": "runtimeclasses",
}
_ENGINES_OF_KUBERNETES = frozenset(("containerd", "crio", "k3s", "rke2"))

PLUGIN_LABEL = "gpu.fleet/device-plugin"
"""The node label by which one of the DaemonSets of the device plugin selects its nodes."""
_GPU, _APP = "nvidia.com/gpu", "nvidia-device-plugin"
_SHARED = "-SHARED"
_MPS_APP, _MPS_ROOT = "nvidia-mps-control-daemon", "/run/nvidia/mps"
# By https://github.com/NVIDIA/k8s-device-plugin, cmd/mps-control-daemon/mps/device.go, which has 7.5 there, not 7.0.
_MPS_CLIENTS, _MPS_CLIENTS_BEFORE, _MPS_SINCE = 48, 16, (7, 5)
_CONFIG_DIRECTORY, _CONFIG_FILE = "/config", "config.yaml"
_KUBELET_DIRECTORY, _CDI_DIRECTORY = "/var/lib/kubelet/device-plugins", "/var/run/cdi"
# PCI classes of a VGA and of a 3D controller.
_MODES = {"0x030000": "graphics", "0x030200": "compute"}

# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_LENGTH = 63
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_VALUE = re.compile(rf"(?:{_NAME})?")
_DNS_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_SUBDOMAIN = rf"(?=.{{1,253}}$){_DNS_LABEL}(?:[.]{_DNS_LABEL})*"
_PREFIX = rf"(?:(?=[^/]{{1,253}}/){_DNS_LABEL}(?:[.]{_DNS_LABEL})*/)?"
_KEY = re.compile(rf"{_PREFIX}{_NAME}")
_TAINT = re.compile(rf"(?P<key>{_PREFIX}{_NAME})(?:=(?P<value>(?:{_NAME})?))?:(?P<effect>\w+)")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_IMAGE = re.compile(r"(?:[A-Za-z0-9.-]+(?::\d+)?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REPLICAS = re.compile("(?!1$)[1-9][0-9]{0,3}")
_PROFILE = re.compile(r"(?:(?P<compute>\d+)c[.])?(?P<gpu>\d+)g[.]")


@dataclass(frozen=True)
class Request:
    """The variables of the role, and those of nvidia_container_toolkit that decide how containers get GPUs.

    host_mps and compute_mode are those of gpu_state.
    """

    node: str
    namespace: str
    runtime_class: str
    image: str
    version: str
    mig_strategy: str
    device_list_strategy: str
    labels: Mapping[str, Any]
    gpu_labels: bool
    taint: str
    time_slicing: Mapping[str, Any]
    time_slicing_rename: bool
    time_slicing_fail_requests_greater_than_one: bool
    mps: Mapping[str, Any]
    mps_rename: bool
    mps_fail_requests_greater_than_one: bool
    gpus_by: str
    dra_image: str
    dra_version: str
    dra_sharing: Sequence[str]
    accept_envvar: str = AUTO
    accept_volume_mounts: str = AUTO
    host_mps: Mapping[str, Any] = field(default_factory=dict)
    compute_mode: str | None = None

    @classmethod
    def of(cls, variables: Mapping[str, Any]) -> Request:
        """The request in the variables of the role by name."""
        names = {"node": "name", "image": "device_plugin_image", "version": "device_plugin_version"}
        names |= {"dra_image": "dra_driver_image", "dra_version": "dra_driver_version"}
        names |= {"dra_sharing": "dra_driver_sharing"}
        given = (each.name for each in fields(cls) if each.default is each.default_factory is MISSING)
        return cls(
            **{name: variables[f"kubernetes_node_{names.get(name, name)}"] for name in given},
            host_mps=variables.get("gpu_state_mps") or {},
            compute_mode=variables.get("gpu_state_compute_mode"),
        )


@dataclass(frozen=True)
class Found:
    """nvidia_smi: the facts of that name. toolkit: what the role nvidia_container_toolkit has recorded, or {}.

    operator: what host_facts has found of NVIDIA's GPU Operator.
    """

    nvidia_smi: Mapping[str, Any]
    toolkit: Mapping[str, Any]
    operator: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """An object of the API, and the name of its file."""

    file: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class NodePlan:
    """The objects of a node, or `refusals`. reviews: whether the account may apply them.

    taint: key, effect, and value if it has one; None for no taint.
    """

    mig_strategy: str = ""
    device_list_strategy: str = ""
    labels: Mapping[str, str] | None = None
    taint: Mapping[str, str] | None = None
    manifests: tuple[Manifest, ...] = ()
    reviews: tuple[Mapping[str, Any], ...] = ()
    refusals: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The plan for a playbook."""
        return {**asdict(self), "labels": dict(self.labels or {})}


def kubernetes_node(request: Request, found: Found) -> NodePlan:
    """The plan for a node."""
    gpus: Sequence[Mapping[str, Any]] = found.nvidia_smi.get("gpus") or ()
    mig_strategy = _mig_strategy(gpus) if request.mig_strategy == AUTO else request.mig_strategy
    device_lists = _device_list_strategy(request, found.toolkit)
    refusals = (
        *_name_refusals(request.node),
        *syntax_refusals(request),
        *_gpu_refusals(gpus, mig_strategy),
        *(
            _dra_refusals(found.toolkit)
            if request.gpus_by == DRA_DRIVER
            else _device_list_refusals(request, found.toolkit, device_lists)
        ),
        *_sharing_refusals(request, gpus, mig_strategy),
        *host_refusals(("kubernetes_node",), OnHost(**found.operator)),
    )
    if refusals:
        return NodePlan(refusals=refusals)
    taint = _taint(request.taint)
    sharing = _sharing(request)
    # Another configuration is another DaemonSet, which nodes change to by their label.
    digest = f"-{hashlib.sha256(sharing.encode()).hexdigest()[:8]}" if sharing else ""
    variant = f"{mig_strategy}-{device_lists}{digest}"
    labels = {
        **(_shared(_gpu_labels(found.nvidia_smi, gpus, mig_strategy), request) if request.gpu_labels else {}),
        "nvidia.com/gpu.present": "true",
        # One of the two alone: each offers all GPUs of a node.
        **({DRA_LABEL: "true"} if request.gpus_by == DRA_DRIVER else {PLUGIN_LABEL: variant}),
        **{key: str(value) for key, value in request.labels.items()},
    }
    manifests = (
        *(
            [Manifest(f"runtime-class-{request.runtime_class}.yaml", _runtime_class(request.runtime_class))]
            if request.runtime_class
            else []
        ),
        *(
            [Manifest(f"device-plugin-config-{variant}.yaml", _config_map(request, variant, sharing))]
            if sharing
            else []
        ),
        *(
            (
                Manifest(*one)
                for one in dra_driver(request.namespace, _image(request), _tainted(taint), request.dra_sharing)
            )
            if request.gpus_by == DRA_DRIVER
            else _plugin_manifests(request, variant, mig_strategy, device_lists, taint)
        ),
        Manifest(node_file(request.node), _node(request.node, labels)),
    )
    reviews = tuple(_reviews(manifests))
    return NodePlan(mig_strategy, device_lists, dict(sorted(labels.items())), taint, manifests, reviews)


def _reviews(manifests: Sequence[Manifest]) -> Iterator[Mapping[str, Any]]:
    """The questions whether the account may apply these; a node is never created, and its taint is a patch as well."""
    for body in (manifest.body for manifest in manifests):
        group = body["apiVersion"].rpartition("/")[0]
        resource = {"group": group, "resource": _RESOURCES[body["kind"]]}
        resource |= {key: body["metadata"][key] for key in ("name", "namespace") if key in body["metadata"]}
        for verb in ("get", "patch") if body["kind"] == "Node" else ("get", "create", "patch"):
            yield review({"verb": verb, **resource})


def _plugin_manifests(
    request: Request, variant: str, mig_strategy: str, device_lists: str, taint: Mapping[str, str] | None
) -> Iterator[Manifest]:
    if request.mps:
        yield Manifest(f"mps-control-daemon-{variant}.yaml", _mps_daemon(request, variant, mig_strategy, taint))
    body = _device_plugin(request, variant, mig_strategy, device_lists, taint)
    yield Manifest(f"device-plugin-{variant}.yaml", body)


def node_file(node: str) -> str:
    """The name of the file with the labels of a node."""
    return f"node-{node}.yaml"


def label_value(text: str) -> str:
    """A label's value of a product's name, as gpu-feature-discovery makes it, within the syntax of Kubernetes."""
    words = re.sub(r"[^A-Za-z0-9_. -]", "", text).split()
    return "-".join(words)[:_LENGTH].strip("-_.")


def unapplied(manifests: Sequence[Manifest], taint: Mapping[str, str] | None, objects: Sequence[Any]) -> list[str]:
    """How the objects that were read from the API differ from the manifests and the taint."""
    read = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    found: list[str] = []
    for manifest in manifests:
        kind, name = manifest.body["kind"], manifest.body["metadata"]["name"]
        actual = read.get((kind, name))
        if actual is None:
            found.append(f"{kind} {name} does not exist")
            continue
        found += [f"{kind} {name}: {text}" for text in differences(manifest.body, actual)]
        taints = (actual.get("spec") or {}).get("taints") or ()
        if kind == "Node" and taint and not any(next(differences(taint, each), None) is None for each in taints):
            found.append(f"{kind} {name} does not have the taint {taint['key']} with the effect {taint['effect']}")
    return found


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """Where an object of the API lacks what a manifest has; what the API server adds is no difference."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for key, value in expected.items():
            yield from differences(value, actual.get(key), f"{path}.{key}" if path else str(key))
    elif _is_list(expected) and _is_list(actual) and len(expected) == len(actual):
        for index, value in enumerate(expected):
            yield from differences(value, actual[index], f"{path}[{index}]")
    elif expected != actual:
        yield f"{path} is {actual!r} instead of {expected!r}"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _name_refusals(node: str) -> Iterator[str]:
    if not re.fullmatch(_SUBDOMAIN, node):
        yield f"kubernetes_node_name is {node!r}; it takes lower-case letters, digits, - and ."


def syntax_refusals(request: Request) -> Iterator[str]:
    """What Kubernetes would not accept, whatever the node has; its name, which has a default, is not checked."""
    if request.runtime_class and not re.fullmatch(_SUBDOMAIN, request.runtime_class):
        yield (
            f"kubernetes_node_runtime_class is {request.runtime_class!r}; it takes lower-case letters, digits, - "
            "and ., or nothing where NVIDIA's runtime is the default one"
        )
    if not re.fullmatch(_DNS_LABEL, request.namespace):
        yield f"kubernetes_node_namespace is {request.namespace!r}; it takes lower-case letters, digits and -"
    for name, image, version, example in (
        ("device_plugin", request.image, request.version, ("nvcr.io/nvidia/k8s-device-plugin", "v0.20.0")),
        (DRA_DRIVER, request.dra_image, request.dra_version, ("registry.k8s.io/dra-driver-nvidia/NAME", "v0.4.0")),
    ):
        if not _IMAGE.fullmatch(image):
            yield (
                f"kubernetes_node_{name}_image is {image!r}; it takes an image without tag, such as {example[0]}, and "
                f"kubernetes_node_{name}_version its tag or digest"
            )
        if not _TAG.fullmatch(version) and not _DIGEST.fullmatch(version):
            yield (
                f"kubernetes_node_{name}_version is {version!r}; it takes a tag such as {example[1]}, or a digest, "
                "sha256: with 64 hexadecimal digits"
            )
    for name, given in (("time_slicing", request.time_slicing), ("mps", request.mps)):
        if request.gpus_by == DRA_DRIVER and given:
            yield (
                f"kubernetes_node_gpus_by is dra_driver, and kubernetes_node_{name} is of the device plugin; leave it "
                "out, since claims share a GPU by their own configuration, or set kubernetes_node_gpus_by to "
                "device_plugin"
            )
    yield from _mps_refusals(request)
    unknown = [way for way in request.dra_sharing if way not in FEATURE_GATES]
    if unknown:
        yield f"kubernetes_node_dra_driver_sharing has {unknown[0]!r}; it takes {' and '.join(FEATURE_GATES)}"
    for key in sorted({PLUGIN_LABEL, DRA_LABEL} & {*request.labels}):
        yield (
            f"kubernetes_node_labels has {key}, by which device plugin and DRA driver select their nodes, and a node "
            "has one of them; set kubernetes_node_gpus_by"
        )
    for key, value in request.labels.items():
        if not _KEY.fullmatch(str(key)):
            yield f"kubernetes_node_labels has {key}, which is no name of a label, such as example.com/rack"
        elif not _VALUE.fullmatch(str(value)):
            yield (
                f"kubernetes_node_labels: the value of {key} is {value!r}; it takes up to {_LENGTH} letters, digits, "
                "-, _ and ., the first and the last a letter or digit"
            )
    for way, given in (("time_slicing", request.time_slicing), ("mps", request.mps)):
        for name, count in given.items():
            if not _REPLICAS.fullmatch(str(count)):
                yield f"kubernetes_node_{way} has {count!r} for {name}; it takes a number of replicas from 2 to 9999"
    match = _TAINT.fullmatch(request.taint)
    if request.taint and (not match or match["effect"] not in _EFFECTS):
        yield (
            f"kubernetes_node_taint is {request.taint!r}; it takes a taint such as nvidia.com/gpu=present:NoSchedule, "
            f"with the effect {', '.join(_EFFECTS[:-1])} or {_EFFECTS[-1]}"
        )


def _mps_refusals(request: Request) -> Iterator[str]:
    """What the plugin refuses or ignores, whatever the node has: README.md and cmd/nvidia-device-plugin/main.go."""
    if not request.mps:
        return
    if request.time_slicing:
        yield "kubernetes_node_mps and kubernetes_node_time_slicing exclude each other on a node; leave out one of them"
    if request.host_mps:
        yield (
            "kubernetes_node_mps starts an MPS daemon for the GPUs of the node, and gpu_state_mps another one; leave "
            "out one of them"
        )
    if request.compute_mode not in (None, "", "exclusive_process"):
        yield (
            f"gpu_state_compute_mode is {request.compute_mode}, and kubernetes_node_mps sets exclusive_process; leave "
            "gpu_state_compute_mode out"
        )
    for name in sorted({*map(str, request.mps)} - {_GPU}):
        yield f"kubernetes_node_mps has {name}; the device plugin has MPS for whole GPUs alone, {_GPU}"


def _gpu_refusals(gpus: Sequence[Mapping[str, Any]], mig_strategy: str) -> Iterator[str]:
    if not gpus:
        yield "nvidia-smi lists no GPU; install the driver first, with the role nvidia_driver"
    for gpu in gpus:
        if gpu.get("error"):
            yield f"GPU {gpu['index']} does not respond: {gpu['error']}; repair it, or the labels count one GPU less"
        elif any(not device.get("profile") for device in gpu.get("mig_devices") or ()):
            yield f"GPU {gpu['index']} has MIG devices whose profiles nvidia-smi does not list; see `nvidia-smi -L`"
    mig = [gpu for gpu in gpus if _is_mig(gpu)]
    numbers = ", ".join(str(gpu["index"]) for gpu in mig)
    if mig_strategy == NONE and mig:
        yield (
            f"kubernetes_node_mig_strategy is none, and these GPUs are in MIG mode: {numbers}; a pod would get one "
            "with all its MIG devices. Set it to auto, single or mixed"
        )
    if mig_strategy == SINGLE and mig and not _is_uniform(gpus):
        yield (
            "kubernetes_node_mig_strategy is single, which takes GPUs that are all in MIG mode with MIG devices of one "
            f"profile; in MIG mode are {numbers} with {', '.join(sorted(_devices_by_type(gpus))) or 'no MIG device'}. "
            "Set it to auto or mixed"
        )


def _device_list_strategy(request: Request, toolkit: Mapping[str, Any]) -> str:
    """The requested strategy; `auto` is CDI, unless the toolkit was set up without it for the engine of Kubernetes."""
    if request.device_list_strategy != AUTO:
        return request.device_list_strategy
    if _is_without_cdi(toolkit):
        only_mounts = request.accept_volume_mounts == "always" and request.accept_envvar != "always"
        return VOLUME_MOUNTS if only_mounts else ENVVAR
    return CDI_CRI


def _device_list_refusals(request: Request, toolkit: Mapping[str, Any], strategy: str) -> Iterator[str]:
    if strategy in _OF_CDI and _is_without_cdi(toolkit):
        yield (
            f"kubernetes_node_device_list_strategy is {strategy}, and nvidia_container_toolkit has set up this host "
            f"without CDI; set nvidia_container_toolkit_mode to cdi, or the strategy to {ENVVAR}"
        )
    option = _NEEDED_OPTIONS.get(strategy)
    accepted = {ENVVAR: request.accept_envvar, VOLUME_MOUNTS: request.accept_volume_mounts}
    if option and _serves_kubernetes(toolkit) and accepted[strategy] != "always":
        yield (
            f"the device plugin requests GPUs by {strategy}, which NVIDIA's runtime of this host ignores; set "
            f"{option} to always, or nvidia_container_toolkit_mode to cdi and kubernetes_node_device_list_strategy to "
            f"{CDI_CRI}"
        )


def _dra_refusals(toolkit: Mapping[str, Any]) -> Iterator[str]:
    if _is_without_cdi(toolkit):
        yield (
            "kubernetes_node_gpus_by is dra_driver, which gives devices by CDI, and nvidia_container_toolkit has set "
            "up this host without it; set nvidia_container_toolkit_mode to cdi"
        )


def _image(request: Request) -> str:
    """That of the DRA driver with its tag or digest."""
    return f"{request.dra_image}{'@' if _DIGEST.fullmatch(request.dra_version) else ':'}{request.dra_version}"


def _tainted(taint: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """Keys and effects of what has to be tolerated on GPU nodes."""
    return list(dict.fromkeys([(_GPU, "NoSchedule"), *([(taint["key"], taint["effect"])] if taint else [])]))


def _replicas(request: Request) -> dict[str, int]:
    return {str(name): int(str(count)) for name, count in (request.time_slicing or request.mps).items()}


def _resources(gpus: Sequence[Mapping[str, Any]], mig_strategy: str) -> list[str]:
    """The resources that the device plugin offers on the node."""
    names = [] if mig_strategy == MIXED and all(map(_is_mig, gpus)) else [_GPU]
    return names + (
        [f"nvidia.com/mig-{name}" for name in sorted(_devices_by_type(gpus))] if mig_strategy == MIXED else []
    )


def _sharing_refusals(request: Request, gpus: Sequence[Mapping[str, Any]], mig_strategy: str) -> Iterator[str]:
    offered = _resources(gpus, mig_strategy)
    for name in request.time_slicing:
        if gpus and name not in offered:
            yield f"kubernetes_node_time_slicing has {name}, which this node does not have; it has {', '.join(offered)}"
    if not request.mps:
        return
    mig = [str(gpu["index"]) for gpu in gpus if _is_mig(gpu)]
    if mig or mig_strategy == MIXED:
        yield (
            "kubernetes_node_mps: the device plugin has no MPS with the strategy mixed and on GPUs in MIG mode"
            f"{' (' + ', '.join(mig) + ')' if mig else ''}; take kubernetes_node_time_slicing, or turn MIG off"
        )
    replicas = str(request.mps.get(_GPU, ""))
    for gpu in gpus if _REPLICAS.fullmatch(replicas) else ():
        most = _MPS_CLIENTS if _capability(gpu) >= _MPS_SINCE else _MPS_CLIENTS_BEFORE
        if int(replicas) > most:
            yield f"kubernetes_node_mps has {replicas} replicas, and GPU {gpu['index']} ({gpu['name']}) takes {most}"


def _capability(gpu: Mapping[str, Any]) -> tuple[int, ...]:
    chip = chip_of_name(str(gpu["name"]))
    capability = gpu.get("compute_capability") or (chip.compute_capability if chip else "0.0")
    return tuple(map(int, str(capability).split(".")))


def _sharing(request: Request) -> str:
    """The configuration file of the device plugin; empty where it needs none.

    Its types are in https://github.com/NVIDIA/k8s-device-plugin, api/config/v1: config.go, sharing.go, replicas.go.
    JSON is YAML.
    """
    if not _replicas(request):
        return ""
    fails = request.mps_fail_requests_greater_than_one if request.mps else None
    shared = {
        "renameByDefault": _renames(request),
        "failRequestsGreaterThanOne": request.time_slicing_fail_requests_greater_than_one if fails is None else fails,
        "resources": [{"name": name, "replicas": count} for name, count in sorted(_replicas(request).items())],
    }
    return json.dumps({"version": "v1", "sharing": {"mps" if request.mps else "timeSlicing": shared}}, indent=2) + "\n"


def _renames(request: Request) -> bool:
    return request.mps_rename if request.mps else request.time_slicing_rename


def _shared(labels: Mapping[str, str], request: Request) -> dict[str, str]:
    """The labels as gpu-feature-discovery gives them where GPUs are shared: pods find or avoid these by them."""
    found = {**labels, **({"nvidia.com/mps.capable": "true"} if request.mps else {})}
    for name, count in _replicas(request).items():
        found[f"{name}.replicas"] = str(count)
        found[f"{name}.sharing-strategy"] = "mps" if request.mps else "time-slicing"
        product = found.get(f"{name}.product")
        if product and not _renames(request):
            found[f"{name}.product"] = f"{product[: _LENGTH - len(_SHARED)]}{_SHARED}"
    return found


def _config_map(request: Request, variant: str, sharing: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{_APP}-{variant}", "namespace": request.namespace},
        "data": {_CONFIG_FILE: sharing},
    }


def _serves_kubernetes(toolkit: Mapping[str, Any]) -> bool:
    return bool(_ENGINES_OF_KUBERNETES & set(toolkit.get("runtimes") or ()))


def _is_without_cdi(toolkit: Mapping[str, Any]) -> bool:
    return _serves_kubernetes(toolkit) and not toolkit.get("spec_file")


def _is_mig(gpu: Mapping[str, Any]) -> bool:
    return gpu.get("mig_mode_current") == "enabled"


def _devices_by_type(gpus: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """MIG devices by their type, as it stands in the name of a resource: + is not allowed in one."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for gpu in filter(_is_mig, gpus):
        for device in gpu.get("mig_devices") or ():
            found.setdefault(str(device["profile"]).replace("+", "."), []).append({**device, "product": gpu["name"]})
    return found


def _is_uniform(gpus: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all GPUs are in MIG mode, none of them empty, with MIG devices of one type."""
    return all(_is_mig(gpu) and gpu.get("mig_devices") for gpu in gpus) and len(_devices_by_type(gpus)) == 1


def _mig_strategy(gpus: Sequence[Mapping[str, Any]]) -> str:
    if not any(map(_is_mig, gpus)):
        return NONE
    return SINGLE if _is_uniform(gpus) else MIXED


def _taint(text: str) -> dict[str, str] | None:
    match = _TAINT.fullmatch(text)
    return {name: value for name, value in match.groupdict().items() if value} if match else None


def _gpu_labels(smi: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]], mig_strategy: str) -> Mapping[str, str]:
    """The labels by which gpu-feature-discovery describes GPUs and MIG devices."""
    # On a node with several models the one with most GPUs; of equally many, the first.
    model = Counter(gpu["name"] for gpu in gpus).most_common(1)[0][0]
    of_model = [gpu for gpu in gpus if gpu["name"] == model]
    labels: dict[str, Any] = {
        **_version_labels(str(smi.get("driver_version") or ""), str(smi.get("cuda_version") or "")),
        "nvidia.com/mig.capable": str(any(gpu.get("mig_capable") for gpu in gpus)).lower(),
        "nvidia.com/gpu.mode": _gpu_mode(smi),
        f"{_GPU}.product": label_value(model),
        f"{_GPU}.count": len(of_model),
        f"{_GPU}.memory": of_model[0].get("memory_total_mib"),
        **_chip_labels(of_model[0]),
    }
    if mig_strategy != NONE:
        labels["nvidia.com/mig.strategy"] = mig_strategy
        for name, devices in _devices_by_type(gpus).items():
            labels |= _mig_labels(_GPU if mig_strategy == SINGLE else f"nvidia.com/mig-{name}", name, devices)
    return {key: str(value) for key, value in labels.items() if value is not None}


def _version_labels(driver: str, cuda: str) -> dict[str, str]:
    """Those of the driver and of CUDA; the names with `driver.` and `runtime.` are deprecated, and still in use."""
    major, minor, revision = (*driver.split("."), "", "")[:3]
    cuda_major, cuda_minor = (*cuda.split("."), "")[:2]
    labels = {
        "cuda.driver.major": major,
        "cuda.driver.minor": minor,
        "cuda.driver.rev": revision,
        "cuda.driver-version.major": major,
        "cuda.driver-version.minor": minor,
        "cuda.driver-version.revision": revision,
        "cuda.driver-version.full": driver,
    }
    if cuda:
        labels |= {
            "cuda.runtime.major": cuda_major,
            "cuda.runtime.minor": cuda_minor,
            "cuda.runtime-version.major": cuda_major,
            "cuda.runtime-version.minor": cuda_minor,
            "cuda.runtime-version.full": f"{cuda_major}.{cuda_minor}",
        }
    return {f"nvidia.com/{name}": value for name, value in labels.items()}


def _gpu_mode(smi: Mapping[str, Any]) -> str:
    classes = {gpu.get("class_id") for gpu in smi.get("pci_gpus") or ()}
    return _MODES.get(str(next(iter(classes))), "unknown") if len(classes) == 1 else "unknown"


def _chip_labels(gpu: Mapping[str, Any]) -> dict[str, str]:
    """Architecture and compute capability, by the name of the product where the driver reports neither."""
    chip = chip_of_name(str(gpu["name"]))
    family = gpu.get("architecture") or (chip.architecture if chip else "")
    capability = gpu.get("compute_capability") or (chip.compute_capability if chip else "")
    labels = {f"{_GPU}.family": re.sub("[ _]", "-", str(family).lower())} if family else {}
    if capability:
        major, minor = str(capability).split(".")
        labels |= {f"{_GPU}.compute.major": major, f"{_GPU}.compute.minor": minor}
    return labels


def _mig_labels(resource: str, name: str, devices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Those of the MIG devices of one type."""
    first = devices[0]
    slices = _PROFILE.match(name)
    return {
        f"{resource}.product": label_value(f"{first['product']} MIG {name}"),
        f"{resource}.count": len(devices),
        f"{resource}.memory": first.get("memory_total_mib"),
        f"{resource}.multiprocessors": first.get("multiprocessor_count"),
        f"{resource}.slices.gi": slices["gpu"] if slices else None,
        f"{resource}.slices.ci": (slices["compute"] or slices["gpu"]) if slices else None,
        f"{resource}.engines.copy": first.get("copy_engine_count"),
        f"{resource}.engines.decoder": first.get("decoder_count"),
        f"{resource}.engines.encoder": first.get("encoder_count"),
        f"{resource}.engines.jpeg": first.get("jpeg_count"),
        f"{resource}.engines.ofa": first.get("ofa_count"),
    }


def _runtime_class(name: str) -> dict[str, Any]:
    # The handler is the name of the runtime in the configuration of containerd and CRI-O.
    return {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "nvidia"}


def _node(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    # Without taints: the list belongs to one manager as a whole, and Kubernetes has taints of its own in it.
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": dict(sorted(labels.items()))}}


def _device_plugin(
    request: Request, variant: str, mig_strategy: str, device_lists: str, taint: Mapping[str, str] | None
) -> dict[str, Any]:
    """The DaemonSet of the nodes with this variant."""
    name = f"{_APP}-{variant}"
    labels = {"app.kubernetes.io/name": _APP, PLUGIN_LABEL: variant}
    mounts, volumes = _volumes(device_lists)
    environment = list(_environment(mig_strategy, device_lists))
    if _replicas(request):
        mounts.append({"name": "config", "mountPath": _CONFIG_DIRECTORY})
        volumes.append({"name": "config", "configMap": {"name": name}})
        environment.append({"name": "CONFIG_FILE", "value": f"{_CONFIG_DIRECTORY}/{_CONFIG_FILE}"})
    if request.mps:
        mounts += _MPS_MOUNTS
        volumes += _MPS_VOLUMES
        environment.append({"name": "MPS_ROOT", "value": _MPS_ROOT})
    pod: dict[str, Any] = {
        "priorityClassName": "system-node-critical",
        "nodeSelector": {PLUGIN_LABEL: variant},
        "tolerations": [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _tainted(taint)],
        "containers": [
            {
                "name": _APP,
                "image": _plugin_image(request),
                "env": environment,
                "securityContext": _security_context(mig_strategy, device_lists),
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
    return _daemon_set(request, name, labels, pod)


def _mps_daemon(request: Request, variant: str, mig_strategy: str, taint: Mapping[str, str] | None) -> dict[str, Any]:
    """The DaemonSet of the plugin's MPS daemon, as deployments/helm has it: it mounts memory on the host and sets the
    compute mode, for which it is privileged; its clients are not."""
    labels = {"app.kubernetes.io/name": _MPS_APP, PLUGIN_LABEL: variant}
    image = _plugin_image(request)
    environment = {
        "MIG_STRATEGY": mig_strategy,
        "CONFIG_FILE": f"{_CONFIG_DIRECTORY}/{_CONFIG_FILE}",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    pod: dict[str, Any] = {
        "priorityClassName": "system-node-critical",
        "nodeSelector": {PLUGIN_LABEL: variant},
        "tolerations": [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _tainted(taint)],
        # Its servers look for their own process id in that of the host.
        "hostPID": True,
        "initContainers": [
            {
                "name": "mount-shm",
                "image": image,
                "command": ["mps-control-daemon", "mount-shm"],
                "securityContext": {"privileged": True},
                "volumeMounts": [{"name": "mps-root", "mountPath": "/mps", "mountPropagation": "Bidirectional"}],
            }
        ],
        "containers": [
            {
                "name": _MPS_APP,
                "image": image,
                "command": ["mps-control-daemon"],
                "env": [{"name": name, "value": value} for name, value in environment.items()],
                "securityContext": {"privileged": True},
                "volumeMounts": [*_MPS_MOUNTS, {"name": "config", "mountPath": _CONFIG_DIRECTORY}],
            }
        ],
        "volumes": [*_MPS_VOLUMES, {"name": "config", "configMap": {"name": f"{_APP}-{variant}"}}],
    }
    return _daemon_set(request, f"{_MPS_APP}-{variant}", labels, pod)


def _plugin_image(request: Request) -> str:
    return f"{request.image}{'@' if _DIGEST.fullmatch(request.version) else ':'}{request.version}"


def _daemon_set(request: Request, name: str, labels: Mapping[str, str], pod: dict[str, Any]) -> dict[str, Any]:
    if request.runtime_class:
        pod["runtimeClassName"] = request.runtime_class
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": request.namespace, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


_MPS_MOUNTS = ({"name": "mps-shm", "mountPath": "/dev/shm"}, {"name": "mps-root", "mountPath": "/mps"})
_MPS_VOLUMES = (
    {"name": "mps-root", "hostPath": {"path": _MPS_ROOT, "type": "DirectoryOrCreate"}},
    {"name": "mps-shm", "hostPath": {"path": f"{_MPS_ROOT}/shm"}},
)


def _volumes(device_lists: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Mounts and volumes of the plugin. For CDI it reads the host's driver, and writes a specification about it."""
    mounts: list[dict[str, Any]] = [{"name": "device-plugins", "mountPath": _KUBELET_DIRECTORY}]
    paths = [("device-plugins", _KUBELET_DIRECTORY, "Directory")]
    if device_lists in _OF_CDI:
        mounts += [
            {"name": "driver-root", "mountPath": "/driver-root", "readOnly": True},
            {"name": "cdi", "mountPath": _CDI_DIRECTORY},
        ]
        paths += [("driver-root", "/", "Directory"), ("cdi", _CDI_DIRECTORY, "DirectoryOrCreate")]
    return mounts, [{"name": name, "hostPath": {"path": path, "type": kind}} for name, path, kind in paths]


def _environment(mig_strategy: str, device_lists: str) -> Iterator[dict[str, str]]:
    given = {"MIG_STRATEGY": mig_strategy, "DEVICE_LIST_STRATEGY": device_lists}
    if device_lists in _OF_CDI:
        given["NVIDIA_DRIVER_ROOT"] = "/"
    if mig_strategy != NONE:
        given["NVIDIA_MIG_MONITOR_DEVICES"] = "all"
    given |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    for name, value in given.items():
        yield {"name": name, "value": value}


def _security_context(mig_strategy: str, device_lists: str) -> dict[str, Any]:
    """Without rights where the runtime gives any container the GPUs that its environment names, otherwise SYS_ADMIN.

    It is what MIG's monitor device needs, and by which NVIDIA's runtime distinguishes the plugin from an ordinary pod.
    """
    if mig_strategy == NONE and device_lists == ENVVAR:
        return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {"capabilities": {"add": ["SYS_ADMIN"]}}

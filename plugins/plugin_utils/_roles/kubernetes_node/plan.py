# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A GPU node of Kubernetes: its variables, and the labels by which its GPUs are described.

Private to this collection. Pure: no Ansible. Labels have the names and values that NVIDIA's gpu-feature-discovery gives
them (https://github.com/NVIDIA/k8s-device-plugin, internal/lm, v0.20.0).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....module_utils._common.drain_cap import Cap
from ..._compatibility import chip_of_name
from ..._planning.contract import RequestError, is_true
from .dra import DRA_LABEL

AUTO = "auto"
NONE, SINGLE, MIXED = "none", "single", "mixed"
CDI_CRI, CDI_ANNOTATIONS, ENVVAR, VOLUME_MOUNTS = "cdi-cri", "cdi-annotations", "envvar", "volume-mounts"
OF_CDI = (CDI_CRI, CDI_ANNOTATIONS)
ACCEPT_ENVVAR = "nvidia_container_toolkit_accept_envvar"
ACCEPT_VOLUME_MOUNTS = "nvidia_container_toolkit_accept_volume_mounts"
HOST_MPS, COMPUTE_MODE = "gpu_state_mps", "gpu_state_compute_mode"
OTHERS = (ACCEPT_ENVVAR, ACCEPT_VOLUME_MOUNTS, HOST_MPS, COMPUTE_MODE)
"""Variables of other roles that count where they are set."""
# By strategy, the option of the toolkit without which its runtime gives such containers nothing.
_NEEDED_OPTIONS = {ENVVAR: ACCEPT_ENVVAR, VOLUME_MOUNTS: ACCEPT_VOLUME_MOUNTS}
DEVICE_PLUGIN, DRA_DRIVER = "device_plugin", "dra_driver"
_ENGINES_OF_KUBERNETES = frozenset(("containerd", "crio", "k3s", "rke2"))

PLUGIN_LABEL = "gpu.fleet/device-plugin"
"""The node label by which one of the DaemonSets of the device plugin selects its nodes."""
_GPU = "nvidia.com/gpu"
_SHARED = "-SHARED"
# By https://github.com/NVIDIA/k8s-device-plugin, cmd/mps-control-daemon/mps/device.go, which has 7.5 there, not 7.0.
_MPS_CLIENTS, _MPS_CLIENTS_BEFORE, _MPS_SINCE = 48, 16, (7, 5)
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
    """The variables of the role, and variables of nvidia_container_toolkit that decide how containers get GPUs.

    node: None where its name is not known. time_slicing and mps: replicas by resource. host_mps and compute_mode are
    declared for gpu_state.
    """

    is_present: bool
    applies: bool
    announces: bool
    cap: Cap
    node: str | None
    directory: str
    directory_host: str
    kubeconfig: str
    context: str
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
    accept_envvar: str
    accept_volume_mounts: str
    host_mps: Mapping[str, Any]
    compute_mode: str | None

    @classmethod
    def read(cls, variables: Mapping[str, Any]) -> Request:
        """The request in the variables of the role; a truth value may be text, as -e gives it."""
        prefix = "kubernetes_node_"
        own = {name[len(prefix) :]: value for name, value in variables.items() if name.startswith(prefix)}
        kubeconfig = str(own["kubeconfig"] or "")
        # Its text has secrets, and is part of no message and no registered plan.
        if any(sign in kubeconfig for sign in "\n{"):
            raise RequestError(f"{prefix}kubeconfig is the text of a kubeconfig; it takes the path of a file")
        return cls(
            is_present=own["state"] == "present",
            applies=is_true(own["apply"]),
            announces=is_true(own["taint_unhealthy"]),
            cap=Cap(str(own["taint_unhealthy_max"]), f"{prefix}taint_unhealthy_max"),
            node=None if own["name"] is None else str(own["name"]),
            directory=str(own["directory"]),
            directory_host=str(own["directory_host"] or ""),
            kubeconfig=kubeconfig,
            context=str(own["context"] or ""),
            namespace=str(own["namespace"]),
            runtime_class=str(own["runtime_class"]),
            image=str(own["device_plugin_image"]),
            version=str(own["device_plugin_version"]),
            mig_strategy=own["mig_strategy"],
            device_list_strategy=own["device_list_strategy"],
            labels=own["labels"],
            gpu_labels=is_true(own["gpu_labels"]),
            taint=str(own["taint"]),
            time_slicing=own["time_slicing"],
            time_slicing_rename=is_true(own["time_slicing_rename"]),
            time_slicing_fail_requests_greater_than_one=is_true(own["time_slicing_fail_requests_greater_than_one"]),
            mps=own["mps"],
            mps_rename=is_true(own["mps_rename"]),
            mps_fail_requests_greater_than_one=is_true(own["mps_fail_requests_greater_than_one"]),
            gpus_by=own["gpus_by"],
            dra_image=str(own["dra_driver_image"]),
            dra_version=str(own["dra_driver_version"]),
            dra_sharing=own["dra_driver_sharing"],
            accept_envvar=variables.get(ACCEPT_ENVVAR, AUTO),
            accept_volume_mounts=variables.get(ACCEPT_VOLUME_MOUNTS, AUTO),
            host_mps=variables.get(HOST_MPS) or {},
            compute_mode=variables.get(COMPUTE_MODE),
        )

    @property
    def refusals(self) -> tuple[str, ...]:
        """What is wrong whatever the node has; of a removal only what it needs."""
        if self.is_present:
            return (*_name_refusals(self.node), *_syntax_refusals(self), *filter(None, [self.cap.refusal]))
        return tuple(_taint_refusals(self.taint)) if self.applies else ()

    @property
    def environment(self) -> dict[str, str]:
        """Kubeconfig and context as the modules of kubernetes.core read them; without one they find it themselves."""
        given = {"K8S_AUTH_KUBECONFIG": self.kubeconfig, "K8S_AUTH_CONTEXT": self.context}
        return {name: value for name, value in given.items() if value}

    @property
    def node_file(self) -> str:
        """The name of the file with the labels of the node."""
        return f"node-{self.node}.yaml"

    @property
    def parsed_taint(self) -> dict[str, str] | None:
        """Key, effect, and value if it has one; None for no taint."""
        match = _TAINT.fullmatch(self.taint)
        return {name: value for name, value in match.groupdict().items() if value} if match else None

    @property
    def tolerated(self) -> list[tuple[str, str]]:
        """Keys and effects of what has to be tolerated on GPU nodes."""
        taint = self.parsed_taint
        return list(dict.fromkeys([(_GPU, "NoSchedule"), *([(taint["key"], taint["effect"])] if taint else [])]))

    @property
    def plugin_image(self) -> str:
        """The image of the device plugin with its tag or digest."""
        return _tagged(self.image, self.version)

    @property
    def driver_image(self) -> str:
        """The image of the DRA driver with its tag or digest."""
        return _tagged(self.dra_image, self.dra_version)

    @property
    def replicas(self) -> dict[str, int]:
        """Replicas of shared resources."""
        return {str(name): int(str(count)) for name, count in (self.time_slicing or self.mps).items()}

    @property
    def renames(self) -> bool:
        """Whether a shared resource has another name."""
        return self.mps_rename if self.mps else self.time_slicing_rename

    @property
    def sharing(self) -> str:
        """The configuration file of the device plugin; empty where it needs none.

        Its types are in https://github.com/NVIDIA/k8s-device-plugin, api/config/v1: config.go, sharing.go, replicas.go.
        JSON is YAML.
        """
        if not self.replicas:
            return ""
        fails = (
            self.mps_fail_requests_greater_than_one if self.mps else self.time_slicing_fail_requests_greater_than_one
        )
        shared = {
            "renameByDefault": self.renames,
            "failRequestsGreaterThanOne": fails,
            "resources": [{"name": name, "replicas": count} for name, count in sorted(self.replicas.items())],
        }
        way = "mps" if self.mps else "timeSlicing"
        return json.dumps({"version": "v1", "sharing": {way: shared}}, indent=2) + "\n"


def _tagged(image: str, version: str) -> str:
    return f"{image}{'@' if _DIGEST.fullmatch(version) else ':'}{version}"


def _name_refusals(node: str | None) -> Iterator[str]:
    if node is not None and not re.fullmatch(_SUBDOMAIN, node):
        yield f"kubernetes_node_name is {node!r}; it takes lower-case letters, digits, - and ."


def _syntax_refusals(request: Request) -> Iterator[str]:
    """What Kubernetes would not accept."""
    if request.runtime_class and not re.fullmatch(_SUBDOMAIN, request.runtime_class):
        yield (
            f"kubernetes_node_runtime_class is {request.runtime_class!r}; it takes lower-case letters, digits, - "
            "and ., or nothing where NVIDIA's runtime is the default one"
        )
    if not re.fullmatch(_DNS_LABEL, request.namespace):
        yield f"kubernetes_node_namespace is {request.namespace!r}; it takes lower-case letters, digits and -"
    for name, image, version, example in (
        ("device_plugin", request.image, request.version, ("nvcr.io/nvidia/k8s-device-plugin", "v0.20.1")),
        (
            DRA_DRIVER,
            request.dra_image,
            request.dra_version,
            ("registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu", "v0.5.1"),
        ),
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
    for key in sorted({PLUGIN_LABEL, DRA_LABEL} & {*request.labels}):
        yield (
            f"kubernetes_node_labels has {key}, which device plugin and DRA driver use to select their nodes, "
            "and a node has only one of them; set kubernetes_node_gpus_by"
        )
    for key, value in request.labels.items():
        if not _KEY.fullmatch(str(key)):
            yield f"kubernetes_node_labels has {key}, which is not the name of a label, such as example.com/rack"
        elif not _VALUE.fullmatch(str(value)):
            yield (
                f"kubernetes_node_labels: the value of {key} is {value!r}; it takes up to {_LENGTH} letters, digits, "
                "-, _ and ., the first and the last a letter or digit"
            )
    for way, given in (("time_slicing", request.time_slicing), ("mps", request.mps)):
        for name, count in given.items():
            if not _REPLICAS.fullmatch(str(count)):
                yield f"kubernetes_node_{way} has {count!r} for {name}; it takes a number of replicas from 2 to 9999"
    yield from _taint_refusals(request.taint)


def _taint_refusals(taint: str) -> Iterator[str]:
    match = _TAINT.fullmatch(taint)
    if taint and (not match or match["effect"] not in _EFFECTS):
        yield (
            f"kubernetes_node_taint is {taint!r}; it takes a taint such as nvidia.com/gpu=present:NoSchedule, "
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
        yield f"kubernetes_node_mps has {name}; the device plugin supports MPS for whole GPUs only, {_GPU}"


# What the node has


def node_refusals(
    request: Request, gpus: Sequence[Mapping[str, Any]], toolkit: Mapping[str, Any], strategies: tuple[str, str]
) -> Iterator[str]:
    """What does not fit its GPUs, or how the container toolkit was set up.

    toolkit: what the role nvidia_container_toolkit has recorded. strategies: of MIG devices and of device lists.
    """
    of_mig, of_lists = strategies
    yield from _gpu_refusals(gpus, of_mig)
    if request.gpus_by == DRA_DRIVER:
        yield from _dra_refusals(toolkit)
    else:
        yield from _device_list_refusals(request, toolkit, of_lists)
    yield from _sharing_refusals(request, gpus, of_mig)


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


def device_list_strategy(request: Request, toolkit: Mapping[str, Any]) -> str:
    """The requested strategy; `auto` is CDI, unless the toolkit was set up without it for the engine of Kubernetes."""
    if request.device_list_strategy != AUTO:
        return request.device_list_strategy
    if _is_without_cdi(toolkit):
        only_mounts = request.accept_volume_mounts == "always" and request.accept_envvar != "always"
        return VOLUME_MOUNTS if only_mounts else ENVVAR
    return CDI_CRI


def _device_list_refusals(request: Request, toolkit: Mapping[str, Any], strategy: str) -> Iterator[str]:
    if strategy in OF_CDI and _is_without_cdi(toolkit):
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
            "kubernetes_node_gpus_by is dra_driver, which gives devices through CDI, and nvidia_container_toolkit "
            "has set "
            "up this host without it; set nvidia_container_toolkit_mode to cdi"
        )


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
            "kubernetes_node_mps: the device plugin does not support MPS with the "
            "strategy mixed and on GPUs in MIG mode"
            f"{' (' + ', '.join(mig) + ')' if mig else ''}; use kubernetes_node_time_slicing, or turn MIG off"
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


def mig_strategy(request: Request, gpus: Sequence[Mapping[str, Any]]) -> str:
    """The requested strategy; `auto` is the one that fits the GPUs."""
    if request.mig_strategy != AUTO:
        return request.mig_strategy
    if not any(map(_is_mig, gpus)):
        return NONE
    return SINGLE if _is_uniform(gpus) else MIXED


# Labels


def labels(request: Request, smi: Mapping[str, Any], of_mig: str, variant: str) -> dict[str, str]:
    """The labels of the node. smi: the facts of nvidia_smi; variant: of the device plugin."""
    gpus = smi.get("gpus") or ()
    found = {
        **(_shared_labels(_gpu_labels(smi, gpus, of_mig), request) if request.gpu_labels else {}),
        "nvidia.com/gpu.present": "true",
        # One of the two alone: each offers all GPUs of a node.
        **({DRA_LABEL: "true"} if request.gpus_by == DRA_DRIVER else {PLUGIN_LABEL: variant}),
        **{key: str(value) for key, value in request.labels.items()},
    }
    return dict(sorted(found.items()))


def label_value(text: str) -> str:
    """A label's value of a product's name, as gpu-feature-discovery makes it, within the syntax of Kubernetes."""
    words = re.sub(r"[^A-Za-z0-9_. -]", "", text).split()
    return "-".join(words)[:_LENGTH].strip("-_.")


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
    """Labels of the driver and of CUDA; the names with `driver.` and `runtime.` are deprecated, and still in use."""
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
    """The labels of the MIG devices of one type."""
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


def _shared_labels(labels: Mapping[str, str], request: Request) -> dict[str, str]:
    """The labels as gpu-feature-discovery gives them where GPUs are shared: pods find or avoid these by them."""
    found = {**labels, **({"nvidia.com/mps.capable": "true"} if request.mps else {})}
    for name, count in request.replicas.items():
        found[f"{name}.replicas"] = str(count)
        found[f"{name}.sharing-strategy"] = "mps" if request.mps else "time-slicing"
        product = found.get(f"{name}.product")
        if product and not request.renames:
            found[f"{name}.product"] = f"{product[: _LENGTH - len(_SHARED)]}{_SHARED}"
    return found

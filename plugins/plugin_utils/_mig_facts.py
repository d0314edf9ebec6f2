# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG state of a host from the facts of nvidia_smi_facts, on the controller. Private to this collection."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._mig.export import PresentGpu, PresentInstance

_SLICES = re.compile(r"(?:(\d+)c\.)?(\d+)g\.")
_WITHOUT_GPUS = ("no_gpu", "passed_through", "excluded")
_SHAPES = "facts of gpu.fleet.nvidia_smi_facts or a list of their GPUs"


class FactsError(Exception):
    """Facts without the MIG state. An unknown state is never exported as an empty one."""


def present_gpus(data: Any) -> list[PresentGpu]:
    """The GPUs of one host: `data` is the facts `nvidia_smi`, facts that contain them, or their list of GPUs.

    Raises FactsError.
    """
    return [_present(gpu) for gpu in _gpus(data)]


def _gpus(data: Any) -> Sequence[Any]:
    if isinstance(data, Mapping):
        if data.get("available") is False and data.get("reason") not in _WITHOUT_GPUS:
            raise FactsError(f"these facts have no GPUs: {data.get('message') or data.get('reason')}")
        for name in ("gpus", "nvidia_smi", "ansible_facts"):
            if name in data:
                return _gpus(data[name])
    elif isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return data
    raise FactsError(f"it takes {_SHAPES}, not {type(data).__name__} {str(data)[:60]}")


def _present(gpu: Any) -> PresentGpu:
    if not isinstance(gpu, Mapping) or "index" not in gpu:
        raise FactsError(f"it takes {_SHAPES}; this is not a GPU: {str(gpu)[:60]}")
    label = f"GPU {gpu['index']} ({gpu.get('name')}, {gpu.get('pci_bus_id')})"
    if gpu.get("error"):
        raise FactsError(f"{label} cannot be read: {gpu['error']}")
    if gpu.get("mig_capable") is None:
        raise FactsError(f"{label}: whether it has MIG is not known")
    selector = gpu.get("uuid") or gpu.get("pci_bus_id")
    if not selector:
        raise FactsError(f"{label} has neither a UUID nor a PCI bus id in these facts")
    if not gpu["mig_capable"]:
        return PresentGpu(selector, gpu["index"], None)
    if "gpu_instances" not in gpu:
        raise FactsError(f"{label}: its MIG instances were not gathered; gather_subset has to include mig")
    if gpu["gpu_instances"] is None:
        why = (gpu.get("unknown") or {}).get("gpu_instances", "unknown")
        needed = "; listing them needs root (become: true)" if why == "denied" else ""
        raise FactsError(f"{label}: its MIG instances are not known ({why}){needed}")
    instances = tuple(_instance(label, instance) for instance in gpu["gpu_instances"])
    if sum(len(instance.compute) for instance in instances) != len(gpu.get("mig_devices") or ()):
        # Each list is from a separate call, which may have failed or seen another state.
        raise FactsError(f"{label}: mig_devices and gpu_instances contradict each other; gather the facts again")
    mode = gpu.get("mig_mode_pending") or gpu.get("mig_mode_current")
    return PresentGpu(selector, gpu["index"], mode == "enabled" or bool(instances), instances)


def _instance(label: str, instance: Mapping[str, Any]) -> PresentInstance:
    compute = tuple(_slices(label, item["profile"], 1) for item in instance["compute_instances"])
    return PresentInstance(
        instance["profile"], _slices(label, instance["profile"], 2), instance["placement_start"], compute
    )


def _slices(label: str, name: str, group: int) -> int:
    """The number of slices in a profile name: of the compute instance (group 1, or the whole) or GPU instance (2)."""
    found = _SLICES.match(name)
    if found is None:
        raise FactsError(f"{label}: {name!r} is not a MIG profile name")
    return int(found[group] or found[2])

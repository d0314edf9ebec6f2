# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU facts of a host, as plain data. Private to this collection."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from typing import Any, Callable, Collection, Iterator, Mapping, Sequence

from . import gpu as gpu_schema
from . import health, selection
from . import pci as pci_bus
from . import topology as gpu_topology
from . import values as readings
from . import vgpu as nvidia_smi_vgpu
from .client import RetryPolicy, Smi
from .observe import Observation, observe
from .remedies import with_remedy

# Subsets and the sections of a GPU that belong to each, in addition to `Gpu.basics`.
SUBSETS: Mapping[str, tuple[str, ...]] = {
    "min": (),
    "hardware": ("hardware", "capability"),
    "memory": ("memory",),
    "ecc": ("ecc",),
    "power": ("power",),
    "clocks": ("clocks",),
    "supported_clocks": (),
    "temperature": ("temperature",),
    "utilization": ("utilization",),
    "mig": (),
    "vgpu": (),
    "processes": (),
    "fabric": ("fabric",),
    "nvlink": (),
    "topology": (),
}
_WITHOUT_DOCUMENT = frozenset(("min", "nvlink", "topology"))

LOADED_VERSION = "/proc/driver/nvidia/version"
PASSED_THROUGH, EXCLUDED = "passed_through", "excluded"
"""Reasons why no GPU responds that are no problem."""
# Reasons that are known of single GPUs, where they are problems of these.
_OF_EACH_GPU = ("no_gpu", "gpu_lost", "reset_required")

Specify = Callable[[str, str], Mapping[str, Any]]
"""What tables know of a GPU by its PCI device id and name: `specified` of cores.py, where the tables are desired."""


@dataclass(frozen=True)
class FactsRequest:
    """What to gather: `timeout` in seconds for all calls together.

    Without `explain`, readings that a GPU does not have are left out with their reasons: they fill half of the facts.
    """

    executable: str = "nvidia-smi"
    subsets: frozenset[str] = frozenset(SUBSETS)
    gpus: tuple[str, ...] = (selection.ALL,)
    timeout: float = 60.0
    explain: bool = True


def chosen_subsets(desired: Sequence[str]) -> frozenset[str]:
    """Resolve `gather_subset` as ansible.builtin.setup does: `!x` excludes, `!all` leaves `min`, `min` is always in."""
    excluded = {name[1:] for name in desired if name.startswith("!")}
    included = {name for name in desired if not name.startswith("!")}
    if "all" in included or (not included and "all" not in excluded):
        included |= set(SUBSETS)
    return frozenset((included - excluded - {"all"}) | {"min"})


def gather(request: FactsRequest, specify: Specify | None = None) -> dict[str, Any]:
    """All facts of a `request`. Never raises for failures of nvidia-smi."""
    pci = pci_bus.nvidia_gpus()
    observation = observe(
        Smi(request.executable, RetryPolicy(request.timeout), time_limit=request.timeout),
        [device.pci_bus_id for device in pci if not device.is_withheld],
        document=bool(request.subsets - _WITHOUT_DOCUMENT),
        capability="hardware" in request.subsets,
        mig="mig" in request.subsets,
        vgpu="vgpu" in request.subsets,
        nvlink="nvlink" in request.subsets,
        topology="topology" in request.subsets,
    )
    available = any(gpu.error is None and not health.is_lost(gpu) for gpu in observation.gpus)
    reason, message = (None, None) if available else _why_unavailable(observation, pci)
    chosen, warnings = _choose(observation, request.gpus if observation.gpus else ())
    hidden = {health.name_of(gpu) for gpu in observation.gpus if gpu not in chosen} - {None}
    return {
        "available": available,
        "reason": reason,
        "message": message,
        "driver_version": observation.driver_version,
        "cuda_version": observation.cuda_version,
        "timestamp": observation.timestamp,
        "gpu_count": len(observation.gpus),
        "gpus": [gpu_facts(gpu, observation, request.subsets, request.explain, specify) for gpu in chosen],
        "pci_gpus": [{**asdict(device), "passed_through": device.passed_through} for device in pci],
        "topology": _topology_facts(observation.topology) if "topology" in request.subsets else None,
        "unhealthy": [asdict(item) for item in _problems(observation, pci, reason, message) if item.gpu not in hidden],
        "warnings": [*observation.warnings, *warnings],
        "gathered": sorted(request.subsets),
    }


def _choose(observation: Observation, selectors: Sequence[str]) -> tuple[tuple[gpu_schema.Gpu, ...], list[str]]:
    """The selected GPUs, and a message for each selector without a match."""
    names: set[int | None] = set()
    unmatched = []
    for selector in selectors:
        try:
            names.update(map(id, selection.select(observation.gpus, (selector,))))
        except selection.SelectionError as error:
            unmatched.append(str(error))
    return tuple(gpu for gpu in observation.gpus if id(gpu) in names), unmatched


def _problems(
    observation: Observation, pci: Sequence[pci_bus.PciDevice], reason: str | None, message: str | None
) -> tuple[health.Problem, ...]:
    """All problems of the host, or the reason why they cannot be determined."""
    if reason in (PASSED_THROUGH, EXCLUDED):
        return ()
    if reason is not None and message is not None and reason not in _OF_EACH_GPU:
        code = "driver_library_mismatch" if reason == "version_mismatch" else reason
        return (health.Problem(None, code, message),)
    found = (
        *health.gpu_problems(observation.gpus),
        *health.missing_gpus(observation.gpus, pci),
        *health.count_problems(observation.disagreement),
    )
    known = {(problem.gpu, problem.code) for problem in found}
    # A corrupted infoROM may be reported in the document and around it.
    around = health.inforom_problems(observation.corrupted_inforoms, observation.gpus)
    return (*found, *(problem for problem in around if (problem.gpu, problem.code) not in known))


def _why_unavailable(observation: Observation, pci: Sequence[pci_bus.PciDevice]) -> tuple[str, str]:
    """Refine the reason by other signs on the host: a missing nvidia-smi has three possible causes.

    Where the host keeps no GPU for itself, there is nothing for nvidia-smi to show, nor for a driver to do.
    """
    if pci and not observation.gpus and all(device.is_withheld for device in pci):
        passed = sorted({device.driver or "" for device in pci if device.passed_through})
        if passed:
            shown = f"the PCI bus shows {_counted(pci)}"
            return PASSED_THROUGH, f"{shown}, passed through to virtual machines by {', '.join(passed)}"
        return EXCLUDED, f"the parameters of the driver exclude {_counted(pci)}"
    lost = [gpu for gpu in observation.gpus if health.is_lost(gpu)]
    reason = observation.reason or ("gpu_lost" if lost else "failed")
    message = observation.message or "nvidia-smi lists no GPU that responds"
    if lost and observation.reason is None:
        message += ": " + ", ".join(f"GPU {gpu.index} ({gpu.basics.pci_bus_id}) is lost" for gpu in lost)
    if reason == "no_driver" and os.path.exists(LOADED_VERSION):
        reason, message = "no_nvidia_smi", message + ", though the driver is loaded"
    elif reason == "no_driver" and not pci:
        reason, message = "no_gpu", message + ", and the PCI bus shows no NVIDIA GPU"
    elif pci:
        message += f" (the PCI bus shows {_counted(pci)})"
    # GPUs that are there are not to be taken out of the play.
    return reason, with_remedy("gpu_missing" if reason == "no_gpu" and pci else reason, message)


def _counted(pci: Sequence[pci_bus.PciDevice]) -> str:
    return f"{len(pci)} NVIDIA GPU{'' if len(pci) == 1 else 's'}"


def gpu_facts(
    gpu: gpu_schema.Gpu,
    observation: Observation,
    subsets: frozenset[str],
    explain: bool = True,
    specify: Specify | None = None,
) -> dict[str, Any]:
    """One GPU as flat data, limited to the sections of `subsets`; without `explain`, to what the GPU has."""
    facts: dict[str, Any] = {"index": gpu.index, **asdict(gpu.basics)}
    sections = (section for subset in SUBSETS if subset in subsets for section in SUBSETS[subset])
    optional = {name: value for section in sections for name, value in asdict(getattr(gpu, section)).items()}
    facts.update(optional)
    facts["mig_capable"] = _mig_capable(gpu)
    if "ecc" in subsets:
        for period in ("volatile", "aggregate"):
            counters = getattr(gpu.ecc, "ecc_errors_" + period)
            # Zero is a total only where every counter is known.
            doubt = any(
                name.startswith(f"ecc_errors_{period}.") and reason not in readings.MISSING
                for name, reason in gpu.unknown
            )
            for name, total in (("corrected", health.corrected), ("uncorrected", health.uncorrected)):
                facts["ecc_errors_" + period][name + "_total"] = total(counters) or (None if doubt else total(counters))
        facts["retired_pages"] = [asdict(page) for page in gpu.retired_pages]
    if "power" in subsets:
        facts["power_smoothing"] = None if gpu.power_smoothing is None else dict(gpu.power_smoothing)
    if "hardware" in subsets:
        facts["other"] = dict(gpu.other)
        if specify is not None:
            facts.update(specify(facts.get("pci_device_id") or "", gpu.basics.name or ""))
    if "processes" in subsets:
        facts["processes"] = _plain_list(gpu.processes)
        facts["accounted_processes"] = _plain_list(gpu.accounted_processes)
    if "supported_clocks" in subsets:
        facts["supported_clocks"] = _plain_list(gpu.supported_clocks)
    if "mig" in subsets:
        facts["mig_devices"] = _mig_devices(gpu, observation)
        facts["gpu_instances"] = _gpu_instances(gpu, observation)
    if "nvlink" in subsets:
        links = observation.nvlinks.get(gpu.basics.uuid or "", ())
        facts["nvlinks"] = [{**asdict(link), "error_counters": dict(link.error_counters)} for link in links]
    vgpus = _vgpus(gpu, observation)
    if "vgpu" in subsets:
        facts["vgpus"] = None if vgpus is None else _plain_list(vgpus.vgpus)
    if vgpus is not None and "other" in facts:
        facts["other"].update(vgpus.other)
    facts["error"] = gpu.error or ("GPU is lost" if health.is_lost(gpu) else None)
    unknown = (
        *gpu.unknown,
        *_unknown_placements(gpu, observation),
        *((("vgpus", observation.vgpus_unknown),) if vgpus is None else vgpus.unknown),
    )
    facts["unknown"] = {name: reason for name, reason in unknown if name.split(".")[0] in facts}
    if not explain:
        _leave_out_missing(facts, optional)
    return facts


def _leave_out_missing(facts: dict[str, Any], optional: Collection[str]) -> None:
    """Remove `optional` readings that the GPU does not have, and the reasons of all; rows of lists stay complete."""
    missing = [name for name, reason in facts["unknown"].items() if reason in readings.MISSING]
    for name in missing:
        del facts["unknown"][name]
        group, _dot, inner = name.partition(".")
        if group in optional:
            del (facts[group] if inner else facts)[inner or group]


def _unknown_placements(gpu: gpu_schema.Gpu, observation: Observation) -> Iterator[tuple[str, str]]:
    """The readings of MIG devices that would come from the lists, with the reason why they are unknown."""
    if observation.instances_unknown is not None:
        yield "gpu_instances", observation.instances_unknown
        for place, _device in enumerate(gpu.mig_devices):
            yield f"mig_devices.{place}.placement_start", observation.instances_unknown
            yield f"mig_devices.{place}.placement_size", observation.instances_unknown


def _vgpus(gpu: gpu_schema.Gpu, observation: Observation) -> nvidia_smi_vgpu.VGpus | None:
    """The vGPUs of one GPU; None where the host's vGPUs could not be listed."""
    if observation.vgpus is None:
        return None
    return observation.vgpus.get(gpu.basics.pci_bus_id or "", nvidia_smi_vgpu.VGpus((), ()))


def _plain_list(items: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    return None if items is None else [asdict(item) for item in items]


def _mig_capable(gpu: gpu_schema.Gpu) -> bool | None:
    """Whether the GPU now has a MIG mode; None where unknown."""
    if gpu.basics.mig_mode_current is not None:
        return True
    reason = dict(gpu.unknown).get("mig_mode_current")
    return False if reason in ("absent", "not_available", "not_supported") else None


def _mig_devices(gpu: gpu_schema.Gpu, observation: Observation) -> list[dict[str, Any]]:
    """MIG devices, joined with -L by their index and with -lgi by their GPU instance."""
    listed = {
        device.index: device
        for item in observation.listed
        if item.uuid == gpu.basics.uuid
        for device in item.mig_devices
    }
    instances = {item.gpu_instance_id: item for item in observation.gpu_instances or () if item.gpu == gpu.index}
    facts = []
    for device in gpu.mig_devices:
        named = listed.get(-1 if device.index is None else device.index)
        placed = instances.get(-1 if device.gpu_instance_id is None else device.gpu_instance_id)
        joined = replace(
            device,
            uuid=named.uuid if named else None,
            profile=named.name if named else None,
            placement_start=placed.start if placed else None,
            placement_size=placed.size if placed else None,
        )
        facts.append(asdict(joined))
    return facts


def _gpu_instances(gpu: gpu_schema.Gpu, observation: Observation) -> list[dict[str, Any]] | None:
    """GPU instances with their compute instances, including those without any, which are not MIG devices."""
    if observation.gpu_instances is None:
        return None
    return [
        {
            "gpu_instance_id": instance.gpu_instance_id,
            "profile": instance.name,
            "profile_id": instance.profile_id,
            "placement_start": instance.start,
            "placement_size": instance.size,
            "compute_instances": [
                {
                    "compute_instance_id": inner.compute_instance_id,
                    "profile": inner.name,
                    "profile_id": inner.profile_id,
                    "placement_start": inner.start,
                    "placement_size": inner.size,
                }
                for inner in observation.compute_instances
                if (inner.gpu, inner.gpu_instance_id) == (gpu.index, instance.gpu_instance_id)
            ],
        }
        for instance in observation.gpu_instances
        if instance.gpu == gpu.index
    ]


def _topology_facts(devices: Sequence[gpu_topology.TopologyDevice]) -> list[dict[str, Any]]:
    return [{**asdict(device), "links": dict(device.links)} for device in devices]

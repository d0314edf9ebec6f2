# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Query nvidia-smi about all GPUs of a host with the minimum of calls. Private to this collection."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Iterable, Mapping, Sequence

from .._common.runner import CommandResult
from . import csv as csv_table
from . import gpu as gpu_schema
from . import listing, messages
from . import topology as gpu_topology
from . import vgpu as nvidia_smi_vgpu
from .client import Smi
from .failures import FATAL, explain
from .values import bus_id
from .xml import Document, DocumentError, disagreement, parse_document

_QUOTED_LINES = 5
# Measured on 2 H200: one call with all three takes 84 ms, each alone 31 ms.
_NVLINK = ("nvlink", "-s", "-e", "-R")
_NVLINK_OF_OLD_DRIVERS = ("nvlink", "-s")
_VGPU_HOSTS = ("host_vgpu", "host_vsga")


@dataclass(frozen=True)
class Observation:
    """Readings of a host. `gpus` are ordered by index and include those that cannot be read.

    `reason` and `message` are why a GPU, or all of them, could not be read. nvidia-smi counts `counted` GPUs;
    `disagreement` is how it contradicts itself about them. `instances_unknown` is why the instances of GPUs in MIG mode
    could not be listed. `vgpus` are by PCI bus id, None where they could not be listed.
    """

    gpus: tuple[gpu_schema.Gpu, ...] = ()
    driver_version: str | None = None
    cuda_version: str | None = None
    timestamp: str | None = None
    listed: tuple[listing.ListedGpu, ...] = ()
    gpu_instances: tuple[listing.GpuInstance, ...] | None = ()
    instances_unknown: str | None = None
    compute_instances: tuple[listing.ComputeInstance, ...] = ()
    nvlinks: Mapping[str, tuple[gpu_topology.NvLink, ...]] = field(default_factory=dict)
    vgpus: Mapping[str, nvidia_smi_vgpu.VGpus] | None = field(default_factory=dict)
    vgpus_unknown: str = "failed"
    topology: tuple[gpu_topology.TopologyDevice, ...] = ()
    corrupted_inforoms: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str | None = None
    message: str | None = None
    counted: int | None = None
    disagreement: str | None = None


def observe(
    smi: Smi,
    bus_ids: Sequence[str],
    *,
    document: bool = True,
    capability: bool = True,
    mig: bool = True,
    vgpu: bool = True,
    nvlink: bool = True,
    topology: bool = True,
) -> Observation:
    """Read what is requested: `document` for all readings of each GPU instead of only its basics.

    Only the document, or the query for the basics, is essential; other calls that fail leave their readings unknown.

    `smi` has a time limit for all calls. `bus_ids` are the GPUs on the PCI bus, in normal form.
    """
    extras: dict[str, Sequence[str]] = {}
    if nvlink:
        extras["nvlink"] = _NVLINK
    if topology:
        extras["topology"] = ("topo", "-m")
    if capability:
        extras["capability"] = csv_table.query_arguments(csv_table.CAPABILITY_FIELDS)
    read = _read_documents if document else _read_table
    observation, replies = read(smi, bus_ids, extras)
    if "nvlink" in replies:
        observation = replace(observation, nvlinks=_read_nvlinks(smi, replies["nvlink"], observation))
    if "topology" in replies:
        observation = replace(observation, topology=gpu_topology.parse_topology(replies["topology"].text))
    if "capability" in replies:
        observation = _with_capability(smi, observation, replies["capability"])
    if vgpu:
        observation = _with_vgpus(smi, observation)
    if mig:
        observation = _with_mig_instances(smi, observation)
    return _with_diagnostics(observation, smi.asked)


def _read_nvlinks(
    smi: Smi, result: CommandResult, observation: Observation
) -> Mapping[str, tuple[gpu_topology.NvLink, ...]]:
    """The links of each GPU; older drivers, which reject the other options, give only their state."""
    if result.rc not in (None, 0) and not result.timed_out and observation.gpus and "not recognized" in result.text:
        (result,) = smi.ask(_NVLINK_OF_OLD_DRIVERS)
    return gpu_topology.parse_nvlinks(result.text)


def _with_capability(smi: Smi, observation: Observation, result: CommandResult) -> Observation:
    """Add the readings that only CSV has; queried again without a field that the driver does not know."""
    names = csv_table.CAPABILITY_FIELDS
    fewer = csv_table.without_rejected(names, result.text + result.error_text)
    while fewer != names:
        names = fewer
        (result,) = smi.ask(csv_table.query_arguments(names))
        fewer = csv_table.without_rejected(names, result.text + result.error_text)
    table = csv_table.parse_table(result.text, names)
    otherwise = "denied" if explain(result)[0] == "permission_denied" else "failed"
    return replace(
        observation, gpus=tuple(csv_table.with_capability(gpu, table, otherwise) for gpu in observation.gpus)
    )


def _with_vgpus(smi: Smi, observation: Observation) -> Observation:
    """Add the vGPUs of virtual machines; no call where no GPU is shared among them."""
    if not any(gpu.hardware.virtualization_mode in _VGPU_HOSTS for gpu in observation.gpus):
        return observation
    (result,) = smi.ask(("vgpu", "-q"))
    unknown = "denied" if explain(result)[0] == "permission_denied" else "failed"
    return replace(observation, vgpus=nvidia_smi_vgpu.parse_vgpus(result.text), vgpus_unknown=unknown)


_Calls = Mapping[str, Sequence[str]]
_Results = Mapping[str, CommandResult]


def _read_table(smi: Smi, _bus_ids: Sequence[str], extras: _Calls) -> tuple[Observation, _Results]:
    """One CSV query; again without a field that the driver does not know, or without GPUs that fail the query."""
    names = csv_table.BASIC_FIELDS
    result, *rest = smi.ask(csv_table.query_arguments(names), *extras.values())
    while True:
        fewer = csv_table.without_rejected(names, result.text + result.error_text)
        if fewer == names:
            break
        names = fewer
        (result,) = smi.ask(csv_table.query_arguments(names))
    table = csv_table.parse_table(result.text, names)
    if csv_table.has_deprecated_version(table):
        names = csv_table.with_newer_version(names)
        (result,) = smi.ask(csv_table.query_arguments(names))
        table = csv_table.parse_table(result.text, names)
    reason, message = (None, None) if table.rows else explain(result)
    if reason is not None and messages.failed_gpus(result.text + result.error_text):
        listed = _list(smi)
        if listed:
            (result,) = smi.ask((*csv_table.query_arguments(names), "-i", ",".join(gpu.uuid for gpu in listed)))
            table = replace(csv_table.parse_table(result.text, names), warnings=table.warnings)
        document = None if table.rows else smi.document_by_index()
        if document is not None:
            return _of_document(document), dict(zip(extras, rest))
    observation = Observation(
        gpus=tuple(map(csv_table.read_gpu, table.rows)),
        driver_version=csv_table.driver_version(table),
        warnings=table.warnings,
        reason=reason,
        message=message,
    )
    return observation, dict(zip(extras, rest))


def _of_document(document: Document) -> Observation:
    """What one document of all GPUs has, one of which can be read at least."""
    return Observation(
        gpus=document.gpus,
        driver_version=document.driver_version,
        cuda_version=document.cuda_version,
        timestamp=document.timestamp,
        warnings=document.warnings,
    )


def _read_documents(smi: Smi, bus_ids: Sequence[str], extras: _Calls) -> tuple[Observation, _Results]:
    """The XML document; split into parallel calls for several GPUs, because one call samples them one by one."""
    groups = _groups(bus_ids)
    if len(groups) > 1 and "nvlink" not in extras:
        extras = {**extras, "list": ("-L",)}
    # Half of the time, so that healthy GPUs can still be read one by one if one hangs the call of its group.
    results = smi.ask(*map(_document_call, groups), *extras.values(), share=0.5 if len(groups) > 1 else 1.0)
    replies = dict(zip(extras, results[len(groups) :]))
    parts = [_read_part(result) for result in results[: len(groups)]]
    # Only a complete document has GPUs in index order. nvlink -s identifies them in the same format as -L.
    naming = replies.get("nvlink") or replies.get("list")
    listed = _parse_list(naming) if naming else ()
    complete = _is_complete(parts, bus_ids)
    if not complete:
        listed = listed or _list(smi)
        parts += _read_missing(smi, parts, bus_ids, listed)
        if _is_hidden(parts, smi.asked, bus_ids, listed):
            document = smi.document_by_index()
            if document is not None:
                return _of_document(document), replies
    read = next((part.document for part in parts if part.document), None)
    # Placeholders of unreachable GPUs mean nothing where no GPU can be read.
    gpus = _join(parts, whole=len(groups) == 1) if read else {}
    if len(parts) > 1 or not complete:
        if not {gpu.basics.uuid for gpu in gpus.values() if gpu.error is None} <= {gpu.uuid for gpu in listed}:
            listed = _list(smi)
        indexes = {gpu.uuid: gpu.index for gpu in listed}
        gpus = {key: replace(gpu, index=indexes.get(gpu.basics.uuid or "", gpu.index)) for key, gpu in gpus.items()}
    broken = next((part for part in parts if part.reason), None)
    observation = Observation(
        gpus=tuple(gpus.values()),
        driver_version=read.driver_version if read else None,
        cuda_version=read.cuda_version if read else None,
        timestamp=read.timestamp if read else None,
        listed=listed,
        warnings=tuple(line for part in parts for line in part.warnings),
        reason=broken.reason if broken else None,
        message=broken.message if broken else None,
        counted=_counted(parts),
        disagreement=next(filter(None, (disagreement(None, part.gpus) for part in parts)), None),
    )
    return observation, replies


@dataclass(frozen=True)
class _Part:
    """Result of one call for a document: GPUs, or why there are none."""

    document: Document | None
    gpus: tuple[gpu_schema.Gpu, ...]
    warnings: tuple[str, ...]
    reason: str | None = None
    message: str | None = None


def _read_part(result: CommandResult, bus_id_alone: str | None = None) -> _Part:
    """Parse one result. A GPU that was queried alone is kept, with the error message in its place."""
    try:
        document = parse_document(result.text, partial=True)
        if document.cut is None:
            return _Part(document, document.gpus, document.warnings)
        reason, message = explain(result)
        if reason == "failed":
            reason, message = "broken_xml", document.cut
        return _Part(document, document.gpus, document.warnings, reason, message)
    except DocumentError as error:
        reason, message = explain(result)
        if reason == "failed" and error.reason != "no_document":
            reason, message = error.reason, str(error)
    silent = bus_id_alone is not None and reason != "no_gpu"
    gpus = (gpu_schema.Gpu(None, gpu_schema.Basics(pci_bus_id=bus_id_alone), error=message),) if silent else ()
    lines = tuple(line.strip() for line in result.text.splitlines()[:_QUOTED_LINES] if line.strip())
    return _Part(None, gpus, lines, reason, message)


def _join(parts: Sequence[_Part], whole: bool) -> dict[str | None, gpu_schema.Gpu]:
    """All GPUs by their PCI bus id; a reading without error takes precedence.

    In a `whole` document that has all GPUs that it counts, including damaged ones, the position is the index.
    """
    gpus: dict[str | None, gpu_schema.Gpu] = {}
    for number, part in enumerate(parts):
        counted = part.document is not None and len(part.gpus) >= (part.document.attached_gpus or 0)
        for gpu in part.gpus:
            key = gpu.basics.pci_bus_id or gpu.basics.uuid
            known = gpus.get(key)
            if known is None:
                gpus[key] = gpu if whole and counted and number == 0 else replace(gpu, index=None)
            elif known.error is not None and gpu.error is None:
                gpus[key] = replace(gpu, index=known.index)
    return gpus


def _groups(bus_ids: Sequence[str]) -> list[tuple[str, ...]]:
    """Split GPUs into about as many calls as there are GPUs in a call; a single call for all if PCI shows none.

    Measured on 4 H200: a call holds the driver's lock during its start (25 ms) and for a third of its time with each
    GPU (86 ms). With one call for each GPU the calls wait for locks; a single call for all waits for samples.
    """
    calls = math.ceil(math.sqrt(len(bus_ids)))
    return [tuple(bus_ids[start::calls]) for start in range(calls)] if calls > 1 else [()]


def _document_call(bus_ids: Sequence[str]) -> tuple[str, ...]:
    return ("-q", "-x", "-i", ",".join(bus_ids).upper()) if bus_ids else ("-q", "-x")


def _is_complete(parts: Sequence[_Part], bus_ids: Sequence[str]) -> bool:
    """Whether all GPUs that PCI shows and the documents count were read, or no other call could find more."""
    if any(part.reason in FATAL for part in parts):
        return True
    if len(parts) == 1 and parts[0].reason == "no_gpu":
        return True
    found = _found(parts)
    counted = _counted(parts) or len(bus_ids) or 1
    return len(found) >= counted and (len(parts) == 1 or found.issuperset(bus_ids))


def _found(parts: Sequence[_Part]) -> set[str | None]:
    """The PCI bus ids of the GPUs that were read."""
    return {gpu.basics.pci_bus_id for part in parts for gpu in part.gpus if gpu.error is None}


def _counted(parts: Sequence[_Part]) -> int | None:
    """How many GPUs nvidia-smi counts; None where no document states it."""
    return max((part.document.attached_gpus or 0 for part in parts if part.document), default=0) or None


def _is_hidden(
    parts: Sequence[_Part],
    results: Iterable[CommandResult],
    bus_ids: Sequence[str],
    listed: Sequence[listing.ListedGpu],
) -> bool:
    """Whether a GPU that fails hides healthy ones or their indexes: more are missing than fail, or the list is short.

    Where one is lost, nvidia-smi may find none by bus id or UUID, since it compares with all, and `-L` ends there.
    """
    failed = {gpu for result in results for gpu in messages.failed_gpus(result.text + "\n" + result.error_text)}
    if not failed:
        return False
    names = max(len({gpu.index for gpu in failed}), len({gpu.pci_bus_id for gpu in failed}))
    readable = {gpu.basics.uuid for part in parts for gpu in part.gpus if gpu.error is None}
    is_short = not readable <= {gpu.uuid for gpu in listed}
    return is_short or len(readable) + names < (_counted(parts) or len(bus_ids) or 2)


def _read_missing(
    smi: Smi, parts: Sequence[_Part], bus_ids: Sequence[str], listed: Sequence[listing.ListedGpu]
) -> list[_Part]:
    """Query each missing GPU on its own: one that fails may fail its whole group."""
    found = _found(parts)
    uuids = {gpu.basics.uuid for part in parts for gpu in part.gpus}
    names = [name for name in bus_ids if name not in found]
    if not names or all(part.reason == "no_gpu" for part in parts):
        # A container may see fewer GPUs than the bus has, or different ones.
        names = [gpu.uuid for gpu in listed if gpu.uuid not in uuids]
    results = smi.ask(*(("-q", "-x", "-i", name.upper() if name in bus_ids else name) for name in names))
    return [_read_part(result, name if name in bus_ids else None) for name, result in zip(names, results)]


def _list(smi: Smi) -> tuple[listing.ListedGpu, ...]:
    (result,) = smi.ask(("-L",))
    return _parse_list(result)


def _parse_list(result: CommandResult) -> tuple[listing.ListedGpu, ...]:
    try:
        return listing.parse_devices(result.text)
    except listing.ListingError:
        return ()


def _with_mig_instances(smi: Smi, observation: Observation) -> Observation:
    """Add UUIDs, profiles and placements, which the XML document lacks; no call where no GPU is in MIG mode."""
    if not any(gpu.basics.mig_mode_current == "enabled" for gpu in observation.gpus):
        return observation
    devices, instances, compute_instances = smi.ask(("-L",), ("mig", "-lgi"), ("mig", "-lci"))
    observation = replace(observation, listed=_parse_list(devices))
    try:
        return replace(
            observation,
            gpu_instances=listing.parse_gpu_instances(instances.text),
            compute_instances=listing.parse_compute_instances(compute_instances.text),
        )
    except listing.ListingError as error:
        # Unprivileged users may not list instances: keep the devices, without placement.
        return replace(
            observation,
            gpu_instances=None,
            instances_unknown="denied" if explain(instances)[0] == "permission_denied" else "failed",
            warnings=(*observation.warnings, f"MIG instances: {error}"),
        )


def _with_diagnostics(observation: Observation, results: Iterable[CommandResult]) -> Observation:
    """Add diagnostics from all output: unreachable GPUs, corrupted infoROMs, standard error."""
    outputs = [text for result in results for text in (result.text, result.error_text)]
    gpus = list(observation.gpus)
    for failed in dict.fromkeys(gpu for text in outputs for gpu in messages.failed_gpus(text)):
        address = bus_id(failed.pci_bus_id) if failed.pci_bus_id else None
        known = [
            place
            for place, gpu in enumerate(gpus)
            if (address and gpu.basics.pci_bus_id == address)
            or (failed.index is not None and gpu.index == failed.index)
            or (gpu.error is not None and address is None and gpu.index is None)
            or (gpu.error is not None and failed.index is None and gpu.basics.pci_bus_id is None)
        ]
        if known and gpus[known[0]].error is not None:
            basics, index = gpus[known[0]].basics, gpus[known[0]].index
            gpus[known[0]] = replace(
                gpus[known[0]],
                index=index if failed.index is None else failed.index,
                basics=replace(basics, pci_bus_id=basics.pci_bus_id or address),
                error=failed.reason,
            )
        elif not known:
            gpus.append(gpu_schema.Gpu(failed.index, gpu_schema.Basics(pci_bus_id=address), error=failed.reason))
    gpus.sort(key=lambda gpu: (gpu.index is None, gpu.index or 0, gpu.basics.pci_bus_id or ""))
    errors = (line.strip() for result in results for line in result.error_text.splitlines())
    readable = sum(gpu.error is None for gpu in gpus)
    # A driver may count a GPU that fails, or not.
    is_counted = observation.counted is None or readable <= observation.counted <= len(gpus)
    return replace(
        observation,
        gpus=tuple(gpus),
        disagreement=observation.disagreement or (None if is_counted else disagreement(observation.counted, gpus)),
        corrupted_inforoms=tuple(
            dict.fromkeys(bus_id(found) for text in outputs for found in messages.corrupted_inforoms(text))
        ),
        warnings=tuple(dict.fromkeys((*observation.warnings, *filter(None, errors)))),
    )

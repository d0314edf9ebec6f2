# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gather what nvidia-smi knows of a host with the fewest calls that give it. Private to this collection."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import asdict, dataclass, replace
from typing import Any, Iterable, Mapping, Sequence

from . import _gpu, _health, _mig_listing, _pci, _query, _remarks, _selection, _topology
from ._document import Document, DocumentError, parse_document
from ._readings import bus_id
from ._runner import CommandResult, find_executable, run_all

# Subsets and the sections of a GPU that belong to each; all but `min` come out of the XML document.
SUBSETS: Mapping[str, tuple[str, ...]] = {
    "min": ("basics",),
    "hardware": ("hardware",),
    "memory": ("memory",),
    "ecc": ("ecc",),
    "power": ("power",),
    "clocks": ("clocks",),
    "supported_clocks": (),
    "temperature": ("temperature",),
    "utilization": ("utilization",),
    "mig": (),
    "processes": (),
    "fabric": ("fabric",),
    "nvlink": (),
    "topology": (),
}
_WITHOUT_DOCUMENT = frozenset(("min", "nvlink", "topology"))

LOADED_VERSION = "/proc/driver/nvidia/version"

# nvidia-smi ends with NVML's status: https://docs.nvidia.com/deploy/nvidia-smi/ section "Return value".
_REASONS_BY_STATUS = {
    4: "permission_denied",
    9: "not_loaded",
    12: "library_missing",
    15: "gpu_lost",
    18: "version_mismatch",
}
_REASONS_BY_TEXT = (
    ("couldn't communicate with the nvidia driver", "not_loaded"),
    ("driver not loaded", "not_loaded"),
    ("version mismatch", "version_mismatch"),
    ("couldn't find libnvidia-ml", "library_missing"),
    ("nvml shared library", "library_missing"),
    ("insufficient permissions", "permission_denied"),
    ("no devices were found", "no_gpu"),
    ("no devices found", "no_gpu"),
    ("no supported gpus", "no_gpu"),
    ("gpu is lost", "gpu_lost"),
)


@dataclass(frozen=True)
class Request:
    """What to gather: `timeout` in seconds holds for all calls together."""

    executable: str = "nvidia-smi"
    subsets: frozenset[str] = frozenset(SUBSETS)
    gpus: tuple[str, ...] = (_selection.ALL,)
    timeout: float = 60.0


@dataclass(frozen=True)
class Answers:
    """What the calls gave, before anything is joined."""

    documents: tuple[Document, ...] = ()
    table: _query.Table | None = None
    listed: tuple[_mig_listing.ListedGpu, ...] = ()
    gpu_instances: tuple[_mig_listing.GpuInstance, ...] = ()
    compute_instances: tuple[_mig_listing.ComputeInstance, ...] = ()
    nvlinks: Mapping[str, tuple[_topology.NvLink, ...]] | None = None
    topology: tuple[_topology.TopologyDevice, ...] = ()
    failed: tuple[_remarks.FailedGpu, ...] = ()
    corrupted_inforoms: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str | None = None
    message: str | None = None


def chosen_subsets(wanted: Sequence[str]) -> frozenset[str]:
    """Resolve `gather_subset` as ansible.builtin.setup does: `!x` excludes, `!all` leaves `min`, `min` is always in."""
    excluded = {name[1:] for name in wanted if name.startswith("!")}
    included = {name for name in wanted if not name.startswith("!")}
    if "all" in included or (not included and "all" not in excluded):
        included |= set(SUBSETS)
    return frozenset((included - excluded - {"all"}) | {"min"})


class Session:
    """Calls of one nvidia-smi within one time limit."""

    def __init__(self, executable: str, timeout: float) -> None:
        self.executable = find_executable(executable)
        self.deadline = time.monotonic() + timeout
        self.results: list[CommandResult] = []

    def ask(self, *calls: Sequence[str]) -> tuple[CommandResult, ...]:
        """Make `calls` side by side; each is the list of nvidia-smi's arguments."""
        remaining = max(0.0, self.deadline - time.monotonic())
        results = run_all([(self.executable, *arguments) for arguments in calls], remaining)
        self.results += results
        return results


def gather(request: Request) -> dict[str, Any]:
    """All facts of the host, as plain data. Never raises for what nvidia-smi does."""
    pci = _pci.nvidia_gpus()
    session = Session(request.executable, request.timeout)
    answers = _ask(session, request.subsets, pci)
    gpus = _join(answers)
    problems = (
        *_health.gpu_problems(gpus),
        *_health.missing_gpus(gpus, pci),
        *_health.inforom_problems(answers.corrupted_inforoms, gpus),
        *_host_problems(answers),
    )
    warnings = list(answers.warnings)
    chosen: tuple[_gpu.Gpu, ...] = ()
    for selector in request.gpus:
        try:
            chosen += _selection.select(gpus, (selector,))
        except _selection.SelectionError as error:
            warnings.append(str(error))
    names = {_health.name_of(gpu) for gpu in chosen}
    hidden = {_health.name_of(gpu) for gpu in gpus} - names
    driver_version, cuda_version = _versions(answers)
    reason, message = _why_unavailable(answers, pci) if not gpus else (None, None)
    return {
        "available": bool(gpus),
        "reason": reason,
        "message": message,
        "driver_version": driver_version,
        "cuda_version": cuda_version,
        "gpu_count": len(gpus),
        "gpus": [_gpu_facts(gpu, answers, request.subsets) for gpu in gpus if gpu in chosen],
        "pci_gpus": [asdict(device) for device in pci],
        "topology": _topology_facts(answers.topology) if "topology" in request.subsets else None,
        "unhealthy": [asdict(problem) for problem in problems if problem.gpu not in hidden],
        "warnings": list(dict.fromkeys(warnings)),
        "gathered": sorted(request.subsets),
        "calls": len(session.results),
    }


def _ask(session: Session, subsets: frozenset[str], pci: Sequence[_pci.PciDevice]) -> Answers:
    """Make the calls that `subsets` need."""
    extras = [name for name in ("topology", "nvlink") if name in subsets]
    extra_calls = {"topology": ("topo", "-m"), "nvlink": ("nvlink", "-s")}
    calls = [extra_calls[name] for name in extras]
    if subsets - _WITHOUT_DOCUMENT:
        answers, results = _ask_documents(session, calls, pci)
    else:
        answers, results = _ask_table(session, calls)
    by_name = dict(zip(extras, results))
    if "topology" in by_name:
        answers = replace(answers, topology=_topology.parse_topology(by_name["topology"].text))
    if "nvlink" in by_name:
        answers = replace(answers, nvlinks=_topology.parse_nvlinks(by_name["nvlink"].text))
    if "mig" in subsets:
        answers = _ask_mig(session, answers)
    texts = [text for result in session.results for text in (result.text, result.error_text)]
    return replace(
        answers,
        failed=tuple(dict.fromkeys(gpu for text in texts for gpu in _remarks.failed_gpus(text))),
        corrupted_inforoms=tuple(
            dict.fromkeys(bus_id(found) for text in texts for found in _remarks.corrupted_inforoms(text))
        ),
        warnings=(
            *answers.warnings,
            *(line.strip() for result in session.results for line in result.error_text.splitlines() if line.strip()),
        ),
    )


def _ask_table(session: Session, extra_calls: Sequence[Sequence[str]]) -> tuple[Answers, tuple[CommandResult, ...]]:
    """One CSV query, repeated without a field that this driver does not know."""
    names = _query.BASIC_FIELDS
    result, *extras = session.ask(_query.query_arguments(names), *extra_calls)
    while True:
        fewer = _query.without_rejected(names, result.text + result.error_text)
        if fewer == names:
            break
        names = fewer
        (result,) = session.ask(_query.query_arguments(names))
    table = _query.parse_table(result.text, names)
    if table.rows:
        return Answers(table=table, warnings=table.warnings), tuple(extras)
    reason, message = explain(result)
    return Answers(reason=reason, message=message, warnings=table.warnings), tuple(extras)


def _ask_documents(
    session: Session, extra_calls: Sequence[Sequence[str]], pci: Sequence[_pci.PciDevice]
) -> tuple[Answers, tuple[CommandResult, ...]]:
    """The XML document: of each GPU side by side where PCI shows several, because its sampled sections take long."""
    if len(pci) > 1:
        per_gpu = [("-q", "-x", "-i", device.pci_bus_id.upper()) for device in pci]
        results = session.ask(("-L",), *per_gpu, *extra_calls)
        listing, parts, extras = results[0], results[1 : len(pci) + 1], results[len(pci) + 1 :]
        listed = _mig_listing.parse_devices(listing.text)
        answers = replace(_read_documents(parts), listed=listed)
        found = {gpu.basics.uuid for document in answers.documents for gpu in document.gpus}
        if all(gpu.uuid in found for gpu in listed) and (listed or answers.documents):
            return answers, extras
        if not listed and explain(listing)[0] != "failed":
            reason, message = explain(listing)
            return replace(answers, reason=reason, message=message), extras
    else:
        listed = ()
        extras = ()
    results = session.ask(("-q", "-x"), *(() if extras else extra_calls))
    answers = replace(_read_documents(results[:1]), listed=listed)
    return answers, extras or results[1:]


def _read_documents(results: Sequence[CommandResult]) -> Answers:
    """Parse what each call printed; a call without a document explains itself."""
    documents = []
    warnings: list[str] = []
    reason = message = None
    for result in results:
        try:
            document = parse_document(result.text)
        except DocumentError as error:
            reason, message = explain(result, error)
            warnings += _output_lines(result)
            continue
        documents.append(document)
        warnings += document.warnings
    return Answers(documents=tuple(documents), warnings=tuple(warnings), reason=reason, message=message)


def _output_lines(result: CommandResult) -> list[str]:
    """The first lines of an output that is no document, for the warnings."""
    return [line.strip() for line in result.text.splitlines()[:5] if line.strip()]


def _ask_mig(session: Session, answers: Answers) -> Answers:
    """UUIDs, profiles and placements, which the XML document lacks; no call where no GPU is in MIG mode."""
    modes = {gpu.basics.mig_mode_current for document in answers.documents for gpu in document.gpus}
    if "enabled" not in modes:
        return answers
    calls: list[Sequence[str]] = [("mig", "-lgi"), ("mig", "-lci")]
    if not answers.listed:
        calls.append(("-L",))
    results = session.ask(*calls)
    try:
        return replace(
            answers,
            gpu_instances=_mig_listing.parse_gpu_instances(results[0].text),
            compute_instances=_mig_listing.parse_compute_instances(results[1].text),
            listed=answers.listed or _mig_listing.parse_devices(results[2].text),
        )
    except _mig_listing.ListingError as error:
        # An ordinary user may not list instances: the MIG devices stay, without placement.
        return replace(answers, warnings=(*answers.warnings, f"MIG instances: {error}"))


def explain(result: CommandResult, error: DocumentError | None = None) -> tuple[str, str]:
    """Why a call gave nothing: (reason, sentence)."""
    program = result.argv[0]
    said = " ".join((result.text + " " + result.error_text).split())[:500]
    if result.start_error == errno.ENOENT:
        return "no_driver", f"{program} is not installed"
    if result.start_error is not None:
        reason = "permission_denied" if result.start_error in (errno.EACCES, errno.EPERM) else "failed"
        return reason, f"{program} cannot be started: {os.strerror(result.start_error)}"
    if result.timed_out:
        return "timeout", f"{program} did not answer in {result.seconds:.1f} seconds and was ended"
    if result.too_large:
        return "too_large", f"{program} printed more than can be real and was ended"
    lowered = said.lower()
    for text, reason in _REASONS_BY_TEXT:
        if text in lowered:
            return reason, said
    if result.rc in _REASONS_BY_STATUS:
        return _REASONS_BY_STATUS[result.rc], said
    if error is not None and error.reason != "no_document":
        return error.reason, str(error)
    return "failed", f"{program} ended with {result.rc}: {said or 'no output'}"


def _why_unavailable(answers: Answers, pci: Sequence[_pci.PciDevice]) -> tuple[str, str]:
    """The reason in the light of what else the host shows: a missing nvidia-smi may mean three things."""
    reason, message = answers.reason or "failed", answers.message or "nvidia-smi gave no answer"
    if reason == "no_driver" and os.path.exists(LOADED_VERSION):
        return "no_nvidia_smi", message + ", though the driver is loaded"
    if reason == "no_driver" and not pci:
        return "no_gpu", message + ", and the PCI bus shows no NVIDIA GPU"
    if pci:
        message += f" (the PCI bus shows {len(pci)} NVIDIA GPUs)"
    return reason, message


def _join(answers: Answers) -> tuple[_gpu.Gpu, ...]:
    """GPUs in the order of their indexes, those that failed among them."""
    indexes = {gpu.uuid: gpu.index for gpu in answers.listed}
    gpus = [gpu for document in answers.documents for gpu in document.gpus]
    if answers.listed:
        gpus = [replace(gpu, index=indexes.get(gpu.basics.uuid or "", gpu.index)) for gpu in gpus]
    if answers.table is not None:
        gpus += [_query.read_gpu(row) for row in answers.table.rows]
    known = {gpu.basics.pci_bus_id for gpu in gpus}
    for failed in answers.failed:
        address = bus_id(failed.pci_bus_id) if failed.pci_bus_id else None
        if address is None or address not in known:
            gpus.append(_gpu.Gpu(index=failed.index, basics=_gpu.Basics(pci_bus_id=address), error=failed.reason))
    return tuple(sorted(gpus, key=lambda gpu: (gpu.index is None, gpu.index or 0)))


def _versions(answers: Answers) -> tuple[str | None, str | None]:
    """Driver version and highest CUDA version that it supports."""
    for document in answers.documents:
        return document.driver_version, document.cuda_version
    for row in answers.table.rows if answers.table else ():
        return row.get("driver_version"), None
    return None, None


def _host_problems(answers: Answers) -> Iterable[_health.Problem]:
    if answers.reason == "version_mismatch":
        yield _health.Problem(None, "driver_library_mismatch", answers.message or "")


def _gpu_facts(gpu: _gpu.Gpu, answers: Answers, subsets: frozenset[str]) -> dict[str, Any]:
    """One GPU as flat data: the sections of `subsets` only."""
    facts: dict[str, Any] = {"index": gpu.index}
    for subset in SUBSETS:
        if subset in subsets:
            for section in SUBSETS[subset]:
                facts.update(asdict(getattr(gpu, section)))
    facts["mig_capable"] = _mig_capable(gpu)
    if "ecc" in subsets:
        for period in ("volatile", "aggregate"):
            counters = getattr(gpu.ecc, "ecc_errors_" + period)
            facts["ecc_errors_" + period]["corrected_total"] = _health.corrected(counters)
            facts["ecc_errors_" + period]["uncorrected_total"] = _health.uncorrected(counters)
        facts["retired_pages"] = [asdict(page) for page in gpu.retired_pages]
    if "power" in subsets:
        facts["power_smoothing"] = None if gpu.power_smoothing is None else dict(gpu.power_smoothing)
    if "hardware" in subsets:
        facts["other"] = dict(gpu.other)
    if "processes" in subsets:
        facts["processes"] = _plain_list(gpu.processes)
        facts["accounted_processes"] = _plain_list(gpu.accounted_processes)
    if "supported_clocks" in subsets:
        facts["supported_clocks"] = _plain_list(gpu.supported_clocks)
    if "mig" in subsets:
        facts["mig_devices"] = _mig_devices(gpu, answers)
        facts["gpu_instances"] = _gpu_instances(gpu, answers)
    if "nvlink" in subsets:
        links = (answers.nvlinks or {}).get(gpu.basics.uuid or "", ())
        facts["nvlinks"] = [asdict(link) for link in links]
    facts["error"] = gpu.error
    facts["unknown"] = {name: reason for name, reason in gpu.unknown if name.split(".")[0] in facts}
    return facts


def _plain_list(items: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    return None if items is None else [asdict(item) for item in items]


def _mig_capable(gpu: _gpu.Gpu) -> bool | None:
    """Whether the GPU has a MIG mode now; None while that cannot be told."""
    if gpu.basics.mig_mode_current is not None:
        return True
    reason = dict(gpu.unknown).get("mig_mode_current")
    return False if reason in ("absent", "not_available", "not_supported") else None


def _mig_devices(gpu: _gpu.Gpu, answers: Answers) -> list[dict[str, Any]]:
    """MIG devices with what -L knows by their index and -lgi by their GPU instance."""
    listed = {
        device.index: device for item in answers.listed if item.uuid == gpu.basics.uuid for device in item.mig_devices
    }
    instances = {item.gpu_instance_id: item for item in answers.gpu_instances if item.gpu == gpu.index}
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


def _gpu_instances(gpu: _gpu.Gpu, answers: Answers) -> list[dict[str, Any]]:
    """GPU instances with their compute instances, those without one included, which are no MIG devices."""
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
                for inner in answers.compute_instances
                if (inner.gpu, inner.gpu_instance_id) == (gpu.index, instance.gpu_instance_id)
            ],
        }
        for instance in answers.gpu_instances
        if instance.gpu == gpu.index
    ]


def _topology_facts(devices: Sequence[_topology.TopologyDevice]) -> list[dict[str, Any]]:
    return [{**asdict(device), "links": dict(device.links)} for device in devices]

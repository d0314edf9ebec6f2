# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan tests of frameworks on a host's GPUs, and judge what they found. Private to this collection.

Pure: the variables of the role gpu_workload, facts about the GPUs, and the document that framework_test.py printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ._compatibility import CompatibilityError, check, read_request
from ._pip import pip_configuration

NAMES = {"pytorch": "PyTorch", "tensorflow": "TensorFlow"}
_ENVIRONMENTS = ("image", "virtualenv")
_KEYS = ("framework", *_ENVIRONMENTS, "archive", "python", "requirements", "index_url", "extra_index_urls", "gpus")


@dataclass(frozen=True)
class Device:
    """A GPU or a MIG device that a program of CUDA can use. `label` is for messages."""

    uuid: str
    label: str

    def is_uuid(self, found: str) -> bool:
        """Whether CUDA's UUID, which has no prefix, is that of this device."""
        return _bare(self.uuid) == _bare(found)


@dataclass(frozen=True)
class FrameworkTest:
    """One test: of a framework in an environment. `name` is for messages; an index may have a password in its URL."""

    name: str
    framework: str
    image: str = ""
    archive: str = ""
    virtualenv: str = ""
    python: str = "python3"
    requirements: tuple[str, ...] = ()
    indexes: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    devices: tuple[Device, ...] = ()

    @property
    def interpreter(self) -> str:
        """The interpreter that has the framework."""
        return f"{self.virtualenv}/bin/python" if self.virtualenv else self.python

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments of framework_test.py."""
        devices = ",".join(device.uuid for device in self.devices)
        return (f"--framework={self.framework}", *((f"--devices={devices}",) if devices else ()))


@dataclass
class Plan:
    """All tests of a host, the virtual environments to remove, and why the request cannot be met."""

    tests: list[FrameworkTest] = field(default_factory=list)
    obsolete: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """As data for playbooks. Only `pip_configurations` may have a password in it."""
        environments = {test.virtualenv: test for test in self.tests if test.virtualenv}.values()
        return {
            "tests": [
                {**_public(test), "interpreter": test.interpreter, "arguments": list(test.arguments)}
                for test in self.tests
            ],
            "virtualenvs": _virtualenvs(self.tests),
            "environments": [_public(test) for test in environments],
            "pip_configurations": [
                {"virtualenv": test.virtualenv, "text": pip_configuration("gpu_workload", test.indexes)}
                for test in environments
                if test.indexes
            ],
            "without_index": [test.virtualenv for test in environments if not test.indexes],
            "obsolete": self.obsolete,
            "refusals": self.refusals,
        }


def _public(test: FrameworkTest) -> dict[str, Any]:
    return {key: value for key, value in asdict(test).items() if key != "indexes"}


# The plan


def framework_tests(state: str, requested: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> Plan:
    """The tests for the variables; `facts` has `gpus` of nvidia_smi_facts, and `virtualenvs` of the last record."""
    plan = Plan()
    gpus = facts.get("gpus") or ()
    for number, entry in enumerate(requested):
        refusals = list(_refusals(f"gpu_workload_tests[{number}]", entry, gpus))
        plan.refusals += refusals
        if not refusals:
            plan.tests.append(_test(entry, gpus))
    plan.refusals += _different_requirements(plan.tests)
    kept = _virtualenvs(plan.tests) if state == "present" else []
    plan.obsolete = [path for path in facts.get("virtualenvs") or () if path not in kept]
    return plan


def _refusals(place: str, entry: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    unknown = [str(key) for key in entry if key not in _KEYS]
    if unknown:
        yield f"{place} has {', '.join(unknown)}; it can have {', '.join(_KEYS)}"
    if entry.get("framework") not in NAMES:
        yield f"{place}: framework is {entry.get('framework')!r}; it has to be {' or '.join(NAMES)}"
    if all(entry.get(name) for name in _ENVIRONMENTS):
        yield f"{place} has image and virtualenv; a test runs in one of them"
    virtualenv = entry.get("virtualenv") or ""
    if virtualenv and not re.fullmatch(r"/[^/\s]+(/[^/\s]+)+", virtualenv):
        yield f"{place}: virtualenv is {virtualenv!r}; it has to be an absolute path, as /opt/pytorch, without spaces"
    if bool(virtualenv) is not bool(entry.get("requirements")):
        yield (
            f"{place}: virtualenv and requirements belong together; name the interpreter of an environment that exists "
            "in python"
        )
    if entry.get("archive") and not entry.get("image"):
        yield f"{place} has archive, which is a file that the image is loaded from, and no image"
    known = [device for gpu in gpus for device in devices_of(gpu)]
    for name in entry.get("gpus") or ():
        if gpus and not _named(name, gpus):
            yield f"{place}: no usable GPU or MIG device is {name}; the host has {_labels(known) or 'none'}"


def _test(entry: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> FrameworkTest:
    framework = str(entry["framework"])
    image, virtualenv, python = (str(entry.get(name) or "") for name in ("image", "virtualenv", "python"))
    environment = f"image {image}" if image else virtualenv or python or "python3"
    indexes = [("index-url", str(url)) for url in (entry.get("index_url"),) if url]
    indexes += [("extra-index-url", str(url)) for url in entry.get("extra_index_urls") or ()]
    names = entry.get("gpus")
    devices = [device for name in names for device in _named(name, gpus)] if names else []
    return FrameworkTest(
        name=f"{NAMES[framework]} of {environment}",
        framework=framework,
        image=image,
        archive=str(entry.get("archive") or ""),
        virtualenv=virtualenv,
        python=python or "python3",
        requirements=tuple(map(str, entry.get("requirements") or ())),
        indexes=tuple(indexes),
        devices=tuple(dict.fromkeys(devices if names else [device for gpu in gpus for device in devices_of(gpu)])),
    )


def _different_requirements(tests: Sequence[FrameworkTest]) -> Iterator[str]:
    for path in _virtualenvs(tests):
        if len({(test.requirements, test.indexes) for test in tests if test.virtualenv == path}) > 1:
            yield f"gpu_workload_tests has different requirements for {path}; use a virtualenv for each of them"


def _virtualenvs(tests: Sequence[FrameworkTest]) -> list[str]:
    return list(dict.fromkeys(test.virtualenv for test in tests if test.virtualenv))


def devices_of(gpu: Mapping[str, Any]) -> tuple[Device, ...]:
    """What CUDA can use of a GPU: itself, or its MIG devices, of which a GPU in MIG mode may have none."""
    label = f"GPU {gpu.get('index')}"
    if gpu.get("mig_mode_current") == "enabled":
        mig = gpu.get("mig_devices") or ()
        return tuple(Device(one["uuid"], f"MIG device {one.get('profile')} of {label}") for one in mig)
    return (Device(gpu["uuid"], label),) if gpu.get("uuid") else ()


def _named(name: object, gpus: Sequence[Mapping[str, Any]]) -> list[Device]:
    """The devices of an index of a GPU, or of a UUID."""
    return [
        device
        for gpu in gpus
        for device in devices_of(gpu)
        if str(name) in (str(gpu.get("index")), str(gpu.get("uuid")), device.uuid)
    ]


def _labels(devices: Sequence[Device]) -> str:
    return ", ".join(f"{device.uuid} ({device.label})" for device in devices)


def _bare(uuid: str) -> str:
    return re.sub(r"^(?:GPU|MIG)-", "", uuid).lower()


# The verdict


@dataclass(frozen=True)
class Host:
    """What is known about the host, and the devices that the test was given."""

    devices: tuple[Device, ...]
    driver: str
    gpus: tuple[Any, ...]


@dataclass
class Verdict:
    """`reasons` against the host or the framework, one line each, and `notes`, which fail nothing."""

    name: str
    document: Mapping[str, Any] | None
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """As data for playbooks."""
        document = self.document or {}
        names = ("framework", "version", "cuda", "cudnn", "nccl", "python", "architectures", "devices", "all_reduce")
        return {
            "name": self.name,
            "ok": not self.reasons,
            "reasons": self.reasons,
            "notes": self.notes,
            **{name: document.get(name) for name in names},
        }


def framework_verdict(output: str, test: Mapping[str, Any], facts: Mapping[str, Any]) -> Verdict:
    """Judge the output of framework_test.py for a test of the plan, with the facts of nvidia_smi_facts."""
    document = read_document(output)
    devices = tuple(Device(**device) for device in test["devices"])
    host = Host(devices, facts.get("driver_version") or "", tuple(facts.get("pci_gpus") or facts.get("gpus") or ()))
    verdict = Verdict(test["name"], document)
    if document is None:
        verdict.reasons.append(f"{test['name']}: the test printed no result: {_last_line(output)}")
        return verdict
    title = f"{test['name']}: " if document.get("version") is None else f"{test['name']}, {document['version']}: "
    unfit = _unfit(document, host)
    found = [*_error_reasons(document), *_device_reasons(document, host), *_all_reduce_reasons(document, host)]
    # The tables are a reason where something failed. What computed right does so, as with the compatibility package
    # of CUDA that images have.
    verdict.reasons = [title + line for line in (*found, *(unfit if found else ()))]
    verdict.notes = [] if found else [title + line for line in unfit]
    if not host.devices and not found:
        verdict.notes.append(f"{title}{_without_device(host)}, so it computed on the CPU only")
    return verdict


def read_document(output: str) -> Mapping[str, Any] | None:
    """The last line that is a document of the test: images and terminals add lines of their own."""
    for line in reversed(output.splitlines()):
        if not line.lstrip().startswith('{"framework"'):
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict) and isinstance(document.get("devices"), list):
            return document
    return None


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output"


def _error_reasons(document: Mapping[str, Any]) -> Iterator[str]:
    for error in document["errors"]:
        if re.search(r"ModuleNotFoundError|ImportError", error) and document.get("version") is None:
            yield f"it cannot be imported ({error}); install it there, or name another image, virtualenv or python"
        else:
            yield error


def _device_reasons(document: Mapping[str, Any], host: Host) -> Iterator[str]:
    if document.get("version") is None:
        return
    gpus = [device for device in document["devices"] if device["kind"] == "gpu"]
    named = [device for device in gpus if device["uuid"]]
    missing = [device for device in host.devices if not any(device.is_uuid(gpu["uuid"]) for gpu in named)]
    # A framework whose devices have no UUIDs is judged by their number.
    if len(named) < len(gpus):
        missing = list(host.devices[len(gpus) :])
    if missing and document.get("cuda") is None:
        yield "it is built without CUDA, so it sees no GPU; install a build with CUDA"
    elif missing and document.get("unavailable"):
        yield f"it cannot use CUDA: {document['unavailable']}"
    elif missing:
        yield f"it does not see {_labels(missing)}; see CUDA_VISIBLE_DEVICES, and the devices of the container"
    unknown = [gpu["uuid"] for gpu in named if not any(device.is_uuid(gpu["uuid"]) for device in host.devices)]
    if unknown:
        yield f"it sees {', '.join(unknown)}, which it was not given"
    for device in document["devices"]:
        label = _label(device, host)
        if device["error"]:
            yield f"{label} cannot compute a matrix product: {device['error']}"
        elif device["rows_wrong"]:
            yield (
                f"{label} computes wrong numbers: {device['rows_wrong']} of {device['rows']} rows of a matrix product; "
                "take it out of use and run NVIDIA's field diagnostic"
            )


def _label(device: Mapping[str, Any], host: Host) -> str:
    if device["kind"] == "cpu":
        return "the CPU"
    known = (one for one in host.devices if device["uuid"] and one.is_uuid(device["uuid"]))
    return next((one.label for one in known), f"device {device['index']} ({device['name']})")


def _all_reduce_reasons(document: Mapping[str, Any], host: Host) -> Iterator[str]:
    result = document.get("all_reduce")
    if result is None or result["correct"]:
        return
    where = f"an all-reduce over {result['ranks']} {'GPUs' if host.devices else 'processes on the CPU'}"
    if result["errors"]:
        yield f"{where} failed: {'; '.join(result['errors'])}; run it again with NCCL_DEBUG=INFO in its environment"
    else:
        yield f"{where} computes a wrong sum; check NVLink, PCIe access control services and the IOMMU"


def _without_device(host: Host) -> str:
    return "no GPU of the host has a MIG device" if host.gpus else "the host has no GPU"


def _unfit(document: Mapping[str, Any], host: Host) -> list[str]:
    """Why driver, GPUs and what the framework was built with do not go together, by the tables."""
    combination = {
        "gpus": host.gpus,
        "driver": host.driver,
        "cuda": _version(document.get("cuda")),
        "cudnn": _version(document.get("cudnn")),
    }
    if not host.driver or not combination["cuda"]:
        return []
    try:
        return check(read_request(combination)).reasons
    except CompatibilityError:
        # A build of an unusual version is no reason against it.
        return []


def _version(text: object) -> str | None:
    """Major and minor version; of a build that names the major version only nothing is known."""
    match = re.match(r"\d+\.\d+", str(text or ""))
    return match[0] if match else None

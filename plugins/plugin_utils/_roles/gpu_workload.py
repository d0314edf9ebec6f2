# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of PyTorch and TensorFlow on a host's GPUs: what is run, and what it found. Private to this collection.

Pure: the variables of the role, facts about the GPUs, and the document that framework_test.py printed, which is of
whoever made the image or the environment.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ...module_utils._common.json_text import parse_json
from ...module_utils._common.plain_text import one_line
from .._compatibility import CompatibilityError, CompatibilityRequest, check, read_gpus, read_request
from .._pip import pip_configuration, pip_errors
from .._planning.contract import Ask, Outlook, Plan, Reading, RecordedHost, RolePlanner, is_true, unread
from .._planning.platforms import platform_of
from .docker.images import listed_image, pull_error
from .gpu_containers.engines import DEVICE_REQUESTS, TOOLKIT_MODE, gpu_mode

GPU_WORKLOAD = "gpu_workload"
INSTALL, TEST, REMOVE = "install", "test", "remove"
"""Steps."""
DIRECTORY = "/usr/local/lib/gpu-fleet-workload"
PROGRAM = f"{DIRECTORY}/framework_test.py"
NAMES = {"pytorch": "PyTorch", "tensorflow": "TensorFlow"}
_ENVIRONMENTS = ("image", "virtualenv")
_KEYS = ("framework", *_ENVIRONMENTS, "archive", "python", "requirements", "index_url", "extra_index_urls", "gpus")
# PyTorch's own index: https://download.pytorch.org/whl/cu126.
_CUDA_OF_INDEX = re.compile(r"/cu(\d{2})(\d)/?$")
_LONGEST_LINE = 2_000
_MALFORMED = (AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class Device:
    """A GPU or a MIG device that a program of CUDA can use. `label` is for messages."""

    uuid: str
    label: str

    def is_uuid(self, found: str) -> bool:
        """Whether CUDA's UUID, which has no prefix, belongs to this device."""
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


@dataclass(frozen=True)
class Request:
    """The variables of the role. `container_mode` is cdi, legacy, or auto for what the engine reads."""

    is_present: bool
    tests: tuple[Mapping[str, Any], ...]
    container_mode: str
    timeout_s: int

    @classmethod
    def read(cls, variables: Mapping[str, Any]) -> Request:
        """The request in the variables."""
        modes = (str(variables["gpu_workload_container_mode"]), str(variables.get(TOOLKIT_MODE, "auto")))
        return cls(
            is_present=variables["gpu_workload_state"] == "present",
            tests=tuple(variables["gpu_workload_tests"]),
            container_mode=next((mode for mode in modes if mode != "auto"), "auto"),
            timeout_s=int(variables["gpu_workload_timeout"]),
        )


@dataclass(frozen=True)
class Host(RecordedHost):
    """What is known of the host.

    `smi` is the fact of nvidia_smi_facts, empty before it is read, and `packages` are the installed ones.
    """

    smi: Mapping[str, Any] = field(default_factory=dict)
    packages: Collection[str] = ()

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Host:
        """The host with these facts."""
        record = facts["gpu_fleet_managed"].get(GPU_WORKLOAD) or {}
        smi, packages = (facts.get(name) or {} for name in ("nvidia_smi", "packages"))
        return cls(platform=platform_of(facts), record=record, smi=smi, packages=packages)

    @property
    def gpus(self) -> Sequence[Mapping[str, Any]]:
        """Its GPUs, with their MIG devices."""
        return self.smi.get("gpus") or ()

    @property
    def made(self) -> Sequence[str]:
        """The virtual environments that the role has made."""
        return self.recorded.get("virtualenvs") or ()


# The plan


def plan(request: Request, host: Host) -> Plan:
    """The tests and the virtual environments for them. Without GPUs their names in the request are not refused."""
    tests, refusals = _tests(request, host)
    virtualenvs = _virtualenvs(tests) if request.is_present else []
    new = [path for path in virtualenvs if path not in host.made]
    is_apt = host.manager == "apt"
    # What the module pip and the making of virtual environments need.
    needed = ("python3-packaging", *(("python3-venv",) if is_apt else ())) if virtualenvs else ()
    missing = [name for name in needed if name not in host.packages]
    would = [f"install {', '.join(missing)}"] if missing else []
    would += [f"make {', '.join(new)}"] if new else []
    return Plan(
        refusals=tuple(refusals),
        steps=(INSTALL, TEST) if request.is_present and request.tests else (REMOVE,),
        tasks={
            "program": PROGRAM,
            "directory": DIRECTORY,
            "virtualenvs": virtualenvs,
            "new": new,
            "obsolete": [path for path in host.made if path not in virtualenvs],
            "would": " and ".join(would),
            "refreshes_index": is_apt and bool(missing),
            "packages": missing,
            "environments": [_public(test) for test in _by_virtualenv(tests)],
            "without_index": [test.virtualenv for test in _by_virtualenv(tests) if not test.indexes],
        },
    )


def pip_configurations(request: Request, host: Host) -> list[dict[str, str]]:
    """The pip.conf of each virtual environment with package indexes, whose addresses may have a password."""
    return [
        {"virtualenv": test.virtualenv, "text": pip_configuration(GPU_WORKLOAD, test.indexes)}
        for test in _by_virtualenv(_tests(request, host)[0])
        if test.indexes
    ]


def runs(request: Request, host: Host, engine: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """How each test is run, on the host or in a container of Docker.

    engine: the result of docker_host_info with images, or of its failure.
    """
    engine = engine or {}
    mode = gpu_mode([request.container_mode], engine)
    present = {name for one in engine.get("images") or () for name in one.get("RepoTags") or ()}
    options = [f"--timeout={request.timeout_s}"]
    return [
        {
            **_public(test),
            "number": number,
            "argv": [test.interpreter, PROGRAM, *options, *test.arguments],
            "command": ["/framework_test.py", *options, *test.arguments],
            # The archive may not have been loaded.
            "pull": "never" if test.archive else "missing",
            "loads_image": bool(test.archive) and listed_image(test.image) not in present,
            "device_requests": [DEVICE_REQUESTS[mode]] if test.devices else [],
        }
        for number, test in enumerate(_tests(request, host)[0])
    ]


def _tests(request: Request, host: Host) -> tuple[list[FrameworkTest], list[str]]:
    """The tests that can be run, and why others, or all of them together, cannot."""
    tests: list[FrameworkTest] = []
    refusals: list[str] = []
    for number, entry in enumerate(request.tests):
        found = list(_refusals(f"gpu_workload_tests[{number}]", entry, host))
        refusals += found
        if not found:
            tests.append(_test(entry, host.gpus))
    return tests, [*refusals, *_different_requirements(tests)]


def _public(test: FrameworkTest) -> dict[str, Any]:
    return {key: value for key, value in asdict(test).items() if key != "indexes"}


def _refusals(place: str, entry: Mapping[str, Any], host: Host) -> Iterator[str]:
    gpus = host.gpus
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
    # The driver may still be replaced; GPUs stay what they are.
    cuda = _CUDA_OF_INDEX.search(str(entry.get("index_url") or ""))
    if cuda and not entry.get("gpus"):
        built = CompatibilityRequest(read_gpus(host.smi.get("pci_gpus") or gpus), cuda=f"{cuda[1]}.{cuda[2]}")
        yield from (f"{place}: index_url has packages for CUDA {built.cuda}: {one}" for one in check(built).reasons)
    known = [device for gpu in gpus for device in devices_of(gpu)]
    for name in entry.get("gpus") or ():
        if gpus and not _named(name, gpus):
            yield f"{place}: there is no usable GPU or MIG device {name}; the host has {_labels(known) or 'none'}"


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


def _by_virtualenv(tests: Sequence[FrameworkTest]) -> Sequence[FrameworkTest]:
    """A test of each virtual environment."""
    return tuple({test.virtualenv: test for test in tests if test.virtualenv}.values())


def _virtualenvs(tests: Sequence[FrameworkTest]) -> list[str]:
    return [test.virtualenv for test in _by_virtualenv(tests)]


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
class Given:
    """What the test was given, and what it runs on."""

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
            "reasons": [one_line(line)[:_LONGEST_LINE] for line in self.reasons],
            "notes": [one_line(line)[:_LONGEST_LINE] for line in self.notes],
            **{name: document.get(name) for name in names},
        }


def framework_verdict(output: str, test: Mapping[str, Any], smi: Mapping[str, Any]) -> Verdict:
    """Judge the output of framework_test.py for one of `runs`, with the facts of nvidia_smi_facts."""
    document = read_document(output)
    name, devices = test["name"], tuple(Device(**device) for device in test["devices"])
    given = Given(devices, smi.get("driver_version") or "", tuple(smi.get("pci_gpus") or smi.get("gpus") or ()))
    if document is None:
        return Verdict(name, None, [f"{name}: the test printed no result: {_last_line(output)}"])
    try:
        return _of_document(name, document, given)
    except _MALFORMED:
        reason = "its result is not from this version of framework_test.py"
        return Verdict(name, None, [f"{name}: {reason}; another program of the environment prints such lines"])


def _of_document(name: str, document: Mapping[str, Any], given: Given) -> Verdict:
    verdict = Verdict(name, document)
    title = f"{name}: " if document.get("version") is None else f"{name}, {document['version']}: "
    unfit = _unfit(document, given)
    found = [*_error_reasons(document), *_device_reasons(document, given), *_all_reduce_reasons(document, given)]
    # The tables are a reason where something failed. What computed right does so, as with the compatibility package
    # of CUDA that images have.
    verdict.reasons = [title + line for line in (*found, *(unfit if found else ()))]
    verdict.notes = [] if found else [title + line for line in unfit]
    if not given.devices and not found:
        verdict.notes.append(f"{title}{_without_device(given)}, so it computed on the CPU only")
    return verdict


def read_document(output: str) -> Mapping[str, Any] | None:
    """The last line that is a document of the test: images and terminals add lines of their own."""
    for line in reversed(output.splitlines()):
        if not line.lstrip().startswith('{"framework"'):
            continue
        try:
            document = parse_json(line)
        except ValueError:
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


def _device_reasons(document: Mapping[str, Any], given: Given) -> Iterator[str]:
    if document.get("version") is None:
        return
    gpus = [device for device in document["devices"] if device["kind"] == "gpu"]
    named = [device for device in gpus if device["uuid"]]
    missing = [device for device in given.devices if not any(device.is_uuid(gpu["uuid"]) for gpu in named)]
    # A framework whose devices have no UUIDs is judged by their number.
    if len(named) < len(gpus):
        missing = list(given.devices[len(gpus) :])
    if missing and document.get("cuda") is None:
        yield "it is built without CUDA, so it sees no GPU; install a build with CUDA"
    elif missing and document.get("unavailable"):
        yield f"it cannot use CUDA: {document['unavailable']}"
    elif missing:
        yield f"it does not see {_labels(missing)}; see CUDA_VISIBLE_DEVICES, and the devices of the container"
    unknown = [gpu["uuid"] for gpu in named if not any(device.is_uuid(gpu["uuid"]) for device in given.devices)]
    if unknown:
        yield f"it sees {', '.join(unknown)}, which it was not given"
    for device in document["devices"]:
        label = _label(device, given)
        if device["error"]:
            yield f"{label} cannot compute a matrix product: {device['error']}"
        elif device["rows_wrong"]:
            yield (
                f"{label} computes wrong numbers: {device['rows_wrong']} of {device['rows']} rows of a matrix product; "
                "take it out of use and run NVIDIA's field diagnostic"
            )


def _label(device: Mapping[str, Any], given: Given) -> str:
    if device["kind"] == "cpu":
        return "the CPU"
    known = (one for one in given.devices if device["uuid"] and one.is_uuid(device["uuid"]))
    return next((one.label for one in known), f"device {device['index']} ({device['name']})")


def _all_reduce_reasons(document: Mapping[str, Any], given: Given) -> Iterator[str]:
    result = document.get("all_reduce")
    if result is None or result["correct"]:
        return
    where = f"an all-reduce over {result['ranks']} {'GPUs' if given.devices else 'processes on the CPU'}"
    if result["errors"]:
        yield f"{where} failed: {'; '.join(result['errors'])}; run it again with NCCL_DEBUG=INFO in its environment"
    else:
        yield f"{where} computes a wrong sum; check NVLink, PCIe access control services and the IOMMU"


def _without_device(given: Given) -> str:
    return "no GPU of the host has a MIG device" if given.gpus else "the host has no GPU"


def _unfit(document: Mapping[str, Any], given: Given) -> list[str]:
    """Why driver, GPUs and what the framework was built with do not go together, by the tables."""
    combination = {
        "gpus": given.gpus,
        "driver": given.driver,
        "cuda": _version(document.get("cuda")),
        "cudnn": _version(document.get("cudnn")),
    }
    if not given.driver or not combination["cuda"]:
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


# For the tasks


def _asked(variables: Mapping[str, Any], facts: Mapping[str, Any]) -> tuple[Request, Host]:
    return Request.read(variables), Host.of(facts)


def _plan(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan | Ask:
    """With how the tests are run. Refuses a virtual environment that the role has not made."""
    request, host = _asked(variables, facts)
    planned = plan(request, host)
    if planned.refusals or TEST not in planned.steps:
        return planned
    new = planned.tasks["new"]
    reads: dict[str, Reading | list[Reading]] = {
        "existing": [("stat", {"path": path, "get_checksum": False}) for path in new]
    }
    # In check mode nothing is run. What the engine lacks the test in the container reports.
    if any(test.get("image") for test in request.tests) and not is_true(given["check_mode"]):
        reads["engine"] = ("community.docker.docker_host_info", {"images": True})
    asked = unread(given, reads, planned)
    if asked:
        return asked
    found = zip(new, given["existing"]["results"], strict=True)
    existing = ", ".join(path for path, one in found if (one.get("stat") or {}).get("exists"))
    advice = "use another virtualenv in gpu_workload_tests, or name its interpreter in python"
    refusals = (f"{existing} exists and was not created by this role; {advice}",) if existing else ()
    tests = runs(request, host, given.get("engine"))
    how = {
        "archives": list(dict.fromkeys(test["archive"] for test in tests if test["loads_image"])),
        "in_containers": [test for test in tests if test["image"]],
        "on_host": [test for test in tests if not test["image"]],
    }
    return replace(planned, refusals=refusals, tasks={**planned.tasks, **how})


def _before_change(variables: Mapping[str, Any], facts: Mapping[str, Any], outlook: Outlook) -> tuple[str, ...]:
    request, host = _asked(variables, facts)
    return plan(request, replace(host, smi=outlook.gpus(facts))).refusals


def _indexes(variables: Mapping[str, Any], facts: Mapping[str, Any], _given: Mapping[str, Any]) -> dict[str, Any]:
    return {"pip_configurations": pip_configurations(*_asked(variables, facts))}


def _installed(_variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan:
    """Refuses requirements that cannot be installed; `results` come from pip, which has a message where it failed.

    By name: a result has the address of the index in it.
    """
    failed = {one["item"]["name"]: str(one["msg"]) for one in given["results"] if one.get("msg")}
    return Plan(
        tuple(
            f"pip cannot install the requirements of {name}: "
            f"{'; '.join(pip_errors(output)) or 'it printed no error; run it on the host'}"
            for name, output in failed.items()
        )
    )


def _results(_variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The verdicts in the order of the variable. `loaded` are results by archive, and `runs` by test."""
    unloaded = {one["item"]: one for one in given["loaded"] if one.get("msg")}
    done = sorted(given["runs"], key=lambda one: int(one["item"]["number"]))
    smi = facts.get("nvidia_smi") or {}
    found = [
        framework_verdict(_output(run, unloaded.get(run["item"]["archive"])), run["item"], smi).as_dict()
        for run in done
    ]
    return {
        "results": found,
        **{name: [line for verdict in found for line in verdict[name]] for name in ("notes", "reasons")},
    }


def _output(run: Mapping[str, Any], unloaded: Mapping[str, Any] | None) -> str:
    """What a command or a container has printed, or why it has not run."""
    if run["item"]["image"] and (unloaded or "status" not in run):
        return pull_error({**(unloaded or run), "failed": True})
    outputs = ((run.get("container") or {}).get("Output"), run.get("stdout"), run.get("stderr"), run.get("msg"))
    return next((str(one) for one in outputs if one), "")


PLANNER = RolePlanner(
    "gpu_workload",
    {
        "plan": _plan,
        "indexes": _indexes,
        "installed": _installed,
        "results": _results,
    },
    secret=("indexes",),
    others=(TOOLKIT_MODE,),
    refuses=_before_change,
    collections=("community.docker",),
)

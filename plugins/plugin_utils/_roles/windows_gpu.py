# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Driver, CUDA toolkit and cuDNN of a Windows host. Private to this collection. Pure: no Ansible.

The variables of the role and what was read on the host in, installers to run and failures out.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...module_utils._common.plain_text import one_line
from ...module_utils._cuda.toolkits import cudnn_of_header, nvcc_version
from ...module_utils._knowledge.branches import KNOWN_BRANCHES
from ...module_utils._nvidia_smi.xml import Document, DocumentError, parse_document
from .._compatibility import CompatibilityRequest, check, read_gpus, version
from .._planning.contract import Plan, RolePlanner, is_true

DRIVER, CUDA, CUDNN = "driver", "cuda", "cudnn"
_PREFIX = "windows_gpu_"
_NAMES = {DRIVER: "driver", CUDA: "CUDA", CUDNN: "cuDNN"}
# Of the driver as nvidia-smi and the registry show it; of CUDA the series, which has a directory of its own.
_VERSIONS = {DRIVER: (r"\d{3,4}\.\d{2}", "580.88"), CUDA: (r"\d+\.\d+", "12.9"), CUDNN: (r"\d+\.\d+\.\d+", "9.12.0")}
_KEYS = ("version", "installer", "checksum")
_INSTALLER = re.compile(r"(https?://|[A-Za-z]:\\|\\\\[^\\]).+\.exe", re.IGNORECASE)
_CHECKSUM = re.compile(r"[0-9a-fA-F]{64}")
_COMPONENT = re.compile(r"[a-z]\w*")
# The first whose installer has no display driver, which would replace the one that is declared.
_FIRST_CUDA_WITHOUT_DRIVER = (13, 1)
# NVIDIA's installers return 1 where the host has to be rebooted, Windows uses 3010 for it. The installed
# version is read back in any case.
_RETURN_CODES = (0, 1, 3010)
_HARDWARE_ID = re.compile(r"VEN_10DE&DEV_([0-9A-F]{4})", re.IGNORECASE)


@dataclass(frozen=True)
class WindowsPart:
    """One of the three, as declared. `components` are of CUDA; empty: all of the installer."""

    name: str
    version: str
    installer: str
    checksum: str
    components: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """For messages, such as CUDA 12.9."""
        return f"{_NAMES[self.name]} {self.version}"

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of the installer, with which it neither asks nor reboots."""
        if self.name == CUDA:
            # The version is read back from nvcc.
            names = dict.fromkeys(("nvcc", *self.components)) if self.components else {}
            return ("-s", *(f"{name}_{self.version}" for name in names), "-n")
        return ("-s", "-noreboot") if self.name == DRIVER else ("-s",)


@dataclass(frozen=True)
class WindowsRequest:
    """What is declared of driver, CUDA and cuDNN, and whether an older version may replace a newer one."""

    parts: tuple[WindowsPart, ...] = ()
    downgrade: bool = False

    def part(self, name: str) -> WindowsPart | None:
        """The one of a name, where it is declared."""
        return next((part for part in self.parts if part.name == name), None)


@dataclass(frozen=True)
class WindowsFound:
    """What a host has. `devices` are hardware ids of GPUs; `driver` is the installed version, which may not run yet.

    `smi` is the document of nvidia-smi.exe; None where it has none, and then `smi_message` is what it prints. `cuda` is
    the version of nvcc in the directory of the declared series, `cudnn` are all versions of cuDNN.
    """

    devices: tuple[str, ...] = ()
    driver: str = ""
    smi: Document | None = None
    smi_message: str = ""
    cuda: str = ""
    cudnn: tuple[str, ...] = ()


@dataclass(frozen=True)
class Installation:
    """An installer to run. `present` is the version that it replaces; empty: none."""

    part: str
    present: str
    version: str
    path: str
    checksum: str
    arguments: tuple[str, ...]
    return_codes: tuple[int, ...] = _RETURN_CODES


@dataclass(frozen=True)
class WindowsPlan:
    """`installations` in their order; `reboot_required` where the installed driver is not the one that runs."""

    installations: tuple[Installation, ...] = ()
    reboot_required: bool = False
    refusals: tuple[str, ...] = ()


# Requests


def request_refusals(variables: Mapping[str, Any]) -> list[str]:
    """What is wrong with the variables of the three, each a dictionary that is empty where nothing is declared."""
    return [refusal for name in _NAMES for refusal in _part_refusals(name, variables[_PREFIX + name] or {})]


def read_request(variables: Mapping[str, Any]) -> WindowsRequest:
    """The request in variables without refusals."""
    declared = {name: variables[_PREFIX + name] for name in _NAMES if variables[_PREFIX + name]}
    parts = (
        WindowsPart(
            name,
            version=str(given["version"]),
            installer=str(given["installer"]),
            checksum=str(given["checksum"]),
            components=tuple(map(str, given.get("components") or ())),
        )
        for name, given in declared.items()
    )
    return WindowsRequest(tuple(parts), is_true(variables["windows_gpu_downgrade"]))


def _part_refusals(name: str, given: Mapping[str, Any]) -> Iterator[str]:
    variable = _PREFIX + name
    if not given:
        return
    missing = [key for key in _KEYS if not given.get(key)]
    if missing:
        yield f"{variable} has no {', '.join(missing)}; it takes version, installer, and its sha256 as checksum"
        return
    pattern, example = _VERSIONS[name]
    if not re.fullmatch(pattern, str(given["version"])):
        yield f"{variable}.version is {given['version']!r}; write it as in {example!r}"
    if not _INSTALLER.fullmatch(str(given["installer"])):
        yield (
            f"{variable}.installer is {given['installer']!r}; it takes the URL of an .exe, or its whole path on the "
            r"host or a share, such as C:\installers\setup.exe"
        )
    if not _CHECKSUM.fullmatch(str(given["checksum"])):
        yield f"{variable}.checksum is {given['checksum']!r}; it takes the installer's sha256, 64 hexadecimal digits"
    if name == CUDA and re.fullmatch(pattern, str(given["version"])):
        yield from _component_refusals(str(given["version"]), given.get("components") or ())


def _component_refusals(cuda: str, components: Sequence[Any]) -> Iterator[str]:
    wrong = [str(name) for name in components if not _COMPONENT.fullmatch(str(name))]
    if wrong:
        yield (
            f"windows_gpu_cuda.components has {', '.join(wrong)}; it takes names of NVIDIA's table without their "
            "version, such as cudart; the driver is declared in windows_gpu_driver"
        )
    if not components and version(cuda) < _FIRST_CUDA_WITHOUT_DRIVER:
        yield (
            f"windows_gpu_cuda.components is empty, and the installer of CUDA {cuda} has a display driver of its own; "
            "name the components, such as [nvcc, cudart, cublas, cublas_dev]"
        )


# Hosts


def read_found(read: Mapping[str, Any]) -> WindowsFound:
    """What the tasks have read: `devices`, `driver`, and the outputs `smi`, `nvcc` and `cudnn_headers`."""
    smi, message = _smi_document(str(read.get("smi") or ""))
    headers = (cudnn_of_header(str(text)) for text in read.get("cudnn_headers") or ())
    return WindowsFound(
        devices=tuple(map(str, read.get("devices") or ())),
        driver=str(read.get("driver") or "").strip(),
        smi=smi,
        smi_message=message,
        cuda=nvcc_version(str(read.get("nvcc") or "")) or "",
        cudnn=tuple(sorted({text for text in headers if text}, key=version)),
    )


def _smi_document(output: str) -> tuple[Document | None, str]:
    """The document in nvidia-smi's output, or what it printed instead.

    UTF-16 that Windows has read as a code page is the text with a NUL behind each character.
    """
    text = output.replace("\0", "")
    try:
        return parse_document(text), ""
    except DocumentError as error:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return None, lines[0][:200] if lines and error.reason == "no_document" else str(error)


# Plan


def windows_gpu_plan(request: WindowsRequest, found: WindowsFound) -> WindowsPlan:
    """The installers to run, in the order in which they depend on each other."""
    refusals = list(_refusals(request, found))
    if refusals:
        return WindowsPlan(refusals=tuple(refusals))
    installations = tuple(
        Installation(part.name, present, part.version, part.installer, part.checksum, part.arguments)
        for part in request.parts
        if not _is_present(part, present := _present(part, found), found)
    )
    driver = request.part(DRIVER)
    return WindowsPlan(
        installations,
        driver is not None and found.driver == driver.version and _running(found) != driver.version,
    )


def _present(part: WindowsPart, found: WindowsFound) -> str:
    """The version that the installer of a part replaces; empty: none."""
    if part.name == DRIVER:
        return found.driver or _running(found)
    if part.name == CUDA:
        return found.cuda
    series = version(part.version)[:2]
    return next((text for text in reversed(found.cudnn) if version(text)[:2] == series), "")


def _is_present(part: WindowsPart, present: str, found: WindowsFound) -> bool:
    if part.name == CUDA:
        return version(present)[:2] == version(part.version) if present else False
    return part.version in found.cudnn if part.name == CUDNN else present == part.version


def _running(found: WindowsFound) -> str:
    """The version of the driver that nvidia-smi talks to; empty: none does."""
    return (found.smi.driver_version or "") if found.smi else ""


def _refusals(request: WindowsRequest, found: WindowsFound) -> Iterator[str]:
    if not found.devices:
        yield "Windows lists no NVIDIA GPU on the PCI bus, with or without a driver"
        return
    for part in request.parts:
        present = _present(part, found)
        # Series of CUDA lie next to each other.
        is_older = part.name != CUDA and present and version(part.version) < version(present)
        if is_older and not _is_present(part, present, found) and not request.downgrade:
            yield (
                f"{_NAMES[part.name]} {present} is installed, and {part.version} is older; set windows_gpu_downgrade "
                "to true to install it"
            )
    yield from _incompatible(request, found)


def _incompatible(request: WindowsRequest, found: WindowsFound) -> Iterator[str]:
    """What the tables know against the combination. A driver of Windows is of the branch at or below its number."""
    cuda, cudnn, driver = request.part(CUDA), request.part(CUDNN), request.part(DRIVER)
    ids = [f"10de:{match[1]}" for text in found.devices if (match := _HARDWARE_ID.search(text))]
    combination = CompatibilityRequest(
        read_gpus(ids),
        cuda=cuda.version if cuda else None,
        cudnn=cudnn.version.rpartition(".")[0] if cudnn else None,
    )
    yield from check(combination).reasons
    if driver is None:
        yield from _cuda_beyond_driver(request, found)
        return
    branch = max((known for known in KNOWN_BRANCHES if known <= version(driver.version)[0]), default=None)
    if branch is not None:
        yield from check(replace(combination, driver=str(branch), cuda=None, cudnn=None)).reasons


def _cuda_beyond_driver(request: WindowsRequest, found: WindowsFound) -> Iterator[str]:
    """A driver runs programs of the major version of CUDA that it names, and of older ones."""
    cuda, supported = request.part(CUDA), found.smi.cuda_version if found.smi else None
    if cuda and supported and version(cuda.version)[0] > version(supported)[0]:
        yield f"driver {_running(found)} supports CUDA {supported}, and CUDA {cuda.version} needs a newer one"


# After the change


def windows_gpu_failures(request: WindowsRequest, found: WindowsFound) -> list[str]:
    """Why a host is not as declared, one sentence each; empty where all was read back."""
    driver = request.part(DRIVER)
    failures = list(_driver_failures(driver, found)) if driver else []
    if not failures:
        failures += _smi_failures(found)
        failures += _cuda_beyond_driver(request, found)
    failures += [
        f"{part.title} is not there, but {present or 'none'}; run the installer by hand to see why"
        for part in request.parts
        if part.name != DRIVER and not _is_present(part, present := _present(part, found), found)
    ]
    return failures


def _driver_failures(driver: WindowsPart, found: WindowsFound) -> Iterator[str]:
    present, running = _present(driver, found), _running(found)
    if present != driver.version:
        yield f"driver {driver.version} is not installed, but {present or 'none'}; run the installer by hand to see why"
    elif running != driver.version:
        state = f"driver {running} still runs" if running else f"nvidia-smi.exe has no GPU ({found.smi_message})"
        yield (
            f"driver {driver.version} is installed, and {state}; reboot the host, or set windows_gpu_reboot to "
            "if_required"
        )


def _smi_failures(found: WindowsFound) -> Iterator[str]:
    if found.smi is None:
        yield f"nvidia-smi.exe reports no GPU: {found.smi_message or 'it printed nothing'}"
        return
    for gpu in found.smi.gpus:
        if gpu.error:
            yield f"{gpu.label}: nvidia-smi.exe cannot read it: {gpu.error}"
    if len(found.smi.gpus) < len(found.devices):
        yield (
            f"nvidia-smi.exe reports {len(found.smi.gpus)} of the {len(found.devices)} GPUs on the PCI bus; see Device "
            "Manager for the others"
        )


# Stages


def _request(variables: Mapping[str, Any], _facts: Mapping[str, Any], _given: Mapping[str, Any]) -> Plan:
    return Plan(tuple(request_refusals(variables)))


def _plan(variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan:
    request, read = read_request(variables), _found(given)
    found = windows_gpu_plan(request, read)
    reboots = found.reboot_required and variables["windows_gpu_reboot"] == "if_required"
    return Plan(
        refusals=found.refusals,
        steps=(*(["install"] if found.installations else []), *(["reboot"] if reboots else [])),
        tasks={
            "installations": [asdict(one) for one in found.installations],
            # What is wrong where nothing more is to be installed.
            "failures": [one_line(text) for text in windows_gpu_failures(request, read)],
        },
    )


def _found(given: Mapping[str, Any]) -> WindowsFound:
    """The state of a host, from the results of observe.yml; a missing program has the result of its start."""
    headers = (one.get("content") or "" for one in given["headers"].get("results") or ())
    return read_found(
        {
            "devices": given["devices"]["output"],
            "driver": given["registry"].get("value"),
            "smi": given["smi"].get("stdout") or given["smi"].get("msg"),
            "nvcc": given["nvcc"].get("stdout"),
            "cudnn_headers": [base64.b64decode(content).decode(errors="replace") for content in headers],
        }
    )


PLANNER = RolePlanner(
    "windows_gpu",
    {"request": _request, "plan": _plan},
    collections=("ansible.windows",),
    reads=("windows_gpu_cuda", "windows_gpu_cudnn", "windows_gpu_driver", "windows_gpu_reboot_timeout"),
)

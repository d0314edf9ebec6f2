# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check GPUs, driver, CUDA, compiler and cuDNN for incompatibilities. Private to this collection.

Everything here is a pure function of its arguments and the tables. What the tables do not know is reported as unknown
and never as a reason against the combination.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..module_utils._knowledge.branches import (
    END_OF_LIFE,
    FIRST_OPEN_BRANCH,
    FIRST_OPEN_BY_DEFAULT_BRANCH,
    FORWARD_COMPATIBLE_BRANCHES,
    KNOWN_BRANCHES,
    NEW_FEATURE_BRANCHES,
)
from ..module_utils._knowledge.cuda import (
    CUDNN,
    DRIVER_OF_CUDA,
    DRIVER_OF_SERIES,
    FIRST_CUDNN_OF_CAPABILITY,
    FIRST_FORWARD_COMPATIBLE_CUDA,
    NEWEST_GCC,
    Cudnn,
)
from ..module_utils._knowledge.defects import DEFECTS
from ..module_utils._knowledge.gpus import (
    ARCHITECTURES,
    CHIPS,
    LAST_CUDA_OF_CAPABILITY,
    PRODUCT_CHIPS,
    Architecture,
    Chip,
)
from ..module_utils._knowledge.kernels import KERNEL_FAILURES, KernelFailure
from ..module_utils._knowledge.mig import MIG_MINIMUMS
from ..module_utils._nvidia_smi.cores import Cores, chip_of_id, cores_of, number_of_id

Version = tuple[int, ...]
KINDS = ("open", "proprietary")


class CompatibilityError(ValueError):
    """Invalid request; the message states what is allowed."""


@dataclass(frozen=True)
class RequestedGpu:
    """One GPU: `name` for messages, with its location if known, and its chip, None where the tables have none.

    `mig_driver` is the oldest driver with MIG on it, None where the tables do not know one. `cores` are of the product.
    """

    name: str
    chip: Chip | None
    mig_driver: str | None = None
    cores: Cores = field(default_factory=Cores)

    @property
    def architecture(self) -> Architecture | None:
        """The generation of the chip."""
        return ARCHITECTURES[self.chip.architecture] if self.chip else None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kernel modules that can drive it; both where that is not known."""
        if self.chip is None:
            return KINDS
        return ("open",) if self.chip.open_only else ARCHITECTURES[self.chip.architecture].kinds


@dataclass(frozen=True)
class CompatibilityRequest:
    """A combination; None is unspecified. Versions are strings: `driver` a branch or a version, `cuda` major.minor.

    `today` is the month as `2026-11`, for the end of life of a branch; None leaves that out.
    """

    gpus: tuple[RequestedGpu, ...] = ()
    driver: str | None = None
    kernel_modules: str | None = None
    cuda: str | None = None
    compiler: str | None = None
    cudnn: str | None = None
    forward_compatibility: bool = False
    today: str | None = None

    @property
    def branch(self) -> int | None:
        """The driver's branch."""
        return version(self.driver)[0] if self.driver else None


@dataclass
class Findings:
    """Results: `reasons` against the combination, what is `unknown`, and `notes` on limitations."""

    reasons: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    forward_package: str | None = None


# Requests


def read_request(combination: Mapping[str, Any]) -> CompatibilityRequest:
    """Parse a user's request; raises CompatibilityError for an invalid version or kind and for an unknown key."""
    allowed = ("gpus", "driver", "kernel_modules", "cuda", "compiler", "cudnn", "forward_compatibility", "today")
    wrong = [key for key in combination if key not in allowed]
    if wrong:
        raise CompatibilityError(f"{wrong[0]!r} is not a known key: use {', '.join(allowed)}")
    kind = combination.get("kernel_modules") or None
    if kind is not None and kind not in (*KINDS, "auto"):
        raise CompatibilityError(f"kernel_modules is {kind!r}: use open, proprietary or auto")
    return CompatibilityRequest(
        gpus=read_gpus(combination.get("gpus") or ()),
        driver=_read_version("driver", combination.get("driver"), r"\d{2,4}(\.\d+){0,2}"),
        kernel_modules=None if kind == "auto" else kind,
        cuda=_major_minor(_read_version("cuda", combination.get("cuda"), r"\d+\.\d+(\.\d+)*")),
        compiler=_read_compiler(combination.get("compiler")),
        cudnn=_major_minor(_read_version("cudnn", combination.get("cudnn"), r"\d+\.\d+(\.\d+)*")),
        forward_compatibility=bool(combination.get("forward_compatibility", False)),
        today=_read_month(combination.get("today")),
    )


def read_gpus(gpus: Any) -> tuple[RequestedGpu, ...]:
    """GPUs from facts of nvidia_smi_facts (`pci_gpus` or `gpus`), or from strings: device ids or product names."""
    if isinstance(gpus, (str, Mapping)) or not isinstance(gpus, Iterable):
        raise CompatibilityError(f"gpus takes a list of GPUs, but got {type(gpus).__name__}")
    return tuple(_read_gpu(gpu) for gpu in gpus)


def _read_gpu(gpu: Any) -> RequestedGpu:
    if isinstance(gpu, str):
        return RequestedGpu(gpu, chip_of_id(gpu) or chip_of_name(gpu), mig_driver_of(gpu, gpu), cores_of(gpu, gpu))
    if not isinstance(gpu, Mapping):
        raise CompatibilityError(f"a GPU is a string or a dictionary, but got {type(gpu).__name__}")
    place = gpu.get("pci_bus_id") or ""
    device, product = str(gpu.get("device_id") or gpu.get("pci_device_id") or ""), str(gpu.get("name") or "")
    chip = chip_of_id(device) or chip_of_name(product) or chip_of_name(str(gpu.get("architecture") or ""))
    name = product or (chip.name if chip else f"device {device}" if device else "a GPU")
    return RequestedGpu(
        f"{name} at {place}" if place else name, chip, mig_driver_of(device, product), cores_of(device, product)
    )


def mig_driver_of(device: str, product: str) -> str | None:
    """The oldest driver with MIG on a GPU, by its device id or its product name."""
    number = number_of_id(device)
    return next(
        (row.driver for row in MIG_MINIMUMS if number in row.device_ids or re.search(row.name, product, re.IGNORECASE)),
        None,
    )


def chip_of_name(text: str) -> Chip | None:
    """The chip of a product, or the oldest of an architecture, by name."""
    product = next((name for pattern, name in PRODUCT_CHIPS if re.search(pattern, text, re.IGNORECASE)), None)
    lower = text.lower()
    architecture = next((name for name in ARCHITECTURES if lower in (name.lower(), name.split()[0].lower())), None)
    found = (chip for chip in CHIPS if chip.name == product or (product is None and chip.architecture == architecture))
    return min(found, key=lambda chip: version(chip.compute_capability), default=None)


def _read_version(name: str, given: Any, pattern: str) -> str | None:
    if given in (None, "", "newest", "recommended"):
        return None
    text = str(given).strip()
    if not re.fullmatch(pattern, text):
        raise CompatibilityError(f"{name} is {text!r}, which is not a version: write it as in {_EXAMPLES[name]!r}")
    return text


_EXAMPLES = {"driver": "580", "cuda": "13.0", "cudnn": "9.12"}


def _read_month(given: Any) -> str | None:
    if given in (None, ""):
        return None
    text = str(given).strip()
    if not re.fullmatch(r"\d{4}-(?:0[1-9]|1[0-2])(?:-\d\d)?", text):
        raise CompatibilityError(f"today is {text!r}, which is not a date: write it as in '2026-11-22'")
    return text[:7]


def _major_minor(text: str | None) -> str | None:
    return ".".join(text.split(".")[:2]) if text else None


def _read_compiler(given: Any) -> str | None:
    if given in (None, ""):
        return None
    text = str(given).strip()
    if not re.fullmatch(r"[a-z+]+[ -]?\d+(\.\d+)*", text):
        raise CompatibilityError(f"compiler is {text!r}: write its name and version, as in 'gcc 13'")
    return text


# Versions


def version(text: str) -> Version:
    """A version as a tuple of numbers."""
    return tuple(int(part) for part in text.split("."))


def driver_is_at_least(driver: str, needed: str) -> bool:
    """Whether a driver is new enough; a bare branch stands for the newest version of that branch."""
    return version(driver)[0] >= version(needed)[0] if "." not in driver else version(driver) >= version(needed)


def driver_needed_for(cuda: str) -> str | None:
    """The oldest driver with which programs of a CUDA version run, None where that is not known."""
    own, series = DRIVER_OF_CUDA.get(cuda), DRIVER_OF_SERIES.get(version(cuda)[0])
    known = [driver for driver in (own, series) if driver]
    return min(known, key=version, default=None)


def kernel_failure(driver: str, kernel: str) -> KernelFailure | None:
    """What is known against building a driver for a kernel; None: nothing, so that it is tried.

    A bare branch stands for its newest version.
    """
    return next(
        (
            failure
            for failure in KERNEL_FAILURES
            if version(driver)[0] == failure.branch
            and kernel.startswith(failure.kernel)
            and (failure.fixed_in is None or not driver_is_at_least(driver, failure.fixed_in))
        ),
        None,
    )


def is_after(cuda: str, last: str | None) -> bool:
    """Whether a CUDA version is newer than the last one: a version, or a whole series."""
    return last is not None and version(cuda)[: len(version(last))] > version(last)


def last_cuda_of(chip: Chip) -> str | None:
    """The last CUDA version, or series, with a chip."""
    return LAST_CUDA_OF_CAPABILITY.get(chip.compute_capability, ARCHITECTURES[chip.architecture].last_cuda)


# Rules: each adds its findings about one pair of requested components


def _gpu_is_known(request: CompatibilityRequest, found: Findings) -> None:
    found.unknown += [
        f"{gpu.name} is not in the tables: its architecture and what it needs are not known"
        for gpu in request.gpus
        if gpu.chip is None
    ]


def _groups(request: CompatibilityRequest) -> list[tuple[str, Chip, Architecture]]:
    """GPUs grouped by chip: (label with the GPUs' names, chip, architecture)."""
    chips = dict.fromkeys(gpu.chip for gpu in request.gpus if gpu.chip)
    return [
        (
            f"{', '.join(dict.fromkeys(gpu.name for gpu in request.gpus if gpu.chip == chip))} ({chip.architecture})",
            chip,
            ARCHITECTURES[chip.architecture],
        )
        for chip in chips
    ]


def _gpus_together(request: CompatibilityRequest, found: Findings) -> None:
    """Check that one driver can serve all GPUs."""
    groups = _groups(request)
    oldest = min(groups, key=lambda group: group[2].last_branch or 10**6, default=None)
    newest = max(groups, key=lambda group: group[1].first_branch, default=None)
    if oldest and newest and oldest[2].last_branch and newest[1].first_branch > oldest[2].last_branch:
        found.reasons.append(
            f"no driver serves all GPUs: {newest[0]} needs branch {newest[1].first_branch} or newer, "
            f"{oldest[0]} branch {oldest[2].last_branch} or older"
        )
    needs = {kind: [gpu.name for gpu in request.gpus if gpu.kinds == (kind,)] for kind in KINDS}
    if all(needs.values()):
        architectures = {gpu.name: gpu.chip.architecture for gpu in request.gpus if gpu.chip}
        named = {kind: ", ".join(f"{name} ({architectures[name]})" for name in names) for kind, names in needs.items()}
        found.reasons.append(
            f"no kernel modules drive all GPUs: {named['open']} needs the open ones, "
            f"{named['proprietary']} the proprietary ones"
        )


def _driver_for_gpus(request: CompatibilityRequest, found: Findings) -> None:
    if request.driver is None or request.branch is None:
        return
    for names, chip, architecture in _groups(request):
        last = architecture.last_branch
        if last is not None and request.branch > last:
            found.reasons.append(
                f"driver {request.driver} has no support for {names}: the last branch with it is {last}"
            )
        elif request.branch < chip.first_branch:
            found.reasons.append(
                f"driver {request.driver} does not know {names}: the first branch with it is {chip.first_branch}"
            )
        elif last is None and request.branch > max(KNOWN_BRANCHES):
            found.unknown.append(
                f"driver {request.driver} is newer than the tables: its support for {names} is not known"
            )


def _end_of_life(request: CompatibilityRequest, found: Findings) -> None:
    """Note a branch without updates, or with less than half a year of them; never a reason against it."""
    if request.today is None or request.branch is None:
        return
    branch = request.branch
    end, phase = branch_end_of_life(branch, request.today)
    if end is not None and phase != "supported":
        state = "reached its" if phase == "ended" else "reaches its"
        note = f"driver branch {branch} {state} end of life in {_month_name(end)}"
    elif branch in NEW_FEATURE_BRANCHES and branch < max(KNOWN_BRANCHES):
        note = f"driver branch {branch} is a new feature branch, short-lived, and newer ones have followed"
    else:
        return
    chips = [(chip, architecture) for _names, chip, architecture in _groups(request)]
    possible = [
        (last, other)
        for other, last in END_OF_LIFE.items()
        if all(chip.first_branch <= other <= (architecture.last_branch or other) for chip, architecture in chips)
    ]
    last, longest = max(possible, default=("", 0))
    is_longer = last > max(end or "", request.today)
    found.notes.append(f"{note}; branch {longest} gets updates until {_month_name(last)}" if is_longer else note)


def branch_end_of_life(branch: int, today: str) -> tuple[str | None, str]:
    """The last month with updates for a driver branch, as `2026-06`, None where that is not known, and what follows.

    That is `ended`, `ending` (within half a year), `supported` or `unknown`. `today` is a month or a date.
    """
    end, month = END_OF_LIFE.get(branch), today[:7]
    if end is None:
        return None, "unknown"
    if end < month:
        return end, "ended"
    return end, "ending" if _months(end) - _months(month) < 6 else "supported"


def _months(text: str) -> int:
    year, month = version(text.replace("-", "."))
    return 12 * year + month


def _month_name(text: str) -> str:
    return f"{calendar.month_name[int(text[5:])]} {text[:4]}"


def _mig_of_gpus(request: CompatibilityRequest, found: Findings) -> None:
    """Note GPUs whose MIG needs a newer driver, which otherwise works."""
    if request.driver is None:
        return
    short = dict.fromkeys(gpu.mig_driver for gpu in request.gpus if gpu.mig_driver)
    for needed in short:
        if not driver_is_at_least(request.driver, needed):
            names = ", ".join(dict.fromkeys(gpu.name for gpu in request.gpus if gpu.mig_driver == needed))
            found.notes.append(f"MIG of {names} needs driver {needed} or newer, not {request.driver}")


def _defects(request: CompatibilityRequest, found: Findings) -> None:
    """Note known defects of the driver on these GPUs."""
    for defect in DEFECTS:
        names = dict.fromkeys(gpu.name for gpu in request.gpus if gpu.chip and gpu.chip.name in defect.chips)
        if names and request.driver in defect.versions:
            found.notes.append(
                f"driver {request.driver} on {', '.join(names)}: {defect.what} (see {defect.source.url})"
            )


def _kernel_modules(request: CompatibilityRequest, found: Findings) -> None:
    kind = request.kernel_modules
    if kind is not None:
        for names, chip, _architecture in _groups(request):
            kinds = RequestedGpu(names, chip).kinds
            if kind not in kinds:
                found.reasons.append(f"the {kind} kernel modules cannot drive {names}: it needs the {kinds[0]} ones")
    open_needed = [gpu.name for gpu in request.gpus if gpu.kinds == ("open",)]
    if request.branch is not None and request.branch < FIRST_OPEN_BRANCH and (kind == "open" or open_needed):
        found.reasons.append(
            f"driver {request.driver} has no open kernel modules, which begin with branch {FIRST_OPEN_BRANCH}"
            + (f" and which {', '.join(open_needed)} needs" if open_needed else "")
        )


def _cuda_for_gpus(request: CompatibilityRequest, found: Findings) -> None:
    if request.cuda is None:
        return
    for names, chip, _architecture in _groups(request):
        last = last_cuda_of(chip)
        if is_after(request.cuda, last):
            found.reasons.append(f"CUDA {request.cuda} has no support for {names}: the last with it is {_series(last)}")
        elif version(request.cuda) < version(chip.first_cuda):
            found.reasons.append(f"CUDA {request.cuda} does not know {names}: the first with it is {chip.first_cuda}")
        elif last is None and version(request.cuda) > version(_newest(DRIVER_OF_CUDA)):
            found.unknown.append(f"CUDA {request.cuda} is newer than the tables: its support for {names} is not known")


def _series(last: str | None) -> str:
    return f"{last}.x" if last and "." not in last else str(last)


def _driver_for_cuda(request: CompatibilityRequest, found: Findings) -> None:
    cuda, driver = request.cuda, request.driver
    if cuda is None or driver is None or request.branch is None:
        return
    needed = driver_needed_for(cuda)
    if needed is None:
        found.unknown.append(f"which driver CUDA {cuda} needs is not in the tables")
        return
    own = DRIVER_OF_CUDA.get(cuda)
    if own is None:
        found.unknown.append(f"CUDA {cuda} is not in the tables: only the driver of its series, {needed}, is known")
    if driver_is_at_least(driver, needed):
        if own is not None and not driver_is_at_least(driver, own):
            found.notes.append(
                f"CUDA {cuda} on driver {driver} is minor version compatibility: what needs driver {own}, such as "
                "compiling PTX at run time, does not work"
            )
        return
    against = _against_forward_compatibility(request, found)
    if request.forward_compatibility and against is None:
        found.forward_package = f"cuda-compat-{cuda.replace('.', '-')}"
        found.notes.append(f"CUDA {cuda} on driver {driver} needs the package {found.forward_package}")
        return
    reason = f"CUDA {cuda} needs driver {needed} or newer, not {driver}"
    if request.forward_compatibility:
        reason += f"; forward compatibility cannot help: {against}"
    elif against is None:
        reason += f"; on data center GPUs the package cuda-compat-{cuda.replace('.', '-')} can stand in for it"
    found.reasons.append(reason)


def _against_forward_compatibility(request: CompatibilityRequest, found: Findings) -> str | None:
    """Why a cuda-compat package cannot stand in for a newer driver, None where it can."""
    cuda = request.cuda or ""
    if version(cuda) < version(FIRST_FORWARD_COMPATIBLE_CUDA):
        return f"there is no supported package cuda-compat-{cuda.replace('.', '-')}"
    if request.branch not in FORWARD_COMPATIBLE_BRANCHES:
        branches = ", ".join(map(str, FORWARD_COMPATIBLE_BRANCHES))
        return f"branch {request.branch} is not one of those it works on ({branches})"
    for gpu in request.gpus:
        data_center = is_data_center(gpu)
        if data_center is False:
            return f"{gpu.name} is not a data center GPU"
        if data_center is None and request.forward_compatibility:
            found.unknown.append(f"forward compatibility needs data center GPUs, and {gpu.name} may not be one")
    return None


def is_data_center(gpu: RequestedGpu) -> bool | None:
    """Whether it is a data center GPU, by its product name or its chip; None where neither determines it."""
    if re.search(r"GeForce|TITAN|\bGT[XS]?\b|Quadro|CMP", gpu.name, re.IGNORECASE):
        return False
    if re.search(r"\b(?:Tesla|[TPVMLA]\d{1,3}[GMSX]?|[HB][12]00|G?[HB]\d00)\b", gpu.name):
        return True
    return gpu.chip.data_center if gpu.chip else None


def _compiler_for_cuda(request: CompatibilityRequest, found: Findings) -> None:
    if request.compiler is None or request.cuda is None:
        return
    newest = NEWEST_GCC.get(request.cuda)
    name, number = re.split(r"[ -]|(?<=[a-z+])(?=\d)", request.compiler, maxsplit=1)
    if name not in ("gcc", "g++") or newest is None:
        found.unknown.append(f"whether CUDA {request.cuda} works with {request.compiler} is not in the tables")
    elif version(number)[0] > newest:
        found.reasons.append(f"CUDA {request.cuda} cannot use {request.compiler}: the newest it takes is gcc {newest}")


def _cudnn(request: CompatibilityRequest, found: Findings) -> None:
    if request.cudnn is None:
        return
    row = cudnn_row(request.cudnn)
    if row is None:
        found.unknown.append(f"cuDNN {request.cudnn} is not in the tables")
        return
    if request.cuda is not None and not any(_is_of_series(request.cuda, cuda) for cuda in row.cuda):
        found.reasons.append(
            f"cuDNN {request.cudnn} is not made for CUDA {request.cuda}, but for {', '.join(map(_series, row.cuda))}"
        )
    for names, chip, _architecture in _groups(request):
        first = first_cudnn_of(chip)
        if version(chip.compute_capability) < version(row.oldest_capability):
            found.reasons.append(
                f"cuDNN {request.cudnn} has no support for {names}: it needs compute capability "
                f"{row.oldest_capability} or newer"
            )
        elif first is not None and version(request.cudnn) < version(first):
            found.reasons.append(f"cuDNN {request.cudnn} does not know {names}: the first with it is {first}")


def cudnn_row(cudnn: str) -> Cudnn | None:
    """The line of the table for a cuDNN version."""
    return next((row for row in CUDNN if version(row.first) <= version(cudnn) <= version(row.last)), None)


def first_cudnn_of(chip: Chip) -> str | None:
    """The first cuDNN with a chip, None for chips that are older than the table."""
    known = [key for key in FIRST_CUDNN_OF_CAPABILITY if version(key) <= version(chip.compute_capability)]
    return FIRST_CUDNN_OF_CAPABILITY[max(known, key=version)] if known else None


def _is_of_series(cuda: str, series: str) -> bool:
    return version(cuda)[: len(version(series))] == version(series)


def _newest(versions: Iterable[str]) -> str:
    return max(versions, key=version)


RULES: Sequence[Callable[[CompatibilityRequest, Findings], None]] = (
    _gpu_is_known,
    _gpus_together,
    _driver_for_gpus,
    _end_of_life,
    _mig_of_gpus,
    _defects,
    _kernel_modules,
    _cuda_for_gpus,
    _driver_for_cuda,
    _compiler_for_cuda,
    _cudnn,
)


# Results


def check(request: CompatibilityRequest) -> Findings:
    """Everything that is known about a combination."""
    found = Findings()
    for rule in RULES:
        rule(request, found)
    return found


def fits(request: CompatibilityRequest) -> dict[str, list[str]]:
    """For each component, the values of the tables that are compatible with the rest of the request."""
    candidates: dict[str, Iterable[Any]] = {
        "driver": map(str, sorted(KNOWN_BRANCHES)),
        "kernel_modules": KINDS,
        "cuda": DRIVER_OF_CUDA,
        "compiler": (f"gcc {number}" for number in sorted(set(NEWEST_GCC.values()))),
        "cudnn": cudnn_versions(),
    }
    return {
        name: [value for value in values if not check(replace(request, **{name: value})).reasons]
        for name, values in candidates.items()
    }


def cudnn_versions() -> list[str]:
    """Every cuDNN version of the tables."""
    found = []
    for row in CUDNN:
        (major, first), (_major, last) = version(row.first), version(row.last)
        found += [f"{major}.{minor}" for minor in range(first, last + 1)]
    return found


def choose_kernel_modules(gpus: Sequence[RequestedGpu], branch: int | None, desired: str) -> tuple[str, str]:
    """The kind of kernel modules for GPUs and why; `desired` is auto, open or proprietary, `branch` None for newest.

    Where nothing forces a kind, it is the one that NVIDIA's own installer chooses: open since branch 560.
    """
    if desired != "auto":
        return desired, "as requested"
    for kind in ("proprietary", "open"):
        names = [gpu.name for gpu in gpus if gpu.kinds == (kind,)]
        if names:
            return kind, f"{', '.join(names)} needs them"
    if branch is not None and branch < FIRST_OPEN_BY_DEFAULT_BRANCH:
        return "proprietary", f"the default before branch {FIRST_OPEN_BY_DEFAULT_BRANCH}"
    return "open", f"the default since branch {FIRST_OPEN_BY_DEFAULT_BRANCH}"

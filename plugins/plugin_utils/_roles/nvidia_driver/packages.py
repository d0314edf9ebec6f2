# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of an NVIDIA driver by its origin and branch, from a table. Private to this collection.

Pure: no Ansible, no file access. The table is vars/packages.yml of the role nvidia_driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .offers import upstream

PARTS = ("fabric_manager", "gdrcopy", "imex", "nvlink5", "persistence_daemon", "storage")
"""Companions of a driver."""
GPUDIRECT_PARTS = ("gdrcopy", "storage")
"""Those with modules of their own, which are built from the sources of the driver's."""

NEWEST = 10**6
"""A number above all branches, for the newest."""
_VERSION = re.compile(r"\d+(\.\d+)*")
_PLACE = re.compile(r"<(\w+)>")
# The distribution's part of a release, the architecture, the variant: 5.14.0-427.13.1.el9_4.aarch64+64k.
_END_OF_RELEASE = re.compile(r"(?:\.el\d.*|\+.*)$")


class DriverRequestError(Exception):
    """No package fits the request; the message is for the user."""


@dataclass(frozen=True)
class DriverRequest:
    """The requested driver. `version` is `newest`, a branch or an exact version; `parts` are of PARTS.

    `distribution` distinguishes hosts of one `system`, such as AlmaLinux of RedHat. Precompiled modules are for
    `kernel`, and for later kernels of `flavours`, as Ubuntu names its kernel packages.
    """

    origin: str
    system: str
    architecture: str
    version: str
    kind: str
    module_build: str
    headless: bool = True
    server: bool = True
    kernel: str = ""
    parts: tuple[str, ...] = ()
    flavours: tuple[str, ...] = ()
    distribution: str = ""

    @property
    def branch(self) -> int:
        """The branch; for the newest version, a number above all branches."""
        return int(self.version.split(".")[0]) if _VERSION.fullmatch(self.version) else NEWEST


@dataclass(frozen=True)
class Packages:
    """`driver` packages have the driver's version, `others` their own; `pinning` is installed before both.

    `stream` is the stream of dnf's module nvidia-driver, None where there is none. A branch not known yet is `*`.
    """

    probe: str
    driver: tuple[str, ...]
    others: tuple[str, ...]
    pinning: tuple[str, ...]
    stream: str | None = field(default=None)

    def as_dict(self) -> dict[str, Any]:
        """The dict that templates get."""
        lists = {name: list(getattr(self, name)) for name in ("driver", "others", "pinning")}
        return {"probe": self.probe, **lists, "stream": self.stream}


def packages_for(request: DriverRequest, table: Sequence[Mapping[str, Any]]) -> Packages:
    """The packages of `request` from the rows of `table` that fit it; raises DriverRequestError when there are none."""
    rows = [row for row in table if _fits(row, request)]
    desired = [
        "compute" if request.headless else "desktop",
        f"{request.module_build}_{request.kind}",
        *request.parts,
    ]
    names: list[str] = []
    for part in desired:
        found = [name for row in rows for name in row.get(part, ())]
        if not found:
            raise DriverRequestError(_nothing(part, request, table))
        names += _filled(found, request)
    own = set(_filled((name for row in rows for name in row.get("any_version", ())), request))
    # The vendor's pin is per branch, and the newest has no branch before its version is known.
    pinning = (name for row in rows for name in row.get("pinning", ())) if request.branch != NEWEST else ()
    return Packages(
        probe=next(iter(_filled((row["probe"] for row in rows if "probe" in row), request))),
        driver=tuple(dict.fromkeys(name for name in names if name not in own)),
        others=tuple(dict.fromkeys(name for name in names if name in own)),
        pinning=tuple(_filled(pinning, request)),
        stream=_stream(rows, request),
    )


def _fits(row: Mapping[str, Any], request: DriverRequest) -> bool:
    return (
        request.origin in row["origins"]
        and _is_of(row, request)
        and row.get("from", 0) <= request.branch < row.get("before", NEWEST + 1)
    )


def _is_of(row: Mapping[str, Any], request: DriverRequest) -> bool:
    """Whether a row is for the system, the distribution and the architecture of a request."""
    return (
        request.system in row.get("systems", (request.system,))
        and request.distribution in row.get("distributions", (request.distribution,))
        and request.architecture in row.get("architectures", (request.architecture,))
    )


def _filled(names: Iterator[str] | Sequence[str], request: DriverRequest) -> Iterator[str]:
    values = {
        "branch": "*" if request.branch == NEWEST else str(request.branch),
        "open": "-open" if request.kind == "open" else "",
        "server": "-server" if request.server else "",
        "version": request.version if "." in request.version else "*",
        "kernel": request.kernel,
        "kernel_release": release_of(request.kernel),
        "variant": _variant_of(request.kernel),
    }
    for name in names:
        for flavour in request.flavours if "<flavour>" in name else [""]:
            yield _PLACE.sub(lambda place: values[place[1]], name.replace("<flavour>", flavour))


def release_of(kernel: str) -> str:
    """A kernel of Enterprise Linux as NVIDIA's precompiled modules name it: 5.14.0-427.13.1 of ...el9_4.x86_64."""
    return _END_OF_RELEASE.sub("", kernel)


def _variant_of(kernel: str) -> str:
    """`-64k` of 6.12.0-211.51.1.el10_2.aarch64+64k, whose modules no other kernel loads."""
    _release, plus, variant = kernel.partition("+")
    return f"-{variant}" if plus else ""


def _stream(rows: Sequence[Mapping[str, Any]], request: DriverRequest) -> str | None:
    key = "newest_stream" if request.branch == NEWEST else "stream"
    for row in rows:
        stream = row.get(key, {}).get(request.module_build, {}).get(request.kind)
        if stream:
            return next(_filled([stream], request))
    return None


_BUILD = re.compile("(dkms|precompiled)_")
_CALLED = {"compute": "packages without a desktop", "desktop": "packages for a desktop"}


def _nothing(part: str, request: DriverRequest, table: Sequence[Mapping[str, Any]]) -> str:
    """Why no row of the table has this part for the request."""
    version = "the newest version" if request.branch == NEWEST else f"branch {request.branch}"
    what = _CALLED.get(part, part.replace("_", " "))
    same = [row for row in table if request.origin in row["origins"]]
    # Of a system of which not all distributions have a driver, their names.
    systems = sorted({name for row in same for name in row.get("distributions", row.get("systems", ()))})
    if not any(_is_of({**row, "architectures": (request.architecture,)}, request) for row in same):
        named = request.distribution or request.system
        return f"{request.origin} has no driver for {named}, only for {', '.join(systems)}"
    branches = sorted(
        {row.get("from", 0) for row in same if part in row and request.system in row.get("systems", (request.system,))}
    )
    if branches and branches[0] > request.branch:
        return f"{request.origin} has {what} from branch {branches[0]} on, not for {version}"
    last = max((row.get("before", NEWEST) for row in same if part in row and _is_of(row, request)), default=NEWEST)
    if part.startswith(f"{request.module_build}_") and last <= request.branch and last != NEWEST:
        return f"{request.origin} has {request.kind} kernel modules before branch {last} only, not for {version}"
    what = what if part in _CALLED else f"{what} packages"
    others = sorted({key.replace("_", " ") for row in same if _is_of(row, request) for key in row if _BUILD.match(key)})
    instead = f", but {' and '.join(others)} ones" if _BUILD.match(part) and others else ""
    return f"{request.origin} has no {what} for {request.distribution or request.system} and {version}{instead}"


# Source packages of drivers: Ubuntu's and Debian's, with the names of their branches.
_DRIVER_SOURCES = re.compile(
    r"nvidia-(?:graphics-drivers|open-gpu-kernel-modules|settings|persistenced|modprobe|xconfig|support|imex)(?:-.*)?"
    r"|linux-restricted-(?:modules|signatures)(?:-.*)?|fabric-manager(?:-.*)?|libnvidia-nscq(?:-(?!dev).*)?"
)
# Source packages with names that look like packages of a driver: CUDA, containers, GPUDirect Storage, kernels.
# A package without a field Source, such as cuda-drivers, has its own name there.
_OTHER_SOURCES = re.compile(
    r"nvidia-(?:cuda-toolkit|container-toolkit|fs|cudnn|texture-tools)(?:-.*)?|libnvidia-container(?:-.*)?|gdrcopy"
    r"|linux(?:-(?!modules-|objects-|signatures-).*)?"
)
# For packages of other sources, such as NVIDIA's, and of rpm.
_NAMES = re.compile(
    r"cuda-drivers(-.*)?"
    r"|nvidia-(driver(?!-local-repo)|dkms|kernel|open|headless|utils|compute-utils|smi|persistenced|modprobe|settings"
    r"|fabricmanager|fabric-manager|imex|legacy|alternative|installer-cleanup|prime|firmware|support|xconfig"
    r"|driver-pinning|kmod|vdpau|egl|vulkan|opencl(?!-dev$)|suspend|libs|libopencl|powerd)(-.*)?"
    r"|libnvidia-(?!container|nscq-dev|ml-dev$).*|libcuda1|libnvcuvid1|libnvoptix1|libnvsdm(-.*)?"
    r"|linux-(modules|objects|signatures)-nvidia-(?!fs-).*|(kmod|akmod|dkms)-nvidia(-.*)?"
    r"|xserver-xorg-video-nvidia(-.*)?|xorg-x11-(drv-)?nvidia(-.*)?|firmware-nvidia-(gsp|graphics)|nvlsm"
    r"|glx-alternative-(nvidia|mesa)|glx-diversions|update-glx"
)
# Of a driver's sources, but needed without one: CUDA's forward compatibility, and a library that hwloc links to.
_NEEDED_WITHOUT = re.compile(r"cuda-compat(-.*)?|libxnvctrl(0|-dev)")
# Companions and tools, which also come as packages where the driver is of a runfile or an image.
_WITH_ANY_DRIVER = re.compile(
    r"nvidia-(settings|xconfig|modprobe|persistenced|prime|fabricmanager|fabric-manager|imex|detect"
    r"|driver-pinning|installer-cleanup)(-.*)?|libnvidia-nscq(-.*)?|libnvsdm(-.*)?|nvlsm"
)
# Ubuntu's precompiled modules have the version of their kernel.
_MODULES_OF_A_KERNEL = re.compile(r"linux-(?:modules|objects|signatures)-nvidia-(\d+)-.*")


def family(installed: Iterable[str], sources: Mapping[str, str]) -> list[str]:
    """The packages of `installed` that belong to a driver, of any origin and branch, sorted.

    Another architecture than the host's is part of a name. `sources` has the source package by name without it. It
    decides where it is known to be of a driver or not, else the name does.
    """
    names = ((name, name.partition(":")[0]) for name in installed)
    return sorted(name for name, base in names if is_of_driver(base, sources.get(base, "")))


def owners(installed: Mapping[str, str], sources: Mapping[str, str], version: str) -> list[str]:
    """The packages of the family that have the driver of this exact version itself: its libraries, programs or modules.

    None where the driver came without packages. `installed` has the versions of the packages by name.
    """
    branch = version.partition(".")[0]
    found = []
    for name in family(installed, sources):
        modules = _MODULES_OF_A_KERNEL.fullmatch(name)
        is_same = modules[1] == branch if modules else upstream(installed[name]) == version
        if version and is_same and not _WITH_ANY_DRIVER.fullmatch(name):
            found.append(name)
    return found


def is_of_driver(name: str, source: str) -> bool:
    """Whether a package is of the family; `source` is its source package, empty where that is not known."""
    if _NEEDED_WITHOUT.fullmatch(name):
        return False
    if _DRIVER_SOURCES.fullmatch(source):
        return True
    return not _OTHER_SOURCES.fullmatch(source) and bool(_NAMES.fullmatch(name))

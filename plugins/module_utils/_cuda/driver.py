# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The loaded NVIDIA driver and the one installed on disk. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .._common.host_files import HostFiles

_VERSION = re.compile(r"\d{3,}\.\d+(?:\.\d+)?")
_LIBRARY = re.compile(r"lib(?:nvidia-ml|cuda)\.so\.(\d{3,}\.\d+(?:\.\d+)?)")

LIBRARY_DIRECTORIES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/run/opengl-driver/lib",
)
"""Directories where distributions, NVIDIA's packages and its runfile install the driver's libraries."""

# The highest CUDA version of each branch: https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/ table "CUDA Toolkit
# and Corresponding Driver Versions". Since branch 410 nvidia-smi reports it; its output takes precedence.
_CUDA_BY_BRANCH = {
    340: "6.5",
    346: "7.0",
    352: "7.5",
    361: "8.0",
    367: "8.0",
    375: "8.0",
    384: "9.0",
    387: "9.1",
    390: "9.1",
    396: "9.2",
    410: "10.0",
    418: "10.1",
    430: "10.2",
    440: "10.2",
    450: "11.0",
    455: "11.1",
    460: "11.2",
    465: "11.3",
    470: "11.4",
    495: "11.5",
    510: "11.6",
    515: "11.7",
    520: "11.8",
    525: "12.0",
    530: "12.1",
    535: "12.2",
    545: "12.3",
    550: "12.4",
    555: "12.5",
    560: "12.6",
    565: "12.7",
    570: "12.8",
    575: "12.9",
    580: "13.0",
    590: "13.1",
    595: "13.2",
    610: "13.3",
    615: "13.4",
    620: "13.5",
}


@dataclass(frozen=True)
class Driver:
    """The driver: `loaded_*` in the kernel, `module_*` and `library_version` on disk (module for the running kernel).

    Kinds are `open` and `proprietary`. None: not installed, or unknown.
    """

    loaded: bool
    loaded_version: str | None
    loaded_kind: str | None
    module_version: str | None
    module_kind: str | None
    module_path: str | None
    library_version: str | None
    library_path: str | None
    cuda_version: str | None
    cuda_version_origin: str | None
    nouveau_loaded: bool
    reboot_required: bool

    @property
    def version(self) -> str | None:
        """The version that companion packages have to match: the loaded one, else the one on disk."""
        return self.loaded_version or self.module_version or self.library_version


def read_driver(files: HostFiles, modinfo: str, smi_version: str) -> Driver:
    """Combine files and the output of `modinfo nvidia` and `nvidia-smi --version`."""
    loaded_version, loaded_kind = loaded_driver(files)
    module = parse_modinfo(modinfo)
    library_path = _library(files)
    library = _LIBRARY.search(library_path or "")
    library_version = library[1] if library else None
    module_version = module.get("version")
    module_kind = _kind_of_license(module.get("license"))
    on_disk = [version for version in (module_version, library_version) if version is not None]
    # The same version exists as open and as proprietary modules.
    other_kind = None not in (loaded_kind, module_kind) and loaded_kind != module_kind
    cuda_version, origin = parse_cuda_version(smi_version), "nvidia_smi"
    if cuda_version is None:
        cuda_version, origin = cuda_of_branch(loaded_version or library_version or module_version), "driver_branch"
    return Driver(
        loaded=loaded_version is not None,
        loaded_version=loaded_version,
        loaded_kind=loaded_kind,
        module_version=module_version,
        module_kind=module_kind,
        module_path=module.get("filename"),
        library_version=library_version,
        library_path=library_path,
        cuda_version=cuda_version,
        cuda_version_origin=origin if cuda_version else None,
        nouveau_loaded=files.exists("/sys/module/nouveau"),
        reboot_required=loaded_version is not None
        and (other_kind or any(version != loaded_version for version in on_disk)),
    )


def loaded_driver(files: HostFiles) -> tuple[str | None, str | None]:
    """Version and kind of the loaded module."""
    text = files.read("/proc/driver/nvidia/version") or ""
    line = next((line for line in text.splitlines() if line.startswith("NVRM version")), "")
    version = _VERSION.search(line) or _VERSION.search(files.read("/sys/module/nvidia/version") or "")
    kind = None
    if line:
        kind = "open" if "Open Kernel Module" in line else "proprietary"
    return (version[0] if version else None), kind


def parse_modinfo(text: str) -> dict[str, str]:
    """The fields of `modinfo nvidia`; the first of each name is used."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, separator, value = line.partition(":")
        if separator:
            fields.setdefault(name.strip(), value.strip())
    return fields


def _kind_of_license(license_text: str | None) -> str | None:
    if license_text is None:
        return None
    return "proprietary" if license_text == "NVIDIA" else "open"


def _library(files: HostFiles) -> str | None:
    """Version of the driver library that programs load: the target of libnvidia-ml.so.1, else of libcuda.so.1."""
    for name in ("libnvidia-ml.so.1", "libcuda.so.1"):
        for directory in LIBRARY_DIRECTORIES:
            path = f"{directory}/{name}"
            if files.exists(path):
                found = files.resolve(path)
                if _LIBRARY.search(found):
                    return found
    return None


def parse_cuda_version(text: str) -> str | None:
    """The highest CUDA version in `nvidia-smi --version`: `CUDA Version`, since driver 610 `CUDA UMD version`."""
    found = re.findall(r"^CUDA (?:UMD )?version\s*:\s*(\d+\.\d+)\s*$", text, re.MULTILINE | re.IGNORECASE)
    return found[-1] if found else None


def cuda_of_branch(version: str | None) -> str | None:
    """The highest CUDA version that a driver's branch supports; None for a branch newer than the table."""
    branch = int(version.split(".")[0]) if version else 0
    known = [number for number in _CUDA_BY_BRANCH if number <= branch]
    return _CUDA_BY_BRANCH[max(known)] if known and branch < max(_CUDA_BY_BRANCH) + 5 else None

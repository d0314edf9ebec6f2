# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CUDA toolkits and the libraries cuDNN, NCCL and TensorRT. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, Mapping, Sequence

from .._common.host_files import HostFiles
from .._common.json_text import parse_json

TOOLKIT_PATTERNS = (
    "/usr/local/cuda*",
    "/opt/cuda*",
    "/usr/lib/cuda",
    "/usr/lib/nvidia-cuda-toolkit",
    "/opt/nvidia/hpc_sdk/*/*/cuda/*",
)
"""Directories where NVIDIA's packages and runfile, distributions and the HPC SDK install toolkits."""

_DEFAULT_LINK = "/usr/local/cuda"
_ALTERNATIVES = "/etc/alternatives/cuda*"
_NVCC_VERSION = re.compile(r"\bV(\d+\.\d+\.\d+)")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\w+)", re.MULTILINE)
_CUDNN_MACROS = ("CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL")
_TEXT_VERSION = re.compile(r"CUDA Version (\d+\.\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Toolkit:
    """A toolkit: `origin` is the source of its version, `default` whether /usr/local/cuda points to it."""

    version: str
    path: str
    origin: str
    default: bool


@dataclass(frozen=True)
class Library:
    """An installed library: `origin` is `package` or `archive`, `package` the package that owns `path`."""

    name: str
    version: str
    path: str
    origin: str
    package: str | None


@dataclass(frozen=True)
class _Kind:
    """How to recognise a library."""

    name: str
    library: re.Pattern[str]
    header: str
    macros: tuple[str, ...]
    packages: tuple[str, ...]


_KINDS = (
    _Kind(
        "cudnn",
        re.compile(r"libcudnn\.so\.(\d+\.\d+\.\d+)"),
        "cudnn_version.h",
        _CUDNN_MACROS,
        ("libcudnn*", "cudnn*", "nvidia-cudnn*"),
    ),
    _Kind(
        "nccl",
        re.compile(r"libnccl\.so\.(\d+\.\d+\.\d+)"),
        "nccl.h",
        ("NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH"),
        ("libnccl*",),
    ),
    _Kind(
        "tensorrt",
        re.compile(r"libnvinfer\.so\.(\d+\.\d+\.\d+(?:\.\d+)?)"),
        "NvInferVersion.h",
        ("NV_TENSORRT_MAJOR", "NV_TENSORRT_MINOR", "NV_TENSORRT_PATCH"),
        ("libnvinfer*", "tensorrt*"),
    ),
)
_INCLUDES = ("/usr/include", "/usr/include/x86_64-linux-gnu", "/usr/include/aarch64-linux-gnu", "/usr/local/include")
_ARCHIVES = ("/usr/local/cudnn-*", "/usr/local/nccl-*", "/usr/local/tensorrt-*", "/usr/local/TensorRT-*")
"""Directories of unpacked archives, as created by the role cudnn and by NVIDIA's instructions."""

_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
)


def toolkit_directories(files: HostFiles, additional: Sequence[str] = ()) -> tuple[str, ...]:
    """Directories that may hold a toolkit, with links resolved and without duplicates."""
    found = [path for pattern in (*TOOLKIT_PATTERNS, *additional) for path in files.matching(pattern)]
    directories = dict.fromkeys(files.resolve(path) for path in found)
    return tuple(path for path in directories if files.is_directory(path))


def version_in_files(files: HostFiles, directory: str) -> tuple[str, str] | None:
    """(version, file that states it) of the toolkit in `directory`: version.json since CUDA 11.1, else version.txt."""
    try:
        components = parse_json(files.read(f"{directory}/version.json") or "")
        version = components["cuda"]["version"]
        if isinstance(version, str) and version:
            return version, "version.json"
    except (ValueError, KeyError, TypeError):
        pass
    match = _TEXT_VERSION.search(files.read(f"{directory}/version.txt") or "")
    return (match[1], "version.txt") if match else None


def nvcc_of(files: HostFiles, directory: str) -> str | None:
    """Path of a toolkit's compiler, including the root."""
    path = f"{directory}/bin/nvcc"
    return files.real(files.resolve(path)) if files.exists(path) else None


def nvcc_version(output: str) -> str | None:
    """The version in the output of `nvcc --version`."""
    match = _NVCC_VERSION.search(output)
    return match[1] if match else None


def toolkits(files: HostFiles, directories: Iterable[str], nvcc_outputs: Mapping[str, str]) -> tuple[Toolkit, ...]:
    """The toolkits in `directories`; `nvcc_outputs` has `nvcc --version` of those without a version file."""
    default = files.resolve(_DEFAULT_LINK)
    found = []
    for directory in directories:
        message = version_in_files(files, directory)
        if message is None:
            version = nvcc_version(nvcc_outputs.get(directory, ""))
            message = (version, "nvcc") if version else None
        if message is not None:
            found.append(Toolkit(message[0], directory, message[1], directory == default))
    return tuple(sorted(found, key=lambda toolkit: (version_key(toolkit.version), toolkit.path)))


def alternatives(files: HostFiles) -> dict[str, str]:
    """The target of each CUDA alternative, by name: `cuda`, `cuda-12`, ..."""
    return {path.rpartition("/")[2]: files.resolve(path) for path in files.matching(_ALTERNATIVES)}


def libraries(files: HostFiles, toolkit_paths: Sequence[str]) -> tuple[Library, ...]:
    """cuDNN, NCCL and TensorRT, found by their shared libraries, or by their headers where only those exist."""
    archives = [path for pattern in _ARCHIVES for path in files.matching(pattern)]
    parts = ("", "/targets/x86_64-linux", "/targets/sbsa-linux")
    roots = [f"{path}{part}" for path in (*toolkit_paths, *archives) for part in parts]
    directories = [*_LIBRARIES, *(f"{root}/{name}" for root in roots for name in ("lib64", "lib"))]
    includes = [*_INCLUDES, *(f"{root}/include" for root in roots)]
    # Toolkit directories link to each other: count each real one once.
    directories = list(dict.fromkeys(files.resolve(path) for path in directories if files.exists(path)))
    includes = list(dict.fromkeys(files.resolve(path) for path in includes if files.exists(path)))
    contents = {directory: files.names(directory) for directory in directories}
    found: list[Library] = []
    for kind in _KINDS:
        owners = _owners(files, kind.packages)
        for directory, names in contents.items():
            for name in names:
                match = kind.library.fullmatch(name)
                path = f"{directory}/{name}"
                if match is not None and not files.is_link(path):
                    found.append(_library(kind, match[1], path, owners))
        versions = {library.version for library in found if library.name == kind.name}
        for directory in includes:
            path = f"{directory}/{kind.header}"
            version = _header_version(files.read(path), kind.macros)
            if version is not None and version not in versions:
                found.append(_library(kind, version, path, owners))
                versions.add(version)
    return tuple(found)


def _library(kind: _Kind, version: str, path: str, owners: Mapping[str, str]) -> Library:
    package = owners.get(path)
    return Library(kind.name, version, path, "package" if package else "archive", package)


def cudnn_of_header(text: str) -> str | None:
    """The version in cudnn_version.h."""
    return _header_version(text, _CUDNN_MACROS)


def _header_version(text: str | None, macros: Sequence[str]) -> str | None:
    """The version from a header's macros, one for each component of the version."""
    # The first definition of a macro counts, and in a dict the last.
    defined = dict(reversed(_DEFINE.findall(text or "")))
    numbers = [_number_of_macro(macro, defined) for macro in macros]
    return ".".join(number for number in numbers if number) if all(numbers) else None


def _number_of_macro(macro: str, defined: Mapping[str, str]) -> str | None:
    """The number that a macro stands for: its own value, or of the macro it names, as in TensorRT since 10.13."""
    seen = {macro}
    while macro in defined:
        macro = defined[macro]
        if macro in seen:
            break
        seen.add(macro)
    return macro if re.fullmatch("[0-9]+", macro) else None


def _owners(files: HostFiles, patterns: Iterable[str]) -> dict[str, str]:
    """Package by path, from dpkg's own file lists: reading them needs no lock."""
    owners: dict[str, str] = {}
    for pattern in patterns:
        for path in files.matching(f"/var/lib/dpkg/info/{pattern}.list"):
            package = path.rpartition("/")[2][: -len(".list")].partition(":")[0]
            for line in (files.read(path) or "").splitlines():
                directory, _slash, name = line.rpartition("/")
                # A list may have /lib for /usr/lib, but a link in a development package owns only itself.
                owners.setdefault(f"{files.resolve(directory)}/{name}", package)
    return owners


def with_rpm_owners(found: Sequence[Library], paths: Sequence[str], output: str) -> tuple[Library, ...]:
    """Add package names from `rpm -qf --queryformat '%{NAME}\\n' PATHS`, which prints one line for each of `paths`."""
    lines = output.splitlines()
    if len(lines) != len(paths):
        return tuple(found)
    owners = {path: line for path, line in zip(paths, lines) if " " not in line.strip()}
    return tuple(
        Library(library.name, library.version, library.path, "package", owners[library.path])
        if library.path in owners
        else library
        for library in found
    )


def version_key(version: str) -> tuple[int, ...]:
    """Sort key: the numbers of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", version))

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA Container Toolkit, CDI specifications and container engines. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterable

from .._common.host_files import HostFiles
from .._common.json_text import parse_json

_CDI_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
# In the name of a library, and since 1.17 of the toolkit in the arguments of a hook.
_DRIVER_VERSION = re.compile(r"(?:lib(?:cuda|nvidia-ml)\.so\.|--host-driver-version=)(\d{3,}\.\d+(?:\.\d+)?)")
_GPU_NODE = re.compile(r"/dev/nvidia(\d+)\b")
_CAPABILITY_NODE = re.compile(r"/dev/nvidia-caps/nvidia-cap(\d+)\b")
# A device node of a specification with all its values, in YAML or in JSON, in any order.
_NODE = re.compile(r"^ *- (?:.*\n)(?:^ +(?!- )[a-zA-Z]+:.*\n?)*|\{[^{}]*\}", re.MULTILINE)
_NODE_PATH = re.compile(r"""\bpath["']?: *["']?/dev/(nvidia-uvm|nvidia-caps(?=/))(?:-tools)?""")
_NODE_MAJOR = re.compile(r"""\bmajor["']?: *(\d+)""")
_VERSION = re.compile(r"version:?\s+v?(\d+\.\d+\.\d+\S*)", re.IGNORECASE)
# The capabilities config and monitor belong to no MIG instance.
_MIG_CAPABILITIES = "/proc/driver/nvidia/capabilities/gpu*/mig/gi*"


@dataclass(frozen=True)
class CdiSpecification:
    """A CDI specification file. `stale` names what has changed since it was generated."""

    path: str
    kind: str
    devices: tuple[str, ...]
    driver_version: str | None
    modified: float | None
    stale: tuple[str, ...]


@dataclass(frozen=True)
class Engine:
    """A container engine: `configured` with the nvidia runtime, `default` when that is its default runtime.

    `cdi` is None where the configuration does not set it, so that it depends on the engine's version.
    """

    name: str
    installed: bool
    configured: bool
    default: bool
    cdi: bool | None
    path: str | None


def toolkit_version(output: str) -> str | None:
    """The version printed by `nvidia-ctk --version`."""
    match = _VERSION.search(output)
    return match[1] if match else None


def cdi_specifications(files: HostFiles, driver_version: str | None) -> tuple[CdiSpecification, ...]:
    """CDI specifications of NVIDIA's devices, in the order in which engines read them."""
    gpus = frozenset(match[1] for match in map(_GPU_NODE.fullmatch, files.matching("/dev/nvidia*")) if match)
    capabilities = _mig_capabilities(files)
    majors = re.findall(r"^ *(\d+) (nvidia\S*)$", files.read("/proc/devices") or "", re.MULTILINE)
    found = []
    for directory in dict.fromkeys(files.resolve(path) for path in _CDI_DIRECTORIES):
        for name in files.names(directory):
            path = f"{directory}/{name}"
            text = files.read(path) or ""
            kind, devices = _kind_and_devices(text)
            if name.endswith((".yaml", ".json")) and kind.startswith("nvidia.com/"):
                stale = tuple(_staleness(text, driver_version, gpus, capabilities, majors))
                version = _DRIVER_VERSION.search(text)
                found.append(
                    CdiSpecification(path, kind, devices, version[1] if version else None, files.modified(path), stale)
                )
    return tuple(found)


def _kind_and_devices(text: str) -> tuple[str, tuple[str, ...]]:
    """Kind and device names of a specification, in JSON or in YAML as written by nvidia-ctk."""
    try:
        document = parse_json(text)
        return str(document["kind"]), tuple(str(device["name"]) for device in document.get("devices", ()))
    except (ValueError, KeyError, TypeError):
        pass
    kind = re.search(r"^kind:\s*[\"']?([^\s\"']+)", text, re.MULTILINE)
    devices = re.search(r"^devices:\s*\n((?:[ \-].*\n?)*)", text, re.MULTILINE)
    names = re.findall(r"^(?:\s*- |\s+)name:\s*[\"']?([^\"'\n]+)", devices[1], re.MULTILINE) if devices else []
    return (kind[1] if kind else ""), tuple(name.strip() for name in names)


def _staleness(
    text: str,
    driver_version: str | None,
    gpus: frozenset[str],
    capabilities: frozenset[str],
    majors: Iterable[tuple[str, str]],
) -> Iterable[str]:
    """The parts of a specification that are out of date: the driver, GPUs, MIG instances or numbers of devices.

    The kernel gives nvidia-uvm a major number at each load of the module; `majors` are the present ones by name.
    """
    versions = set(_DRIVER_VERSION.findall(text))
    if driver_version is not None and versions and versions != {driver_version}:
        yield "driver_version"
    named = set(_GPU_NODE.findall(text))
    if gpus and named and named != gpus:
        yield "gpus"
    if named and set(_CAPABILITY_NODE.findall(text)) != capabilities:
        yield "mig_layout"
    current = {name: number for number, name in majors}
    nodes = ((_NODE_PATH.search(node), _NODE_MAJOR.search(node)) for node in _NODE.findall(text))
    if any(path and major and current.get(path[1], major[1]) != major[1] for path, major in nodes):
        yield "device_numbers"


def _mig_capabilities(files: HostFiles) -> frozenset[str]:
    """The minor numbers of the device files of all existing MIG instances."""
    paths = (*files.matching(f"{_MIG_CAPABILITIES}/access"), *files.matching(f"{_MIG_CAPABILITIES}/ci*/access"))
    found = (re.search(r"^DeviceFileMinor:\s*(\d+)", files.read(path) or "", re.MULTILINE) for path in paths)
    return frozenset(match[1] for match in found if match)


def engines(files: HostFiles, installed: Iterable[str]) -> tuple[Engine, ...]:
    """The configuration of each engine; `installed` names those whose program was found."""
    there = frozenset(installed)
    return (
        _docker(files, "docker" in there),
        _toml_engine(
            files, "containerd", "containerd" in there, ("/etc/containerd/config.toml", "/etc/containerd/conf.d/*.toml")
        ),
        _toml_engine(
            files,
            "crio",
            "crio" in there,
            ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*.conf", "/usr/lib/crio/crio.conf.d/*.conf"),
        ),
        _podman(files, "podman" in there),
    )


def _docker(files: HostFiles, installed: bool) -> Engine:
    path = "/etc/docker/daemon.json"
    try:
        settings: Any = parse_json(files.read(path) or "{}")
    except ValueError:
        settings = {}
    settings = settings if isinstance(settings, dict) else {}
    runtimes = settings.get("runtimes")
    features = settings.get("features")
    return Engine(
        name="docker",
        installed=installed,
        configured=isinstance(runtimes, dict) and "nvidia" in runtimes,
        default=settings.get("default-runtime") == "nvidia",
        cdi=features.get("cdi") if isinstance(features, dict) and isinstance(features.get("cdi"), bool) else None,
        path=path if files.exists(path) else None,
    )


def _toml_engine(files: HostFiles, name: str, installed: bool, patterns: Iterable[str]) -> Engine:
    """containerd and CRI-O: tables `[....runtimes.nvidia]` in several files, where later files take precedence."""
    paths = [path for pattern in patterns for path in files.matching(pattern)]
    contents = [re.sub(r"(?m)^[ \t]*#.*$", "", files.read(path) or "") for path in paths]
    having = [path for path, text in zip(paths, contents) if _NVIDIA_TABLE.search(text)]
    defaults = [match for text in contents for match in _DEFAULT_RUNTIME.findall(text)]
    cdi = [match for text in contents for match in _ENABLE_CDI.findall(text)]
    return Engine(
        name=name,
        installed=installed,
        configured=bool(having),
        default=bool(defaults) and defaults[-1] == "nvidia",
        cdi=cdi[-1] == "true" if cdi else None,
        path=having[-1] if having else None,
    )


_NVIDIA_TABLE = re.compile(r"(?m)^[ \t]*\[.*\bruntimes\.[\"']?nvidia[\"']?\]")
_DEFAULT_RUNTIME = re.compile(r"(?m)^[ \t]*default_runtime(?:_name)?\s*=\s*[\"']([^\"']*)[\"']")
_ENABLE_CDI = re.compile(r"(?m)^[ \t]*enable_cdi\s*=\s*(true|false)")
_PODMAN_FILES = (
    "/usr/share/containers/containers.conf",
    "/etc/containers/containers.conf",
    "/etc/containers/containers.conf.d/*.conf",
)
_PODMAN_HOOKS = ("/usr/share/containers/oci/hooks.d/*nvidia*.json", "/etc/containers/oci/hooks.d/*nvidia*.json")
_PODMAN_RUNTIME = re.compile(r"(?m)^[ \t]*nvidia\s*=\s*\[")


def _podman(files: HostFiles, installed: bool) -> Engine:
    """podman supports CDI devices without configuration since 4.1; older setups have a hook or a runtime."""
    paths = [path for pattern in _PODMAN_FILES for path in files.matching(pattern)]
    contents = [re.sub(r"(?m)^[ \t]*#.*$", "", files.read(path) or "") for path in paths]
    having = [path for path, text in zip(paths, contents) if _PODMAN_RUNTIME.search(text)]
    having += [path for pattern in _PODMAN_HOOKS for path in files.matching(pattern)]
    default = any(re.search(r"(?m)^[ \t]*runtime\s*=\s*[\"']nvidia[\"']", text) for text in contents)
    return Engine("podman", installed, bool(having), default, None, having[-1] if having else None)

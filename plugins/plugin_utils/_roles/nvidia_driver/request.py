# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is requested of the role nvidia_driver, and what is wrong with it. Private to this collection. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from ....module_utils._common.masking import masked
from ..._planning.contract import RUN_ONLY, RequestError, is_true
from ..._planning.variable_forms import is_list, shown
from .module_options import ModuleOptions, module_options
from .sources import DISTRIBUTION, RUNFILE, source_named

DKMS, ENROLL = "dkms", "enroll"
SHIM_KEY, SHIM_CERTIFICATE = "/var/lib/shim-signed/mok/MOK.priv", "/var/lib/shim-signed/mok/MOK.der"
_DKMS_CERTIFICATE = "/var/lib/dkms/mok.pub"
# Its dkms does not read framework.conf.d, and signs with the key of shim-signed whatever is configured.
_SIGNS_WITH_SHIM = "Ubuntu 22.04"
_VERSION = re.compile(r"newest|recommended|[0-9]{3}|[0-9]{3}[.][0-9]+([.][0-9]+)?")
_URL = re.compile(r"(https?|file)://\S+")
_NODE = re.compile(r"[A-Za-z0-9._:-]+")
_FINGERPRINT = re.compile(r"[0-9A-Fa-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OF_RUNFILE = re.compile(r"-([0-9]{3}[.][0-9.]*[0-9])")


@dataclass(frozen=True)
class Request:
    """The variables of the role; `repositories` are variables of nvidia_repository, for NVIDIA's and for the PPA.

    The password of the key is not here.
    """

    is_present: bool
    source: str
    version: str
    kernel_modules: str
    module_options: Mapping[str, Any]
    module_build: str
    headless: bool
    ubuntu_series: str
    fabric_manager: str
    imex: str
    nvlink5: str
    persistence_daemon: bool
    pin: bool
    hold_kernel: bool
    boot_kernel: str
    secure_boot: str
    mok_key: str
    mok_certificate: str
    image_build: bool
    runfile_base_url: str
    runfile_url: str
    runfile_sha256: str
    local_repository: str
    local_repository_sha256: str
    repositories: tuple[Mapping[str, Any], Mapping[str, Any]]
    debian_mirror: str = ""
    epel_url: str = ""
    epel_key_url: str = ""
    epel_fingerprint: str = ""
    imex_settings: Mapping[str, Any] = field(default_factory=dict)
    gpudirect: tuple[str, ...] = ()
    # With the nodes of the NVLink domain they are part of the inputs.
    imex_nodes: tuple[str, ...] = field(default=(), metadata=RUN_ONLY)
    has_mok_password: bool = field(default=False, metadata=RUN_ONLY)
    upgrade: bool = field(default=False, metadata=RUN_ONLY)
    replace_unmanaged: bool = field(default=False, metadata=RUN_ONLY)
    when_busy: str = field(default="fail", metadata=RUN_ONLY)
    reload: str = field(default="if_possible", metadata=RUN_ONLY)
    reboot: str = field(default="never", metadata=RUN_ONLY)
    disk_space_mib: int = field(default=0, metadata=RUN_ONLY)

    @classmethod
    def read(cls, variables: Mapping[str, Any]) -> Request:
        """The request in the variables; raises RequestError for a value of another form than documented."""
        given = {
            name.removeprefix("nvidia_driver_"): value
            for name, value in variables.items()
            if name.startswith("nvidia_driver_")
        }
        values: dict[str, Any] = {
            **{name: str(given[name]) for name in _TEXT},
            **{name: is_true(given[name]) for name in _TRUTH},
            **{name: _read_list(name, given[name]) for name in ("gpudirect", "imex_nodes")},
            **{name: _read_table(name, given[name]) for name in ("module_options", "imex_settings")},
        }
        # A role that runs alone has them only where they are set.
        repositories = (variables.get(f"nvidia_repository_{name}") or {} for name in ("cuda", "graphics_drivers"))
        first, second = (dict(one) for one in repositories)
        return cls(
            is_present=given["state"] == "present",
            repositories=(first, second),
            has_mok_password=given["mok_password"] != "",
            disk_space_mib=_read_number("disk_space_mib", given["disk_space_mib"]),
            **values,
        )

    @property
    def uses_runfile(self) -> bool:
        """Whether NVIDIA's installer brings the driver, and no packages."""
        return self.source == RUNFILE

    @property
    def repository(self) -> str:
        """The repository of the role nvidia_repository, empty where none is needed."""
        return source_named(self.source).repository if self.is_present else ""

    @property
    def options(self) -> ModuleOptions:
        """The options of the kernel module."""
        return module_options(self.module_options)

    def runfile(self, architecture: str) -> str:
        """The URL or path of the runfile, empty where it is not known."""
        if self.runfile_url or "." not in self.version:
            return self.runfile_url
        return f"{self.runfile_base_url}/{self.version}/NVIDIA-Linux-{architecture}-{self.version}.run"

    def runfile_version(self, architecture: str) -> str:
        """The version of the runfile, which is part of its name; empty where neither that nor the variable has one."""
        found = _OF_RUNFILE.search(PurePosixPath(self.runfile(architecture)).name)
        return found[1] if found else self.version if self.version[:1].isdecimal() else ""

    def download(self, architecture: str) -> str:
        """What is downloaded before packages are known: the runfile, or the package of the local repository."""
        return self.runfile(architecture) if self.uses_runfile else self.local_repository

    def configures_signing(self, platform: Mapping[str, Any]) -> bool:
        """Whether DKMS is configured to sign with the given key."""
        return self.mok_key != "" and self.module_build == DKMS and platform["name"] != _SIGNS_WITH_SHIM

    def certificates(self, platform: Mapping[str, Any]) -> list[str]:
        """The certificates of the keys that DKMS may sign with."""
        if platform["name"] == _SIGNS_WITH_SHIM:
            return [SHIM_CERTIFICATE]
        return [self.mok_certificate] if self.mok_certificate else [_DKMS_CERTIFICATE, SHIM_CERTIFICATE]


_TEXT = (
    *("source", "version", "kernel_modules", "module_build", "ubuntu_series", "fabric_manager", "imex", "nvlink5"),
    *("boot_kernel", "secure_boot", "mok_key", "mok_certificate", "runfile_base_url", "runfile_url", "runfile_sha256"),
    *("local_repository", "local_repository_sha256", "debian_mirror", "epel_url", "epel_key_url", "epel_fingerprint"),
    *("when_busy", "reload", "reboot"),
)
_TRUTH = ("headless", "persistence_daemon", "pin", "hold_kernel", "image_build", "upgrade", "replace_unmanaged")


def _read_number(name: str, given: Any) -> int:
    try:
        return int(given)
    except (TypeError, ValueError):
        raise RequestError(f"nvidia_driver_{name} is {shown(given)}, and takes a whole number") from None


def _read_list(name: str, given: Any) -> tuple[str, ...]:
    if not is_list(given) or not all(isinstance(item, str) for item in given):
        raise RequestError(f"nvidia_driver_{name} is {shown(given)}, and takes a list of strings")
    return tuple(map(str, given))


def _read_table(name: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise RequestError(f"nvidia_driver_{name} is {shown(given)}, and takes a dictionary of values by name")
    return dict(given)


def against_variables(request: Request, platform: Mapping[str, Any], architecture: str) -> Iterator[str]:
    """What is wrong with the variables on this platform, whatever else is known of the host."""
    if not request.is_present:
        return
    name, source, build = platform["name"], request.source, request.module_build
    if not platform["supported"]:
        yield (
            f"{name} is not supported by the role gpu.fleet.nvidia_driver; take the host out of the play or use one "
            f"of: {', '.join(platform['known'])}"
        )
        return
    if not _VERSION.fullmatch(request.version):
        yield (
            f"nvidia_driver_version is {request.version[:60]}; it has to be newest, a branch such as "
            '"580", an exact version such as "580.178.04", or recommended'
        )
    if request.version == "recommended" and (source != DISTRIBUTION or not name.startswith("Ubuntu")):
        yield (
            "nvidia_driver_version is recommended, which needs nvidia_driver_source distribution on Ubuntu; set a "
            "branch, or newest"
        )
    checksum = request.runfile_sha256 if request.uses_runfile else request.local_repository_sha256
    needs = source_named(source).needs
    if needs and not (request.download(architecture) and _SHA256.fullmatch(checksum)):
        yield f"nvidia_driver_source is {source}, so {needs} (64 hexadecimal digits) have to be set"
    if request.secure_boot == ENROLL and build == DKMS and "" in (request.mok_key, request.mok_certificate):
        yield (
            "nvidia_driver_secure_boot is enroll, so nvidia_driver_mok_key and nvidia_driver_mok_certificate, files on "
            "the host, have to be set"
        )
    for variable in ("debian_mirror", "epel_url", "epel_key_url"):
        url = getattr(request, variable)
        if url and not _URL.fullmatch(url):
            yield f"nvidia_driver_{variable} is {shown(masked(url))}; it has to be a URL (https, http or file)"
    if request.epel_fingerprint and not _FINGERPRINT.fullmatch(request.epel_fingerprint):
        yield f"nvidia_driver_epel_fingerprint is {shown(request.epel_fingerprint)}; it has to be 40 hexadecimal digits"
    nodes = [node for node in request.imex_nodes if not _NODE.fullmatch(node)]
    if nodes:
        yield f"nvidia_driver_imex_nodes has {shown(nodes[0])}; each entry is one IP address or host name"
    others = (request.mok_key not in ("", SHIM_KEY), request.mok_certificate not in ("", SHIM_CERTIFICATE))
    if name == _SIGNS_WITH_SHIM and build == DKMS and any(others):
        yield (
            f"the dkms of {name} signs modules with {SHIM_KEY} and takes no other key; set nvidia_driver_mok_key to "
            f"this file and nvidia_driver_mok_certificate to {SHIM_CERTIFICATE} (`update-secureboot-policy --new-key` "
            "makes both, or bring yours there), or use nvidia_driver_source distribution with "
            "nvidia_driver_module_build precompiled, whose modules Canonical signs"
        )
    for reason in request.options.refusals:
        yield f"nvidia_driver_module_options: {reason}"
    if request.uses_runfile and build != DKMS:
        yield (
            "a runfile always builds its modules on the host; set nvidia_driver_module_build to dkms, or take another "
            "nvidia_driver_source"
        )

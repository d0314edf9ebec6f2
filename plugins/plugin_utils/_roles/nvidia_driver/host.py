# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a host and its driver. Private to this collection. Pure: no Ansible."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..._compatibility import CompatibilityError, CompatibilityRequest, check, read_gpus
from ..._machines import machine_of
from ..._planning.contract import RecordedHost, RequestError
from ..._planning.platforms import platform_of
from .companions import Companions, Needs, plan_companions
from .packages import family, owners
from .request import DKMS, Request
from .selection import Situation

DRIVER = "nvidia_driver"
_GCC = re.compile(r"=(\d+)\d{4}$")
_NAMED_OWNERS = 4
# The architecture of an rpm for programs of 32 bits.
_OTHER = re.compile("i[3-6]86")
# Why nvidia-smi shows nothing, where it is not installed.
_WITHOUT_SMI = ("no_driver", "no_gpu", "no_nvidia_smi")


def _installed(packages: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    """The versions by name, with another architecture as apt and dnf write it: libnvidia-gl-580:i386, libs.i686."""
    found: dict[str, str] = {}
    own = ("all", *(one.get("arch") for one in packages.get("dpkg", ())))
    for name, versions in packages.items():
        for one in versions:
            architecture = str(one.get("arch") or "")
            is_other = architecture not in ("", *own) if "dpkg" in packages else _OTHER.fullmatch(architecture)
            key = f"{name}{':' if 'dpkg' in packages else '.'}{architecture}" if is_other else str(name)
            found.setdefault(key, str(one["version"]))
    return found


def has_driver(driver: Mapping[str, Any]) -> bool:
    """Whether a driver is installed or loaded; `driver` is from the facts of CUDA."""
    return any(driver[name] for name in ("library_version", "module_version", "loaded_version"))


@dataclass(frozen=True)
class Host(RecordedHost):
    """What is known of the host.

    `repositories` are the records of NVIDIA's by name. `driver`, `smi` and `fabric` are facts of modules,
    `imex_domain` the addresses of the host's NVLink domain, `installed` the versions of packages by name,
    `unfinished` those that dpkg did not configure, `machine` is of host_facts, `sources` their source packages.
    `removed`: this role has removed the driver that is loaded. `boot_kernel` is the one that boots next, `compiler`
    the major version of gcc that a kernel was built by and that the host has not, `host_compiler` the one that it
    has. `today` is a date.
    """

    repositories: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    distribution: str = ""
    os_family: str = ""
    release: str = ""
    architecture: str = ""
    kernel: str = ""
    driver: Mapping[str, Any] = field(default_factory=dict)
    dcgm: Mapping[str, Any] = field(default_factory=dict)
    smi: Mapping[str, Any] = field(default_factory=dict)
    fabric: Mapping[str, Any] = field(default_factory=dict)
    imex_domain: tuple[str, ...] = ()
    installed: Mapping[str, str] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()
    machine: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    removed: bool = False
    boot_kernel: str = ""
    compiler: str = ""
    host_compiler: str = ""
    today: str = ""

    @classmethod
    def of(cls, facts: Mapping[str, Any], today: str = "") -> Host:
        """The host with these facts of Ansible, whose names have no prefix."""
        records = facts.get("gpu_fleet_managed") or {}
        packages = facts.get("packages") or {}
        cuda = facts["cuda"]
        return cls(
            platform=platform_of(facts),
            record=records.get(DRIVER) or {},
            repositories={name.partition(".")[2]: one for name, one in records.items() if "." in name},
            distribution=str(facts["distribution"]),
            os_family=str(facts["os_family"]),
            release=str(facts.get("distribution_major_version", "")),
            architecture=str(facts["architecture"]),
            kernel=str(facts.get("kernel", "")),
            driver=cuda["driver"],
            dcgm=(cuda.get("services") or {}).get("dcgm") or {},
            smi=facts["nvidia_smi"],
            fabric=facts.get("nvlink_fabric") or {},
            imex_domain=tuple(map(str, facts.get("imex_domain") or ())),
            installed=_installed(packages),
            unfinished=tuple(map(str, facts.get("gpu_fleet_unfinished_packages") or ())),
            machine=machine_of(facts),
            today=today,
        )

    def observed(self, request: Request, found: Mapping[str, Any]) -> Host:
        """The host with what tasks have found.

        `sources` are lines of dpkg-query, `removal` is the result of stat for the role's marker, `boot_kernel` a name.
        `kernel_options` are results of grep for the compilers of the kernels, `gcc` is one of gcc, and `compilers` one
        of find.
        """
        rows = [str(line).split() for line in found.get("sources") or ()]
        options = [str(one.get("stdout") or "") for one in (found.get("kernel_options") or {}).get("results") or ()]
        built_by = max((int(match[1]) for one in options if (match := _GCC.search(one))), default=0)
        own = str((found.get("gcc") or {}).get("stdout") or "").split(".", maxsplit=1)[0]
        paths = [str(one["path"]) for one in (found.get("compilers") or {}).get("files") or ()]
        is_older = own != "" and (int(own) if own.isdecimal() else 0) < built_by
        lacks = request.module_build == DKMS and is_older and f"/usr/bin/gcc-{built_by}" not in paths
        return replace(
            self,
            sources={row[0]: row[1] for row in rows if len(row) == 2},
            removed=bool(((found.get("removal") or {}).get("stat") or {}).get("exists")),
            boot_kernel=str(found.get("boot_kernel") or ""),
            compiler=str(built_by) if lacks else "",
            host_compiler=own,
        )

    @property
    def system(self) -> str:
        """Ubuntu, else the family: Debian or RedHat."""
        return "Ubuntu" if self.distribution == "Ubuntu" else self.os_family

    @property
    def uses_apt(self) -> bool:
        """Whether apt installs packages, else dnf."""
        return self.system != "RedHat"

    @property
    def gpus(self) -> Sequence[Mapping[str, Any]]:
        """NVIDIA's GPUs on the PCI bus."""
        found: Sequence[Mapping[str, Any]] = self.smi["pci_gpus"]
        return found

    @property
    def devices(self) -> list[str]:
        """The device ids of the GPUs."""
        return [str(gpu["device_id"]) for gpu in self.gpus]

    @property
    def version(self) -> str:
        """The driver on disk, else the one that is loaded, empty for none."""
        own = self.driver
        return str(own["library_version"] or own["module_version"] or own["loaded_version"] or "")

    @cached_property
    def family(self) -> list[str]:
        """Installed packages of a driver, of any origin and branch: by their source package, else by name."""
        return family(self.installed, self.sources)

    @cached_property
    def owners(self) -> list[str]:
        """The ones that have the driver on the host itself; none where it came without packages."""
        return owners(self.installed, self.sources, self.version)

    @property
    def has_files(self) -> bool:
        """Whether libraries or a module of a driver are on disk."""
        return bool(self.driver["library_version"] or self.driver["module_version"])

    @property
    def may_be_removed(self) -> bool:
        """Whether the driver is loaded and may be gone from the disk, of which this role has left a marker."""
        # A driver of packages may be on disk without these files, and then its marker is of no use.
        return bool(self.driver["loaded"] and not self.has_files) and self.smi.get("reason") == "no_nvidia_smi"

    @property
    def marker(self) -> str:
        """The file by which this role knows until the next boot that it has removed the driver that is loaded."""
        return f"/run/gpu-fleet/nvidia_driver-{self.driver['loaded_version']}.removed"

    @property
    def is_on_disk(self) -> bool:
        """Whether a driver is installed; one that this role removed stays loaded until the next boot."""
        return self.has_files or bool(self.family)

    @property
    def is_only_loaded(self) -> bool:
        """Whether the driver was removed by this role. Without its marker it is unmanaged, as in a container."""
        return bool(self.driver["loaded"]) and not self.is_on_disk and self.removed

    @property
    def is_unmanaged(self) -> bool:
        """Whether there is a driver that this role has not installed: of a runfile, a cloud image or another role."""
        return not self.record and self.version != "" and not self.is_only_loaded

    @property
    def origin(self) -> str:
        """Where an unmanaged driver comes from, in words."""
        if self.owners:
            more = " and others" if len(self.owners) > _NAMED_OWNERS else ""
            return f"the packages {', '.join(self.owners[:_NAMED_OWNERS])}{more}"
        if self.is_on_disk:
            return "a runfile or by the builder of the image (no package has it)"
        return "a driver container (none of its files are on disk, unless they were removed by hand)"

    def lacks(self, request: Request) -> list[str]:
        """What the driver on disk lacks: module, libraries and nvidia-smi of one version. One that works lacks nothing.

        The modules of an image are for another kernel than the running one, so nvidia-smi stands for them there.
        """
        own = self.driver
        library, module = own["library_version"], own["module_version"] or own["loaded_version"]
        without_smi = self.smi.get("reason") in _WITHOUT_SMI
        if self.smi.get("available") or not (self.has_files or self.owners):
            return []
        found = []
        if not module and (without_smi or not request.image_build):
            found.append(f"a kernel module{'' if request.image_build else f' for {self.kernel}'}")
        if not library:
            found.append("libraries")
        elif module and module != library and not request.image_build:
            found.append(f"libraries of the version of its kernel module, {module}")
        return [*found, *(["nvidia-smi"] if without_smi else [])]

    def is_part(self, request: Request) -> bool:
        """Whether there are packages of a driver without its module, as CUDA of a distribution brings its libraries."""
        return bool(self.owners) and any(one.startswith("a kernel module") for one in self.lacks(request))

    @property
    def is_of_runfile(self) -> bool:
        """Whether a runfile installed the driver."""
        return self.recorded.get("source") == "runfile" or (self.has_files and not self.owners)

    @property
    def was_interrupted(self) -> bool:
        """Whether a run was interrupted after its first change, and left only this in the record."""
        return bool(self.recorded.get("begun", False))

    def unmanaged(self, request: Request) -> list[str]:
        """Packages that were there before this role, which it only removes where the request replaces them."""
        if request.replace_unmanaged:
            return []
        return list(self.recorded.get("unmanaged", [])) if self.record else self.family

    def repository_record(self, request: Request) -> Mapping[str, Any]:
        """The record of the source's repository."""
        return self.repositories.get(request.repository) or {} if request.repository else {}

    def drift(self, request: Request) -> list[str]:
        """What is no longer as the last run has left it."""
        records = (self.record, self.repository_record(request))
        return [str(found["message"]) for record in records for found in record.get("drift") or ()]

    @property
    def pins(self) -> Sequence[Mapping[str, Any]] | None:
        """The records of the role's file of preferences; None where a run was interrupted, or recorded none."""
        found: Sequence[Mapping[str, Any]] | None = [] if not self.record else self.recorded.get("pins")
        return None if self.was_interrupted else found

    @property
    def drifted(self) -> list[str]:
        """The names of files, packages and units that are not as recorded."""
        return [str(found["name"]) for found in self.record.get("drift") or ()]

    @cached_property
    def limits(self) -> list[str]:
        """What limits the driver that is there: the end of life of its branch, MIG that it does not know."""
        version = self.version if re.fullmatch(r"\d{2,4}(\.\d+){0,2}", self.version) else None
        return list(check(CompatibilityRequest(self._read_gpus(), version, today=self.today[:7] or None)).notes)

    def companions(self, request: Request) -> Companions:
        """What the driver needs besides, by the GPUs and the PCI bus."""
        return plan_companions(
            Needs(
                source=request.source,
                server=request.ubuntu_series == "server",
                fabric_manager=request.fabric_manager,
                imex=request.imex,
                nvlink5=request.nvlink5,
                persistence_daemon=request.persistence_daemon,
                gpus=tuple(self.devices),
                fabric=self.fabric,
                imex_nodes=request.imex_nodes,
                imex_domain=self.imex_domain,
                written=tuple(self.recorded.get("written", ())),
                imex_settings=request.imex_settings,
                gpudirect=request.gpudirect,
                kernel=self.kernel,
                is_image=request.image_build,
                has_extra_modules=self.distribution == "Ubuntu",
            )
        )

    def facts(self, request: Request, companions: tuple[str, ...] = ()) -> Situation:
        """What decides version and packages."""
        return Situation(
            system=self.system,
            release=self.release,
            distribution=self.distribution,
            architecture=self.architecture,
            kernel=self.boot_kernel or self.kernel,
            gpus=self._read_gpus(),
            today=self.today,
            installed=self.installed,
            family=tuple(self.family),
            unmanaged=tuple(self.unmanaged(request)),
            driver="" if self.is_only_loaded else self.version,
            driver_kind=str(self.driver.get("module_kind") or self.driver.get("loaded_kind") or ""),
            lacks=tuple(self.lacks(request)),
            is_part=self.is_part(request),
            recorded_source=str(self.recorded.get("source", "") or ("unknown" if self.record else "")),
            repositories={request.source: str((self.repository_record(request).get("data") or {}).get("url", ""))},
            compiler=self.compiler,
            host_compiler=self.host_compiler,
            companions=companions,
        )

    def _read_gpus(self) -> Any:
        try:
            return read_gpus(self.gpus)
        except CompatibilityError as error:
            raise RequestError(str(error)) from None

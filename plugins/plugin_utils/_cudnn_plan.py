# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide packages, archives and removals of cuDNN, NCCL and TensorRT on a host. Private to this collection.

Pure: the variables of the role cudnn and what is known about the host in, the plan out, as in _cuda_plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ._compatibility import CompatibilityRequest, RequestedGpu, check, cudnn_row, cudnn_versions, fits, read_gpus
from ._cuda_packages import CudaPackage, CudaRequestError, Offer, Table, is_offered, numbers, packages_for, parse_offers
from ._cuda_plan import is_list, shown

CUDNN = "cudnn"
_FIELDS = ("library", "version", "cuda", "archive", "sha256")
_VERSION = re.compile(r"[0-9]+([.][0-9]+){0,3}")
_CUDA = re.compile(r"[0-9]+([.][0-9]+)?")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_ARCHIVE = re.compile(r"(https?|ftp)://.+|/.+")
_SHOWN_VERSIONS = 8
_EXAMPLES = {
    "cudnn_versions": 'cudnn_versions: [{version: "9.14", cuda: "13"}]',
    "cudnn_additional_libraries": 'cudnn_additional_libraries: [{library: nccl, version: "2.28.3", cuda: "13.0"}]',
}


@dataclass(frozen=True)
class Library:
    """One entry of a variable: a library in a version, whole or the beginning of one, for a CUDA version."""

    variable: str
    library: str
    version: str
    cuda: str
    archive: str = ""
    sha256: str = ""

    def as_dict(self) -> dict[str, str]:
        """The entry as the user wrote it, with its library."""
        entry = {name: getattr(self, name) for name in _FIELDS}
        return {name: value for name, value in entry.items() if value}


@dataclass(frozen=True)
class CudnnRequest:
    """What the variables of the role request."""

    state: str
    libraries: tuple[Library, ...]
    development: bool
    directory: str


@dataclass(frozen=True)
class CudnnHost:
    """What is known about the host; empty where it is not, which is never a reason against a request.

    `offers` are those of the packages in `names` of the plan, None before they are read; with `fresh` there are no
    others.
    """

    platform: Mapping[str, Any]
    gpus: tuple[RequestedGpu, ...] = ()
    offers: tuple[Offer, ...] | None = None
    fresh: bool = False
    recorded: Mapping[str, Any] = field(default_factory=dict)

    @property
    def manager(self) -> str:
        """The package manager."""
        return str(self.platform["manager"])


@dataclass(frozen=True)
class CudnnPlan:
    """The libraries of a host: those from `packages` and those unpacked into `directories`, in the order of `archives`.

    `links` are stable names of the first archive of each library. What is obsolete is from an earlier run. `names` are
    the packages whose offers decide.
    """

    requested: tuple[Library, ...] = ()
    packages: tuple[CudaPackage, ...] = ()
    directories: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    version_locks: tuple[str, ...] = ()
    obsolete_packages: tuple[str, ...] = ()
    obsolete_directories: tuple[str, ...] = ()
    obsolete_links: tuple[str, ...] = ()
    obsolete_locks: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The dict that templates get."""
        lists = {name: list(value) for name, value in self.__dict__.items()}
        return {
            **lists,
            "requested": [entry.as_dict() for entry in self.requested],
            "packages": [asdict(package) for package in self.packages],
        }


# The variables


def read_request(variables: Mapping[str, Any], table: Table) -> CudnnRequest:
    """The request in the variables of the role; raises CudaRequestError for a value of another form than documented."""
    directory = variables["cudnn_directory"]
    if not isinstance(directory, str) or not directory.startswith("/"):
        raise CudaRequestError(f"cudnn_directory is {shown(directory)}, and has to be an absolute path")
    own = tuple(_read_libraries("cudnn_versions", variables, (CUDNN,)))
    others = tuple(name for name in table if name != CUDNN)
    additional = tuple(_read_libraries("cudnn_additional_libraries", variables, others))
    return CudnnRequest(
        state=str(variables["cudnn_state"]),
        libraries=own + additional,
        development=bool(variables["cudnn_development"]),
        directory=directory,
    )


def _read_libraries(variable: str, variables: Mapping[str, Any], libraries: Sequence[str]) -> Iterator[Library]:
    given = variables[variable]
    if not is_list(given):
        raise CudaRequestError(f"{variable} is {shown(given)}, and takes a list: {_EXAMPLES[variable]}")
    for entry in given:
        yield _read_library(variable, entry, libraries)


def _read_library(variable: str, entry: Any, libraries: Sequence[str]) -> Library:
    form = f"use {_EXAMPLES[variable]}"
    if not isinstance(entry, Mapping):
        raise CudaRequestError(f"{variable} has {shown(entry)}, which is not a dictionary; {form}")
    allowed = [name for name in _FIELDS if name != "library" or variable != "cudnn_versions"]
    unknown = [name for name in entry if name not in allowed]
    if unknown:
        raise CudaRequestError(
            f"{variable} has {shown(unknown[0])} in {shown(entry)}; an entry has {', '.join(allowed)}"
        )
    missing = [name for name in allowed[:-2] if entry.get(name) in (None, "")]
    if missing:
        raise CudaRequestError(f"{variable} has no {' and no '.join(missing)} in {shown(entry)}; {form}")
    numeric = [name for name in ("version", "cuda") if not isinstance(entry[name], str)]
    if numeric:
        raise CudaRequestError(
            f"{variable} has the {numeric[0]} {shown(entry[numeric[0]])} without quotes, which YAML reads as a number "
            f"(9.10 as 9.1): {form}"
        )
    library = str(entry.get("library", CUDNN))
    if library not in libraries:
        raise CudaRequestError(f"{variable} has the library {shown(library)}; use {' or '.join(libraries)}")
    for name, pattern, example in (("version", _VERSION, "9.14.0.64 or 9.14"), ("cuda", _CUDA, "13 or 12.9")):
        if not pattern.fullmatch(entry[name]):
            raise CudaRequestError(
                f"{variable} has the {name} {shown(entry[name])}, which is none, as {example} is; {form}"
            )
    archive, sha256 = (str(entry.get(name) or "") for name in ("archive", "sha256"))
    if archive and not (_ARCHIVE.fullmatch(archive) and _SHA256.fullmatch(sha256)):
        raise CudaRequestError(
            f"{variable} has the archive {shown(archive)}, which must be a URL (http, https, ftp) or an absolute path "
            "on the host, and needs its sha256, 64 hexadecimal digits; NVIDIA lists it next to the archive"
        )
    return Library(variable, library, str(entry["version"]), str(entry["cuda"]), archive, sha256)


# The plan


def plan_cudnn(request: CudnnRequest, host: CudnnHost, table: Table) -> CudnnPlan:
    """Plan the libraries; `table` has the packages by library."""
    if not host.platform["supported"]:
        known = ", ".join(host.platform["known"])
        return CudnnPlan(
            refusals=(f"{host.platform['name']} is not supported by the role gpu.fleet.cudnn; use one of: {known}",)
        )
    requested = request.libraries if request.state == "present" else ()
    archives = [entry for entry in requested if entry.archive]
    root = request.directory.rstrip("/")
    packages = tuple(
        package for entry in requested if not entry.archive for package in _packages(entry, request, host, table)
    )
    plan = CudnnPlan(
        requested=requested,
        # The first entry of a name counts.
        packages=tuple({package.name: package for package in reversed(packages)}.values())[::-1],
        directories=tuple(f"{root}/{entry.library}-{entry.version}-cuda{entry.cuda}" for entry in archives),
        links=tuple(dict.fromkeys(f"{root}/{entry.library}" for entry in archives)),
    )
    if host.manager == "dnf":
        plan = replace(plan, version_locks=tuple(f"{package.name}-0:{package.version}" for package in plan.packages))
    refusals = tuple(_against_each_other(plan)) or tuple(
        text for entry in requested for text in _against_library(entry, request, host, table)
    )
    names = dict.fromkeys((*(package.name for package in plan.packages), *_probe(host.manager, table)))
    return replace(_with_removals(plan, host.recorded), names=tuple(names), refusals=refusals)


def _packages(entry: Library, request: CudnnRequest, host: CudnnHost, table: Table) -> tuple[CudaPackage, ...]:
    kinds = ("", "development", "dependency") if request.development else ("",)
    found = packages_for(entry.library, entry.version, entry.cuda, table, host.manager)
    return tuple(package for package in found if package.kind in kinds)


def _against_each_other(plan: CudnnPlan) -> Iterator[str]:
    """Entries that exclude each other."""
    if len(set(plan.directories)) < len(plan.directories):
        yield f"two archives would be unpacked into the same directory: {', '.join(plan.directories)}"
    # Both would be the same file, or conflicting packages.
    majors = [f"{entry.library} {entry.version.split('.')[0]}" for entry in plan.requested if not entry.archive]
    if len(set(majors)) < len(majors):
        yield (
            f"packages of {', '.join(majors)} were requested, and only one of each major version can be installed; set "
            "archive for the others"
        )


def _against_library(entry: Library, request: CudnnRequest, host: CudnnHost, table: Table) -> Iterator[str]:
    """Why a library cannot be had, or cannot be used here."""
    if entry.library == CUDNN and _newest_known(entry.version):
        yield from _against_combination(entry, host)
    if not entry.archive:
        yield from _against_availability(entry, _packages(entry, request, host, table), host, table)


def _newest_known(version: str) -> str:
    """The newest cuDNN of the tables that a version, or the beginning of one, stands for; empty if there is none."""
    if "." in version:
        beginning = ".".join(version.split(".")[:2])
        return beginning if cudnn_row(beginning) else ""
    return next((known for known in reversed(cudnn_versions()) if known.startswith(f"{version}.")), "")


def _against_combination(entry: Library, host: CudnnHost) -> Iterator[str]:
    version = _newest_known(entry.version)
    with_cuda = CompatibilityRequest(cudnn=version, cuda=entry.cuda if "." in entry.cuda else f"{entry.cuda}.0")
    with_gpus = CompatibilityRequest(cudnn=version, gpus=host.gpus)
    reasons = [*check(with_cuda).reasons, *check(with_gpus).reasons]
    if reasons:
        for_gpus = fits(with_gpus)["cudnn"]
        fitting = ", ".join(one for one in fits(with_cuda)["cudnn"] if one in for_gpus)
        yield (
            f"{'; '.join(reasons)}; these versions of cuDNN for CUDA {entry.cuda} fit: {fitting or 'none'}; change "
            "cudnn_versions"
        )


def _against_availability(
    entry: Library, packages: Sequence[CudaPackage], host: CudnnHost, table: Table
) -> Iterator[str]:
    """Why the packages cannot be had from NVIDIA's repository.

    Package lists that may be old have every older version, but maybe not the newest. Without lists the tables decide.
    """
    if host.offers is None:
        return
    missing = next((package for package in packages if not is_offered(package, host.offers)), None)
    if missing is None:
        return
    offered = {offer.name for offer in host.offers}
    is_known = entry.library != CUDNN or _newest_known(entry.version) != ""
    if not host.fresh and not offered & set(_probe(host.manager, table)):
        if not is_known:
            known = cudnn_versions()
            yield (
                f"{entry.variable} has {entry.version}, which is not a cuDNN that this collection knows ({known[0]} to "
                f"{known[-1]}); for a newer one, set archive, or first add its repository with the role "
                "gpu.fleet.nvidia_repository"
            )
        return
    found = sorted({offer.version for offer in host.offers if offer.name == missing.name}, key=numbers)
    if host.fresh or not is_known or not found or numbers(found[-1]) >= numbers(entry.version):
        has = f"it has {', '.join(found[-_SHOWN_VERSIONS:])}" if found else "it has none"
        yield (
            f"{entry.variable} has {entry.library} {entry.version} for CUDA {entry.cuda}, of which the repository for "
            f"{host.platform['name']} does not have {missing.name}; {has}"
        )


def _probe(manager: str, table: Table) -> tuple[str, ...]:
    """Packages that NVIDIA's repository has in any case: a host that sees one of them knows the repository."""
    packages = (
        package
        for version, cuda in (("8", "12"), ("9", "12"), ("9", "13"))
        for package in packages_for(CUDNN, version, cuda, table, manager)
    )
    return tuple(dict.fromkeys(package.name for package in packages))


def _with_removals(plan: CudnnPlan, before: Mapping[str, Any]) -> CudnnPlan:
    """The plan with what an earlier run installed and this request does not have."""
    names = tuple(package.name for package in plan.packages)

    def obsolete(kind: str, desired: Sequence[str]) -> tuple[str, ...]:
        return tuple(one for one in before.get(kind, ()) if one not in desired)

    return replace(
        plan,
        obsolete_packages=obsolete("packages", names),
        obsolete_directories=obsolete("directories", plan.directories),
        obsolete_links=obsolete("links", plan.links),
        obsolete_locks=obsolete("version_locks", plan.version_locks),
    )


# For templates


def cudnn_plan(variables: Mapping[str, Any], facts: Mapping[str, Any], table: Table) -> dict[str, Any]:
    """The plan as a dictionary; a request that has not the documented form is refused like any other."""
    try:
        return plan_cudnn(read_request(variables, table), read_host(facts), table).as_dict()
    except CudaRequestError as error:
        return CudnnPlan(refusals=(str(error),)).as_dict()


def read_host(facts: Mapping[str, Any]) -> CudnnHost:
    """The facts of the host as the role knows them."""
    return CudnnHost(
        platform=facts["platform"],
        gpus=read_gpus(facts.get("gpus") or ()),
        offers=parse_offers(str(facts["offered"])) if "offered" in facts else None,
        fresh=bool(facts.get("fresh", False)),
        recorded=facts.get("recorded") or {},
    )

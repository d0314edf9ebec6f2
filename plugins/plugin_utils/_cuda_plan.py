# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide versions, packages and removals of a host's CUDA toolkits. Private to this collection.

Pure: the variables of the role cuda and what is known about the host in, the plan out. Where a request cannot be met,
the plan's refusals are the reasons, in the words of the variables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..module_utils._knowledge.cuda import DRIVER_OF_CUDA
from ._compatibility import CompatibilityRequest, Findings, RequestedGpu, check, fits, read_gpus
from ._cuda_packages import (
    CudaRequestError,
    Offer,
    Table,
    driver_changes,
    numbers,
    packages_for,
    parse_changes,
    parse_offers,
)

DEFAULT_VERSION = "13.0"
"""The toolkit where none is named and the source does not decide."""

DISTRIBUTION, REPOSITORY, RUNFILE = "distribution", "cuda_repository", "runfile"
FORWARD = "forward_compatibility"
COMPILER_PARTS = ("toolkit", "compiler")
RUNTIME_PARTS = ("toolkit", "compiler", "runtime", "libraries")
_HOST_COMPILERS = {"apt": "g++", "dnf": "gcc-c++"}
_VERSION = re.compile(r"[0-9]+[.][0-9]+")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_URL = re.compile(r"(https?|ftp|file)://.+")
_SHOWN = 60
_FITTING = 8


@dataclass(frozen=True)
class CudaRequest:
    """What the variables of the role request; empty `versions` leave the choice to the source."""

    state: str
    source: str
    versions: tuple[str, ...]
    components: tuple[str, ...]
    default: str
    runfiles: Mapping[str, Any] = field(default_factory=dict)
    forward_compatibility: bool = False


@dataclass(frozen=True)
class CudaHost:
    """What is known about the host; empty where it is not, which is never a reason against a request.

    `compiler` is the version of g++. `offers` are those of the packages in `names` of the plan, None before they are
    read; with `fresh` there are no others. `simulated` are the lines of a simulated installation of the plan's
    packages, `error` is why that failed.
    """

    platform: Mapping[str, Any]
    driver: str = ""
    gpus: tuple[RequestedGpu, ...] = ()
    compiler: str = ""
    offers: tuple[Offer, ...] | None = None
    fresh: bool = False
    simulated: tuple[str, ...] = ()
    error: str = ""
    recorded: Mapping[str, Any] = field(default_factory=dict)

    @property
    def manager(self) -> str:
        """The package manager."""
        return str(self.platform["manager"])


@dataclass(frozen=True)
class CudaPlan:
    """The toolkits of a host: `default` is one of `versions`, `packages` are theirs, without the host's compiler.

    `has_directories`: each is in a directory of its own below /usr/local, and not in those of the system.
    `simulated` names both for a simulation by apt. `forward` are the versions with a package for forward compatibility.
    `obsolete` are versions of an earlier run, and `obsolete_packages` packages that it requested. `changes` are the
    packages that the simulated installation changes. `names` are the packages whose offers decide.
    """

    versions: tuple[str, ...] = ()
    default: str = ""
    packages: tuple[str, ...] = ()
    compilers: tuple[str, ...] = ()
    simulated: tuple[str, ...] = ()
    forward: tuple[str, ...] = ()
    needs_compiler: bool = False
    needs_runtime: bool = False
    has_directories: bool = True
    obsolete: tuple[str, ...] = ()
    obsolete_packages: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The dict that templates get."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


# The variables


def read_request(variables: Mapping[str, Any]) -> CudaRequest:
    """The request in the variables of the role; raises CudaRequestError for a value of another form than documented."""
    runfiles = variables["cuda_runfiles"]
    if not isinstance(runfiles, Mapping) or not all(isinstance(value, Mapping) for value in runfiles.values()):
        raise CudaRequestError(
            f"cuda_runfiles is {shown(runfiles)}, and takes url and sha256 by version: "
            'cuda_runfiles: {"13.0": {url: https://..., sha256: ...}}'
        )
    for version in runfiles:
        _read_version("cuda_runfiles", version)
    return CudaRequest(
        state=str(variables["cuda_state"]),
        source=str(variables["cuda_source"]),
        versions=_read_versions(variables["cuda_versions"]),
        components=_read_components(variables["cuda_components"]),
        default=_read_default(variables["cuda_default"]),
        runfiles=runfiles,
        forward_compatibility=bool(variables["cuda_forward_compatibility"]),
    )


def shown(value: object) -> str:
    """A user's value in an error message: one short line."""
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def is_list(value: object) -> bool:
    """Whether a value is a list, and not a string."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


_VERSIONS_EXAMPLE = 'cuda_versions: ["12.9", "13.0"]'


def _read_versions(given: Any) -> tuple[str, ...]:
    if not is_list(given):
        raise CudaRequestError(
            f"cuda_versions is {shown(given)}, and takes a list of versions, each as major.minor and in quotes: "
            f"{_VERSIONS_EXAMPLE}"
        )
    versions = tuple(_read_version("cuda_versions", version) for version in given)
    if len(set(versions)) < len(versions):
        raise CudaRequestError(f"cuda_versions is {shown(given)}; name each version once: {_VERSIONS_EXAMPLE}")
    return tuple(sorted(versions, key=numbers))


def _read_version(name: str, given: Any) -> str:
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        raise CudaRequestError(
            f'{name} has {given} without quotes, which YAML reads as a number (12.10 as 12.1): write it as "{given}", '
            "each version as major.minor and in quotes"
        )
    if not isinstance(given, str) or not _VERSION.fullmatch(given):
        raise CudaRequestError(
            f'{name} has {shown(given)}; write each version as major.minor and in quotes, as in "13.0"'
        )
    return str(given)


def _read_components(given: Any) -> tuple[str, ...]:
    if not is_list(given) or not given or not all(isinstance(part, str) for part in given):
        raise CudaRequestError(f"cuda_components is {shown(given)}, and takes a list: cuda_components: [toolkit]")
    return tuple(map(str, given))


def _read_default(given: Any) -> str:
    return given if given == "newest" else _read_version("cuda_default", given)


# The plan


def plan_cuda(request: CudaRequest, host: CudaHost, tables: Mapping[str, Table]) -> CudaPlan:
    """Plan the toolkits; `tables` has the packages by source (`cuda_repository`, `distribution`) and component."""
    refusals = tuple(_against_variables(request, host, tables))
    if refusals:
        return CudaPlan(refusals=refusals)
    versions = _versions(request, host)
    table = _table(request, host, tables)
    plan = CudaPlan(
        versions=versions,
        default=versions[-1] if request.default == "newest" else request.default,
        packages=_packages(request, host, table, versions),
        needs_compiler=bool(set(request.components) & set(COMPILER_PARTS)),
        needs_runtime=bool(set(request.components) & set(RUNTIME_PARTS)),
        has_directories=_is_of_nvidia(request, host),
        names=_names(request, host, table, versions),
    )
    if plan.needs_compiler:
        plan = replace(plan, compilers=(_HOST_COMPILERS[host.manager],))
    if request.state == "present":
        plan = _checked(request, host, table, plan)
        plan = replace(plan, simulated=(*plan.packages, *map(_exactly, plan.compilers)))
    return _with_removals(request, host, plan)


def _is_of_nvidia(request: CudaRequest, host: CudaHost) -> bool:
    """Whether the toolkits are NVIDIA's packages or runfiles, else a distribution's own."""
    return request.source != DISTRIBUTION or bool(host.platform.get("cuda_of_nvidia"))


def _table(request: CudaRequest, host: CudaHost, tables: Mapping[str, Table]) -> Table:
    """The packages by component. Of a distribution that has NVIDIA's, only the whole toolkit is known by name."""
    if request.source == DISTRIBUTION and _is_of_nvidia(request, host):
        return {"toolkit": tables[REPOSITORY]["toolkit"]}
    return tables.get(request.source, {})


def _versions(request: CudaRequest, host: CudaHost) -> tuple[str, ...]:
    if request.source == DISTRIBUTION:
        return (str(host.platform["cuda_version"]),)
    return request.versions or (DEFAULT_VERSION,)


def _against_variables(request: CudaRequest, host: CudaHost, tables: Mapping[str, Table]) -> Iterator[str]:
    """What is wrong with the variables on this platform, whatever else is known."""
    name, own = host.platform["name"], str(host.platform.get("cuda_version", ""))
    available = [part for part in _table(request, host, tables) if part != FORWARD] or ["toolkit"]
    wrong = [part for part in request.components if part not in available]
    if not host.platform["supported"]:
        yield f"{name} is not supported by the role gpu.fleet.cuda; use one of: {', '.join(host.platform['known'])}"
        return
    if request.source == DISTRIBUTION and not own:
        yield f"{name} has no CUDA toolkit for this source; set cuda_source to cuda_repository or runfile"
        return
    if wrong:
        yield f"cuda_components has {shown(wrong)}; the source {request.source} has {', '.join(available)}"
    versions = _versions(request, host)
    others = [version for version in request.versions if version not in versions]
    if others:
        yield (
            f"cuda_versions has {', '.join(others)}, and the distribution {name} has CUDA {own} only; leave out "
            f"cuda_versions, or set cuda_source to cuda_repository or runfile"
        )
    if request.default not in ("newest", *versions):
        yield (
            f"cuda_default is {request.default}, which is not among the versions {', '.join(versions)}; use one of "
            "them, or newest"
        )
    if request.source == RUNFILE and request.state == "present":
        for version in versions:
            if not _has_runfile(version, request):
                yield (
                    f"cuda_runfiles has no url (http, https, ftp or file) with a sha256 of 64 hexadecimal digits for "
                    f"{version}; NVIDIA lists both at https://developer.nvidia.com/cuda-toolkit-archive"
                )


def _has_runfile(version: str, request: CudaRequest) -> bool:
    runfile = request.runfiles.get(version, {})
    return bool(_URL.fullmatch(str(runfile.get("url", ""))) and _SHA256.fullmatch(str(runfile.get("sha256", ""))))


def _packages(
    request: CudaRequest, host: CudaHost, table: Table, versions: Iterable[str], forward: Iterable[str] = ()
) -> tuple[str, ...]:
    """The packages of the components in these versions, and those for forward compatibility; none of a runfile."""
    if request.source == RUNFILE:
        return ()
    parts = [(part, version) for version in versions for part in request.components]
    parts += [(FORWARD, version) for version in forward]
    names = (
        package.name for part, version in parts for package in packages_for(part, version, "", table, host.manager)
    )
    return tuple(dict.fromkeys(names))


def _names(request: CudaRequest, host: CudaHost, table: Table, versions: Sequence[str]) -> tuple[str, ...]:
    """The requested packages, and those of all known versions: what there is instead."""
    if request.source == RUNFILE:
        return ()
    known = (version for version in DRIVER_OF_CUDA if version not in versions) if request.source == REPOSITORY else ()
    return _packages(request, host, table, (*versions, *known))


def _checked(request: CudaRequest, host: CudaHost, table: Table, plan: CudaPlan) -> CudaPlan:
    """The plan with what driver, GPUs, compiler, repository and package manager have to do with it."""
    found = {version: _findings(version, request, host, plan) for version in plan.versions}
    forward = tuple(version for version, one in found.items() if one.forward_package)
    offered = _offered_versions(request, host, table)
    refusals = [text for version in plan.versions for text in _against_availability(version, request, host, offered)]
    refusals += [
        f"{'; '.join(one.reasons)}; {_fitting(version, request, host, offered)}; change cuda_versions"
        if request.source != DISTRIBUTION
        else f"{'; '.join(one.reasons)}; it is the only version of {host.platform['name']}: change cuda_source"
        for version, one in found.items()
        if one.reasons
    ]
    plan = replace(
        plan,
        packages=_packages(request, host, table, plan.versions, forward),
        forward=forward,
        changes=tuple(change.name for change in parse_changes(host.simulated, host.manager)),
        notes=tuple(note for one in found.values() for note in one.notes),
    )
    return replace(plan, refusals=(*refusals, *_against_transaction(request, host, plan)))


def _findings(version: str, request: CudaRequest, host: CudaHost, plan: CudaPlan) -> Findings:
    return check(_combination(version, request, host, plan.needs_compiler))


def _combination(version: str, request: CudaRequest, host: CudaHost, needs_compiler: bool) -> CompatibilityRequest:
    # The toolkits that Debian and Ubuntu have made depend on the compiler that they need.
    compiler = host.compiler if needs_compiler and _is_of_nvidia(request, host) else ""
    return CompatibilityRequest(
        gpus=host.gpus,
        driver=host.driver or None,
        cuda=version,
        compiler=f"gcc {compiler}" if compiler else None,
        forward_compatibility=request.forward_compatibility,
    )


def _fitting(version: str, request: CudaRequest, host: CudaHost, offered: Sequence[str]) -> str:
    """The newest versions that fit the host, of those that are offered where that is known."""
    combination = _combination(version, request, host, bool(set(request.components) & set(COMPILER_PARTS)))
    fitting = [one for one in fits(combination)["cuda"] if not offered or one in offered]
    if not fitting:
        return "no version fits"
    older = " and older ones" if len(fitting) > _FITTING else ""
    return f"these versions fit: {', '.join(fitting[-_FITTING:])}{older}"


def _offered_versions(request: CudaRequest, host: CudaHost, table: Table) -> list[str]:
    """The versions of which the repository has every package of the components, oldest first."""
    if request.source != REPOSITORY:
        return []
    names = {offer.name for offer in host.offers or ()}
    candidates = sorted({*DRIVER_OF_CUDA, *request.versions}, key=numbers)
    return [version for version in candidates if _has_all(names, request, host, table, version)]


def _has_all(names: set[str], request: CudaRequest, host: CudaHost, table: Table, version: str) -> bool:
    return set(_packages(request, host, table, (version,))) <= names


def _against_availability(version: str, request: CudaRequest, host: CudaHost, offered: Sequence[str]) -> Iterator[str]:
    """Why a version cannot be had from NVIDIA's repository.

    Package lists that may be old have every older version, but maybe not the newest. Without lists the tables decide.
    """
    if request.source != REPOSITORY or host.offers is None or version in offered:
        return
    is_known = version in DRIVER_OF_CUDA
    if not offered and not host.fresh:
        if not is_known:
            known = sorted(DRIVER_OF_CUDA, key=numbers)
            yield (
                f"cuda_versions has {version}, which is not a CUDA version that this collection knows ({known[0]} to "
                f"{known[-1]}); for a newer one, first add its repository with the role gpu.fleet.nvidia_repository"
            )
    elif host.fresh or not is_known or numbers(version) < numbers(offered[-1]):
        has = f"it has {', '.join(offered[-_FITTING:])}" if offered else "it has none of the known versions"
        yield (
            f"cuda_versions has {version}, of which the repository for {host.platform['name']} does not have "
            f"{', '.join(request.components)}; {has}"
        )


def _against_transaction(request: CudaRequest, host: CudaHost, plan: CudaPlan) -> Iterator[str]:
    """What the package manager would do to a driver or remove, or why it does nothing."""
    changes = parse_changes(host.simulated, host.manager)
    touched = driver_changes(changes, host.driver, libraries_allowed=request.source == DISTRIBUTION)
    removed = [change.name for change in changes if change.action == "remove" and change.name not in touched]
    requested = ", ".join(plan.packages)
    absent = [name for name in plan.compilers if f"Unable to locate package {_exactly(name)}" in host.error]
    if absent:
        # Lists that may be old, or were never read, are refreshed first.
        if host.fresh:
            yield (
                f"no repository of this host has {', '.join(absent)}, the host compiler that nvcc needs, so "
                f"{requested} was not installed; add the archive of {host.platform['name']}"
            )
        return
    if touched:
        yield (
            f"{requested} would install, change or remove {', '.join(touched)}, which belongs to a driver; nothing was "
            "installed; find the package that depends on it, and use the role gpu.fleet.nvidia_driver for the driver"
        )
    if removed:
        named = ", ".join(removed)
        yield f"{requested} would remove {named}; nothing was installed; change cuda_versions or cuda_source"
    # Of the last run there may be a pin, which this run replaces first.
    is_free = request.source == DISTRIBUTION or not host.recorded
    # What is missing from lists that may be old, or were never read, can be there after the next refresh.
    is_final = host.fresh or "not installable" not in host.error
    if host.error and is_final and is_free and set(plan.packages) <= {offer.name for offer in host.offers or ()}:
        yield f"{host.manager} cannot install {requested}: {host.error}"


def _with_removals(request: CudaRequest, host: CudaHost, plan: CudaPlan) -> CudaPlan:
    """The plan with what an earlier run installed and this request does not have."""
    before = host.recorded
    removes_all = request.state == "absent" or before.get("source", request.source) != request.source
    versions, packages = ((), ()) if removes_all else (plan.versions, plan.packages)
    return replace(
        plan,
        obsolete=tuple(version for version in before.get("versions", ()) if version not in versions),
        obsolete_packages=tuple(name for name in before.get("packages", ()) if name not in packages),
    )


def _exactly(name: str) -> str:
    """The name as a pattern for apt-get, which takes `g++` that no repository has for a pattern of half the archive."""
    return f"^{name.replace('+', '[+]')}$"


# For templates


def cuda_plan(variables: Mapping[str, Any], facts: Mapping[str, Any], tables: Mapping[str, Table]) -> dict[str, Any]:
    """The plan as a dictionary; a request that has not the documented form is refused like any other."""
    try:
        return plan_cuda(read_request(variables), read_host(facts), tables).as_dict()
    except CudaRequestError as error:
        return CudaPlan(refusals=(str(error),)).as_dict()


def read_host(facts: Mapping[str, Any]) -> CudaHost:
    """The facts of the host as the role knows them."""
    lines = facts.get("simulated") or ()
    return CudaHost(
        platform=facts["platform"],
        driver=str(facts.get("driver") or ""),
        gpus=read_gpus(facts.get("gpus") or ()),
        compiler=str(facts.get("compiler") or "").strip(),
        offers=parse_offers(str(facts["offered"])) if "offered" in facts else None,
        fresh=bool(facts.get("fresh", False)),
        simulated=tuple(map(str, lines)),
        error=str(facts.get("error") or "").strip(),
        recorded=facts.get("recorded") or {},
    )

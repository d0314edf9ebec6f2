# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""cuDNN, NCCL and TensorRT on one host: packages, archives, removals. Private to this collection. Pure: no Ansible."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath
from typing import Any, TypeGuard

from .._compatibility import (
    CompatibilityRequest,
    RequestedGpu,
    check,
    cudnn_row,
    cudnn_versions,
    driver_needed_for,
    fits,
    read_gpus,
)
from .._planning.contract import (
    Ask,
    Outlook,
    Plan,
    Read,
    RecordedHost,
    RequestError,
    RolePlanner,
    command,
    inputs_of,
    is_true,
    unread,
)
from .._planning.platforms import platform_of
from .._planning.variable_forms import is_list, shown
from .cuda.packages import (
    FRESH,
    LOCK_FILE,
    LOCK_PLUGIN,
    MANAGERS,
    CudaPackage,
    Offer,
    Table,
    is_offered,
    numbers,
    offers_command,
    offers_of,
    packages_for,
    parse_offers,
    refused_by_lists,
)

CUDNN = "cudnn"
INSTALL, REMOVE = "install", "remove"
"""Steps."""
LOADER_FILE = "/etc/ld.so.conf.d/gpu-fleet-cudnn.conf"
PREFERENCES_FILE = "/etc/apt/preferences.d/gpu-fleet-cudnn"
_LOADER = "# Written by the role gpu.fleet.cudnn, in the order of its archives: the first that has a library is used.\n"
_TABLE = "__cudnn_table"
# The shared library that programs load for each, without the number of its ABI.
_LOADED_NAMES = {"cudnn": "libcudnn", "nccl": "libnccl", "tensorrt": "libnvinfer"}
_LOADED = re.compile(r"^[ \t]*(\S+) [(].*?[)] => (\S.*)$", re.MULTILINE)
_FIELDS = ("library", "version", "cuda", "archive", "sha256")
_VERSION = re.compile(r"[0-9]+([.][0-9]+){0,3}")
_CUDA = re.compile(r"[0-9]+([.][0-9]+)?")
_AUTO, _SERIES = "auto", "13"
# Of toolkits: 12.9.
_DECLARED = re.compile(r"[0-9]+[.][0-9]+")
_DRIVER = re.compile(r"[0-9]{3}([.][0-9]+){1,2}")
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
class Request:
    """The variables of the role."""

    is_present: bool
    libraries: tuple[Library, ...]
    development: bool
    directory: str

    @classmethod
    def read(
        cls,
        variables: Mapping[str, Any],
        table: Table,
        records: Mapping[str, Mapping[str, Any]] | None = None,
        runs: CompatibilityRequest | None = None,
    ) -> Request:
        """The request in the variables.

        `table` has the packages by library, `records` is by role, `runs` has driver and GPUs of the host.
        """
        directory = variables["cudnn_directory"]
        if not isinstance(directory, str) or not directory.startswith("/"):
            raise RequestError(f"cudnn_directory is {shown(directory)}, and has to be an absolute path")
        runs = runs or CompatibilityRequest()
        series = _declared_series(variables, records or {}) or _series_of(runs)
        own = tuple(_read_libraries("cudnn_versions", variables, (CUDNN,)))
        own = tuple(_newest_for(replace(one, cuda=series) if one.cuda == _AUTO else one, runs) for one in own)
        others = tuple(name for name in table if name != CUDNN)
        additional = tuple(_read_libraries("cudnn_additional_libraries", variables, others))
        is_present = variables["cudnn_state"] == "present"
        return cls(is_present, own + additional, is_true(variables["cudnn_development"]), directory)

    @property
    def requested(self) -> tuple[Library, ...]:
        """The libraries that the host is to have."""
        return self.libraries if self.is_present else ()

    @property
    def from_packages(self) -> tuple[Library, ...]:
        """Those that NVIDIA's repository has."""
        return tuple(entry for entry in self.requested if not entry.archive)

    @property
    def repository(self) -> str:
        """The repository of the role nvidia_repository, empty where none is needed."""
        return "cuda" if self.from_packages else ""

    @property
    def archives(self) -> tuple[Library, ...]:
        """Those that are unpacked."""
        return tuple(entry for entry in self.requested if entry.archive)

    def directory_of(self, entry: Library) -> str:
        """Where an archive is unpacked."""
        return f"{self.directory.rstrip('/')}/{entry.library}-{entry.version}-cuda{entry.cuda}"

    def link_of(self, entry: Library) -> str:
        """The stable name of the first archive of a library."""
        return f"{self.directory.rstrip('/')}/{entry.library}"


@dataclass(frozen=True)
class Host(RecordedHost):
    """What is known of the host; empty where it is not, which is never a reason against a request.

    `driver` is the version of the driver, `forward` whether packages of CUDA stand in for a newer one.
    `offers` are the versions of the packages in `names` of the plan, None before they are read; with `fresh` there are
    no others.
    """

    gpus: tuple[RequestedGpu, ...] = ()
    driver: str = ""
    forward: bool = False
    offers: tuple[Offer, ...] | None = None
    fresh: bool = False

    @classmethod
    def of(cls, facts: Mapping[str, Any], offers: Mapping[str, Any] | None = None, fresh: bool = False) -> Host:
        """The host with these facts; `offers` is the result of one of the plan's `offers_commands`."""
        driver = str((facts.get("nvidia_smi") or {}).get("driver_version") or "")
        of_cuda = (facts["gpu_fleet_managed"].get("cuda") or {}).get("data") or {}
        return cls(
            platform=platform_of(facts),
            gpus=read_gpus((facts.get("nvidia_smi") or {}).get("pci_gpus") or ()),
            driver=driver if _DRIVER.fullmatch(driver) else "",
            forward=any(str(name).startswith("cuda-compat-") for name in of_cuda.get("packages") or ()),
            offers=None if offers is None else parse_offers(str(offers.get("stdout") or "")),
            fresh=fresh and offers is not None and offers.get("rc") == 0,
            record=facts["gpu_fleet_managed"].get(CUDNN) or {},
        )


# The variables


def _declared_series(variables: Mapping[str, Any], records: Mapping[str, Mapping[str, Any]]) -> str:
    """The series of the newest CUDA that is declared for the host, or recorded there by the role cuda; else empty."""
    given = variables.get("cuda_versions")
    recorded = ((records.get("cuda") or {}).get("data") or {}).get("versions")
    for versions in (given, recorded):
        # What is malformed is refused by the role cuda.
        found = [one for one in versions if _is_version(one)] if isinstance(versions, (list, tuple)) else []
        if found:
            return max(found, key=numbers).partition(".")[0]
    return ""


def _series_of(runs: CompatibilityRequest) -> str:
    """The newest series of CUDA up to the default that driver and GPUs run, as far as they are known."""
    series = {int(one.partition(".")[0]) for one in fits(runs)["cuda"]}
    return str(max((one for one in series if one <= int(_SERIES)), default=_SERIES))


def _newest_for(entry: Library, runs: CompatibilityRequest) -> Library:
    """The entry; of packages in a major version alone, the newest that GPUs and CUDA take, where a newer one exists.

    Where none fits, the refusal of the newest names what does.
    """
    found = [one for one in _fitting(entry.cuda, runs.gpus) if one.startswith(f"{entry.version}.")]
    is_limited = (
        not entry.archive and "." not in entry.version and found[-1:] not in ([], [_newest_known(entry.version)])
    )
    return replace(entry, version=found[-1]) if is_limited else entry


def _fitting(cuda: str, gpus: tuple[RequestedGpu, ...]) -> list[str]:
    """The versions of cuDNN for a CUDA and for GPUs, oldest first."""
    for_gpus = fits(CompatibilityRequest(gpus))["cudnn"]
    return [one for one in fits(CompatibilityRequest(cuda=_minor(cuda)))["cudnn"] if one in for_gpus]


def _minor(cuda: str) -> str:
    return cuda if "." in cuda else f"{cuda}.0"


def _is_version(value: object) -> TypeGuard[str]:
    """Whether a value is a version of CUDA as the role cuda takes it."""
    return isinstance(value, str) and _DECLARED.fullmatch(value) is not None


def _read_libraries(variable: str, variables: Mapping[str, Any], libraries: Sequence[str]) -> Iterator[Library]:
    given = variables[variable]
    if not is_list(given):
        raise RequestError(f"{variable} is {shown(given)}, and takes a list: {_EXAMPLES[variable]}")
    for entry in given:
        yield _read_library(variable, entry, libraries)


def _read_library(variable: str, entry: Any, libraries: Sequence[str]) -> Library:
    form = f"use {_EXAMPLES[variable]}"
    if not isinstance(entry, Mapping):
        raise RequestError(f"{variable} has {shown(entry)}, which is not a dictionary; {form}")
    allowed = [name for name in _FIELDS if name != "library" or variable != "cudnn_versions"]
    unknown = [name for name in entry if name not in allowed]
    if unknown:
        raise RequestError(f"{variable} has {shown(unknown[0])} in {shown(entry)}; an entry has {', '.join(allowed)}")
    missing = [name for name in allowed[:-2] if entry.get(name) in (None, "")]
    if missing:
        raise RequestError(f"{variable} has no {' and no '.join(missing)} in {shown(entry)}; {form}")
    numeric = [name for name in ("version", "cuda") if not isinstance(entry[name], str)]
    if numeric:
        raise RequestError(
            f"{variable} has the {numeric[0]} {shown(entry[numeric[0]])} without quotes, which YAML reads as a number "
            f"(9.10 as 9.1): {form}"
        )
    library = str(entry.get("library", CUDNN))
    if library not in libraries:
        raise RequestError(f"{variable} has the library {shown(library)}; use {' or '.join(libraries)}")
    for name, pattern, example in (("version", _VERSION, "9.14.0.64 or 9.14"), ("cuda", _CUDA, "13 or 12.9")):
        follows = (name, variable, entry[name]) == ("cuda", "cudnn_versions", _AUTO)
        if not follows and not pattern.fullmatch(entry[name]):
            raise RequestError(
                f"{variable} has the {name} {shown(entry[name])}, which is none, as {example} is; {form}"
            )
    archive, sha256 = (str(entry.get(name) or "") for name in ("archive", "sha256"))
    if archive and not (_ARCHIVE.fullmatch(archive) and _SHA256.fullmatch(sha256)):
        raise RequestError(
            f"{variable} has the archive {shown(archive)}, which must be a URL (http, https, ftp) or an absolute path "
            "on the host, and needs its sha256, 64 hexadecimal digits; NVIDIA lists it next to the archive"
        )
    return Library(variable, library, str(entry["version"]), str(entry["cuda"]), archive, sha256)


# The plan


def plan(request: Request, host: Host, table: Table) -> Plan:
    """Plan the libraries; `table` has the packages by library."""
    if not host.platform["supported"]:
        known = ", ".join(host.platform["known"])
        return Plan((f"{host.platform['name']} is not supported by the role gpu.fleet.cudnn; use one of: {known}",))
    inputs, record = inputs_of(request, platform=host.platform["name"]), host.record
    drift = record.get("drift") or []
    is_converged = not drift and record.get("inputs") == inputs
    has_work = not is_converged if request.is_present else bool(record)
    # A host that is as requested may have what other variables could no longer get.
    refusals = _refusals(request, host if has_work else Host(host.platform), table)
    return Plan(
        refusals=refusals,
        steps=((INSTALL if request.is_present else REMOVE),) if has_work else (),
        reasons=tuple(found["message"] for found in drift),
        inputs=inputs,
        tasks=_tasks(request, host, table),
    )


def _refusals(request: Request, host: Host, table: Table) -> tuple[str, ...]:
    return tuple(_against_each_other(request)) or tuple(
        text for entry in request.requested for text in _against_library(entry, request, host, table)
    )


def _tasks(request: Request, host: Host, table: Table) -> dict[str, Any]:
    """What the tasks read."""
    found = [package for entry in request.from_packages for package in _packages(entry, request, host, table)]
    # The first entry of a name counts.
    packages = list({package.name: package for package in reversed(found)}.values())[::-1]
    installed = [package for package in packages if package.kind != "dependency"]
    is_locked = host.manager == "dnf"
    directories = [request.directory_of(entry) for entry in request.archives]
    first = {request.link_of(entry): request.directory_of(entry) for entry in reversed(request.archives)}
    links = list(dict.fromkeys(map(request.link_of, request.archives)))
    data: dict[str, list[str]] = {
        "packages": [package.name for package in packages],
        "directories": directories,
        "links": links,
        "version_locks": [f"{package.name}-0:{package.version}" for package in packages] if is_locked else [],
    }
    obsolete = {name: [one for one in host.recorded.get(name) or () if one not in data[name]] for name in data}
    names = dict.fromkeys((*data["packages"], *_probe(host.manager, table)))
    separator = "-" if is_locked else "="
    listed = [f"{package.name}{separator}{package.version}" for package in installed]
    changes = {"install": [package.name for package in installed] + directories} if request.is_present else {}
    changes["remove"] = obsolete["packages"] + obsolete["directories"]
    return {
        "would": " ".join(f"{verb} {', '.join(what)}" for verb, what in changes.items() if what or verb == "install"),
        "manager": host.manager,
        "needs_repository": bool(request.repository),
        "offers_commands": {
            "cached": [*offers_command(host.manager, fresh=False), *names],
            "fresh": [*offers_command(host.manager, fresh=True), *names],
        },
        "archives": [
            {"src": entry.archive, "sha256": entry.sha256, "path": request.directory_of(entry)}
            for entry in request.archives
        ],
        "links": [{"path": path, "src": first[path]} for path in links],
        "packages": [asdict(package) for package in packages],
        **{name: listed if name == host.manager else [] for name in MANAGERS},
        "obsolete": obsolete,
        "removes_packages": bool(obsolete["packages"] or obsolete["version_locks"]),
        "obsolete_files": obsolete["links"]
        + ([] if directories else [LOADER_FILE])
        + ([] if packages else [PREFERENCES_FILE]),
        "loader_file": LOADER_FILE,
        "preferences_file": PREFERENCES_FILE,
        "pins": [{"packages": package.name, "version": package.version} for package in packages],
        "record": {
            "data": data,
            # Recorded first, with what an earlier run has left.
            "intended": {name: list(dict.fromkeys([*(host.recorded.get(name) or ()), *data[name]])) for name in data},
            "packages": [LOCK_PLUGIN] if data["version_locks"] else [],
            "pinned_packages": [package.name for package in installed],
            "lines": {LOCK_FILE: data["version_locks"]} if data["version_locks"] else {},
        },
    }


def _packages(entry: Library, request: Request, host: Host, table: Table) -> tuple[CudaPackage, ...]:
    kinds = ("", "development", "dependency") if request.development else ("",)
    found = packages_for(entry.library, entry.version, entry.cuda, table, host.manager)
    return tuple(package for package in found if package.kind in kinds)


def _against_each_other(request: Request) -> Iterator[str]:
    """Entries that exclude each other."""
    directories = [request.directory_of(entry) for entry in request.archives]
    if len(set(directories)) < len(directories):
        yield f"two archives would be unpacked into the same directory: {', '.join(directories)}"
    # Both would be the same file, or conflicting packages.
    majors = [f"{entry.library} {entry.version.split('.')[0]}" for entry in request.from_packages]
    if len(set(majors)) < len(majors):
        yield (
            f"packages of {', '.join(majors)} were requested, and only one of each major version can be installed; set "
            "archive for the others"
        )


def _against_library(entry: Library, request: Request, host: Host, table: Table) -> Iterator[str]:
    """Why a library cannot be had, or cannot be used here."""
    yield from _against_driver(entry, host)
    if entry.library == CUDNN and _newest_known(entry.version):
        yield from _against_combination(entry, host)
    if not entry.archive:
        yield from _against_availability(entry, _packages(entry, request, host, table), host, table)


def _against_driver(entry: Library, host: Host) -> Iterator[str]:
    """Why the driver does not run the CUDA of a library; the role cuda decides."""
    cuda = _minor(entry.cuda)
    on_driver = CompatibilityRequest(
        gpus=host.gpus, driver=host.driver or None, cuda=cuda, forward_compatibility=host.forward
    )
    if host.driver and driver_needed_for(cuda) and check(on_driver).reasons:
        runs = sorted({one.partition(".")[0] for one in fits(replace(on_driver, cuda=None))["cuda"]}, key=int)
        if entry.cuda in runs:  # a later version of the series than its first
            return
        reasons = "; ".join(check(on_driver).reasons)
        yield (
            f"{entry.variable} has {entry.library} {entry.version} for CUDA {entry.cuda}: {reasons}; driver and GPUs "
            f"run CUDA {', '.join(runs[-3:]) or 'of no series'}: "
            f"change cuda in {entry.variable}, or cuda_versions, which auto follows"
        )


def _newest_known(version: str) -> str:
    """The newest cuDNN of the tables that a version, or the beginning of one, stands for; empty if there is none."""
    if "." in version:
        beginning = ".".join(version.split(".")[:2])
        return beginning if cudnn_row(beginning) else ""
    return next((known for known in reversed(cudnn_versions()) if known.startswith(f"{version}.")), "")


def _against_combination(entry: Library, host: Host) -> Iterator[str]:
    version = _newest_known(entry.version)
    with_cuda = CompatibilityRequest(cudnn=version, cuda=_minor(entry.cuda))
    with_gpus = CompatibilityRequest(cudnn=version, gpus=host.gpus)
    reasons = [*check(with_cuda).reasons, *check(with_gpus).reasons]
    if reasons:
        fitting = ", ".join(_fitting(entry.cuda, host.gpus))
        yield (
            f"{'; '.join(reasons)}; these versions of cuDNN for CUDA {entry.cuda} fit: {fitting or 'none'}; change "
            "cudnn_versions"
        )


def _against_availability(entry: Library, packages: Sequence[CudaPackage], host: Host, table: Table) -> Iterator[str]:
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


# What the loader has to find


def loader(planned: Plan, unpacked: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """What the loader is configured with; `unpacked` are the libraries of each archive, by name. The first counts."""
    libraries = {name: path for of_archive in reversed(unpacked) for name, path in of_archive.items()}
    directories = list(dict.fromkeys(str(PurePosixPath(p).parent) for one in unpacked for p in one.values()))
    archives = [entry["path"] for entry in planned.tasks["archives"]]
    files = [LOADER_FILE] if archives else []
    files += [PREFERENCES_FILE] if planned.tasks["apt"] else []
    files += [link["path"] for link in planned.tasks["links"]]
    files += [path + below for path in archives for below in ("", "/.gpu-fleet-archive.json", "/*", "/*/*")]
    return {
        "libraries": libraries,
        "content": _LOADER + "".join(f"{directory}\n" for directory in directories),
        "files": files + [f"{directory}/*" for directory in directories],
    }


def refusals_of_the_loader(request: Request, libraries: Mapping[str, str], cache: str) -> Iterator[str]:
    """What `ldconfig -p`, of which `cache` is the output, finds elsewhere or not at all."""
    found: dict[str, str] = {}
    for name, path in _LOADED.findall(cache):
        found.setdefault(name, path)
    for name, path in libraries.items():
        if found.get(name) != path:
            yield (
                f"the loader uses {found.get(name, 'nothing')} for {name}, not {path}; see `ldconfig -p` and "
                "/etc/ld.so.conf.d on the host"
            )
    for entry in request.from_packages:
        name = f"{_LOADED_NAMES[entry.library]}.so.{entry.version.partition('.')[0]}"
        if name not in found:
            yield f"the loader does not find {name} of {entry.library} {entry.version}; see `ldconfig -p` on the host"


# For the tasks


def _request(variables: Mapping[str, Any], facts: Mapping[str, Any]) -> Request:
    host = Host.of(facts)
    runs = CompatibilityRequest(host.gpus, host.driver or None)
    return Request.read(variables, variables[_TABLE], facts["gpu_fleet_managed"], runs)


def _before_change(variables: Mapping[str, Any], facts: Mapping[str, Any], outlook: Outlook) -> Sequence[str]:
    """Refusals before the first change of the run; a driver that the role nvidia_driver replaces decides nothing."""
    unknown = {"driver_version": None} if "nvidia_driver" in outlook.coming else {}
    known = {**facts, "nvidia_smi": {**facts["nvidia_smi"], **unknown}}
    return plan(_request(variables, known), Host.of(known), variables[_TABLE]).refusals


def _plan(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan | Ask:
    """The plan, with `lists` by what the repositories have, and with `unpacked` what the loader gets."""
    request = _request(variables, facts)
    found = plan(request, Host.of(facts), variables[_TABLE])
    if found.refusals or not found.has_work or "lists" not in given:
        return found
    host = Host.of(facts, given.get("offers", {}), given["lists"] == FRESH)
    asked = offers_of(found, given)
    if asked:
        return asked
    found = plan(request, host, variables[_TABLE])
    configured = {"loader": loader(found, given["unpacked"])} if "unpacked" in given else {}
    return replace(found, tasks={**found.tasks, **configured})


def _loaded(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan | Ask:
    asked = unread(given, {"cache": command("ldconfig", "-p")})
    cache = "" if asked else str(given["cache"].get("stdout") or "")
    return asked or Plan(tuple(refusals_of_the_loader(_request(variables, facts), given["libraries"], cache)))


def _listed(
    variables: Mapping[str, Any], facts: Mapping[str, Any], read: Read, _to_come: Mapping[str, str]
) -> tuple[str, Sequence[str]]:
    return "", refused_by_lists(_plan, variables, facts, read)


def _repository(variables: Mapping[str, Any], _facts: Mapping[str, Any]) -> str:
    return Request.read(variables, variables[_TABLE]).repository


PLANNER = RolePlanner(
    "cudnn",
    {"plan": _plan, "loaded": _loaded},
    tables=(_TABLE,),
    refuses=_before_change,
    repository=_repository,
    listed=_listed,
    runs_by_default=True,
    needs_gpu=False,
    has_plan=True,
    is_disruptive=True,
)

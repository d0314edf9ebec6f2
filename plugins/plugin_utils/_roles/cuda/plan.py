# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CUDA toolkits of one host: versions, packages, removals, proofs. Private to this collection. Pure: no Ansible."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ....module_utils._common.masking import masked
from ....module_utils._knowledge.cuda import DRIVER_OF_CUDA
from ..._compatibility import CompatibilityRequest, RequestedGpu, check, fits, read_gpus
from ..._planning.contract import (
    RUN_ONLY,
    Ask,
    Plan,
    Read,
    Reading,
    RecordedHost,
    RequestError,
    RolePlanner,
    command,
    inputs_of,
    is_true,
    unread,
)
from ..._planning.platforms import platform_of
from ..._planning.variable_forms import is_list, shown
from .packages import (
    FRESH,
    LOCK_FILE,
    LOCK_PLUGIN,
    Change,
    Offer,
    Table,
    driver_changes,
    numbers,
    offers_command,
    packages_for,
    parse_changes,
    parse_offers,
    refused_by_lists,
)

CUDA = "cuda"
INSTALL, REMOVE = "install", "remove"
"""Steps."""
DEFAULT_VERSION = "13.0"
"""The toolkit where none is named, the source does not decide, and driver and GPUs run it."""
DISTRIBUTION, REPOSITORY, RUNFILE = "distribution", "cuda_repository", "runfile"
TABLES = "__cuda_tables"
"""The packages of each component, by source."""

LINK = "/usr/local/cuda"
PREFERENCES_FILE = "/etc/apt/preferences.d/gpu-fleet-cuda"
COMPONENTS_FILE = "/etc/apt/sources.list.d/gpu-fleet-cuda-non-free.sources"
PROFILE_FILE = "/etc/profile.d/cuda.sh"
ENVIRONMENT_D_FILE = "/etc/environment.d/50-gpu-fleet-cuda.conf"
LOADER_FILE = "/etc/ld.so.conf.d/gpu-fleet-cuda.conf"
_PROFILE = f"""\
# Written by the role gpu.fleet.cuda. Sourced several times, PATH does not grow.
case ":${{PATH}}:" in
  *:{LINK}/bin:*) ;;
  *) PATH={LINK}/bin:${{PATH}} ;;
esac
export PATH
export CUDA_HOME={LINK}
"""
_ENVIRONMENT = f"""\
# Written by the role gpu.fleet.cuda.
PATH={LINK}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
CUDA_HOME={LINK}
"""
_LOADER = "# Written by the role gpu.fleet.cuda: the default first, then the others from the newest.\n"
FILES = (PREFERENCES_FILE, COMPONENTS_FILE, PROFILE_FILE, ENVIRONMENT_D_FILE, LOADER_FILE)
# That a runfile's installer writes next to the toolkit's directory.
_RUNFILE_TRACES = (
    "/var/log/cuda-installer.log",
    "/var/log/cuda-uninstaller.log",
    "/var/log/nvidia/.uninstallManifests",
)
# One package for all versions, of which the newest would be installed: it must belong to the newest toolkit requested
# here. https://github.com/linux-system-roles/hpc/pull/97
_PINNED = "cuda-toolkit-config-common"
OF_TOOLKITS = re.compile(
    r"cuda-(?!drivers|keyring|repo)|cccl-|nsight-|gds-tools|nvidia-(cuda|profiler|visual-profiler)"
    r"|lib(nv)?(cublas|cudart|cudla|cuobjclient|cufft|cufile|cuinj|cupti|curand|cusolver|cusparse|npp|nvblas|nvfatbin"
    r"|nvjitlink|nvjpeg|nvptxcompiler|nvrtc|nvsdk|nvtoolsext|nvvm|accinj|thrust|cub-)"
)
"""Packages that only toolkits depend on, to find the leftovers of a removed one."""
_INSTALLED: Reading = ("gpu.fleet.host_facts", {"gather": ["packages"]})
# Prints the version of the CUDA runtime that it was linked with. Needs no GPU and no driver.
_PROGRAM = """\
#include <stdio.h>
#include <cuda_runtime.h>

__global__ void kernel(void) {}

int main(void) {
  int version = 0;
  cudaError_t status = cudaRuntimeGetVersion(&version);
#if defined(CUDART_VERSION) && CUDART_VERSION < 12000
  // Before CUDA 12 the library works only where there is a GPU. Here it only has to be found and loaded.
  if (status != cudaSuccess) version = CUDART_VERSION, status = cudaSuccess;
#endif
  if (status != cudaSuccess) return 1;
  printf("%d.%d\\n", version / 1000, version % 1000 / 10);
  return 0;
}
"""
# Always the same program, whose argument is nvcc; it leaves nothing. With the shared runtime, so that the loader must
# find it as well.
_COMPILE_AND_RUN = """\
set -e
scratch=$(mktemp -d -t gpu-fleet-cuda-XXXXXX)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
cat >runtime_version.cu
"$1" -cudart shared -o runtime_version runtime_version.cu >&2
./runtime_version
"""
_FORWARD = "forward_compatibility"
_COMPILER_PARTS = ("toolkit", "compiler")
_RUNTIME_PARTS = ("toolkit", "compiler", "runtime", "libraries")
_HOST_COMPILERS = {"apt": "g++", "dnf": "gcc-c++"}
_VERSION = re.compile(r"[0-9]+[.][0-9]+")
_DRIVER = re.compile(r"[0-9]{3}([.][0-9]+){0,2}")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_URL = re.compile(r"(https?|ftp|file)://.+")
_FITTING = 8
_VERSIONS_EXAMPLE = 'cuda_versions: ["12.9", "13.0"]'
# An error of `apt-get --simulate`.
_CONFLICT = re.compile(r"(Depends|Conflicts|Breaks): ")

Tables = Mapping[str, Table]


@dataclass(frozen=True)
class Runfile:
    """NVIDIA's installer of one version. Where it comes from leaves nothing on the host."""

    url: str = field(metadata=RUN_ONLY)
    sha256: str

    @property
    def is_complete(self) -> bool:
        """Whether both have the form that is needed."""
        return bool(_URL.fullmatch(self.url) and _SHA256.fullmatch(self.sha256))


@dataclass(frozen=True)
class Request:
    """The variables of the role; empty `versions` leave the choice to the source."""

    is_present: bool
    source: str
    versions: tuple[str, ...]
    components: tuple[str, ...]
    default: str
    runfiles: Mapping[str, Runfile]
    profile: bool
    environment_d: bool
    forward_compatibility: bool
    debian_mirror: str

    @classmethod
    def read(cls, variables: Mapping[str, Any]) -> Request:
        """The request in the variables; raises RequestError for a value of another form than documented."""
        return cls(
            is_present=variables["cuda_state"] == "present",
            source=str(variables["cuda_source"]),
            versions=_read_versions(variables["cuda_versions"]),
            components=_read_components(variables["cuda_components"]),
            default=_read_default(variables["cuda_default"]),
            runfiles=_read_runfiles(variables["cuda_runfiles"]),
            **{name: is_true(variables[f"cuda_{name}"]) for name in ("profile", "environment_d", _FORWARD)},
            debian_mirror=str(variables["cuda_debian_mirror"]),
        )

    def on(self, host: Host) -> Request:
        """The request with what it leaves to the host, and without runfiles that are of no use."""
        own = (str(host.platform.get("cuda_version", "")),)
        versions = own if self.source == DISTRIBUTION else self.versions or (_default_version(self, host),)
        default = versions[-1] if self.default == "newest" else self.default
        useful = versions if self.source == RUNFILE else ()
        runfiles = {version: self.runfiles[version] for version in useful if version in self.runfiles}
        return replace(self, versions=versions, default=default, runfiles=runfiles)

    @property
    def repository(self) -> str:
        """The repository of the role nvidia_repository, empty where none is needed."""
        return "cuda" if self.is_present and self.source == REPOSITORY else ""

    @property
    def needs_compiler(self) -> bool:
        """Whether the components include nvcc."""
        return not set(self.components).isdisjoint(_COMPILER_PARTS)

    @property
    def needs_runtime(self) -> bool:
        """Whether the components include libcudart."""
        return not set(self.components).isdisjoint(_RUNTIME_PARTS)


@dataclass(frozen=True)
class Host(RecordedHost):
    """What is known of the host; empty where it is not, which is never a reason against a request.

    `runs` are driver and GPUs by which the default version is chosen; `driver` and `gpus`, read later, count against a
    request. `compiler` is the version of g++. `offers` are the versions of the packages in `names` of
    the plan, None before they are read; with `fresh` there are no others. `changes` come from a simulated
    installation, `error` is why that failed. `installed` are packages, read where some are damaged. `components`: this
    role has enabled Debian's non-free component.
    """

    runs: CompatibilityRequest = field(default_factory=CompatibilityRequest)
    driver: str = ""
    gpus: tuple[RequestedGpu, ...] = ()
    compiler: str = ""
    offers: tuple[Offer, ...] | None = None
    fresh: bool = False
    changes: tuple[Change, ...] = ()
    error: str = ""
    installed: tuple[str, ...] = ()
    components: bool = False

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Host:
        """The host before its driver, GPUs and package lists are read."""
        gpus = read_gpus((facts.get("nvidia_smi") or {}).get("pci_gpus") or ())
        runs = CompatibilityRequest(gpus, _version_or_none(_driver_of(facts)))
        return cls(platform_of(facts), facts["gpu_fleet_managed"].get(CUDA) or {}, runs)

    def observed(self, facts: Mapping[str, Any], found: Mapping[str, Any]) -> Host:
        """The host with what tasks have read.

        `compiler`, `offers` and `simulation` of `found` are results of commands; `driver` is one that is still to come.
        """
        offers = found.get("offers") or {}
        changes, error = _read_simulation(found.get("simulation") or {}, self.manager)
        driver = str(found.get("driver", _driver_of(facts)))
        return replace(
            self,
            runs=replace(self.runs, driver=_version_or_none(driver)),
            driver=driver,
            gpus=read_gpus(facts["nvidia_smi"]["pci_gpus"]),
            # Where there is none, the distribution's comes with the toolkit.
            compiler=str((found.get("compiler") or {}).get("stdout") or "").strip() or str(self.platform["gcc"]),
            offers=parse_offers(str(offers.get("stdout") or "")),
            fresh=found["lists"] == FRESH and offers.get("rc") == 0,
            changes=changes,
            error=error,
            installed=tuple(map(str, facts["packages"])) if "packages" in found else (),
            components=bool((found.get("components") or {}).get(COMPONENTS_FILE)),
        )

    @property
    def damaged(self) -> tuple[str, ...]:
        """The versions whose directory has changed since the last run."""
        names = (str(found["name"]) for found in self.record.get("drift") or ())
        matches = (re.match(r"/usr/local/cuda-([0-9][0-9.]*)", name) for name in names)
        return tuple(dict.fromkeys(match[1] for match in matches if match))


def _driver_of(facts: Mapping[str, Any]) -> str:
    """The driver on disk, else the one that is loaded; empty for none."""
    own = (facts.get("cuda") or {}).get("driver") or {}
    return str(own.get("library_version") or own.get("loaded_version") or "")


def _version_or_none(driver: str) -> str | None:
    """A version or a branch, as the tables take it."""
    return driver if _DRIVER.fullmatch(driver) else None


def _read_simulation(result: Mapping[str, Any], manager: str) -> tuple[tuple[Change, ...], str]:
    """What a simulated transaction would change, and why apt cannot do it."""
    lines = [str(line) for line in result.get("stdout_lines" if manager == "apt" else "results") or ()]
    reasons = [line.strip() for line in lines if _CONFLICT.search(line)]
    reasons = reasons or [
        str(line).removeprefix("E: ") for line in result.get("stderr_lines") or () if str(line).startswith("E: ")
    ]
    if manager == "dnf" and result.get("failed"):
        reasons = [str(line) for line in result.get("failures") or [result.get("msg")]]
    return parse_changes(lines, manager), "; ".join(reasons) if result.get("rc") else ""


# The variables


def _read_versions(given: Any) -> tuple[str, ...]:
    if not is_list(given):
        raise RequestError(
            f"cuda_versions is {shown(given)}, and takes a list of versions, each as major.minor and in quotes: "
            f"{_VERSIONS_EXAMPLE}"
        )
    versions = tuple(_read_version("cuda_versions", version) for version in given)
    if len(set(versions)) < len(versions):
        raise RequestError(f"cuda_versions is {shown(given)}; name each version once: {_VERSIONS_EXAMPLE}")
    return tuple(sorted(versions, key=numbers))


def _read_version(name: str, given: Any) -> str:
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        raise RequestError(
            f'{name} has {given} without quotes, which YAML reads as a number (12.10 as 12.1): write it as "{given}", '
            "each version as major.minor and in quotes"
        )
    if not isinstance(given, str) or not _VERSION.fullmatch(given):
        raise RequestError(f'{name} has {shown(given)}; write each version as major.minor and in quotes, as in "13.0"')
    return str(given)


def _read_components(given: Any) -> tuple[str, ...]:
    if not is_list(given) or not given or not all(isinstance(part, str) for part in given):
        raise RequestError(f"cuda_components is {shown(given)}, and takes a list: cuda_components: [toolkit]")
    return tuple(map(str, given))


def _read_default(given: Any) -> str:
    return given if given == "newest" else _read_version("cuda_default", given)


def _read_runfiles(given: Any) -> dict[str, Runfile]:
    if not isinstance(given, Mapping) or not all(isinstance(value, Mapping) for value in given.values()):
        raise RequestError(
            f"cuda_runfiles is {shown(given)}, and takes url and sha256 by version: "
            'cuda_runfiles: {"13.0": {url: https://..., sha256: ...}}'
        )
    return {
        _read_version("cuda_runfiles", version): Runfile(str(one.get("url", "")), str(one.get("sha256", "")).lower())
        for version, one in given.items()
    }


# The plan


def _default_version(request: Request, host: Host) -> str:
    """The toolkit where none is named: DEFAULT_VERSION, or the newest before it that the GPUs and the driver run.

    The driver runs all of it, without the limits of minor version compatibility. Where none fits, the refusal of
    DEFAULT_VERSION names what does.
    """
    runs = replace(host.runs, forward_compatibility=request.forward_compatibility)
    if not check(replace(runs, cuda=DEFAULT_VERSION)).reasons:
        return DEFAULT_VERSION
    newest = numbers(runs.driver or DRIVER_OF_CUDA[DEFAULT_VERSION])
    fitting = [one for one in fits(runs)["cuda"] if numbers(DRIVER_OF_CUDA[one])[: len(newest)] <= newest]
    return max(fitting, key=numbers, default=DEFAULT_VERSION)


def plan(request: Request, host: Host, tables: Tables) -> Plan:
    """Plan the toolkits; `tables` has the packages by source (`cuda_repository`, `distribution`) and component."""
    given, request = request, request.on(host)
    wrong = tuple(_against_variables(given, request, host, tables))
    if wrong:
        return Plan(wrong)
    inputs, drift = inputs_of(request, platform=host.platform["name"]), host.record.get("drift") or []
    is_converged = not drift and host.record.get("inputs") == inputs
    has_work = not is_converged if request.is_present else bool(host.record)
    if not has_work:
        # A host that is as requested may have what other variables could no longer get.
        host = Host(host.platform, host.record, host.runs)
    table = _table(request, host, tables)
    requested = request.versions if request.is_present else ()
    found = {version: check(_combination(version, request, host)) for version in requested}
    forward = tuple(version for version, one in found.items() if one.forward_package)
    packages = _packages(request, host, table, request.versions, forward)
    refusals: list[str] = []
    if request.is_present:
        offered = _offered_versions(request, host, table)
        for version in found:
            refusals += _against_availability(version, _as_named(version, given), request, host, offered)
        refusals += [
            f"{'; '.join(one.reasons)}; {_fitting(version, request, host, offered)}"
            for version, one in found.items()
            if one.reasons
        ]
        refusals += _against_transaction(request, host, packages) if packages else ()
    return Plan(
        refusals=tuple(refusals),
        steps=((INSTALL if request.is_present else REMOVE),) if has_work else (),
        reasons=tuple(one["message"] for one in drift),
        inputs=inputs,
        notes=tuple(note for one in found.values() for note in one.notes),
        tasks=_tasks(request, host, table, packages, forward),
    )


def _is_of_nvidia(request: Request, host: Host) -> bool:
    """Whether the toolkits are NVIDIA's packages or runfiles, each in a directory of its own, else a distribution's."""
    return request.source != DISTRIBUTION or bool(host.platform.get("cuda_of_nvidia"))


def _directories(request: Request, host: Host) -> list[str]:
    """The directories of the toolkits. Debian's is in the system's own: no path has to be set."""
    return [f"{LINK}-{version}" for version in request.versions] if _is_of_nvidia(request, host) else []


def _table(request: Request, host: Host, tables: Tables) -> Table:
    """The packages by component. Of a distribution that has NVIDIA's, only the whole toolkit is known by name."""
    if request.source == DISTRIBUTION and _is_of_nvidia(request, host):
        return {"toolkit": tables[REPOSITORY]["toolkit"]}
    return tables.get(request.source, {})


def _against_variables(given: Request, request: Request, host: Host, tables: Tables) -> Iterator[str]:
    """What is wrong with the variables on this platform, whatever else is known; `given` has their own versions."""
    name, own = host.platform["name"], str(host.platform.get("cuda_version", ""))
    if not host.platform["supported"]:
        yield f"{name} is not supported by the role gpu.fleet.cuda; use one of: {', '.join(host.platform['known'])}"
        return
    if request.source == DISTRIBUTION and not own:
        yield f"{name} has no CUDA toolkit for this source; set cuda_source to cuda_repository or runfile"
        return
    available = [part for part in _table(request, host, tables) if part != _FORWARD] or ["toolkit"]
    wrong = [part for part in request.components if part not in available]
    if wrong:
        yield f"cuda_components has {shown(wrong)}; the source {request.source} has {', '.join(available)}"
    others = [version for version in given.versions if version not in request.versions]
    if others:
        yield (
            f"cuda_versions has {', '.join(others)}, and the distribution {name} has CUDA {own} only; leave out "
            f"cuda_versions, or set cuda_source to cuda_repository or runfile"
        )
    if request.default not in request.versions:
        yield (
            f"cuda_default is {request.default}, which is not among the versions {', '.join(request.versions)}; use "
            "one of them, or newest"
        )
    if request.source == RUNFILE and request.is_present:
        for version in request.versions:
            if not request.runfiles.get(version, Runfile("", "")).is_complete:
                yield (
                    f"cuda_runfiles has no url (http, https, ftp or file) with a sha256 of 64 hexadecimal digits for "
                    f"{version}; NVIDIA lists both at https://developer.nvidia.com/cuda-toolkit-archive"
                )


def _packages(
    request: Request, host: Host, table: Table, versions: Iterable[str], forward: Iterable[str] = ()
) -> tuple[str, ...]:
    """The packages of the components in these versions, and those for forward compatibility; none of a runfile."""
    if request.source == RUNFILE:
        return ()
    parts = [(part, version) for version in versions for part in request.components]
    parts += [(_FORWARD, version) for version in forward]
    names = (
        package.name for part, version in parts for package in packages_for(part, version, "", table, host.manager)
    )
    return tuple(dict.fromkeys(names))


def _names(request: Request, host: Host, table: Table) -> tuple[str, ...]:
    """The requested packages, and the packages of all known versions, to name instead."""
    known = DRIVER_OF_CUDA if request.source == REPOSITORY else ()
    return _packages(request, host, table, dict.fromkeys((*request.versions, *known)))


def _combination(version: str, request: Request, host: Host) -> CompatibilityRequest:
    # The toolkits that Debian and Ubuntu have made depend on the compiler that they need.
    compiler = host.compiler if request.needs_compiler and _is_of_nvidia(request, host) else ""
    return CompatibilityRequest(
        gpus=host.gpus,
        driver=host.driver or None,
        cuda=version,
        compiler=f"gcc {compiler}" if compiler else None,
        forward_compatibility=request.forward_compatibility,
    )


def _fitting(version: str, request: Request, host: Host, offered: Sequence[str]) -> str:
    """What to do: the newest versions that fit the host, of those that are offered where that is known."""
    if request.source == DISTRIBUTION:
        return f"it is the only version of {host.platform['name']}: change cuda_source"
    fitting = [one for one in fits(_combination(version, request, host))["cuda"] if not offered or one in offered]
    older = " and older ones" if len(fitting) > _FITTING else ""
    found = f"these versions fit: {', '.join(fitting[-_FITTING:])}{older}" if fitting else "no version fits"
    return f"{found}; change cuda_versions"


def _offered_versions(request: Request, host: Host, table: Table) -> list[str]:
    """The versions of which the repository has every package of the components, oldest first."""
    if request.source != REPOSITORY:
        return []
    names = {offer.name for offer in host.offers or ()}
    candidates = sorted({*DRIVER_OF_CUDA, *request.versions}, key=numbers)
    return [version for version in candidates if {*_packages(request, host, table, (version,))} <= names]


def _as_named(version: str, given: Request) -> str:
    """How a refusal begins, in the words of the user, who may have named no version."""
    return f"cuda_versions has {version}" if given.versions else f"cuda_versions names none, so it is {version} here"


def _against_availability(
    version: str, named: str, request: Request, host: Host, offered: Sequence[str]
) -> Iterator[str]:
    """Why a version cannot be had from NVIDIA's repository; `named` is how the refusal begins.

    Package lists that may be old have every older version, but maybe not the newest. Without lists the tables decide.
    """
    if request.source != REPOSITORY or host.offers is None or version in offered:
        return
    is_known = version in DRIVER_OF_CUDA
    if not offered and not host.fresh:
        if not is_known:
            known = sorted(DRIVER_OF_CUDA, key=numbers)
            yield (
                f"{named}, which is not a CUDA version that this collection knows ({known[0]} to "
                f"{known[-1]}); for a newer one, first add its repository with the role gpu.fleet.nvidia_repository"
            )
    elif host.fresh or not is_known or numbers(version) < numbers(offered[-1]):
        has = f"it has {', '.join(offered[-_FITTING:])}" if offered else "it has none of the known versions"
        yield (
            f"{named}, of which the repository for {host.platform['name']} does not have "
            f"{', '.join(request.components)}; {has}"
        )


def _against_transaction(request: Request, host: Host, packages: Sequence[str]) -> Iterator[str]:
    """What the package manager would do to a driver or remove, or why it does nothing."""
    touched = driver_changes(host.changes, host.driver, libraries_allowed=request.source == DISTRIBUTION)
    removed = [change.name for change in host.changes if change.action == "remove" and change.name not in touched]
    requested = ", ".join(packages)
    compilers = _compilers(request, host)
    absent = [name for name in compilers if f"Unable to locate package {_exactly(name)}" in host.error]
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
    if host.error and is_final and is_free and {*packages} <= {offer.name for offer in host.offers or ()}:
        yield f"{host.manager} cannot install {requested}: {host.error}"


def _compilers(request: Request, host: Host) -> list[str]:
    """The package of the host's compiler, which stays when the toolkits go: other software may use it."""
    return [_HOST_COMPILERS[host.manager]] if request.needs_compiler else []


def _exactly(name: str) -> str:
    """The name as a pattern for apt-get, which takes `g++` that no repository has for a pattern of half the archive."""
    return f"^{name.replace('+', '[+]')}$"


def _removes_all(request: Request, host: Host) -> bool:
    """Whether none of the toolkits of the last run stays: all go, or toolkits of another source come."""
    return not request.is_present or host.recorded.get("source", request.source) != request.source


def _tasks(
    request: Request, host: Host, table: Table, packages: Sequence[str], forward: Sequence[str]
) -> dict[str, Any]:
    """What the tasks read."""
    recorded, removes_all = host.recorded, _removes_all(request, host)
    changes_source = removes_all and request.is_present
    directories, compilers, names = _directories(request, host), _compilers(request, host), _names(request, host, table)
    is_pinned, pin = request.source == REPOSITORY, f"{request.versions[-1]}.*"
    lock = f"{_PINNED}-0:{pin}" if is_pinned and host.manager == "dnf" else ""
    obsolete, files = _obsolete(request, host, packages, lock), _files(request, host)
    damaged = [version for version in host.damaged if version in request.versions and is_pinned]
    reinstall = ["apt-get", "--yes", "--reinstall", "install"]
    reinstall = reinstall if host.manager == "apt" else ["dnf", "--assumeyes", "reinstall"]
    again = _of_versions(damaged, host.installed)
    return {
        "would": _would(request, packages or directories, obsolete, recorded),
        "manager": host.manager,
        "installer": RUNFILE if request.source == RUNFILE else host.manager,
        "versions": request.versions,
        "default": request.default,
        "forward": forward,
        "needs_repository": bool(request.repository),
        "needs_compiler": request.needs_compiler,
        "needs_components": request.source == DISTRIBUTION and host.platform["name"].startswith("Debian "),
        "names": names,
        "offers_commands": {
            "cached": [*offers_command(host.manager, fresh=False), *names],
            "fresh": [*offers_command(host.manager, fresh=True), *names],
        },
        "packages": packages,
        "installed": [*packages, *compilers],
        "simulation": ["apt-get", "--simulate", "--no-install-recommends", "install", *packages]
        + [_exactly(name) for name in compilers],
        "changes": [change.name for change in host.changes],
        "is_pinned": is_pinned,
        "pinned": _PINNED,
        "pin": pin,
        "pins": [{"packages": _PINNED, "version": pin}] if is_pinned else [],
        "runfiles": [
            {
                "version": version,
                "directory": f"{LINK}-{version}",
                "sha256": one.sha256,
                "source": masked(one.url),
                "is_ours": version in recorded.get("runfiles", {}),
            }
            for version, one in request.runfiles.items()
            if version not in _intact(request, host)
        ],
        "damaged": damaged,
        "reinstallation": [*reinstall, *again] if again else [],
        "compilers": [
            {"version": version, "nvcc": f"{LINK}-{version}/bin/nvcc" if directories else "/usr/bin/nvcc"}
            for version in request.versions
            if request.needs_compiler
        ],
        "has_directories": bool(directories),
        "has_profile": bool(directories) and request.profile,
        "has_environment_d": bool(directories) and request.environment_d,
        "link": LINK,
        "default_directory": f"{LINK}-{request.default}",
        "profile": _PROFILE,
        "environment": _ENVIRONMENT,
        "loader": _LOADER + "".join(f"{directory}\n" for directory in _loader_directories(request, forward)),
        "files": FILES,
        "stale_files": [name for name in FILES if name not in files],
        "preferences_file": PREFERENCES_FILE,
        "components_file": COMPONENTS_FILE,
        "profile_file": PROFILE_FILE,
        "environment_d_file": ENVIRONMENT_D_FILE,
        "loader_file": LOADER_FILE,
        # Toolkits of another source go first, others after their successors have come.
        "removes_first": changes_source and bool(obsolete["versions"]),
        "removes_last": not changes_source and bool(obsolete["versions"] or obsolete["packages"]),
        "removes_all": removes_all,
        "obsolete": obsolete,
        "record": {
            **_record(request, host, packages, lock),
            "files": files,
            "packages": [*packages, *compilers, *([_PINNED] if is_pinned else []), *([LOCK_PLUGIN] if lock else [])],
            "lines": {LOCK_FILE: [lock]} if lock else {},
        },
    }


def _obsolete(request: Request, host: Host, packages: Sequence[str], lock: str) -> dict[str, Any]:
    """What an earlier run has installed and this request does not have."""
    recorded, removes_all = host.recorded, _removes_all(request, host)
    kept_versions, kept_packages = ((), ()) if removes_all else (request.versions, packages)
    versions = [version for version in recorded.get("versions", ()) if version not in kept_versions]
    locks = [name for name in [recorded.get("version_lock")] if name and (removes_all or name != lock)]
    directories = [f"{LINK}-{version}" for version in versions]
    return {
        "installer": RUNFILE if recorded.get("source") == RUNFILE else "packages",
        "versions": versions,
        "packages": [name for name in recorded.get("packages", ()) if name not in kept_packages],
        "version_locks": locks,
        "directories": directories,
        "files": [f"{path}{end}" for end in ("", ".work") for path in directories]
        + [path for path in _RUNFILE_TRACES if removes_all],
        # For find, with regular expressions of egrep.
        "pattern": f"{LINK}-({'|'.join(map(re.escape, versions))})(/.*)?",
    }


def _intact(request: Request, host: Host) -> list[str]:
    """The versions that are unchanged since they were installed from the same runfile."""
    checksums = {version: one.sha256 for version, one in request.runfiles.items()}
    recorded = (host.recorded.get("runfiles") or {}).items()
    return [name for name, sha256 in recorded if checksums.get(name) == sha256 and name not in host.damaged]


def _record(request: Request, host: Host, packages: Sequence[str], lock: str) -> dict[str, Any]:
    """The data of the record, and `intended`, recorded first with what an earlier run has left."""
    recorded = host.recorded
    changes = [change.name for change in host.changes] if request.source == DISTRIBUTION else []
    data: dict[str, Any] = {
        "source": request.source,
        "versions": request.versions,
        "packages": packages,
        "runfiles": {version: one.sha256 for version, one in request.runfiles.items()},
        "version_lock": lock,
        "dependencies": list(dict.fromkeys([*recorded.get("dependencies", ()), *changes])),
    }
    before = {} if _removes_all(request, host) else recorded
    intended = {
        "versions": list(dict.fromkeys([*before.get("versions", ()), *request.versions])),
        "packages": list(dict.fromkeys([*before.get("packages", ()), *packages])),
        "runfiles": {name: before["runfiles"][name] for name in _intact(request, host) if before},
        "version_lock": recorded.get("version_lock") or lock,
    }
    return {"data": data, "intended": {**data, **intended}}


def _would(
    request: Request, installed: Sequence[str], obsolete: Mapping[str, Sequence[str]], recorded: Mapping[str, Any]
) -> str:
    """What check mode reports."""
    if not request.is_present:
        return f"remove the CUDA toolkits {', '.join(recorded.get('versions', request.versions))}"
    removed = [*obsolete["versions"], *obsolete["packages"]]
    return f"install {', '.join(installed)}" + (f" and remove {', '.join(removed)}" if removed else "")


def _loader_directories(request: Request, forward: Iterable[str]) -> list[str]:
    """Where the loader searches: the default first, then the others from the newest."""
    others = [version for version in reversed(request.versions) if version != request.default]
    compatible = [f"{LINK}-{version}/compat" for version in forward]
    return [*compatible, f"{LINK}/lib64", *(f"{LINK}-{version}/lib64" for version in others)]


def _files(request: Request, host: Host) -> list[str]:
    """The files that this role writes."""
    directories = _directories(request, host)
    has_file = {
        LOADER_FILE: bool(directories),
        PROFILE_FILE: bool(directories) and request.profile,
        ENVIRONMENT_D_FILE: bool(directories) and request.environment_d,
        COMPONENTS_FILE: host.components,
        PREFERENCES_FILE: request.source == REPOSITORY and host.manager == "apt",
    }
    return [name for name, is_there in has_file.items() if is_there]


# What only the installed toolkits show


def files_of_toolkits(request: Request, host: Host, cuda: Mapping[str, Any], forward: Sequence[str]) -> list[str]:
    """The files to record, besides those that the role writes; `forward` is of the plan."""
    request = request.on(host)
    directories = _directories(request, host)
    files = [*directories]
    files += [f"{path}/lib64" for path in directories if request.needs_runtime]
    files += [f"{path}/bin" for path in directories if request.needs_compiler]
    if directories:
        files += [LINK, "/etc/alternatives/cuda"] if CUDA in cuda["alternatives"] else [LINK]
    if forward:
        # The package for forward compatibility is reconsidered when the driver changes.
        loaded = "/proc/driver/nvidia/version" if cuda["driver"]["loaded"] else ""
        files += [path for path in [cuda["driver"]["library_path"] or loaded] if path]
    return files + [f"{path}/bin/nvcc" for path in directories if request.source == RUNFILE]


def obsolete_packages(request: Request, host: Host, installed: Iterable[str], obsolete: Mapping[str, Any]) -> list[str]:
    """The installed packages that go; `obsolete` is of the plan."""
    # A distribution's are recorded.
    versions = obsolete["versions"] if host.recorded.get("source") != DISTRIBUTION else []
    installed = list(map(str, installed))
    gone = {*obsolete["packages"], *_of_versions(versions, installed)}
    gone |= {_PINNED} if _removes_all(request.on(host), host) else set()
    return [name for name in installed if name in gone]


def unneeded_packages(host: Host, simulation: Mapping[str, Any]) -> Plan:
    """Of what the package manager would remove as no longer needed, what came with toolkits."""
    if simulation.get("failed"):
        return Plan((f"{host.manager} does not list the packages that are no longer needed: {simulation.get('msg')}",))
    changes, _error = _read_simulation(simulation, host.manager)
    ours = host.recorded.get("dependencies", ())
    removed = [one.name for one in changes if OF_TOOLKITS.match(one.name) or one.name in ours]
    return Plan(tasks={"removed": removed})


def _of_versions(versions: Sequence[str], installed: Iterable[str]) -> list[str]:
    """Packages of NVIDIA's repository, which end in their version. cudnn9-cuda-13 is not a toolkit."""
    if not versions:
        return []
    ends = "|".join(version.replace(".", "-") for version in versions)
    pattern = re.compile(rf"(?!(lib)?cudnn).+-({ends})(-config-common)?")
    return [name for name in installed if pattern.fullmatch(name)]


def refusals_of_a_compiler(
    version: str, nvcc: str, reported: Mapping[str, Any], program: Mapping[str, Any]
) -> Iterator[str]:
    """What is wrong with an installed compiler: what `nvcc --version` and a program compiled with it have printed."""
    failed = next((one for one in (reported, program) if one.get("failed") or one.get("rc")), None)
    if failed is not None:
        yield (
            f"CUDA {version} is installed and does not work: {str(failed.get('stderr') or failed.get('msg')).strip()}"
        )
        return
    text, runtime = str(reported.get("stdout") or ""), str(program.get("stdout") or "")
    if f"release {version}," not in text or runtime.partition(".")[0] != version.partition(".")[0]:
        yield (
            f"CUDA {version} is installed and does not work: {nvcc} reports {''.join(text.splitlines()[-1:])}, and a "
            f"program compiled with it runs with CUDA {runtime}"
        )


def refusals_of_toolkits(request: Request, host: Host, facts: Mapping[str, Any], cache: str) -> Iterator[str]:
    """What the installed toolkits lack; `cache` is the output of `ldconfig -p`."""
    request = request.on(host)
    if request.needs_runtime and _is_of_nvidia(request, host):
        for major in dict.fromkeys(version.split(".")[0] for version in request.versions):
            if not re.search(rf"libcudart[.]so[.]{major}[.0-9]* ", cache):
                yield (
                    f"the loader does not find libcudart.so.{major}; see `ldconfig -p` and {LOADER_FILE} on the host"
                )
    there = [str(toolkit["version"]) for toolkit in facts["cuda"]["toolkits"]]
    for version in request.versions if request.needs_compiler else ():
        if not any(f"{one}.".startswith(f"{version}.") for one in there):
            yield (
                f"CUDA {version} was installed, and gpu.fleet.cuda_facts finds only {', '.join(there) or 'no toolkit'}"
            )


# For the tasks


def _plan(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan | Ask:
    """The plan, with `lists` by compiler, repositories and what the package manager would change."""
    request, host = Request.read(variables), Host.of(facts)
    first = plan(request, host, variables[TABLES])
    if first.refusals or INSTALL not in first.steps or "lists" not in found:
        return first
    asked = unread(found, _readings(first, found["lists"]), first)
    if asked:
        return asked
    planned = plan(request, host.observed(facts, found), variables[TABLES])
    if planned.refusals or not planned.tasks["packages"]:
        return planned
    # Without fresh metadata dnf would use the network.
    has_lists = host.manager == "apt" or found["lists"] == FRESH
    asked = unread(found, {"simulation": _simulation(planned)}) if has_lists else None
    is_damaged = planned.tasks["damaged"] and found["lists"] == FRESH
    return asked or (unread(found, {"packages": _INSTALLED}) if is_damaged else None) or planned


def _readings(planned: Plan, lists: str) -> dict[str, Reading | list[Reading]]:
    """The compiler and the package lists, where the plan needs them."""
    tasks = planned.tasks
    found: dict[str, Reading | list[Reading]] = {}
    if tasks["needs_compiler"]:
        found["compiler"] = command("g++", "-dumpversion")
    if tasks["names"]:
        found["offers"] = command(*tasks["offers_commands"][lists])
    return found


def _simulation(planned: Plan) -> Reading:
    """What the installation would change."""
    tasks = planned.tasks
    if tasks["manager"] == "apt":
        return command(*tasks["simulation"])
    return "dnf", {"name": tasks["installed"], "install_weak_deps": False, "state": "present", "update_cache": True}


def _removal(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan | Ask:
    host = Host.of(facts)
    if found["which"] == "unneeded":
        asked = unread(found, {"simulation": (host.manager, {"autoremove": True})})
        return asked or unneeded_packages(host, found["simulation"])
    asked = unread(found, {"packages": _INSTALLED})
    if asked:
        return asked
    removed = obsolete_packages(Request.read(variables), host, facts["packages"], found["obsolete"])
    return Plan(tasks={"removed": removed})


def _verify(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan | Ask:
    """What does not work of the installed toolkits, else the files to record; takes what the plan has of them."""
    nvcc = [str(one["nvcc"]) for one in found["compilers"]]
    program = {"stdin": _PROGRAM, "expand_argument_vars": False}
    runs = [command("sh", "-c", _COMPILE_AND_RUN, "sh", path) for path in nvcc]
    readings: dict[str, Reading | list[Reading]] = {
        "toolkits": ("gpu.fleet.cuda_facts", {}),
        "cache": command("ldconfig", "-p"),
        "reported": [command(path, "--version") for path in nvcc],
        "programs": [(name, {**arguments, **program}) for name, arguments in runs],
    }
    asked = unread(found, readings)
    if asked:
        return asked
    request, host = Request.read(variables), Host.of(facts)
    results = zip(found["compilers"], found["reported"]["results"], found["programs"]["results"], strict=True)
    refusals = [
        text for one, *printed in results for text in refusals_of_a_compiler(one["version"], one["nvcc"], *printed)
    ]
    refusals += refusals_of_toolkits(request, host, facts, str(found["cache"].get("stdout") or ""))
    files = files_of_toolkits(request, host, facts["cuda"], found["forward"])
    return Plan(tuple(refusals), tasks={"files": [*found["files"], *files]})


def _listed(
    variables: Mapping[str, Any], facts: Mapping[str, Any], read: Read, to_come: Mapping[str, str]
) -> tuple[str, Sequence[str]]:
    """CUDA is compared with the driver that this run installs."""
    # A repository that this run adds decides what is installed.
    driver = {"driver": to_come["nvidia_driver"]} if "nvidia_driver" in to_come else {}
    return "", refused_by_lists(_plan, variables, facts, read, simulation={}, **driver)


def _repository(variables: Mapping[str, Any], _facts: Mapping[str, Any]) -> str:
    return Request.read(variables).repository


PLANNER = RolePlanner(
    "cuda",
    {"plan": _plan, "removal": _removal, "verify": _verify},
    tables=(TABLES,),
    reads=("cuda_debian_mirror",),
    repository=_repository,
    listed=_listed,
    runs_by_default=True,
    needs_gpu=False,
    has_plan=True,
    is_disruptive=True,
    collections=("community.general",),
)

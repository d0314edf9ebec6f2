# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DCGM and its exporter on one host: packages, services, addresses, removals. Private. Pure: no Ansible.

The command of the unit, the options of nv-hostengine and the output of dcgmi are as in DCGM 4.2 to 4.7: NVIDIA's
reference of nv-hostengine, and https://github.com/NVIDIA/DCGM, issues 108 (one host engine a host), 229 and 314
(outputs, packages of 4.7.0). Unit, options and file of counters of the exporter: https://github.com/NVIDIA/dcgm-exporter
4.8.2, and https://docs.nvidia.com/datacenter/dcgm/latest/installation/install-dcgm-exporter.html (its package). All as
of November 2026.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ...module_utils._knowledge import dcgm, vulnerabilities
from .._compatibility import CompatibilityError, CompatibilityRequest, fits, read_gpus
from .._planning.contract import (
    RUN_ONLY,
    Ask,
    Needs,
    Outlook,
    Plan,
    Read,
    Readings,
    RecordedHost,
    RequestError,
    RolePlanner,
    command,
    inputs_of,
    is_true,
    unread,
)
from .._planning.platforms import platform_of
from .._planning.variable_forms import shown
from .cuda.packages import (
    FRESH,
    LOCK_FILE,
    LOCK_PLUGIN,
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

DCGM = "nvidia_dcgm"
INSTALL, REMOVE = "install", "remove"
"""Steps."""
UNIT, EXPORTER_UNIT = "nvidia-dcgm.service", "nvidia-dcgm-exporter.service"
DROP_IN, EXPORTER_DROP_IN = (f"/etc/systemd/system/{unit}.d/zz-gpu-fleet.conf" for unit in (UNIT, EXPORTER_UNIT))
"""The last by their name, since the last of several drop-ins counts."""
COUNTERS_FILE = "/etc/dcgm-exporter/gpu-fleet-counters.csv"
_DEFAULT_COUNTERS = "/etc/dcgm-exporter/default-counters.csv"
"""Of the exporter's package."""
PREFERENCES_FILE = "/etc/apt/preferences.d/gpu-fleet-dcgm"
_LOOPBACK = "--bind-interface 127.0.0.1"
# Without an option nv-hostengine listens on this address as well; named, it is read back.
_DROP_IN = f"""\
# Written by the role gpu.fleet.nvidia_dcgm: nv-hostengine asks nobody for a password, and listens on this host alone.
[Unit]
After=nvidia-persistenced.service
[Service]
ExecStart=
ExecStart=/usr/bin/nv-hostengine -n --service-account nvidia-dcgm {_LOOPBACK}
"""
# Without --remote-hostengine-info the exporter has an engine of its own. A restart of the engine ends its connection.
_EXPORTER_DROP_IN = """\
# Written by the role gpu.fleet.nvidia_dcgm: the exporter uses the host engine of the host.
[Unit]
PartOf=nvidia-dcgm.service
[Service]
ExecStart=
ExecStart=/usr/bin/dcgm-exporter {options}
"""
_ENGINE = "--remote-hostengine-info 127.0.0.1:5555"
_LOCAL = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
_COUNTERS = "# Written by the role gpu.fleet.nvidia_dcgm from nvidia_dcgm_exporter_counters.\n"
_FIELD, _HELP = re.compile(r"DCGM_(FI|EXP)_[A-Z0-9_]{1,100}"), re.compile(r"[^\x00-\x1f\x7f,\"#]{1,200}")
_TABLE, _PART, _EXPORTER_PART = "__nvidia_dcgm_table", "dcgm", "exporter"
_CORE, _EXPORTER = "datacenter-gpu-manager-4-core", "datacenter-gpu-manager-exporter"
_OLD = ("datacenter-gpu-manager", "datacenter-gpu-manager-config")
"""The packages of DCGM 3 and older."""
_OF_DCGM = ("datacenter-gpu-manager", "nv-hostengine")
SERIES = ("11", "12", "13")
"""The series of CUDA that DCGM 4 has packages for."""
_VERSION = re.compile(r"4([.][0-9]{1,4}){0,2}")
_PROCESSES = ("ps", "-ww", "-C", "nv-hostengine,dcgm-exporter", "-o", "comm=,cgroup=")
_PROCESS = re.compile(r"^(nv-hostengine|dcgm-exporter)[ ]+([^ \n]{1,1000})", re.MULTILINE)
_CONTAINERS = ("kubepods", "docker", "libpod", "containerd", "crio")
# "1 GPU found." of DCGM up to 4.5, "8 GPUs found (Active)." since 4.6.
_FOUND = re.compile(r"^[ ]*([0-9]{1,4}) GPUs? found\b", re.MULTILINE)
_SHOWN_VERSIONS, _LONGEST, _MOST_PORTS, _OK = 8, 200, 65_535, 200


@dataclass(frozen=True)
class Exporter:
    """The exporter as requested. `counters` are lines of its file, empty for the file of its package."""

    version: str
    address: str
    counters: tuple[str, ...] = ()

    @classmethod
    def read(cls, variables: Mapping[str, Any]) -> Exporter | None:
        """The exporter in the variables, None where none is requested."""
        if not is_true(variables["nvidia_dcgm_exporter"]):
            return None
        address = variables["nvidia_dcgm_exporter_address"]
        if not _is_address(address):
            raise RequestError(
                f"nvidia_dcgm_exporter_address is {shown(address)}; it takes an address of the host and a port, such "
                'as "127.0.0.1:9400", "[::1]:9400", or ":9400" for all addresses'
            )
        version = _version_in(variables, "nvidia_dcgm_exporter_version", "the exporter", "4.8", "4.8.2")
        return cls(version, str(address), tuple(map(_counter, variables["nvidia_dcgm_exporter_counters"])))

    @property
    def options(self) -> str:
        """The options of its command."""
        return f"{_ENGINE} --address {self.address} -f {COUNTERS_FILE if self.counters else _DEFAULT_COUNTERS}"

    @property
    def url(self) -> str:
        """Where the host itself reads it."""
        host, _colon, port = self.address.rpartition(":")
        return f"http://{_LOCAL.get(host, host)}:{port}/metrics"

    @property
    def files(self) -> dict[str, str]:
        """Its files: content by path."""
        counters = {COUNTERS_FILE: _COUNTERS + "".join(f"{line}\n" for line in self.counters)} if self.counters else {}
        return {EXPORTER_DROP_IN: _EXPORTER_DROP_IN.format(options=self.options), **counters}


def _is_address(value: object) -> bool:
    match = re.fullmatch(r"(.*):([0-9]{1,5})", value) if isinstance(value, str) else None
    if match is None or not 0 < int(match[2]) <= _MOST_PORTS:
        return False
    host = match[1]
    if host == "":
        return True
    try:
        found = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    # A zone would not survive in a URL.
    return host == (f"[{found}]" if found.version == 6 else str(found)) and "%" not in host


def _counter(entry: Mapping[str, Any]) -> str:
    """A line of the file of counters: the exporter ends at the first that it does not understand."""
    name, kind, meaning = (str(entry[key]) for key in ("field", "type", "help"))
    if not _FIELD.fullmatch(name):
        raise RequestError(
            f"nvidia_dcgm_exporter_counters has the field {shown(name)}; it takes the name of a field of DCGM, such as "
            "DCGM_FI_DEV_GPU_TEMP"
        )
    if not _HELP.fullmatch(meaning) or not meaning.strip():
        raise RequestError(
            f"nvidia_dcgm_exporter_counters has the help {shown(meaning)}; it takes one line without commas, quotes "
            "and #"
        )
    return f"{name}, {kind}, {meaning.strip()}"


def _version_in(variables: Mapping[str, Any], name: str, what: str, minor: str, whole: str) -> str:
    """A version in a variable, as a whole or its beginning."""
    version = variables[name]
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise RequestError(
            f"{name} is {shown(version)}; it takes a version of {what} or its beginning, in quotes, such as "
            f'"4", "{minor}" or "{whole}"'
        )
    return version


@dataclass(frozen=True)
class Request:
    """The variables of the role. `cuda` has series of CUDA; where it is empty, driver and GPUs decide."""

    is_present: bool
    version: str
    cuda: tuple[str, ...] = ()
    replaces_old: bool = field(default=False, metadata=RUN_ONLY)
    exporter: Exporter | None = None

    @classmethod
    def read(cls, variables: Mapping[str, Any]) -> Request:
        """The request in the variables."""
        is_present = variables["nvidia_dcgm_state"] == "present"
        return cls(
            is_present,
            _version_in(variables, "nvidia_dcgm_version", "DCGM 4", "4.5", "4.5.3"),
            tuple(sorted({str(one) for one in variables["nvidia_dcgm_cuda"]}, key=int)),
            is_true(variables["nvidia_dcgm_replace_old"]),
            Exporter.read(variables) if is_present else None,
        )

    @property
    def files(self) -> dict[str, str]:
        """The files of the services: content by path."""
        return {DROP_IN: _DROP_IN, **(self.exporter.files if self.exporter else {})} if self.is_present else {}

    @property
    def repository(self) -> str:
        """The repository of the role nvidia_repository, empty where none is needed."""
        return "cuda" if self.is_present else ""


@dataclass(frozen=True)
class Host(RecordedHost):
    """What is known of the host; empty where it is not.

    `driver_cuda` is the series of CUDA of the driver, `gpu_cuda` has the newest ones that its GPUs run. `service` is
    what cuda_facts has of DCGM. `offers` are None before they are read; with `fresh` there are no others.
    """

    driver_cuda: str = ""
    gpu_cuda: tuple[str, ...] = ()
    gpus: int = 0
    packages: Mapping[str, str] = field(default_factory=dict)
    service: Mapping[str, Any] = field(default_factory=dict)
    offers: tuple[Offer, ...] | None = None
    fresh: bool = False

    @classmethod
    def of(cls, facts: Mapping[str, Any], offers: Mapping[str, Any] | None = None, fresh: bool = False) -> Host:
        """The host with these facts; `offers` is the result of one of the plan's `offers_commands`."""
        smi = facts.get("nvidia_smi") or {}
        series = str(smi.get("cuda_version") or "").partition(".")[0]
        has_driver = bool(smi.get("driver_version")) and series.isascii() and series.isdigit()
        packages = facts.get("packages") or {}
        return cls(
            platform=platform_of(facts),
            record=facts["gpu_fleet_managed"].get(DCGM) or {},
            driver_cuda=series if has_driver else "",
            gpu_cuda=_series_of_gpus(smi) if has_driver else (),
            gpus=sum(not gpu.get("error") for gpu in smi.get("gpus") or ()),
            packages={
                name: str(found[0].get("version") or "") if found else ""
                for name, found in packages.items()
                if str(name).startswith(_OF_DCGM)
            },
            service=((facts.get("cuda") or {}).get("services") or {}).get("dcgm") or {},
            offers=None if offers is None else parse_offers(str(offers.get("stdout") or "")),
            fresh=fresh and offers is not None and offers.get("rc") == 0,
        )

    @property
    def old(self) -> tuple[str, ...]:
        """The installed packages of DCGM 3 and older."""
        return tuple(name for name in _OLD if name in self.packages)


def _series_of_gpus(smi: Mapping[str, Any]) -> tuple[str, ...]:
    """The newest series of CUDA that each GPU runs with the driver, as CUDA 13 has left out the GPUs before Turing."""
    found = set()
    try:
        for gpu in read_gpus(smi.get("pci_gpus") or ()):
            runs = fits(CompatibilityRequest(gpus=(gpu,), driver=str(smi["driver_version"])))["cuda"]
            found |= {max((one.partition(".")[0] for one in runs), key=int)} if runs else set()
    except CompatibilityError:
        # Of a version in another form nothing is known.
        return ()
    return tuple(sorted(found & {*SERIES}, key=int))


# The plan


def plan(
    request: Request, host: Host, table: Table, readings: Readings | None = None, *, driver_comes: bool = False
) -> Plan:
    """Plan DCGM; `table` has its packages, `readings` what `needs` names, where it was read."""
    if not host.platform["supported"]:
        known = ", ".join(host.platform["known"])
        return Plan(
            (f"{host.platform['name']} is not supported by the role gpu.fleet.nvidia_dcgm; use one of: {known}",)
        )
    series, record = _series(request, host), host.record
    inputs = inputs_of(request, platform=host.platform["name"], cuda=list(series))
    drift = record.get("drift") or []
    is_converged = not drift and record.get("inputs") == inputs
    has_work = not is_converged if request.is_present else bool(record)
    refusals = _refusals(request, host, table, readings, driver_comes) if has_work and request.is_present else ()
    return Plan(
        refusals=tuple(refusals),
        steps=((INSTALL if request.is_present else REMOVE),) if has_work else (),
        reasons=tuple(found["message"] for found in drift),
        inputs=inputs,
        warnings=tuple(_warnings(request)) if has_work and request.is_present else (),
        tasks=_tasks(request, host, table, series),
    )


def _series(request: Request, host: Host) -> tuple[str, ...]:
    """The series of CUDA whose packages the host gets: the driver's, and older ones to which its GPUs are limited."""
    found = {*request.cuda} or {host.driver_cuda, *host.gpu_cuda} - {""}
    # A driver that cannot be asked for the moment is no other one.
    return tuple(sorted(found, key=int)) or tuple(map(str, host.recorded.get("cuda") or ()))


def _packages(request: Request, series: Sequence[str], table: Table, manager: str) -> tuple[CudaPackage, ...]:
    if not request.is_present or not _is_known(series):
        return ()
    found = [one for cuda in series for one in packages_for(_PART, request.version, cuda, table, manager)]
    if request.exporter is not None:
        found += packages_for(_EXPORTER_PART, request.exporter.version, "", table, manager)
    return tuple({package.name: package for package in found}.values())


def _is_known(series: Sequence[str]) -> bool:
    """Whether DCGM has packages for each of these series."""
    return {*series} <= {*SERIES}


def _tasks(request: Request, host: Host, table: Table, series: Sequence[str]) -> dict[str, Any]:
    """What the tasks read."""
    packages, files = _packages(request, series, table, host.manager), request.files
    installed = [package for package in packages if package.kind != "dependency"]
    recorded = [str(name) for name in host.recorded.get("packages") or ()]
    is_locked = host.manager == "dnf"
    data: dict[str, list[str]] = {
        # What others have installed before stays when the role is removed.
        "packages": [one.name for one in packages if one.name in recorded or one.name not in host.packages],
        "version_locks": [f"{one.name}-{_with_epoch(one.version)}" for one in packages] if is_locked else [],
        "files": [*files],
    }
    obsolete = {name: [one for one in host.recorded.get(name) or () if one not in data[name]] for name in data}
    obsolete["packages"] = [name for name in obsolete["packages"] if name not in {one.name for one in packages}]
    separator = "-" if is_locked else "="
    removed = [*(host.old if request.is_present and request.replaces_old else ()), *obsolete["packages"]]
    listed = [name for name in removed if name in host.packages]
    changes = {"install": [one.name for one in installed]} if request.is_present else {}
    changes["remove"] = listed or ([] if request.is_present else ["DCGM"])
    names = dict.fromkeys((_CORE, *(one.name for one in installed)))
    units = [UNIT, *([EXPORTER_UNIT] if request.exporter else [])] if request.is_present else []
    return {
        "would": " and ".join(f"{verb} {', '.join(what)}" for verb, what in changes.items() if what),
        "manager": host.manager,
        "needs_repository": bool(request.repository),
        "offers_commands": {
            "cached": [*offers_command(host.manager, fresh=False), *names],
            "fresh": [*offers_command(host.manager, fresh=True), *names],
        },
        "packages": [asdict(package) for package in packages],
        "installed": [f"{one.name}{separator}{one.version}" for one in installed],
        "pins": [{"packages": one.name, "version": one.version} for one in packages],
        "obsolete": {**obsolete, "packages": removed},
        "removes_packages": bool(removed or obsolete["version_locks"]),
        **_of_units(request, host, removed, [*files]),
        "preferences_file": PREFERENCES_FILE,
        "files": [{"dest": path, "content": content} for path, content in files.items()],
        "directories": _directories(files),
        "obsolete_directories": [one for one in _directories(obsolete["files"]) if one not in _directories(files)],
        "exporter_url": request.exporter.url if request.exporter else "",
        "record": {
            "data": {**data, "cuda": [*series]},
            # Recorded first, with what an earlier run has left.
            "intended": {
                **{name: list(dict.fromkeys([*(host.recorded.get(name) or ()), *data[name]])) for name in data},
                "cuda": [*series],
            },
            "files": [*files, *([] if is_locked else [PREFERENCES_FILE])],
            "packages": [LOCK_PLUGIN] if is_locked else [],
            "pinned_packages": [one.name for one in installed],
            "lines": {LOCK_FILE: data["version_locks"]} if is_locked else {},
            "units": {
                unit: {"enabled": True, "active": True, "started_after": _read_by(unit, files)} for unit in units
            },
        },
    }


def _directories(files: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(path.rpartition("/")[0] for path in files))


def _with_epoch(version: str) -> str:
    """A version as package_pin locks it."""
    return version if ":" in version else f"0:{version}"


def _read_by(unit: str, files: Iterable[str]) -> list[str]:
    """The files that a unit has read at its start; the exporter starts again with the engine."""
    return [path for path in files if unit == EXPORTER_UNIT or path == DROP_IN]


def _of_units(request: Request, host: Host, removed: Sequence[str], files: Sequence[str]) -> dict[str, Any]:
    """Which units are stopped before packages change, started afterwards, and go on without a drop-in of the role."""
    there = {UNIT: host.service.get("unit") == UNIT, EXPORTER_UNIT: _EXPORTER in host.packages}
    requested = {UNIT: request.is_present, EXPORTER_UNIT: request.exporter is not None}
    of_package = {UNIT: _CORE, EXPORTER_UNIT: _EXPORTER}
    configured = {UNIT: DROP_IN, EXPORTER_UNIT: EXPORTER_DROP_IN}
    # An engine that goes on with the libraries of another version fails. The exporter needs it, and stops first.
    order = [unit for unit in (EXPORTER_UNIT, UNIT) if there[unit]]
    left = [unit for unit in order[::-1] if not requested[unit] and of_package[unit] not in removed]
    return {
        "units": [UNIT, EXPORTER_UNIT],
        "stopped_units": [unit for unit in order if requested[unit] or of_package[unit] in removed],
        "disabled_units": [unit for unit in order if not requested[unit] and of_package[unit] in removed],
        # Of packages that others have installed.
        "restarted_units": [unit for unit in left if configured[unit] in (host.recorded.get("files") or ())],
        "services": [{"unit": unit, "started_after": _read_by(unit, files)} for unit, one in requested.items() if one],
    }


# Refusals


def _refusals(
    request: Request, host: Host, table: Table, readings: Readings | None, driver_comes: bool
) -> Iterator[str]:
    yield from _against_driver(request, host, driver_comes)
    yield from _against_others(request, host)
    if readings is not None:
        yield from _against_processes(request, host, readings)
    series = _series(request, host)
    if _is_known(series):
        yield from _against_availability(request, _packages(request, series, table, host.manager), host)


def _against_driver(request: Request, host: Host, driver_comes: bool) -> Iterator[str]:
    """Why there are no packages for the driver of the host."""
    series = _series(request, host)
    if driver_comes:
        return
    if not host.driver_cuda and not host.record:
        yield (
            "DCGM needs the driver, and nvidia-smi prints no version of it and of its CUDA; run the role "
            "gpu.fleet.nvidia_driver before, or take nvidia_dcgm out of gpu_fleet_roles"
        )
    elif not _is_known(series):
        yield (
            f"the driver runs CUDA {host.driver_cuda}, and DCGM 4 has packages for CUDA {', '.join(SERIES)}, as far as "
            f"this collection knows; set nvidia_dcgm_cuda, as in [{SERIES[-1]}]"
        )
    newer = [one for one in request.cuda if host.driver_cuda and int(one) > int(host.driver_cuda)]
    if newer:
        yield (
            f"nvidia_dcgm_cuda has {', '.join(newer)}, and the driver runs CUDA {host.driver_cuda}; name a series "
            "that it runs, or leave the variable empty"
        )


def _against_others(request: Request, host: Host) -> Iterator[str]:
    """Why DCGM of others is in the way."""
    if host.old and not request.replaces_old:
        found = ", ".join(f"{name} {host.packages[name]}".strip() for name in host.old)
        yield (
            f"{found} is installed, an older DCGM, and DCGM 4 excludes it; set nvidia_dcgm_replace_old to true to have "
            "it removed"
        )
    elif host.service.get("installed") and not host.packages and not host.record:
        unit = host.service.get("unit") or "nv-hostengine"
        yield (
            f"DCGM is on the host ({unit}), and of no package of NVIDIA's: a host has one host engine; remove it, or "
            "take nvidia_dcgm out of gpu_fleet_roles"
        )


def _against_processes(request: Request, host: Host, readings: Readings) -> Iterator[str]:
    """Why a host engine that runs elsewhere, such as in a container of NVIDIA's GPU Operator, is in the way.

    An exporter starts an engine of its own, unless it is given another one: where DCGM ran already, it was. In
    addition to the exporter of the role there is no other one.
    """
    found = dict.fromkeys(_PROCESS.findall(readings.output(_PROCESSES)))
    for program, cgroup in found:
        uses_engine = program == "dcgm-exporter" and (host.record or host.service.get("state") == "active")
        unit = EXPORTER_UNIT if program == "dcgm-exporter" and request.exporter else UNIT
        if unit in cgroup or (uses_engine and request.exporter is None):
            continue
        is_pod = "kubepods" in cgroup
        what = "a pod" if is_pod else "a container" if any(one in cgroup for one in _CONTAINERS) else cgroup[-80:]
        remedy = (
            "set dcgm.enabled=false and dcgmExporter.enabled=false in the values of the GPU Operator's chart"
            if is_pod
            else "stop it"
        )
        if uses_engine:
            yield f"{program} runs in {what}, and a host has one; {remedy}, or set nvidia_dcgm_exporter to false"
            continue
        yield (
            f"{program} runs in {what} and has a host engine of its own, and two of them on a host disturb each other; "
            f"{remedy}, or take nvidia_dcgm out of gpu_fleet_roles"
        )


def _against_availability(request: Request, packages: Sequence[CudaPackage], host: Host) -> Iterator[str]:
    """Why a package cannot be had from NVIDIA's repository; old package lists may lack the newest version alone."""
    if host.offers is None:
        return
    needed = [one for one in packages if one.kind != "dependency"]
    missing = next((one for one in needed if not is_offered(one, host.offers)), None)
    if missing is None:
        return
    name, version = "nvidia_dcgm_version", request.version
    if request.exporter is not None and missing.name == _EXPORTER:
        name, version = "nvidia_dcgm_exporter_version", request.exporter.version
    found = sorted({_upstream(one.version) for one in host.offers if one.name == missing.name}, key=numbers)
    is_old = not host.fresh and (not found or numbers(found[-1]) < numbers(version))
    if not is_old:
        has = f"it has {', '.join(found[-_SHOWN_VERSIONS:])}" if found else "it has none"
        yield (
            f"{name} is {version}, of which the repository for {host.platform['name']} does not have {missing.name}; "
            f"{has}"
        )


def _upstream(version: str) -> str:
    """A package's version without its epoch."""
    return version.rpartition(":")[2]


def _warnings(request: Request) -> Iterator[str]:
    """About versions that are requested as a whole; the newest of a beginning is the repository's."""
    version = request.version
    found = vulnerabilities.known(vulnerabilities.DCGM, version) if version.count(".") == 2 else None
    if found and found.found:
        yield (
            f"nvidia_dcgm_version is {version}, which has known vulnerabilities (NVIDIA's security {found.text}); "
            f"{found.fixed_in} and newer have none of them"
        )
    tested = dcgm.tested_with(request.exporter.version) if request.exporter else ()
    if request.exporter and tested and not any(_begins(one, version) for one in tested):
        yield (
            f"nvidia_dcgm_exporter_version is {request.exporter.version}, which NVIDIA has tested with DCGM "
            f"{' and '.join(tested)}, and nvidia_dcgm_version is {version}; set one that fits the other, see "
            "docs/compatibility.md"
        )


def _begins(version: str, beginning: str) -> bool:
    return f"{version}.".startswith(f"{beginning}.")


# What was read back


def refusals_of_the_service(host: Host, discovery: str, start: str) -> Iterator[str]:
    """What `dcgmi discovery -l` and the unit's ExecStart differ in from a service that is as declared."""
    if f"{_LOOPBACK} " not in f"{start} ":
        yield (
            f"{UNIT} does not start nv-hostengine with {_LOOPBACK}; see `systemctl cat {UNIT}` for a drop-in that "
            f"counts after {DROP_IN}, and remove it"
        )
    match = _FOUND.search(discovery)
    if match is None:
        first = next((line.strip() for line in discovery.splitlines() if line.strip()), "it printed nothing")
        yield f"`dcgmi discovery -l` lists no GPUs: {first[:_LONGEST]}; see `journalctl -u {UNIT}`"
    elif int(match[1]) < host.gpus:
        yield (
            f"`dcgmi discovery -l` lists {match[1]} of the {host.gpus} GPUs that nvidia-smi lists; see `journalctl -u "
            f"{UNIT}`"
        )


def refusals_of_the_exporter(exporter: Exporter, start: str, status: int) -> Iterator[str]:
    """What the unit's ExecStart and the status of a request over HTTP differ in from an exporter as declared."""
    if f" {exporter.options} " not in f" {start} ":
        yield (
            f"{EXPORTER_UNIT} does not start dcgm-exporter with {exporter.options}; see `systemctl cat "
            f"{EXPORTER_UNIT}` for a drop-in that counts after {EXPORTER_DROP_IN}, and remove it"
        )
    elif status != _OK:
        yield f"dcgm-exporter does not respond at {exporter.url}; see /var/log/dcgm-exporter.log"


# For the tasks


def needs(variables: Mapping[str, Any]) -> Needs:
    """Readings of the host."""
    return Needs(commands=(_PROCESSES,)) if Request.read(variables).is_present else Needs()


def _before_change(variables: Mapping[str, Any], facts: Mapping[str, Any], outlook: Outlook) -> Sequence[str]:
    """Refusals before the first change of the run; a driver that the role nvidia_driver brings decides later."""
    request, comes = Request.read(variables), "nvidia_driver" in outlook.coming
    return plan(request, Host.of(facts), variables[_TABLE], outlook.readings, driver_comes=comes).refusals


def _plan(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan | Ask:
    """The plan, with `lists` by what the repositories have."""
    request, readings = Request.read(variables), Readings.of(given["readings"]) if given.get("readings") else None
    found = plan(request, Host.of(facts), variables[_TABLE], readings)
    if found.refusals or not found.has_work or "lists" not in given:
        return found
    host = Host.of(facts, given.get("offers", {}), given["lists"] == FRESH)
    return offers_of(found, given) or plan(request, host, variables[_TABLE])


def _verify(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan | Ask:
    exporter = Request.read(variables).exporter
    show = ("systemctl", "show", "--property=ExecStart", "--value")
    units = (UNIT, EXPORTER_UNIT) if exporter else (UNIT,)
    asked = unread(given, {"commands": [command(*show, unit) for unit in units]})
    if asked:
        return asked
    commands = [str(one.get("stdout") or "") for one in given["commands"]["results"]]
    found = [*refusals_of_the_service(Host.of(facts), str(given["discovery"]), commands[0])]
    if exporter is not None:
        found += refusals_of_the_exporter(exporter, commands[1], int(given["status"]))
    return Plan(tuple(found))


def _listed(
    variables: Mapping[str, Any], facts: Mapping[str, Any], read: Read, to_come: Mapping[str, str]
) -> tuple[str, Sequence[str]]:
    # The driver decides which series there are.
    return "", () if "nvidia_driver" in to_come else refused_by_lists(_plan, variables, facts, read)


def _repository(variables: Mapping[str, Any], _facts: Mapping[str, Any]) -> str:
    return Request.read(variables).repository


PLANNER = RolePlanner(
    "nvidia_dcgm",
    {"plan": _plan, "verify": _verify},
    tables=(_TABLE,),
    needs=needs,
    refuses=_before_change,
    repository=_repository,
    listed=_listed,
    has_plan=True,
)

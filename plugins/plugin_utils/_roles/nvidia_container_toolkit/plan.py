# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what a host's container toolkit is to be: packages, engines, CDI specification. Private to this collection.

Pure: the variables of the role nvidia_container_toolkit and what is known about the host in, the plan out. Where a
request cannot be met, the plan's refusals are the reasons, in the words of the variables. What the tasks get of it is
in `stages`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ....module_utils._knowledge import vulnerabilities as _vulnerabilities
from ....module_utils._knowledge.vulnerabilities import Known, known
from ..._planning.contract import RUN_ONLY, inputs_of, is_true

TOOLKIT = "nvidia_container_toolkit"
INSTALL, REPORT, REMOVE = "install", "report", "remove"
"""Steps: install and configure; name what the request leaves open; remove."""
PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
OLD_PACKAGES = ("nvidia-docker", "nvidia-docker2", "nvidia-container-runtime")
ENGINE_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "docker": ("docker.io", "docker-ce", "docker", "moby-engine"),
    "containerd": ("containerd", "containerd.io"),
    "crio": ("cri-o",),
    "podman": ("podman",),
}
"""The possible packages of an engine: the first that is installed counts."""
EMBEDDED = ("k3s", "rke2")
"""Distributions of Kubernetes with a containerd of their own, which is in no package."""
_UNCONFIGURABLE = ("docker", "containerd", "crio", *EMBEDDED)
CDI_SINCE: Mapping[str, str] = {"docker": "25", "containerd": "1.7", "crio": "1.23", "podman": "4.1"}
"""First versions of the engines that read CDI specifications: https://docs.docker.com/engine/release-notes/25.0/,
https://github.com/containerd/containerd/releases/tag/v1.7.0, https://github.com/cri-o/cri-o/releases/tag/v1.23.0,
https://github.com/containers/podman/releases/tag/v4.1.0"""

STATIC_SPECIFICATION = "/etc/cdi/nvidia.yaml"
# The real path of the directory for transient specifications is below /run: /var/run is a link.
REFRESHED_SPECIFICATION = "/run/cdi/nvidia.yaml"
KIND = "nvidia.com/gpu"
_DIRECTORIES = ("/etc/cdi/", "/run/cdi/")

FIRST_WITH_UNITS = "1.18"
UNITS = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
# Up to 1.19.1 both units are configuration files of the package, which stay when it goes.
UNIT_FILES = tuple(f"/etc/systemd/system/{name}" for name in UNITS)
ENVIRONMENT_FILE = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
_UNIT_LINKS = tuple(f"/etc/systemd/system/multi-user.target.wants/{name}" for name in UNITS)
_UNIT_REMAINS = (*_UNIT_LINKS, *UNIT_FILES, ENVIRONMENT_FILE)
_CONDITIONS = (
    ("1.18.0", re.compile(r"/nvidia.ko")),
    ("1.18.1", re.compile(r"/(nvidia|nvidia-current)\.ko[:]")),
    # Also after 1.20.0, where a rule of udev starts the service at each load of the module, and it makes device nodes
    # first (https://github.com/NVIDIA/nvidia-container-toolkit/pull/1979, read 2026-11-25).
    ("", re.compile(r"/(nvidia|nvidia-current)\.ko")),
)
"""What nvidia-cdi-refresh.service wants to find in modules.dep, by the last version of the toolkit with it."""
_OUTPUT = re.compile(r"^[ \t]*NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=[\"']?([^\"'\s]*)", re.MULTILINE)

# One option of config.toml each, with NVIDIA's default.
ENVVAR = "accept-nvidia-visible-devices-envvar-when-unprivileged"
MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"
_DEFAULTS = {ENVVAR: True, MOUNTS: False}

# A file of the toolkit 1.13 for podman. In addition to a CDI device its hook gives a container the GPUs a second time.
_OLD_HOOKS = (
    "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
    "/etc/containers/oci/hooks.d/oci-nvidia-hook.json",
)
_OLD_FILES = (
    "/etc/apt/sources.list.d/nvidia-docker.list",
    "/etc/apt/sources.list.d/nvidia-container-runtime.list",
    "/etc/apt/trusted.gpg.d/nvidia-docker.gpg",
    "/etc/apt/trusted.gpg.d/nvidia-container-runtime.gpg",
    "/etc/apt/keyrings/nvidia-docker.gpg",
    "/usr/share/keyrings/nvidia-docker.gpg",
    "/usr/share/keyrings/nvidia-docker-keyring.gpg",
    "/usr/share/keyrings/nvidia-docker-archive-keyring.gpg",
    "/etc/yum.repos.d/nvidia-docker.repo",
    "/etc/yum.repos.d/nvidia-container-runtime.repo",
)
_PREFIX = f"{TOOLKIT}_"
_UNREADABLE = 2
_VERSION = re.compile(r"([0-9]+([.][0-9]+){2}([~.][0-9a-z.]+)?)?")


@dataclass(frozen=True)
class Request:
    """What the variables of the role request.

    `envvar` and `mounts` are None for `auto`. `docker_is_absent`: the role docker removes Docker.
    """

    state: str = "present"
    source: str = "auto"
    version: str = ""
    runtimes: tuple[str, ...] = ("docker",)
    mode: str = "auto"
    default_runtime: bool = False
    nvidia_docker: bool = False
    management_device: bool = False
    envvar: bool | None = None
    mounts: bool | None = None
    docker_is_absent: bool = field(default=False, metadata=RUN_ONLY)
    check_mode: bool = field(default=False, metadata=RUN_ONLY)
    runtime_class: bool = False

    @classmethod
    def read(cls, variables: Mapping[str, Any], check_mode: bool = False) -> Request:
        """The request in the variables of the role, and in `docker_state` of another one."""
        given = {name.removeprefix(_PREFIX): value for name, value in variables.items() if name.startswith(_PREFIX)}
        return cls(
            state=str(given["state"]),
            source=str(given["source"]),
            version=str(given["version"]),
            runtimes=tuple(given["runtimes"]),
            mode=str(given["mode"]),
            default_runtime=is_true(given["default_runtime"]),
            nvidia_docker=is_true(given["nvidia_docker"]),
            management_device=is_true(given["management_device"]),
            envvar=_choice(given["accept_envvar"]),
            mounts=_choice(given["accept_volume_mounts"]),
            docker_is_absent=variables.get("docker_state") == "absent",
            check_mode=check_mode,
            runtime_class=is_true(given["runtime_class"]),
        )

    @property
    def repository(self) -> str:
        """The repository of the role nvidia_repository, empty where none is needed.

        With `auto` a host that has the toolkit from elsewhere needs none either; what it has decides that later.
        """
        return "container_toolkit" if self.state == "present" and self.source != "host" else ""


def _choice(value: object) -> bool | None:
    return None if value == "auto" else value == "always"


@dataclass(frozen=True)
class Gpu:
    """A GPU by index and UUID, with the UUIDs of its MIG devices by their index."""

    index: int
    uuid: str
    is_mig: bool
    mig_devices: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Specification:
    """A CDI specification on the host."""

    path: str
    kind: str
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Refresh:
    """What is known about the units that refresh the specification.

    `files` are the unit files that exist, `output` is the specification that their environment file names, `modules`
    the lines of modules.dep about NVIDIA's modules, None where it cannot be read. `are_enabled`: both units.
    `result` is how the service ended without a specification, empty before it was started.
    """

    files: tuple[str, ...]
    output: str = ""
    modules: str | None = None
    are_enabled: bool = False
    result: str = ""

    @classmethod
    def of(cls, files: Mapping[str, Any], outputs: Mapping[str, Any]) -> Refresh:
        """The results of a search for the units, and of `unit_commands`."""
        found: Sequence[Mapping[str, Any]] = outputs.get("results") or ({}, {}, {})
        environment, modules, enabled = found
        named = _OUTPUT.findall(re.sub(r"(?m)^[ \t]*[#;].*$", "", environment.get("stdout") or ""))
        # grep ends with 2 where the file cannot be read.
        was_read = modules.get("rc", _UNREADABLE) < _UNREADABLE
        return cls(
            files=tuple(str(one["path"]) for one in files.get("files") or ()),
            output=re.sub(r"^/var/run/", "/run/", named[-1]) if named else "",
            modules=str(modules.get("stdout") or "") if was_read else None,
            # The command succeeds where one of them is.
            are_enabled=enabled.get("stdout_lines") == ["enabled", "enabled"],
        )


def unit_commands(kernel: str) -> list[list[str]]:
    """Commands that read the environment of the units, the modules that their condition looks for, who is enabled."""
    modules = f"/lib/modules/{kernel}/modules.dep"
    return [
        ["cat", ENVIRONMENT_FILE],
        ["grep", "--extended-regexp", "/nvidia[^/]*[.]ko", modules],
        ["systemctl", "is-enabled", *UNITS],
    ]


@dataclass(frozen=True)
class Host:
    """What is known about the host. `refresh` is None before it was read; then the record decides.

    `coming` are engines that another role is about to install or to upgrade. `programs` are NVIDIA's runtime and its
    hook, `written` what K3s and RKE2 have written; none before they were looked for.
    """

    uses_apt: bool = True
    packages: Mapping[str, str] = field(default_factory=dict)
    toolkit_installed: bool = False
    toolkit_version: str = ""
    gpus: tuple[Gpu, ...] = ()
    gpus_readable: bool = False
    driver: str = ""
    specifications: tuple[Specification, ...] = ()
    refresh: Refresh | None = None
    recorded_inputs: str = ""
    recorded: Mapping[str, Any] = field(default_factory=dict)
    drift: tuple[str, ...] = ()
    coming: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    written: tuple[str, ...] = ()

    @classmethod
    def of(cls, facts: Mapping[str, Any], refresh: Refresh | None = None, coming: tuple[str, ...] = ()) -> Host:
        """The host by the facts of Ansible: `nvidia_smi`, `cuda`, and `packages` and records where they are read."""
        smi, toolkit = facts["nvidia_smi"], facts["cuda"]["container_toolkit"]
        record = (facts.get("gpu_fleet_managed") or {}).get(TOOLKIT) or {}
        return cls(
            uses_apt=facts.get("os_family", "Debian") == "Debian",
            packages={name: str(found[0]["version"]) for name, found in (facts.get("packages") or {}).items() if found},
            toolkit_installed=bool(toolkit.get("installed")),
            toolkit_version=toolkit.get("version") or "",
            gpus=tuple(map(_gpu, smi.get("gpus") or ())),
            gpus_readable=bool(smi.get("available")),
            driver=smi.get("driver_version") or "",
            specifications=tuple(
                Specification(one["path"], one["kind"], tuple(one["devices"]))
                for one in toolkit.get("cdi_specifications") or ()
            ),
            refresh=refresh,
            recorded_inputs=record.get("inputs") or "",
            recorded=record.get("data") or {},
            drift=tuple(str(one["message"]) for one in record.get("drift") or ()),
            coming=coming,
        )

    def was(self, name: str) -> str:
        """A text of the last record, empty where it has none."""
        value = self.recorded.get(name)
        return value if isinstance(value, str) else ""

    @property
    def version(self) -> str:
        """The installed version without the release of its package, empty where there is none."""
        package = self.packages.get("nvidia-container-toolkit-base") or self.packages.get(PACKAGES[0], "")
        return _upstream(package) if package else self.toolkit_version


def _gpu(found: Mapping[str, Any]) -> Gpu:
    devices = tuple((one["index"], one["uuid"]) for one in found["mig_devices"])
    return Gpu(found["index"], found["uuid"], found["mig_mode_current"] == "enabled", devices)


@dataclass(frozen=True)
class Engine:
    """An engine to configure, with the first two numbers of its version."""

    name: str
    version: str


@dataclass(frozen=True)
class ToolkitPlan:
    """The toolkit that the host is to have.

    `state` is present or absent. `install` are specifications for the package manager and `package_state` what it is
    to make of them. `units`: whether the toolkit's units keep the specification `spec_file`, else the role does;
    `because` is why they do not, where they exist. `stale_files` are left of units whose toolkit is gone, `unit_files`
    all that a package may leave. `unconfigure`: engines that an earlier run has configured, and this one is not to;
    each is the name of a task file, and the record is the host's, so that no others are in it. `device_names`
    has the name in the specification by each name of a GPU or MIG device, `uuids` the UUID. `config` are options of the
    toolkit's config.toml that are to be set, the others have NVIDIA's defaults, `config_lines` the line of each option.
    """

    state: str
    source: str
    runtimes: tuple[str, ...]
    unconfigure: tuple[str, ...]
    engines: tuple[Engine, ...]
    missing_engines: tuple[str, ...]
    engines_with_cdi: tuple[str, ...]
    uses_cdi: bool
    version: str
    present_packages: tuple[str, ...]
    missing: tuple[str, ...]
    versions: tuple[str, ...]
    version_matches: bool
    install: tuple[str, ...]
    package_state: str
    old_packages: tuple[str, ...]
    old_files: tuple[str, ...]
    spec_file: str
    units: bool
    because: str
    stale_files: tuple[str, ...]
    unit_files: tuple[str, ...]
    conflicting: tuple[str, ...]
    spec_matches: bool
    uuids: Mapping[str, str]
    device_names: Mapping[str, str]
    whole_gpus: tuple[str, ...]
    mig_devices: tuple[str, ...]
    config: Mapping[str, bool]
    config_lines: Mapping[str, str]
    vulnerabilities: tuple[str, ...]
    inputs: str
    is_converged: bool
    is_present: bool
    steps: tuple[str, ...]
    refusals: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Inputs:
    """All that a plan is made from, with the engines that are there."""

    request: Request
    facts: Host
    runtimes: tuple[str, ...]
    engines: tuple[Engine, ...]

    @property
    def with_cdi(self) -> tuple[str, ...]:
        """Names of the engines that read CDI specifications."""
        return tuple(one.name for one in self.engines if _numbers(one.version) >= _numbers(_cdi_since(one)))

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the engines that are not installed."""
        return tuple(name for name in self.runtimes if name not in {one.name for one in self.engines})

    @property
    def uses_cdi(self) -> bool:
        return self.request.mode != "legacy" and bool(self.with_cdi)


def toolkit_plan(request: Request, facts: Host) -> ToolkitPlan:
    """Plan the toolkit. What makes it impossible is in `refusals`; nothing is to be changed then."""
    runtimes = tuple(name for name in request.runtimes if name != "docker" or not request.docker_is_absent)
    given = _Inputs(request, facts, runtimes, tuple(_engines(runtimes, facts)))
    present = tuple(name for name in PACKAGES if name in facts.packages)
    source = request.source
    if source == "auto":
        source = "host" if not present and facts.toolkit_installed else "repository"
    missing = tuple(name for name in PACKAGES if name not in present) if source == "repository" else ()
    versions = tuple(dict.fromkeys(facts.packages[name] for name in present))
    old_packages = tuple(name for name in OLD_PACKAGES if name in facts.packages)
    units, because = _unit_decision(facts)
    spec_file = _spec_file(facts, units)
    names = device_uuids(facts.gpus)
    whole = tuple(gpu.uuid for gpu in facts.gpus if not gpu.is_mig)
    mig = tuple(uuid for gpu in facts.gpus for _index, uuid in gpu.mig_devices)
    devices = tuple(
        name for one in facts.specifications if (one.path, one.kind) == (spec_file, KIND) for name in one.devices
    )
    conflicting = tuple(
        one.path for one in facts.specifications if one.kind == KIND and one.path != spec_file and "all" in one.devices
    )
    refusals = tuple(_refusals(given, spec_file))
    state = request.state if runtimes else "absent"
    config, config_warnings = _config(given) if state == "present" else ({}, ())
    held = request.version or facts.version
    inputs = _inputs(given, source, config)
    is_as_recorded = facts.recorded_inputs == inputs
    is_converged = is_as_recorded and not (facts.drift or missing or old_packages or conflicting)
    is_present = bool(facts.recorded_inputs or facts.recorded or present)
    warnings: tuple[str, ...] = ()
    if state == "present":
        warnings = (*_vulnerability_warnings(held, request), *config_warnings)
        steps = (*((REPORT,) if warnings or refusals else ()), *(() if is_converged else (INSTALL,)))
    else:
        steps = (REMOVE,) if is_present else ()
    return ToolkitPlan(
        state=state,
        source=source,
        runtimes=runtimes,
        unconfigure=tuple(
            name
            for name in _UNCONFIGURABLE
            if name in _listed(facts.recorded.get("runtimes")) and (state == "absent" or name not in runtimes)
        ),
        engines=given.engines,
        missing_engines=given.missing,
        engines_with_cdi=given.with_cdi,
        uses_cdi=given.uses_cdi,
        version=facts.version,
        present_packages=present,
        missing=missing,
        versions=versions,
        version_matches=_version_matches(request, versions),
        install=tuple(_specification(name, request.version, facts.uses_apt) for name in PACKAGES),
        # Packages of different versions are upgraded to the newest; equal versions are left to the host's updates.
        package_state="latest" if not request.version and len(versions) > 1 else "present",
        old_packages=old_packages,
        old_files=(*_OLD_FILES, *(_OLD_HOOKS if "podman" in runtimes else ())),
        spec_file=spec_file,
        units=units,
        because=because,
        stale_files=_stale_files(facts),
        unit_files=_UNIT_REMAINS,
        conflicting=conflicting,
        spec_matches=_matches(devices, names, (*whole, *mig)),
        uuids=names,
        device_names={"all": "all", **cdi_names(names, devices)},
        whole_gpus=whole,
        mig_devices=mig,
        config=config,
        config_lines={key: _config_line(key, config) for key in _DEFAULTS},
        vulnerabilities=against(held).names,
        inputs=inputs,
        is_converged=is_converged,
        is_present=is_present,
        steps=steps,
        refusals=refusals,
        warnings=warnings,
    )


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def against(version: str, accepted: Collection[str] = ()) -> Known:
    """Vulnerabilities of a version of the toolkit, such as 1.17.3 or 1.17.3-1."""
    return known(_vulnerabilities.TOOLKIT, version, accepted=accepted)


def _vulnerability_warnings(version: str, request: Request) -> Iterator[str]:
    found = against(version)
    if found.found:
        pinned = f", which nvidia_container_toolkit_version={request.version} holds," if request.version else ""
        yield (
            f"container toolkit {version}{pinned} has known vulnerabilities (NVIDIA's security {found.text}); "
            f"{found.fixed_in} and newer have none of them: set nvidia_container_toolkit_version to one of them"
        )


# Packages and versions.


def _numbers(version: str) -> tuple[int, ...]:
    """A version for comparisons: epoch, release and suffixes do not count."""
    return tuple(
        int(number) for number in re.findall(r"\d+", re.split(r"[-~+]", version.rsplit(":", maxsplit=1)[-1])[0])
    )


def _upstream(version: str) -> str:
    return version.rsplit(":", maxsplit=1)[-1].rsplit("-", 1)[0]


def _cdi_since(engine: Engine) -> str:
    return CDI_SINCE["containerd" if engine.name in EMBEDDED else engine.name]


def _engines(runtimes: Sequence[str], facts: Host) -> Iterator[Engine]:
    for name in runtimes:
        if name in EMBEDDED:
            # The role looks for its files; all that are supported have containerd 1.7 or newer.
            yield Engine(name, CDI_SINCE["containerd"])
        for package in ENGINE_PACKAGES.get(name, ()):
            # An epoch is not followed by a dot.
            version = re.search(r"[0-9]+[.][0-9]+", facts.packages.get(package, ""))
            if version:
                yield Engine(name, version[0])
                break


def _version_matches(request: Request, versions: Sequence[str]) -> bool:
    """Versions of the packages count without their release, which is 1 so far."""
    return len(versions) <= 1 and (not request.version or [_upstream(one) for one in versions] == [request.version])


def _specification(name: str, version: str, uses_apt: bool) -> str:
    return f"{name}{'=' if uses_apt else '-'}{version}-*" if version else name


def _refusals(given: _Inputs, spec_file: str) -> Iterator[str]:
    request = given.request
    # In check mode the role docker may be about to install it; no role installs another engine.
    coming = (*given.facts.coming, *(("docker",) if request.check_mode else ()))
    missing = [name for name in given.missing if name not in coming]
    if missing:
        brought = "run the role gpu.fleet.docker first, or the playbook gpu.fleet.site, or "
        yield (
            f"{', '.join(map(_called, missing))} is not installed; "
            f"{brought if 'docker' in missing else 'install it first, or '}take it out of "
            "nvidia_container_toolkit_runtimes"
        )
    # podman supports CDI only.
    needing = given.runtimes if request.mode == "cdi" else ("podman",)
    lacking = [one for one in given.engines if one.name not in (*given.with_cdi, *given.facts.coming)]
    without = [one for one in lacking if one.name in needing]
    if without:
        yield (
            "; ".join(
                f"{_called(one.name)} {one.version} does not support CDI, {_cdi_since(one)} and newer does"
                for one in without
            )
            + "; set nvidia_container_toolkit_mode to auto or legacy for this host, or remove the engine from "
            "nvidia_container_toolkit_runtimes"
        )
    if request.mode == "legacy" and "podman" in given.runtimes:
        yield (
            "podman supports GPUs through CDI only; set nvidia_container_toolkit_mode to auto or cdi for this host, "
            "or take "
            "podman out of nvidia_container_toolkit_runtimes"
        )
    if not _VERSION.fullmatch(request.version):
        shown = request.version[:60]
        yield f"nvidia_container_toolkit_version is {shown}; it has to be a version such as 1.18.0, or empty"
    if not spec_file.startswith(_DIRECTORIES) or not spec_file.endswith((".yaml", ".json")):
        yield (
            f"NVIDIA_CTK_CDI_OUTPUT_FILE_PATH in {ENVIRONMENT_FILE} is {spec_file}, where no engine reads it; it has "
            f"to be a .yaml or .json file in {' or '.join(_DIRECTORIES)}"
        )


def _called(engine: str) -> str:
    return {"docker": "Docker", "crio": "CRI-O"}.get(engine, engine)


# The CDI specification.


def _unit_decision(facts: Host) -> tuple[bool, str]:
    """Whether the toolkit's units keep the specification, and why not where they exist."""
    refresh = facts.refresh
    if refresh is None:
        return facts.recorded.get("refreshed", facts.recorded.get("spec_file") == REFRESHED_SPECIFICATION), ""
    if not refresh.files or _numbers(facts.version) < _numbers(FIRST_WITH_UNITS):
        return False, ""
    if refresh.modules is not None and not _condition(facts.version).search(refresh.modules):
        module = re.search(r"\S*/nvidia[^/:\s]*\.ko[^:\s]*", refresh.modules)
        found = f"does not match {module[0]}" if module else "finds no module nvidia.ko"
        return False, f"the condition of nvidia-cdi-refresh.service in toolkit {facts.version} {found}"
    if refresh.result:
        return False, f"nvidia-cdi-refresh.service wrote no specification, its result is {refresh.result}"
    return True, ""


def _condition(version: str) -> re.Pattern[str]:
    return next(one for last, one in _CONDITIONS if not last or _numbers(version) <= _numbers(last))


def _spec_file(facts: Host, units: bool) -> str:
    """The specification to keep. At boot nothing but the units writes below /run again."""
    if facts.refresh is None:
        return str(facts.recorded.get("spec_file") or STATIC_SPECIFICATION)
    path = facts.refresh.output
    if units:
        return path or REFRESHED_SPECIFICATION
    has_units = _numbers(facts.version) >= _numbers(FIRST_WITH_UNITS)
    return path if has_units and path and not path.startswith("/run/") else STATIC_SPECIFICATION


def _stale_files(facts: Host) -> tuple[str, ...]:
    """Unit files of a newer toolkit that has been there, and what belongs to them."""
    if facts.refresh is None or not facts.version or _numbers(facts.version) >= _numbers(FIRST_WITH_UNITS):
        return ()
    return _UNIT_REMAINS if set(UNIT_FILES) & set(facts.refresh.files) else ()


def device_uuids(gpus: Sequence[Gpu]) -> dict[str, str]:
    """UUID by each name of a GPU or MIG device: 0, gpu0, GPU-..., 0:1, mig0:1, MIG-..."""
    found = {}
    for gpu in gpus:
        found.update(dict.fromkeys((str(gpu.index), f"gpu{gpu.index}", gpu.uuid), gpu.uuid))
        for index, uuid in gpu.mig_devices:
            number = f"{gpu.index}:{index}"
            found.update(dict.fromkeys((number, f"mig{number}", uuid), uuid))
    return found


def cdi_names(names: Mapping[str, str], devices: Sequence[str]) -> dict[str, str]:
    """The specification's name by each name. Toolkit 1.14 names devices by index only, others may by type."""
    specified = {names[device]: device for device in reversed(devices) if device in names}
    return {name: name if name in devices else specified.get(uuid, name) for name, uuid in names.items()}


def _matches(devices: Sequence[str], names: Mapping[str, str], expected: Sequence[str]) -> bool:
    """Whether a specification names exactly the GPUs and MIG devices of the host."""
    named = set(devices) - {"all"}
    return named <= set(names) and set(expected) <= {names[device] for device in named}


# The toolkit's own configuration.


def _config(given: _Inputs) -> tuple[dict[str, bool], tuple[str, ...]]:
    """Options that differ from NVIDIA's defaults, and warnings.

    NVIDIA's runtime gives any container, also one without privileges, the GPUs in its NVIDIA_VISIBLE_DEVICES. The
    engines of Kubernetes get GPUs from a device plugin, so there it is not accepted. Docker's own --gpus needs it
    without CDI.
    """
    request = given.request
    cluster = [name for name in given.runtimes if name in ("containerd", "crio", *EMBEDDED)]
    needs = "docker" in given.runtimes and (request.mode == "legacy" or "docker" not in given.with_cdi)
    envvar = request.envvar if request.envvar is not None else not cluster or needs
    warnings = []
    if cluster and needs and request.envvar is None:
        warnings.append(
            f"any container of {' and '.join(map(_called, cluster))} can get GPUs by NVIDIA_VISIBLE_DEVICES, since "
            "Docker without CDI needs that on the same host; set nvidia_container_toolkit_accept_envvar to decide it"
        )
    chosen = {ENVVAR: envvar, MOUNTS: bool(request.mounts)}
    return {key: value for key, value in chosen.items() if value != _DEFAULTS[key]}, tuple(warnings)


def _config_line(key: str, config: Mapping[str, bool]) -> str:
    return f"{key} = {str(config[key]).lower()}" if key in config else f"#{key} = {str(_DEFAULTS[key]).lower()}"


def _inputs(given: _Inputs, source: str, config: Mapping[str, bool]) -> str:
    """A hash of all that decides the state of the host. The specification names libraries by the driver's version."""
    facts = given.facts
    return inputs_of(
        given.request,
        source=source,
        engines=[asdict(one) for one in given.engines],
        config=dict(config),
        version=facts.version,
        gpus=[facts.gpus_readable, *([facts.driver, *map(asdict, facts.gpus)] if given.uses_cdi else ())],
    )

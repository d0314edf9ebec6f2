# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tasks of nvidia_container_toolkit get of its plan, by stages. Private to this collection. Pure."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from os.path import basename, dirname
from typing import Any

from ..._planning.contract import Ask, Outlook, Plan, Reading, RolePlanner, command, in_order, search, unread
from ..docker.plan import INSTALL as DOCKER_INSTALL
from .plan import (
    EMBEDDED,
    ENGINE_PACKAGES,
    INSTALL,
    PACKAGES,
    REMOVE,
    TOOLKIT,
    UNITS,
    Host,
    Refresh,
    Request,
    ToolkitPlan,
    toolkit_plan,
    unit_commands,
)

TASKS: Mapping[str, str] = {
    "containerd": "containerd",
    "crio": "crio",
    "docker": "docker",
    "k3s": "embedded_containerd",
    "podman": "podman",
    "rke2": "embedded_containerd",
}
"""The files of tasks that configure each engine, or undo that."""
_CONFIG = "/etc/nvidia-container-runtime/config.toml"
_COMMAND = "/usr/local/bin/nvidia-docker"
_PREFERENCES = "/etc/apt/preferences.d/gpu-fleet-nvidia-container-toolkit"
_MANAGEMENT = "/etc/cdi/nvidia-management.yaml"
_DAEMON_FILE = "/etc/docker/daemon.json"
_RUNTIME, _HOOK = "/usr/bin/nvidia-container-runtime", "/usr/bin/nvidia-container-runtime-hook"
FIRST, INSTALLED, REFRESH = "first", "installed", "refresh"
"""When the host is read for the plan: before the first change, after the packages, to update a specification alone."""
_GATHERED = {INSTALLED: ["packages", "cuda"], REFRESH: ["system", "packages", "gpus", "cuda", "managed"]}
_UNIT_DIRECTORIES = ("/usr/lib/systemd/system", "/etc/systemd/system")
_CRIO_FILE = "/etc/crio/crio.conf.d/99-nvidia.conf"
_CONTAINERD_FILES = ("/etc/containerd/config.toml", "/etc/containerd/conf.d/*.toml")
_RANCHER, _RANCHER_CONFIG = "/var/lib/rancher", "/etc/rancher"
_DEFAULT_RUNTIME = "config.yaml.d/99-gpu-fleet-nvidia.yaml"
# A host has a server or an agent.
_EMBEDDED_UNITS = {
    "k3s": ("k3s.service", "k3s-agent.service"),
    "rke2": ("rke2-server.service", "rke2-agent.service"),
}
# What the running process of an engine must have read. The template and the drop-ins of K3s and RKE2 are the user's.
_STARTED_AFTER: Mapping[str, tuple[str, ...]] = {
    "containerd": _CONTAINERD_FILES,
    "crio": ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*"),
    **dict.fromkeys(
        EMBEDDED,
        (
            _RUNTIME,
            f"{_RANCHER_CONFIG}/*/{_DEFAULT_RUNTIME}",
            f"{_RANCHER}/*/agent/etc/containerd/config*.toml.tmpl",
            f"{_RANCHER}/*/agent/etc/containerd/config*.toml.d/*.toml",
        ),
    ),
}
_UNITS: Mapping[str, tuple[str, ...]] = {
    "containerd": ("containerd.service",),
    "crio": ("crio.service",),
    **_EMBEDDED_UNITS,
}
_WRITTEN = f"# Written by the role gpu.fleet.{TOOLKIT}.\n"
_RUNTIME_CLASS = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata:\n  name: nvidia\nhandler: nvidia\n"
_INSTALL_HINT = f"set {TOOLKIT}_source to repository, or install the package nvidia-container-toolkit"
_LEGACY = (
    "this Docker gives GPUs to containers in legacy mode. With the cgroup driver systemd, `systemctl daemon-reload` "
    'takes them away from running containers ("Failed to initialize NVML: Unknown Error"). Docker 25 and newer uses '
    "CDI, which does not; here, docker_daemon_options with exec-opts [native.cgroupdriver=cgroupfs] prevents it"
)
_UUID = re.compile(r"UUID: ((?:GPU|MIG)-[0-9a-f-]+)")
# Device files count as well: a container without nvidia-smi may still have some.
_DEVICE_FILE = re.compile(r"/dev/nvidia[0-9]+")
_SMOKE_SCRIPT = "if command -v nvidia-smi >/dev/null; then nvidia-smi -L; else echo /dev/nvidia[0-9]*; fi"


def plan(request: Request, facts: Host) -> Plan:
    """The plan as every role has it. A toolkit that is to be removed refuses nothing."""
    found = toolkit_plan(request, facts)
    reasons = (*facts.drift, *(f"{one} conflicts with the specification that is kept" for one in found.conflicting))
    otherwise = "the variables of the role, the GPUs or the packages differ from the last run, or it is the first"
    is_present = found.state == "present"
    tasks = {
        **_task_files(request, facts, found, reasons),
        **_packages(request, facts, found),
        **_engines(request, facts, found),
        **_specification(request, facts, found),
        **_removal(facts, found),
        "docker_options": docker_options(request, found, facts.programs),
        "read": {"refresh": asdict(facts.refresh) if facts.refresh else {}, "programs": facts.programs},
        "begun": begun(request, facts, found),
    }
    return Plan(
        found.refusals if is_present else (),
        found.steps,
        (reasons or (otherwise,)) if INSTALL in found.steps else (),
        found.inputs,
        found.warnings,
        tasks=tasks,
    )


def _task_files(request: Request, facts: Host, found: ToolkitPlan, reasons: Sequence[str]) -> dict[str, Any]:
    """The task files that there is work for: of main.yml, of install.yml and of configure.yml.

    In check mode on a host without the toolkit or an engine, packages are predicted, and there is nothing to configure.
    """
    is_present, is_old = found.state == "present", bool(found.old_packages)
    uses_repository = is_present and found.source == "repository"
    main = {
        "remove": REMOVE in found.steps,
        "repository": uses_repository,
        "install": is_present and INSTALL in found.steps,
    }
    changes = {
        "remove_old_volumes": is_old,
        "packages": uses_repository,
        # After the installation: apt removes nothing while a package of the toolkit lacks another one. Before the
        # engines are configured: daemon.json belongs to a predecessor.
        "remove_old_packages": is_old and not request.check_mode,
        "configure": not request.check_mode or not (found.missing or found.missing_engines),
    }
    has_command = request.nvidia_docker or bool(facts.recorded.get("nvidia_docker"))
    configured = {"config": True, "cdi": found.uses_cdi, "nvidia_docker": has_command}
    return {
        "repository": "container_toolkit" if uses_repository else "",
        "task_files": in_order(name for name, is_due in main.items() if is_due),
        "changes": in_order(name for name, is_due in changes.items() if is_due),
        "configure": in_order(
            [
                *(_configured(name, request, facts) for name in found.runtimes),
                *(_unconfigured(name, facts) for name in found.unconfigure),
                *({"name": name, "tasks": name} for name, is_due in configured.items() if is_due),
            ]
        ),
        # Not every repair by several tasks can be predicted by them.
        "is_predicted": request.check_mode and bool(reasons),
    }


def _packages(request: Request, facts: Host, found: ToolkitPlan) -> dict[str, Any]:
    """What the tasks read about packages and their versions."""
    is_pinned = bool(request.version) and found.state == "present"
    has_docker = any(name in facts.packages for name in ENGINE_PACKAGES["docker"])
    return {
        "missing": found.missing,
        "install": found.install,
        "package_state": found.package_state,
        "changes_packages": found.source == "repository" and (bool(found.missing) or not found.version_matches),
        "would_install": ", ".join(found.missing),
        "present_packages": found.present_packages,
        "old_packages": found.old_packages,
        "has_docker": has_docker,
        # Its containers depend on its volumes, which cannot be mounted without it.
        "removes_volumes": "nvidia-docker" in found.old_packages and has_docker,
        "is_pinned": is_pinned,
        "sets_pin": bool(request.version or facts.was("version")) and not found.missing,
        "was_pinned": bool(facts.was("version")),
        "pin_state": "present" if is_pinned else "absent",
    }


def _engines(request: Request, facts: Host, found: ToolkitPlan) -> dict[str, Any]:
    """What the tasks read about the engines and the command nvidia-docker."""
    earlier = facts.recorded.get("docker_options")
    return {
        "unconfigure": [_unconfigured(name, facts) for name in found.unconfigure],
        "engine_cdi": request.mode != "legacy",
        "default_runtime": request.default_runtime,
        "earlier_options": earlier if isinstance(earlier, Mapping) else {},
        "config_lines": [{"key": key, "line": line} for key, line in found.config_lines.items()],
        "has_config": bool(found.config),
        "has_command": request.nvidia_docker,
    }


def _configured(name: str, request: Request, facts: Host) -> dict[str, Any]:
    """What the tasks of an engine read."""
    started_after = _STARTED_AFTER.get(name, ())
    common = {"name": name, "tasks": TASKS[name], "state": "present", "started_after": started_after}
    if name not in EMBEDDED:
        return common
    default = "default-runtime: nvidia\n" if request.default_runtime else ""
    manifests, runtime_class = f"{_RANCHER}/{name}/server/manifests", _RUNTIME_CLASS if request.runtime_class else ""
    files = [
        _file(f"{_RANCHER_CONFIG}/{name}/{_DEFAULT_RUNTIME}", default),
        # Agents have no manifests.
        *([_file(_runtime_class(name), runtime_class)] if manifests in facts.written else []),
    ]
    return {
        **common,
        "units": _UNITS[name],
        "config": _embedded_config(name),
        "write": [one for one in files if one["content"]],
        "remove": [one["path"] for one in files if not one["content"]],
    }


def _embedded_config(name: str) -> str:
    return f"{_RANCHER}/{name}/agent/etc/containerd/config.toml"


def _file(path: str, content: str) -> dict[str, str]:
    """A file to write, or to remove where it has no content."""
    return {"path": path, "directory": dirname(path), "content": f"{_WRITTEN}{content}" if content else ""}


def _runtime_class(name: str) -> str:
    return f"{_RANCHER}/{name}/server/manifests/gpu-fleet-nvidia.yaml"


def _unconfigured(name: str, facts: Host) -> dict[str, Any]:
    """What the tasks read that undo the configuration of an engine. Directories show what was removed."""
    files: Mapping[str, tuple[str, ...]] = {
        "containerd": (*_CONTAINERD_FILES, *map(dirname, _CONTAINERD_FILES)),
        "crio": (dirname(_CRIO_FILE),),
        **{one: (dirname(f"{_RANCHER_CONFIG}/{one}/{_DEFAULT_RUNTIME}"),) for one in EMBEDDED},
    }
    program = facts.was("crio_program")
    return {
        "name": name,
        "tasks": "unconfigure_crio" if name == "crio" else TASKS[name],
        "state": "absent",
        "started_after": files.get(name, ()),
        "units": _UNITS.get(name, ()),
        "write": [],
        "remove": [f"{_RANCHER_CONFIG}/{name}/{_DEFAULT_RUNTIME}", _runtime_class(name)] if name in EMBEDDED else [],
        "program": f', "{re.escape(program)}"' if program else "",
    }


def _specification(request: Request, facts: Host, found: ToolkitPlan) -> dict[str, Any]:
    """What the tasks read about CDI specifications."""
    is_json = found.spec_file.endswith(".json")
    return {
        "uses_cdi": found.uses_cdi,
        "spec_file": found.spec_file,
        "spec_directory": dirname(found.spec_file),
        "generate_command": ["nvidia-ctk", "cdi", "generate", *(["--format=json"] if is_json else [])],
        "specify": _specify(request, facts, found),
        "enable_units": not (facts.refresh and facts.refresh.are_enabled),
        "because": found.because,
        "stale_files": found.stale_files,
        "conflicting": found.conflicting,
        "has_gpus": facts.gpus_readable,
        "has_management": request.management_device and facts.gpus_readable,
    }


def _specify(request: Request, facts: Host, found: ToolkitPlan) -> list[dict[str, Any]]:
    """The files of tasks that change CDI specifications. Without a driver there is nothing to specify."""
    is_left = not request.management_device and bool(facts.was("management_spec"))
    files = {
        "disable_units": bool(found.stale_files),
        "cdi_refresh" if found.units else "cdi_generate": facts.gpus_readable,
        "cdi_management": is_left or (request.management_device and facts.gpus_readable),
    }
    return in_order(name for name, is_due in files.items() if is_due)


def _removal(facts: Host, found: ToolkitPlan) -> dict[str, Any]:
    """What the tasks read when the toolkit is removed."""
    recorded = [name for name in (facts.was("spec_file"), facts.was("management_spec")) if name]
    command = [_COMMAND] if facts.recorded.get("nvidia_docker") else []
    return {
        "would_remove": ", ".join(found.present_packages) or "the configuration of the engines",
        "own_files": [*recorded, _PREFERENCES, *command],
        "unit_files": found.unit_files if found.present_packages else (),
    }


# The stages of the plan


def _observed(facts: Mapping[str, Any], read: Mapping[str, Any]) -> Host:
    """The host with what was read for its plan, whose `read` it is."""
    refresh = read.get("refresh") or {}
    units = Refresh(**{**refresh, "files": tuple(refresh["files"])}) if refresh else None
    return replace(Host.of(facts, units), programs=tuple(read.get("programs") or ()))


def _plan(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan | Ask:
    """The plan, in a `step` by what the host has; after the installation another version is refused.

    To refresh, only an existing specification is updated, and a host that the role has not configured refuses nothing.
    """
    request, step = Request.read(variables, bool(found.get("check_mode"))), found.get("step", "")
    gathered = {"facts": ("gpu.fleet.host_facts", {"gather": _GATHERED[step]})} if step in _GATHERED else {}
    asked = unread(found, gathered)
    if asked:
        return asked
    host = Host.of(facts)
    planned, decided = plan(request, host), toolkit_plan(request, host)
    if step == REFRESH and not (host.recorded_inputs and decided.uses_cdi):
        return Plan(tasks={"task_files": []})
    is_first = step not in _GATHERED
    if is_first and (not step or planned.refusals or INSTALL not in planned.steps):
        # On a converged host as well: a pin must not hold such a version in silence.
        return replace(planned, warnings=planned.notes)
    asked = unread(found, _readings(planned, decided, is_first), planned)
    if not asked and found["units"].get("files"):
        commands = unit_commands(str(facts.get("kernel") or ""))
        asked = unread(found, {"outputs": [command(*argv) for argv in commands]})
    if asked:
        return asked
    programs, written = (tuple(_paths(found.get(name, {}))) for name in ("programs", "written"))
    refresh = Refresh.of(found["units"], found.get("outputs", {}))
    host = replace(host, refresh=refresh, programs=programs, written=written)
    planned, decided = plan(request, host), toolkit_plan(request, host)
    asked = unread(found, {"spec": ("stat", {"path": decided.spec_file})} if decided.units else {})
    if asked:
        return asked
    is_legacy = step != REFRESH and _is_legacy(request, planned, decided, is_first)
    wrong = _wrong(host, decided, found, is_legacy) if step != REFRESH else ()
    there = found.get("spec", {}).get("stat", {})
    tasks = {
        "old_there": found.get("old", {}).get("stdout_lines") or (),
        "spec_checksum": there.get("checksum") or "",
        **({"task_files": in_order(["cdi", "verify"])} if step == REFRESH else {}),
    }
    return replace(
        planned,
        refusals=(*planned.refusals, *(_other_version(request, decided) if step == INSTALLED else ()), *wrong),
        warnings=(*(planned.notes if is_first else ()), *((_LEGACY,) if is_legacy else ())),
        tasks={**planned.tasks, **tasks},
    )


def _readings(planned: Plan, decided: ToolkitPlan, is_first: bool) -> dict[str, Reading | list[Reading]]:
    """What the plan is made by; before the first change what is removed, and what modules would refuse or warn of."""
    found: dict[str, Reading | list[Reading]] = {"units": search(_UNIT_DIRECTORIES, UNITS)}
    if "docker" in decided.runtimes:
        # The hook is a link in some versions of the package.
        found["programs"] = search([dirname(_RUNTIME)], [basename(_RUNTIME), basename(_HOOK)])
    embedded = [f"{_RANCHER}/{name}/" for name in decided.runtimes if name in EMBEDDED]
    if embedded:
        directories = [f"{one}{below}" for one in embedded for below in ("agent/etc/containerd", "server")]
        found["written"] = search(directories, ["config.toml", "manifests"])
    if is_first:
        # A search would warn about directories that only other distributions have.
        found["old"] = command("ls", "--directory", *decided.old_files)
        options = {"cdi": planned.tasks["engine_cdi"], "default": planned.tasks["default_runtime"]}
        if "containerd" in [one.name for one in decided.engines]:
            found["containerd"] = ("gpu.fleet.containerd_runtime", options)
        # Scripts of the packages reload systemd, and containers may lose their GPUs.
        if planned.tasks["changes_packages"]:
            found["reload"] = ("gpu.fleet.systemd_reload", {})
    return found


def _is_legacy(request: Request, planned: Plan, decided: ToolkitPlan, is_first: bool) -> bool:
    """Whether Docker is to be configured without CDI; not known before the packages are there."""
    is_early = is_first and planned.tasks["changes_packages"] and not request.check_mode
    is_due = "docker" in decided.runtimes and "configure" in [one["name"] for one in planned.tasks["changes"]]
    return is_due and not is_early and "features" not in planned.tasks["docker_options"]


def _wrong(host: Host, decided: ToolkitPlan, found: Mapping[str, Any], is_legacy: bool) -> Iterator[str]:
    """Refusals by what was read."""
    yield from (str(one.get("msg")) for one in map(found.get, ("containerd", "reload")) if one and one.get("failed"))
    for name in decided.runtimes:
        if name in EMBEDDED and _embedded_config(name) not in host.written:
            advice = f"install and start {name} first, or take it out of {TOOLKIT}_runtimes"
            yield f"there is no {_embedded_config(name)}; {advice}"
    if is_legacy and _HOOK not in host.programs:
        yield f"nvidia-container-runtime-hook, which legacy mode needs, is not in /usr/bin; {_INSTALL_HINT}"


def _other_version(request: Request, decided: ToolkitPlan) -> Iterator[str]:
    if not decided.version_matches:
        yield (
            f"{TOOLKIT}_version is {request.version or 'the newest'}, but {' and '.join(decided.versions)} was "
            "installed; see `apt-cache policy` or `dnf --showduplicates list` for the versions in the repository"
        )


def _refusals(variables: Mapping[str, Any], facts: Mapping[str, Any], outlook: Outlook) -> Sequence[str]:
    """Refusals, whatever GPUs and specifications the host will have, where its packages are known."""
    if facts["packages"] is None:
        return ()
    # The role docker brings these engines, or newer ones.
    coming = ("docker", "containerd") if DOCKER_INSTALL in outlook.coming.get("docker", ()) else ()
    known = {**facts, "nvidia_smi": {}, "cuda": {"container_toolkit": {}}}
    return plan(Request.read(variables), Host.of(known, coming=coming)).refusals


def _paths(found: Mapping[str, Any]) -> list[str]:
    return [str(one["path"]) for one in found.get("files") or ()]


def docker_options(request: Request, found: ToolkitPlan, programs: Sequence[str]) -> dict[str, Any]:
    """The options for daemon.json. NVIDIA's runtime is on the host; CDI needs neither it nor the hook."""
    runtime: dict[str, Any] = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}
    cdi = found.uses_cdi and "docker" in found.engines_with_cdi
    return {
        **(runtime if _RUNTIME in programs else {}),
        **({"features": {"cdi": True}} if cdi else {}),
        **({"default-runtime": "nvidia"} if request.default_runtime else {}),
    }


# Stages of the specification


def _generated(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan | Ask:
    """The plan with the specification that is generated; refused where none is. The task warns of units that do not.

    `units_failed`: the service has written none, so that the role keeps it. A condition that is not met is no failure.
    """
    read = found["read"]
    if found["units_failed"]:
        asked = unread(found, {"ended": command("systemctl", "show", "--property=Result", "--value", UNITS[-1])})
        if asked:
            return asked
        ended = str(found["ended"].get("stdout") or "").strip() or "unknown"
        read = {**read, "refresh": {**read["refresh"], "result": ended}}
    planned = plan(Request.read(variables, bool(found["check_mode"])), _observed(facts, read))
    if planned.refusals:
        return planned
    # Without --output it only prints.
    generation, kept = command(*planned.tasks["generate_command"]), ("slurp", {"src": planned.tasks["spec_file"]})
    asked = unread(found, {"made": generation, "spec": kept})
    if asked:
        return asked
    made, spec, because = found["made"], found["spec"], planned.tasks["because"]
    refusal, warning = "", f"{because}; the role generates {planned.tasks['spec_file']} itself"
    if made.get("rc") != 0:
        lines = str(made.get("stderr") or made.get("msg") or "no reason given").strip().splitlines()
        why = f" ({because})" if because else ""
        refusal = f"`nvidia-ctk cdi generate` failed{why}: {lines[-1] if lines else ''}; {_INSTALL_HINT}"
    elif spec.get("failed") and "not found" not in str(spec.get("msg")):
        refusal = str(spec.get("msg"))
    content, there = f"{made.get('stdout')}\n", b64decode(str(spec.get("content") or ""))
    return replace(
        planned,
        refusals=(refusal,) if refusal else (),
        warnings=(f"{warning}, run it again after a change of the driver",) if because else (),
        tasks={**planned.tasks, "content": content, "differs": content.encode() != there},
    )


# The record


def _record(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan | Ask:
    """What the role records; refused with a specification of other GPUs. `crio` is the result of crio_runtime."""
    request, host = Request.read(variables), _observed(facts, found["read"])
    decided = toolkit_plan(request, host)
    is_changed = decided.uses_cdi and not found["check_mode"]
    asked = unread(found, {"cuda": ("gpu.fleet.cuda_facts", {})} if is_changed else {})
    if asked:
        return asked
    refusal = (
        f"{decided.spec_file} does not match the GPUs of the host, although it was just generated; see `nvidia-ctk cdi "
        "generate` and `systemctl status nvidia-cdi-refresh.service` on the host"
    )
    options = docker_options(request, decided, host.programs) if "docker" in decided.runtimes else {}
    packages = PACKAGES if decided.source == "repository" else ()
    is_refreshed = decided.uses_cdi and decided.units
    path, service = UNITS
    units: dict[str, Any] = (
        {path: {"enabled": True, "active": True}, service: {"enabled": True}} if is_refreshed else {}
    )
    units.update(
        {
            unit: {"started_after": _STARTED_AFTER[name]}
            for name in _UNITS
            if name in decided.runtimes
            for unit in _UNITS[name]
        }
    )
    tasks = {
        "files": list(_files(request, host, decided)),
        "absent": decided.old_files,
        "json_values": {_DAEMON_FILE: options} if "docker" in decided.runtimes else {},
        "packages": packages,
        "held_packages": packages if request.version else (),
        "units": units,
        "data": {
            "docker_options": options,
            "runtimes": decided.runtimes,
            "crio_program": str(found["crio"].get("program") or "") if "crio" in decided.runtimes else "",
            "spec_file": decided.spec_file if decided.uses_cdi else "",
            "refreshed": is_refreshed,
            "management_spec": _MANAGEMENT if request.management_device else "",
            "version": request.version,
            "nvidia_docker": request.nvidia_docker,
        },
    }
    wrong = is_changed and host.gpus_readable and not decided.spec_matches
    return Plan((refusal,) if wrong else (), inputs=decided.inputs, tasks=tasks)


def begun(request: Request, host: Host, decided: ToolkitPlan) -> dict[str, Any]:
    """The data to record before a change: the state before it and after it, as a kill may leave either."""
    earlier = host.recorded
    options = docker_options(request, decided, [_RUNTIME]) if "docker" in decided.runtimes else {}
    recorded, runtimes = earlier.get("docker_options"), earlier.get("runtimes")
    known = [one for one in runtimes if isinstance(one, str)] if isinstance(runtimes, list) else []
    return {
        **earlier,
        "docker_options": {**(recorded if isinstance(recorded, Mapping) else {}), **options},
        "runtimes": list(dict.fromkeys((*known, *decided.runtimes))),
        "spec_file": host.was("spec_file") or (decided.spec_file if decided.uses_cdi else ""),
        "management_spec": host.was("management_spec") or (_MANAGEMENT if request.management_device else ""),
        "version": host.was("version") or request.version,
        "nvidia_docker": bool(earlier.get("nvidia_docker")) or request.nvidia_docker,
    }


def _files(request: Request, host: Host, decided: ToolkitPlan) -> Iterator[str]:
    """The files that must not change."""
    if "containerd" in decided.runtimes:
        yield from _CONTAINERD_FILES
    if "crio" in decided.runtimes:
        yield _CRIO_FILE
    if request.nvidia_docker:
        yield _COMMAND
    if decided.config:
        yield _CONFIG
    if request.management_device and host.gpus_readable:
        yield _MANAGEMENT
    if request.version and host.uses_apt:
        yield _PREFERENCES
    if decided.uses_cdi and host.gpus_readable:
        yield decided.spec_file


# The smoke test


def _smoke(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan:
    """A container for each request: all, none, or a list of names. None given: one of each kind that the host has."""
    request, engine = Request.read(variables), str(found["engine"])
    decided = toolkit_plan(request, Host.of(facts))
    if not facts["nvidia_smi"]["available"]:
        return Plan((str(facts["nvidia_smi"]["message"]),))
    given = found["requests"] if isinstance(found["requests"], list) else [found["requests"]]
    requests = [_one_word(one) for one in given if one not in (None, "")] or _one_of_each(decided)
    devices = (*decided.whole_gpus, *decided.mig_devices)
    names = [name for one in requests if one not in ("all", "none") for name in _names(one)]
    unknown = [name for name in dict.fromkeys(names) if name not in decided.uuids]
    if unknown:
        there = ", ".join(devices) or "none"
        return Plan((f"there is no GPU or MIG device {', '.join(unknown)}; the host has {there}",))
    by_cdi = engine == "podman" or (decided.uses_cdi and "docker" in decided.engines_with_cdi)
    # SELinux denies a container the device files, whose labels CDI leaves as they are; elsewhere it has no effect.
    options = ["--security-opt=label=disable"] if engine == "podman" else []
    start = [engine, "run", "--rm", "--network=none", "--entrypoint=sh", *options]
    end = [str(found["image"]), "-c", _SMOKE_SCRIPT]
    runs = [
        {
            "request": str(one),
            "argv": [*start, *_requested(one, request, decided, by_cdi), *end],
            "expected": _expected(one, decided, devices),
        }
        for one in requests
    ]
    return Plan(tasks={"runs": runs, "mode": "cdi" if by_cdi else "legacy"})


def _one_of_each(decided: ToolkitPlan) -> list[Any]:
    """All, none, the first GPU with the last, and the first MIG device."""
    whole, mig = decided.whole_gpus, decided.mig_devices
    return ["all", "none", *([[whole[0], whole[-1]]] if len(whole) > 1 else []), *([[mig[0]]] if mig else [])]


def _names(request: Any) -> list[str]:
    """The names in a request."""
    if isinstance(request, list):
        return [name for one in request for name in _names(one)]
    return [str(request)]


def _one_word(request: Any) -> Any:
    """A request, all and none without a list."""
    names = _names(request)
    return names[0] if names in (["all"], ["none"]) else request


def _requested(one: Any, request: Request, decided: ToolkitPlan, by_cdi: bool) -> list[str]:
    """The options of the engine. With NVIDIA's runtime as the default, none has to be requested."""
    if one == "none":
        return ["--env=NVIDIA_VISIBLE_DEVICES=void"] if request.default_runtime else []
    if by_cdi:
        return [f"--device=nvidia.com/gpu={decided.device_names[name]}" for name in _names(one)]
    return ["--gpus=all"] if one == "all" else [f'--gpus="device={",".join(_names(one))}"']


def _expected(one: Any, decided: ToolkitPlan, devices: Sequence[str]) -> list[str]:
    if one == "none":
        return []
    return list(devices) if one == "all" else list(dict.fromkeys(decided.uuids[name] for name in _names(one)))


def _seen(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """What the containers saw, and which of them did not see what was requested."""
    decided = toolkit_plan(Request.read(variables), Host.of(facts))
    # nvidia-smi names the GPU of a MIG device as well.
    partitioned = {gpu["uuid"] for gpu in facts["nvidia_smi"]["gpus"]} - {*decided.whole_gpus}
    wrong, right, uuids = [], [], {}
    by = f"{found['engine']} ({'CDI' if found['mode'] == 'cdi' else 'legacy mode'})"
    for result in found["results"]["results"]:
        run, output = result["item"], str(result.get("stdout") or "")
        there = dict.fromkeys(_UUID.findall(output))
        uuids.update(there)
        seen = [*(one for one in there if one not in partitioned), *_DEVICE_FILE.findall(output)]
        if result.get("rc") != 0:
            lines = str(result.get("stderr") or result.get("msg") or "").strip().splitlines()
            wrong.append(
                f"a container with {run['request']} by {by} failed: {lines[-1] if lines else 'no reason given'}"
            )
        elif sorted(seen) != sorted(run["expected"]):
            wrong.append(
                f"a container with {run['request']} by {by} sees {', '.join(seen) or 'no GPU'}, expected is "
                f"{', '.join(run['expected']) or 'none'}"
            )
        else:
            right.append(f"{run['request']}: sees {', '.join(seen) or 'no GPU'}")
    counted = {
        "gpus": sum(one.startswith("GPU-") for one in uuids),
        "mig_devices": sum(one.startswith("MIG-") for one in uuids),
        "mode": found["mode"],
    }
    return {"seen": counted, "wrong": wrong, "right": right}


def _repository(variables: Mapping[str, Any], _facts: Mapping[str, Any]) -> str:
    return Request.read(variables).repository


PLANNER = RolePlanner(
    "nvidia_container_toolkit",
    {
        "plan": _plan,
        "generated": _generated,
        "record": _record,
        "smoke": _smoke,
        "seen": _seen,
    },
    others=("docker_daemon_conflict", "docker_state"),
    reads=("docker_daemon_conflict",),
    refuses=_refusals,
    repository=_repository,
    runs_by_default=True,
    has_plan=True,
    is_disruptive=True,
)

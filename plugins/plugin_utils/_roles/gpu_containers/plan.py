# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the declared containers of a host: their GPUs, and which containers to remove. Private to this collection.

Pure: the variables of the role gpu_containers, facts about the GPUs, and the containers and images that the engines
list. What differs between engines is data of `engines`. Docker's module compares a container with what
is planned here; of podman's, the plan names those that are to be made or started.

A container is the role's where the record on the host has it by its ID. Labels decide nothing alone: images and users
set them, too. By the hash of its declaration the role recognizes a container that it made and could not record, in a
run that was interrupted, or whose record was lost: only where it is declared in the very same way, so that nothing is
removed or made again for it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..._planning.contract import Plan, as_lists, is_true
from ..nvidia_container_toolkit.plan import CDI_SINCE, KIND, Gpu, cdi_names, device_uuids
from ..nvidia_container_toolkit.plan import Host as ToolkitHost
from .engines import (
    DOCKER,
    ENGINES,
    LABEL,
    PODMAN,
    RESTART_UNIT,
    RESTARTING,
    ROLE,
    TOOLKIT_MODE,
    Engine,
    Existing,
    existing_containers,
    image_ids,
    lists_of_docker,
    lists_of_podman,
    unreadable,
)

IMAGES, TOKENS, RUN, RUN_PODMAN, RECORD, DIRECTORY = "images", "tokens", "run", "podman", "record", "directory"
"""Steps. The last removes the directory of the tokens."""
TOKEN_DIRECTORY = "/etc/gpu-fleet-jupyter"
DECLARATION = "gpu-fleet.declaration"
"""Label with a hash of what a container was made from. Where it differs, the container is made again."""
TOKEN = "gpu-fleet.jupyter-token"
"""Label with the file that has a container's token. No file is removed by this path, but by the container's name."""
_TOKEN_IN_CONTAINER = "/run/gpu-fleet-jupyter-token"
_JUPYTER = ("jupyter", "lab", "--ip=0.0.0.0", "--port=8888", "--no-browser")

# What NVIDIA recommends for frameworks: https://docs.nvidia.com/deeplearning/frameworks/user-guide/
_ULIMITS: Mapping[str, Any] = {"memlock": -1, "stack": 67108864}
_SHM_SIZE = "1g"

_NOT_THERE = "not there", "install a package of podman that has it"
_MASKED = "masked", "unmask it"
_WITHOUT_START = {"": _NOT_THERE, "not-found": _NOT_THERE, "masked": _MASKED, "masked-runtime": _MASKED}
"""States in which the unit cannot be enabled: in words, and what helps. Older systemd prints nothing for no unit."""

_UNLESS_ADOPTED = "remove it with {0} rm --force {1}, or, if gpu.fleet created it, name it in gpu_containers_adopt"

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+")
_LIMIT = re.compile(r"-?\d+(:-?\d+)?")
_RESERVED = {
    "NVIDIA_VISIBLE_DEVICES": "gpus requests GPUs",
    "JUPYTER_TOKEN": "jupyter makes a token",
    "JUPYTER_TOKEN_FILE": "jupyter makes a token",
}


@dataclass(frozen=True)
class Token:
    """A file with the token of a Jupyter server; `owner` is the number of the user who reads it in the container."""

    container: str
    path: str
    owner: int


@dataclass(frozen=True)
class Container:
    """A container as the module of its engine takes it. None leaves an option to the image or to the engine.

    `state` is for Docker's module: a job that has ended is only kept. `step` is for podman: create,
    also where there is one that differs, start, or nothing, which is empty; compare where the module finds out itself.
    `device_requests` are Docker's requests, or CDI names for podman.
    """

    engine: str
    step: str
    name: str
    image: str
    state: str
    device_requests: tuple[Mapping[str, Any] | str, ...]
    security: tuple[str, ...]
    env: Mapping[str, str]
    labels: Mapping[str, str]
    volumes: tuple[str, ...]
    ports: tuple[str, ...]
    command: tuple[str, ...] | None
    entrypoint: tuple[str, ...] | None
    user: str | None
    working_dir: str | None
    ipc: str | None
    shm_size: str | None
    ulimits: tuple[str, ...]
    restart_policy: str


@dataclass(frozen=True)
class ContainerPlan:
    """What is decided for a host, with the environments of containers.

    `load` are images to load from archives, `pull` those to pull.
    `obsolete` are containers of the role that are no longer declared, `obsolete_tokens` files of tokens.
    `enable_restart_unit`: whether the unit by which podman's containers start at boot is to be enabled.
    `record` is what the role owns on the host: the IDs of its containers by engine and name, and its tokens by name.
    `notes` are about containers that claim to be the role's, and stay.
    """

    containers: tuple[Container, ...] = ()
    tokens: tuple[Token, ...] = ()
    load: tuple[Mapping[str, str], ...] = ()
    pull: tuple[Mapping[str, str], ...] = ()
    obsolete: tuple[Mapping[str, str], ...] = ()
    obsolete_tokens: tuple[str, ...] = ()
    enable_restart_unit: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """The variables of the role.

    `entries` are the declared containers, each with its engine, none where all are to be removed. `engine` is for
    containers that name none. `mode`, in which Docker is asked for GPUs, is cdi, legacy, or auto for what Docker reads.
    """

    is_present: bool
    entries: tuple[Mapping[str, Any], ...]
    engine: str
    mode: str
    adopt: tuple[str, ...] = ()

    @classmethod
    def read(cls, variables: Mapping[str, Any]) -> Request:
        """The request in the variables."""
        is_present, engine = variables[f"{ROLE}_state"] == "present", str(variables[f"{ROLE}_engine"])
        modes = (str(variables[f"{ROLE}_mode"]), str(variables.get(TOOLKIT_MODE, "auto")))
        declared = variables[f"{ROLE}_declared"] if is_present else ()
        return cls(
            is_present=is_present,
            entries=tuple(
                {**entry, "engine": str(entry.get("engine") or engine), "jupyter": is_true(entry.get("jupyter"))}
                for entry in declared
            ),
            engine=engine,
            mode=next((mode for mode in modes if mode != "auto"), "auto"),
            adopt=tuple(variables[f"{ROLE}_adopt"]),
        )

    @property
    def used(self) -> tuple[str, ...]:
        """The engines that containers are declared for."""
        return tuple(name for name in ENGINES if any(entry["engine"] == name for entry in self.entries))


@dataclass(frozen=True)
class Host:
    """What is known of the host: its GPUs, unless they are not looked for, and of each engine what it lists.

    `existing` are containers by engine and name, `images` IDs by engine and name, `image_labels` labels by ID. `listed`
    are the engines whose containers could be read, `unreadable` why one could not, `installed` those that are there.
    `recorded` are the IDs of the role's containers by engine and name, `tokens` the names of its tokens, `has_record`
    whether there is a record at all. `reads_cdi`: whether Docker reads CDI specifications. `version` is podman's, empty
    where podman was not asked, and `restart_unit` the state of its unit, which is None then and empty where there is no
    unit.
    """

    gpus: ToolkitHost | None = None
    reads_cdi: bool = False
    existing: Mapping[tuple[str, str], Existing] = field(default_factory=dict)
    images: Mapping[tuple[str, str], str] = field(default_factory=dict)
    image_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    listed: frozenset[str] = frozenset()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    installed: frozenset[str] = frozenset()
    recorded: Mapping[tuple[str, str], str] = field(default_factory=dict)
    tokens: frozenset[str] = frozenset()
    has_record: bool = False
    version: str = ""
    restart_unit: str | None = None
    is_check_mode: bool = False

    @classmethod
    def of(cls, facts: Mapping[str, Any], found: Mapping[str, Any] | None = None) -> Host:
        """The host with these facts of Ansible: `nvidia_smi`, `cuda`, and the role's record.

        `found` is what was read: `docker` is the result of docker_host_info, `podman` has results of commands; an
        engine that was not asked is missing. `removed_tokens` are paths that the last record does not know of, and
        `check_mode` is Ansible's.
        """
        found = found or {}
        docker, podman = found.get("docker") or {}, (found.get("podman") or {}).get("results") or ()
        lists = {DOCKER.name: lists_of_docker(docker), PODMAN.name: lists_of_podman(podman)}
        # Before the engines are asked the record may not have been read.
        data = ((facts.get("gpu_fleet_managed") or {}).get(ROLE) or {}).get("data") or {}
        runtimes = facts["cuda"]["container_toolkit"].get("runtimes") or {}
        removed = {str(path).rpartition("/")[2] for path in found.get("removed_tokens") or ()}
        return cls(
            gpus=ToolkitHost.of(facts) if facts["nvidia_smi"] else None,
            reads_cdi=lists[DOCKER.name].get("reads_cdi", False),
            existing={
                (name, one.name): one
                for name, some in lists.items()
                for one in existing_containers(some.get("containers") or ())
            },
            images={
                (name, image): number
                for name, some in lists.items()
                for image, number in image_ids(some.get("images") or ()).items()
            },
            image_labels={
                str(image.get("Id") or ""): image.get("Labels") or {}
                for some in lists.values()
                for image in some.get("images") or ()
            },
            listed=frozenset(name for name, some in lists.items() if some),
            unreadable=unreadable(docker, podman),
            installed=frozenset(name for name, runtime in runtimes.items() if runtime.get("installed")),
            recorded={
                (engine, name): str(number)
                for engine, numbers in (data.get("containers") or {}).items()
                for name, number in numbers.items()
                if engine in ENGINES
            },
            tokens=frozenset(name for name in data.get("tokens") or () if _NAME.fullmatch(name)) - removed,
            has_record=bool(data),
            version=lists[PODMAN.name].get("version", ""),
            restart_unit=lists[PODMAN.name].get("restart_unit"),
            is_check_mode=bool(found.get("check_mode")),
        )

    def image_of(self, entry: Mapping[str, Any]) -> str | None:
        """The ID of a declared image, None where it is missing."""
        engine = ENGINES[entry["engine"]]
        return self.images.get((engine.name, engine.image_name(str(entry["image"]))))


# The plan


def request_refusals(request: Request, host: Host | None = None) -> tuple[str, ...]:
    """Refusals of the declarations, whatever the host has where it is not known."""
    return tuple(_all_refusals(request.entries, host or Host()))


def engines_to_ask(request: Request, host: Host) -> tuple[str, ...]:
    """Engines that may have containers of the role: one that none is declared for may have earlier ones."""
    asked = {*request.used, request.engine, *host.installed}
    return tuple(name for name in ENGINES if name in asked)


def plan(request: Request, host: Host) -> Plan:
    """What the tasks carry out. The options of containers are no part of it, since environments may have secrets."""
    unread = [host.unreadable[name] for name in request.used if name not in host.listed and not host.is_check_mode]
    decided = ContainerPlan(refusals=tuple(unread)) if unread else container_plan(request, host)
    used = [name for name in request.used if name in host.listed]
    # In check mode an engine may be still to be installed.
    has_work = bool(host.listed or host.has_record)
    images = {
        name: {
            "load": [one for one in decided.load if one["engine"] == name and name in host.listed],
            "pull": [one["image"] for one in decided.pull if one["engine"] == name and name in host.listed],
        }
        for name in ENGINES
    }
    steps = {
        IMAGES: any(some for lists in images.values() for some in lists.values()),
        TOKENS: has_work and bool(decided.tokens),
        RUN: bool(used),
        RUN_PODMAN: PODMAN.name in used,
        RECORD: has_work,
        DIRECTORY: not request.is_present,
    }
    return Plan(
        refusals=decided.refusals,
        steps=tuple(name for name, is_due in steps.items() if is_due),
        warnings=decided.notes,
        tasks={
            "images": images,
            "obsolete": {name: [one["name"] for one in decided.obsolete if one["engine"] == name] for name in ENGINES},
            "obsolete_tokens": decided.obsolete_tokens,
            "token_directory": TOKEN_DIRECTORY,
            "tokens": [asdict(token) for token in decided.tokens],
            "enable_restart_unit": decided.enable_restart_unit,
        },
    )


def container_plan(request: Request, host: Host) -> ContainerPlan:
    """What is decided for a host, as far as its engines could be read."""
    refusals = [*_all_refusals(request.entries, host), *_unread(host)]
    if refusals:
        return ContainerPlan(refusals=tuple(refusals))
    tokens = {str(entry["name"]): _token(entry) for entry in request.entries if entry.get("jupyter")}
    containers = _containers(request, host)
    ours = _ours(containers, host, request.adopt)
    refusals = [refusal for number, one in enumerate(containers) for refusal in _taken(number, one, host, ours)]
    if refusals:
        return ContainerPlan(refusals=tuple(refusals))
    names = {(entry["engine"], str(entry["name"])) for entry in request.entries}
    missing = [entry for entry in request.entries if host.image_of(entry) is None]
    to_pull = [(entry["engine"], _image(entry)) for entry in missing if not entry.get("archive")]
    # Tokens of the record and of containers that are recognized: each is a name, and so a file in our directory.
    owned_tokens = host.tokens | {
        one.name for one in ours.values() if TOKEN in one.labels and _NAME.fullmatch(one.name)
    }
    return ContainerPlan(
        containers=tuple(containers),
        tokens=tuple(tokens.values()),
        load=tuple(
            {"engine": entry["engine"], "image": _image(entry), "archive": str(entry["archive"])}
            for entry in missing
            if entry.get("archive")
        ),
        pull=tuple({"engine": name, "image": image} for name, image in dict.fromkeys(to_pull)),
        obsolete=tuple({"engine": key[0], "name": one.name} for key, one in ours.items() if key not in names),
        obsolete_tokens=tuple(f"{TOKEN_DIRECTORY}/{name}" for name in sorted(owned_tokens - tokens.keys())),
        enable_restart_unit=any(map(_needs_restart_unit, request.entries))
        and host.restart_unit not in (None, "enabled"),
        record=_record(request, ours, sorted(owned_tokens | tokens.keys()), host),
        notes=tuple(_notes(names, ours, host)),
    )


# Whose a container is


def _ours(containers: Sequence[Container], host: Host, adopt: Sequence[str]) -> Mapping[tuple[str, str], Existing]:
    """The containers of the role, by engine and name: from the record, to adopt, and recognized."""
    declarations = {(one.engine, one.name): one.labels[DECLARATION] for one in containers}
    return {
        key: one
        for key, one in host.existing.items()
        if (one.identifier and host.recorded.get(key) == one.identifier)
        or (one.is_labelled and (one.name in adopt or _is_recognized(one, declarations.get(key), host)))
    }


def _is_recognized(one: Existing, declaration: str | None, host: Host) -> bool:
    """Whether it has the hash of what is declared under its name, and has not got it from its image."""
    labels = host.image_labels.get(one.image)
    if labels is None or declaration is None:
        return False
    return DECLARATION not in labels and one.labels.get(DECLARATION) == declaration


def _taken(number: int, container: Container, host: Host, ours: Mapping[tuple[str, str], Existing]) -> Iterator[str]:
    """Refuse a name that a container of others has, or, with another engine, one that may be the role's."""
    for (engine, name), one in host.existing.items():
        if name != container.name or (engine, name) in ours:
            continue
        place = f"gpu_containers_declared[{number}]"
        if one.is_labelled:
            yield f"{place}: {_unrecorded(engine, name)}; use another name, or {_UNLESS_ADOPTED.format(engine, name)}"
        elif engine == container.engine:
            yield (
                f"{place}: a container {name} exists that this role did not create; "
                "use another name, or remove it with "
                f"{engine} rm {name}"
            )


def _notes(names: Collection[tuple[str, str]], ours: Mapping[tuple[str, str], Existing], host: Host) -> Iterator[str]:
    for (engine, name), one in host.existing.items():
        if one.is_labelled and (engine, name) not in ours and (engine, name) not in names:
            yield f"{_unrecorded(engine, name)}, and stays; {_UNLESS_ADOPTED.format(engine, name)}"


def _unrecorded(engine: str, name: str) -> str:
    return f"the container {name} of {engine} has the label of this role, but is not in the role's record on the host"


def _unread(host: Host) -> Iterator[str]:
    """Refuse to continue where an engine does not list what has become of the role's containers."""
    for engine in ENGINES:
        names = sorted(name for of, name in host.recorded if of == engine)
        if names and engine in host.installed - host.listed and not host.is_check_mode:
            yield (
                f"{engine} does not list its containers, and this role has created {', '.join(names)} with it; see why "
                f"`{engine} ps` fails, then run again"
            )


def _record(
    request: Request, ours: Mapping[tuple[str, str], Existing], tokens: Sequence[str], host: Host
) -> dict[str, Any]:
    """What the role owns; what an engine that could not be read had stays. Empty where there is nothing."""
    unread = {key: one for key, one in host.recorded.items() if key[0] not in host.listed and request.is_present}
    owned = {**unread, **{key: one.identifier for key, one in ours.items()}}
    if not owned and not tokens:
        return {}
    engines = {of: {name: owned[key] for key in sorted(owned) for name in [key[1]] if key[0] == of} for of in ENGINES}
    return {"containers": engines, "tokens": list(tokens)}


def failures(request: Request, host: Host, obsolete: Mapping[str, Sequence[str]]) -> list[str]:
    """Why the declared containers are not what they are to be, by what each engine lists after the change.

    `obsolete` are the names of those that were to be removed, by engine.
    """
    removed = [(engine, name) for engine, names in obsolete.items() for name in names]
    unread = {*request.used, *(engine for engine, _name in removed)} - host.listed
    if unread:
        return [
            f"{engine} does not list its containers after the change; run the role again" for engine in sorted(unread)
        ]
    found = []
    for container in _containers(request, host):
        one = host.existing.get((container.engine, container.name))
        if one is None or one.labels.get(DECLARATION) != container.labels[DECLARATION]:
            found.append(f"container {container.name} is not there as declared; run the role again")
        elif one.state != "running" and container.restart_policy in RESTARTING:
            found.append(
                f"container {container.name} is {one.state}, not running; see {container.engine} logs {container.name}"
            )
    return found + [
        f"container {name} is no longer declared, but still exists; remove it with {engine} rm --force {name}"
        for engine, name in removed
        if (engine, name) in host.existing
    ]


# Refusals, before anything is changed


def _all_refusals(declared: Sequence[Mapping[str, Any]], host: Host) -> list[str]:
    refusals = list(_same(declared))
    for number, entry in enumerate(declared):
        place = f"gpu_containers_declared[{number}]"
        wrong = list(_refusals(place, entry))
        refusals += wrong or (list(_gpu_refusals(place, entry["gpus"], host.gpus)) if host.gpus else [])
        if not wrong and entry["engine"] == PODMAN.name:
            refusals += _podman_refusals(place, entry, host)
    return refusals


def _same(declared: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = [str(entry.get("name")) for entry in declared]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield f"gpu_containers_declared has {name} {names.count(name)} times; give each container its own name"


def _refusals(place: str, entry: Mapping[str, Any]) -> Iterator[str]:
    name, user, environment = str(entry.get("name") or ""), str(entry.get("user") or ""), entry.get("env") or {}
    if not _NAME.fullmatch(name):
        yield (
            f"{place}: name is {name!r}; it takes at least two letters, digits, dots, hyphens and underscores, the "
            "first of them a letter or digit"
        )
    if entry["engine"] not in ENGINES:
        yield f"{place}: engine is {entry['engine']!r}; it takes {' or '.join(ENGINES)}"
    gpus = entry.get("gpus")
    if gpus not in ("all", "none") and not (isinstance(gpus, Sequence) and not isinstance(gpus, str) and gpus):
        yield f"{place}: gpus is {gpus!r}; it takes all, none, or a list of indexes, UUIDs and MIG devices"
    for limit, value in (entry.get("ulimits") or {}).items():
        if not _LIMIT.fullmatch(str(value)):
            yield f"{place}: the limit {limit} in ulimits is {value!r}; it takes a number, -1, or soft:hard"
    for variable in sorted(set(environment) & set(_RESERVED)):
        if variable == "NVIDIA_VISIBLE_DEVICES" or entry.get("jupyter"):
            yield f"{place}: env has {variable}; take it out, since {_RESERVED[variable]}"
    if entry.get("jupyter") and not re.fullmatch(r"(\d+(:\w+)?)?", user):
        yield (
            f"{place}: user is {user!r}, and jupyter is set; give the number of the user who reads the file "
            "with the token, such as 1000"
        )


def _gpu_refusals(place: str, gpus: Any, host: ToolkitHost) -> Iterator[str]:
    known = device_uuids(host.gpus)
    devices = ", ".join(_devices(host.gpus)) or "none"
    if gpus == "none":
        return
    if gpus == "all":
        if not _devices(host.gpus):
            yield f"{place}: gpus is all, and the host has no GPU or MIG device that a container can use"
        return
    for name in map(str, gpus):
        gpu = next((gpu for gpu in host.gpus if gpu.uuid == known.get(name)), None)
        if name not in known:
            yield f"{place}: there is no GPU or MIG device {name}; the host has {devices}"
        elif gpu and gpu.is_mig:
            yield f"{place}: GPU {name} is in MIG mode; request MIG devices instead; the host has {devices}"


def _podman_refusals(place: str, entry: Mapping[str, Any], host: Host) -> Iterator[str]:
    since = CDI_SINCE[PODMAN.name]
    if entry["gpus"] != "none" and host.version and _numbers(host.version) < _numbers(since):
        yield (
            f"{place}: podman {host.version} cannot give GPUs to containers through CDI, {since} and newer does; "
            "upgrade podman, "
            "or set engine to docker"
        )
    elif entry["gpus"] != "none" and _lacks_specification(host):
        yield (
            f"{place}: podman finds GPUs through a CDI specification, and the host has none; run the role "
            "gpu.fleet.nvidia_container_toolkit with podman in nvidia_container_toolkit_runtimes"
        )
    without = None if host.restart_unit is None else _WITHOUT_START.get(host.restart_unit)
    if without and _needs_restart_unit(entry):
        is_what, do_what = without
        yield (
            f"{place}: restart_policy is {_policy(entry)}, and {RESTART_UNIT}, by which podman's containers start at "
            f"boot, is {is_what}; {do_what}, or set restart_policy to on-failure"
        )


def _lacks_specification(host: Host) -> bool:
    """Whether no CDI specification is there; in check mode the role before may be still to write it."""
    if host.gpus is None or host.is_check_mode:
        return False
    return not any(one.kind == KIND for one in host.gpus.specifications)


def _needs_restart_unit(entry: Mapping[str, Any]) -> bool:
    return entry["engine"] == PODMAN.name and _policy(entry) in RESTARTING


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _devices(gpus: Sequence[Gpu]) -> list[str]:
    """What a container can use: GPUs by UUID, of those in MIG mode the MIG devices."""
    return [uuid for gpu in gpus for uuid in ([uuid for _index, uuid in gpu.mig_devices] if gpu.is_mig else [gpu.uuid])]


# Containers


def _containers(request: Request, host: Host) -> list[Container]:
    mode = request.mode if request.mode != "auto" else "cdi" if host.reads_cdi else "legacy"
    return [_container(entry, mode, host) for entry in request.entries]


def _container(entry: Mapping[str, Any], mode_of_docker: str, host: Host) -> Container:
    engine, user, gpus = ENGINES[entry["engine"]], str(entry.get("user") or ""), entry["gpus"]
    mode, token = engine.mode or mode_of_docker, _token(entry) if entry.get("jupyter") else None
    environment = {key: _text(value) for key, value in (entry.get("env") or {}).items()}
    # An image can request all GPUs by this variable, in addition to what is requested here. The hook sets it itself.
    if gpus == "none" or mode == "cdi":
        environment["NVIDIA_VISIBLE_DEVICES"] = "void"
    volumes = [str(volume) for volume in entry.get("volumes") or ()]
    command, labels = _words(entry.get("command")), {LABEL: ROLE}
    if token:
        labels[TOKEN] = token.path
        environment["JUPYTER_TOKEN_FILE"] = _TOKEN_IN_CONTAINER
        volumes.append(f"{token.path}:{_TOKEN_IN_CONTAINER}:{engine.token_options}")
        command = command or (*_JUPYTER, *(() if user else ("--allow-root",)))
    limits = {**_ULIMITS, **(entry.get("ulimits") or {})}
    ipc, policy = entry.get("ipc") or None, _policy(entry)
    unlabelled = Container(
        engine=engine.name,
        step="",
        name=str(entry["name"]),
        image=_image(entry),
        state="started",
        device_requests=_device_requests(engine, gpus, host.gpus, mode),
        security=() if gpus == "none" else engine.gpu_security,
        env=environment,
        labels=labels,
        volumes=tuple(volumes),
        ports=tuple(str(port) for port in entry.get("ports") or ()),
        command=command,
        entrypoint=_words(entry.get("entrypoint")),
        user=user or None,
        working_dir=entry.get("working_dir") or None,
        ipc=ipc,
        shm_size=None if ipc in engine.own_shared_memory else str(entry.get("shm_size") or _SHM_SIZE),
        ulimits=tuple(engine.limit.format(name=name, limits=_limits(value)) for name, value in limits.items()),
        restart_policy=engine.policies.get(policy, policy),
    )
    declaration = _declaration(unlabelled)
    existing = host.existing.get((engine.name, unlabelled.name))
    state = existing.state if existing and existing.labels.get(DECLARATION) == declaration else ""
    has_ended = policy not in RESTARTING and state in ("exited", "stopped")
    # An image that was pulled again under the same name makes its containers new ones.
    is_current = bool(state) and existing is not None and existing.image == host.image_of(entry)
    step = "" if has_ended else "create" if not is_current else "" if state in ("running", "paused") else "start"
    return replace(
        unlabelled,
        step="compare" if engine.compares else step,
        state="present" if has_ended else "started",
        labels={**labels, DECLARATION: declaration},
    )


def _declaration(container: Container) -> str:
    """A hash of what a container is made from. One of Docker's has to stay what it was: another makes it again."""
    made_from = {
        key: value for key, value in as_lists(asdict(container)).items() if key not in ("engine", "step", "security")
    }
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()


def _image(entry: Mapping[str, Any]) -> str:
    """The name of an image as its engine is given it. Docker's modules take any form of it."""
    engine, name = ENGINES[entry["engine"]], str(entry["image"])
    return name if engine.compares else engine.image_name(name)


def _policy(entry: Mapping[str, Any]) -> str:
    return str(entry.get("restart_policy") or "unless-stopped")


def _device_requests(
    engine: Engine, gpus: Any, host: ToolkitHost | None, mode: str
) -> tuple[Mapping[str, Any] | str, ...]:
    """What `docker run` sends for --device nvidia.com/gpu=NAME, or for --gpus in legacy mode; for podman the names."""
    if gpus == "none" or host is None:
        return ()
    known = device_uuids(host.gpus)
    uuids = None if gpus == "all" else list(dict.fromkeys(known[str(name)] for name in gpus))
    if mode == "cdi":
        specified = [
            device for one in host.specifications if one.kind == KIND for device in one.devices if device != "all"
        ]
        names = cdi_names(known, specified)
        chosen = [f"{KIND}={name}" for name in (["all"] if uuids is None else [names[uuid] for uuid in uuids])]
        return ({"driver": "cdi", "count": 0, "device_ids": chosen},) if engine.compares else tuple(chosen)
    count = {"count": -1} if uuids is None else {"count": 0, "device_ids": uuids}
    return ({"driver": "", **count, "capabilities": [["gpu"]]},)


def _token(entry: Mapping[str, Any]) -> Token:
    name = str(entry["name"])
    return Token(name, f"{TOKEN_DIRECTORY}/{name}", int(str(entry.get("user") or "0").partition(":")[0]))


def _words(value: Sequence[Any] | None) -> tuple[str, ...] | None:
    return tuple(map(str, value)) if value else None


def _text(value: object) -> str:
    """A value as programs expect it in their environment: YAML's true is no text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _limits(value: object) -> str:
    """A limit as soft:hard."""
    return str(value) if ":" in str(value) else f"{value}:{value}"

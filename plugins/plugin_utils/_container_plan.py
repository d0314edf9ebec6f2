# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the declared containers of a host: their GPUs, and which containers to remove. Private to this collection.

Pure: the variables of the role gpu_containers, facts about the GPUs, and the containers and images that the engines
list. What differs between engines is data of `_container_engines`. Docker's module compares a container with what is
planned here; of podman's, the plan names those that are to be made or started.

A container is the role's where the record on the host has it by its ID. Labels decide nothing alone: images and users
set them, too. By the hash of its declaration the role recognizes a container that it made and could not record, in a
run that was interrupted or with gpu.fleet 1.0.0, which had no record: only where it is declared in the very same way,
so that nothing is removed or made again for it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ._container_engines import (
    ENGINES,
    LABEL,
    PODMAN,
    RESTART_UNIT,
    RESTARTING,
    ROLE,
    Engine,
    Existing,
    existing_containers,
    image_ids,
)
from ._roles.container_toolkit import CDI_SINCE, KIND, Gpu, HostFacts, cdi_names, device_uuids

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

_UNLESS_ADOPTED = "remove it with {0} rm --force {1}, or, where gpu.fleet has made it, name it in gpu_containers_adopt"

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

    `state` is that of Docker's module: a job that has ended is only kept. `step` is what podman's is to do: create,
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
    """All containers of a host. `load` are images to load from archives, `pull` those to pull.

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

    def as_dict(self) -> dict[str, Any]:
        """As data for playbooks."""
        return {
            **{key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()},
            "containers": [_plain(container) for container in self.containers],
            "tokens": [asdict(token) for token in self.tokens],
        }


@dataclass(frozen=True)
class _Host:
    """What is known of the host: its GPUs, unless they are not looked for, and of each engine what it lists.

    `existing` are containers by engine and name, `images` IDs by engine and name, `image_labels` labels by ID. `listed`
    are the engines whose containers could be read, `installed` those that are there. `recorded` are the IDs of the
    role's containers by engine and name, `tokens` the names of its tokens. `version` is podman's, empty where
    podman was not asked, and `restart_unit` the state of its unit, which is None then and empty where there is no unit.
    """

    gpus: HostFacts | None
    mode: str
    existing: Mapping[tuple[str, str], Existing]
    images: Mapping[tuple[str, str], str]
    image_labels: Mapping[str, Mapping[str, str]]
    listed: frozenset[str]
    installed: frozenset[str]
    recorded: Mapping[tuple[str, str], str]
    tokens: frozenset[str]
    version: str
    restart_unit: str | None
    is_check_mode: bool

    def image_of(self, entry: Mapping[str, Any]) -> str | None:
        """The ID of a declared image, None where it is missing."""
        engine = ENGINES[entry["engine"]]
        return self.images.get((engine.name, engine.image_name(str(entry["image"]))))


def container_plan(
    state: str,
    declared: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Any],
    engine: str = "docker",
    adopt: Sequence[str] = (),
) -> ContainerPlan:
    """The plan for the variables; `engine` is that of containers that name none.

    `facts` has `nvidia_smi` and `container_toolkit` as the facts modules report them, `mode` (cdi or legacy), in which
    Docker is asked for GPUs, and of each engine, by its name, `containers` and `images` with all that it lists; podman
    has its `version`, and `restart_unit` as `systemctl is-enabled` prints it. An engine that could not be read has
    nothing. `recorded` is the `record` of an earlier plan, without the tokens of `removed_tokens`. `token_directory` is
    where tokens are kept. Without `nvidia_smi`, as before a run, GPUs are not looked for.
    """
    requested = [{**entry, "engine": str(entry.get("engine") or engine)} for entry in declared if state == "present"]
    host = _read_host(facts)
    refusals = [*_all_refusals(requested, host), *_unread(host)]
    if refusals:
        return ContainerPlan(refusals=tuple(refusals))
    directory = str(facts.get("token_directory") or "")
    tokens = {str(entry["name"]): _token(entry, directory) for entry in requested if entry.get("jupyter")}
    containers = [_container(entry, tokens.get(str(entry["name"])), host) for entry in requested]
    ours = _ours(containers, host, adopt)
    refusals = [refusal for number, one in enumerate(containers) for refusal in _taken(number, one, host, ours)]
    if refusals:
        return ContainerPlan(refusals=tuple(refusals))
    names = {(entry["engine"], str(entry["name"])) for entry in requested}
    missing = [entry for entry in requested if host.image_of(entry) is None]
    to_pull = [(entry["engine"], _image(entry)) for entry in missing if not entry.get("archive")]
    # Those of the record and of containers that are recognized: each is a name, and so a file in our directory.
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
        obsolete_tokens=tuple(f"{directory}/{name}" for name in sorted(owned_tokens - tokens.keys())),
        enable_restart_unit=any(map(_needs_restart_unit, requested)) and host.restart_unit not in (None, "enabled"),
        record=_record(state, ours, sorted(owned_tokens | tokens.keys()), host),
        notes=tuple(_notes(names, ours, host)),
    )


# Whose a container is


def _ours(containers: Sequence[Container], host: _Host, adopt: Sequence[str]) -> Mapping[tuple[str, str], Existing]:
    """The containers of the role, by engine and name: those of the record, those to adopt, and those recognized."""
    declarations = {(one.engine, one.name): one.labels[DECLARATION] for one in containers}
    return {
        key: one
        for key, one in host.existing.items()
        if (one.identifier and host.recorded.get(key) == one.identifier)
        or (one.is_labelled and (one.name in adopt or _is_recognized(one, declarations.get(key), host)))
    }


def _is_recognized(one: Existing, declaration: str | None, host: _Host) -> bool:
    """Whether it has the hash of what is declared under its name, and has not got it from its image."""
    labels = host.image_labels.get(one.image)
    if labels is None or declaration is None:
        return False
    return DECLARATION not in labels and one.labels.get(DECLARATION) == declaration


def _taken(number: int, container: Container, host: _Host, ours: Mapping[tuple[str, str], Existing]) -> Iterator[str]:
    """Refuse a name that a container of others has, or, with another engine, one that may be the role's."""
    for (engine, name), one in host.existing.items():
        if name != container.name or (engine, name) in ours:
            continue
        place = f"gpu_containers_declared[{number}]"
        if one.is_labelled:
            yield f"{place}: {_unrecorded(engine, name)}; use another name, or {_UNLESS_ADOPTED.format(engine, name)}"
        elif engine == container.engine:
            yield (
                f"{place}: a container {name} exists that this role has not made; use another name, or remove it with "
                f"{engine} rm {name}"
            )


def _notes(names: Collection[tuple[str, str]], ours: Mapping[tuple[str, str], Existing], host: _Host) -> Iterator[str]:
    for (engine, name), one in host.existing.items():
        if one.is_labelled and (engine, name) not in ours and (engine, name) not in names:
            yield f"{_unrecorded(engine, name)}, and stays; {_UNLESS_ADOPTED.format(engine, name)}"


def _unrecorded(engine: str, name: str) -> str:
    return f"the container {name} of {engine} has the label of this role, but is not in the role's record on the host"


def _unread(host: _Host) -> Iterator[str]:
    """Refuse to continue where an engine does not list what has become of the role's containers."""
    for engine in ENGINES:
        names = sorted(name for of, name in host.recorded if of == engine)
        if names and engine in host.installed - host.listed and not host.is_check_mode:
            yield (
                f"{engine} does not list its containers, and this role has made {', '.join(names)} with it; see why "
                f"`{engine} ps` fails, then run again"
            )


def _record(state: str, ours: Mapping[tuple[str, str], Existing], tokens: Sequence[str], host: _Host) -> dict[str, Any]:
    """What the role owns; what an engine that could not be read had stays. Empty where there is nothing."""
    unread = {} if state == "absent" else {key: one for key, one in host.recorded.items() if key[0] not in host.listed}
    owned = {**unread, **{key: one.identifier for key, one in ours.items()}}
    if not owned and not tokens:
        return {}
    engines = {of: {name: owned[key] for key in sorted(owned) for name in [key[1]] if key[0] == of} for of in ENGINES}
    return {"containers": engines, "tokens": list(tokens)}


def _read_host(facts: Mapping[str, Any]) -> _Host:
    found = {name: facts.get(name) or {} for name in ENGINES}
    recorded = facts.get("recorded") or {}
    runtimes = (facts.get("container_toolkit") or {}).get("runtimes") or {}
    removed = {str(path).rpartition("/")[2] for path in facts.get("removed_tokens") or ()}
    known = {"nvidia_smi": facts.get("nvidia_smi"), "cuda": {"container_toolkit": facts.get("container_toolkit") or {}}}
    return _Host(
        gpus=HostFacts.of(known) if facts.get("nvidia_smi") else None,
        mode=str(facts.get("mode")),
        existing={
            (name, one.name): one
            for name, lists in found.items()
            for one in existing_containers(lists.get("containers") or ())
        },
        images={
            (name, image): number
            for name, lists in found.items()
            for image, number in image_ids(lists.get("images") or ()).items()
        },
        image_labels={
            str(image.get("Id") or ""): image.get("Labels") or {}
            for lists in found.values()
            for image in lists.get("images") or ()
        },
        listed=frozenset(name for name, lists in found.items() if "containers" in lists),
        installed=frozenset(name for name, runtime in runtimes.items() if runtime.get("installed")),
        recorded={
            (engine, name): str(number)
            for engine, numbers in (recorded.get("containers") or {}).items()
            for name, number in numbers.items()
            if engine in ENGINES
        },
        tokens=frozenset(name for name in recorded.get("tokens") or () if _NAME.fullmatch(name)) - removed,
        version=str(found[PODMAN.name].get("version") or ""),
        restart_unit=found[PODMAN.name].get("restart_unit"),
        is_check_mode=bool(facts.get("check_mode")),
    )


def container_failures(listed: Mapping[str, Sequence[Mapping[str, Any]]], plan: Mapping[str, Any]) -> list[str]:
    """Why the containers of a plan are not what they are to be, by what each engine lists after the change.

    An engine that could not be read is not in `listed`.
    """
    unread = {one["engine"] for one in (*plan["containers"], *plan["obsolete"])} - listed.keys()
    if unread:
        return [
            f"{engine} does not list its containers after the change; run the role again" for engine in sorted(unread)
        ]
    found = {(name, one.name): one for name, some in listed.items() for one in existing_containers(some)}
    failures = []
    for container in plan["containers"]:
        engine, name = container["engine"], container["name"]
        one = found.get((engine, name))
        if one is None or one.labels.get(DECLARATION) != container["labels"][DECLARATION]:
            failures.append(f"container {name} is not there as declared; run the role again")
        elif one.state != "running" and container["restart_policy"] in RESTARTING:
            failures.append(f"container {name} is {one.state}, not running; see {engine} logs {name}")
    failures += [
        f"container {one['name']} is no longer declared, and still there; remove it with {one['engine']} rm --force "
        f"{one['name']}"
        for one in plan["obsolete"]
        if (one["engine"], one["name"]) in found
    ]
    return failures


# Refusals, before anything is changed


def _all_refusals(declared: Sequence[Mapping[str, Any]], host: _Host) -> list[str]:
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
        yield f"gpu_containers_declared has {name} {names.count(name)} times; give each container a name of its own"


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
            f"{place}: user is {user!r}, and jupyter is set; give the user's number, as 1000, who reads the file with "
            "the token"
        )


def _gpu_refusals(place: str, gpus: Any, host: HostFacts) -> Iterator[str]:
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
            yield f"{place}: no GPU or MIG device is {name}; the host has {devices}"
        elif gpu and gpu.is_mig:
            yield f"{place}: GPU {name} is in MIG mode; request MIG devices instead; the host has {devices}"


def _podman_refusals(place: str, entry: Mapping[str, Any], host: _Host) -> Iterator[str]:
    since = CDI_SINCE[PODMAN.name]
    if entry["gpus"] != "none" and host.version and _numbers(host.version) < _numbers(since):
        yield (
            f"{place}: podman {host.version} gives containers no GPUs by CDI, {since} and newer does; upgrade podman, "
            "or set engine to docker"
        )
    elif entry["gpus"] != "none" and _lacks_specification(host):
        yield (
            f"{place}: podman finds GPUs by a CDI specification, and the host has none; run the role "
            "gpu.fleet.nvidia_container_toolkit with podman in nvidia_container_toolkit_runtimes"
        )
    without = None if host.restart_unit is None else _WITHOUT_START.get(host.restart_unit)
    if without and _needs_restart_unit(entry):
        is_what, do_what = without
        yield (
            f"{place}: restart_policy is {_policy(entry)}, and {RESTART_UNIT}, by which podman's containers start at "
            f"boot, is {is_what}; {do_what}, or set restart_policy to on-failure"
        )


def _lacks_specification(host: _Host) -> bool:
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


def _container(entry: Mapping[str, Any], token: Token | None, host: _Host) -> Container:
    engine, user, gpus = ENGINES[entry["engine"]], str(entry.get("user") or ""), entry["gpus"]
    mode = engine.mode or host.mode
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
    made_from = {key: value for key, value in _plain(container).items() if key not in ("engine", "step", "security")}
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()


def _image(entry: Mapping[str, Any]) -> str:
    """The name of an image as its engine is given it. Docker's modules take any form of it."""
    engine, name = ENGINES[entry["engine"]], str(entry["image"])
    return name if engine.compares else engine.image_name(name)


def _policy(entry: Mapping[str, Any]) -> str:
    return str(entry.get("restart_policy") or "unless-stopped")


def _device_requests(
    engine: Engine, gpus: Any, host: HostFacts | None, mode: str
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


def _token(entry: Mapping[str, Any], directory: str) -> Token:
    name = str(entry["name"])
    return Token(name, f"{directory}/{name}", int(str(entry.get("user") or "0").partition(":")[0]))


def _words(value: Sequence[Any] | None) -> tuple[str, ...] | None:
    return tuple(map(str, value)) if value else None


def _text(value: object) -> str:
    """A value as programs expect it in their environment: YAML's true is no text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _limits(value: object) -> str:
    """A limit as soft:hard."""
    return str(value) if ":" in str(value) else f"{value}:{value}"


def _plain(container: Container) -> dict[str, Any]:
    """A container as data; tuples are no lists for templates."""
    return {
        key: list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
        for key, value in vars(container).items()
    }

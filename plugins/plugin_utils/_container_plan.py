# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the declared containers of a host: their GPUs, and which containers to remove. Private to this collection.

Pure: the variables of the role gpu_containers, facts about the GPUs, and the containers and images that Docker lists.
Docker's own module compares and makes a container; here is decided what it is to have.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ._docker_plan import listed_image
from ._toolkit_plan import KIND, Gpu, HostFacts, cdi_names, device_uuids, read_facts

LABEL = "gpu-fleet.managed-by"
ROLE = "gpu_containers"
"""Label and value of the containers that the role has made: no other container is ever changed or removed."""
DECLARATION = "gpu-fleet.declaration"
"""Label with a hash of what a container was made from. Where it differs, Docker's module makes the container again."""
TOKEN = "gpu-fleet.jupyter-token"
"""Label with the file that has a container's token, by which the file is removed with it."""
_TOKEN_IN_CONTAINER = "/run/gpu-fleet-jupyter-token"
_JUPYTER = ("jupyter", "lab", "--ip=0.0.0.0", "--port=8888", "--no-browser")

_RESTARTING = ("always", "unless-stopped")
"""Restart policies with which a container is to run at any time; others may have ended."""
# What NVIDIA recommends for frameworks: https://docs.nvidia.com/deeplearning/frameworks/user-guide/
_ULIMITS: Mapping[str, Any] = {"memlock": -1, "stack": 67108864}
_SHM_SIZE = "1g"

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
    """A container as Docker's module takes it. None leaves an option to the image or to Docker.

    `state` is that of the module: a job that has ended is only kept.
    """

    name: str
    image: str
    state: str
    device_requests: tuple[Mapping[str, Any], ...]
    env: Mapping[str, str]
    labels: Mapping[str, str]
    volumes: tuple[str, ...]
    ports: tuple[str, ...]
    command: tuple[str, ...] | None
    entrypoint: tuple[str, ...] | None
    user: str | None
    working_dir: str | None
    ipc: str | None
    shm_size: str
    ulimits: tuple[str, ...]
    restart_policy: str


@dataclass(frozen=True)
class ContainerPlan:
    """All containers of a host. `load` are images to load from archives, `pull` those to pull.

    `obsolete` are containers of the role that are no longer declared, `obsolete_tokens` files of tokens.
    """

    containers: tuple[Container, ...] = ()
    tokens: tuple[Token, ...] = ()
    load: tuple[Mapping[str, str], ...] = ()
    pull: tuple[str, ...] = ()
    obsolete: tuple[str, ...] = ()
    obsolete_tokens: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As data for playbooks."""
        return {
            **{key: list(value) for key, value in vars(self).items()},
            "containers": [_plain(container) for container in self.containers],
            "tokens": [asdict(token) for token in self.tokens],
        }


@dataclass(frozen=True)
class Existing:
    """A container that Docker lists. `state` is Docker's word, such as running or exited."""

    name: str
    state: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        """Whether the role has made it."""
        return self.labels.get(LABEL) == ROLE


def container_plan(state: str, declared: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> ContainerPlan:
    """The plan for the variables.

    `facts` has `nvidia_smi` and `container_toolkit` as the facts modules report them, `mode` (cdi or legacy), and of
    Docker `containers` and `images` with all that it lists; `token_directory` is where tokens are kept. Without
    `nvidia_smi`, as before a run, GPUs are not looked for.
    """
    requested = declared if state == "present" else ()
    existing = {one.name: one for one in existing_containers(facts.get("containers") or ())}
    host = read_facts({"container_toolkit": {}, **facts}) if facts.get("nvidia_smi") else None
    refusals = _all_refusals(requested, existing, host)
    if refusals:
        return ContainerPlan(refusals=tuple(refusals))
    directory = str(facts.get("token_directory") or "")
    tokens = {str(entry["name"]): _token(entry, directory) for entry in requested if entry.get("jupyter")}
    names = {str(entry["name"]) for entry in requested}
    kept = {token.path for token in tokens.values()}
    images = _images(facts.get("images") or ())
    missing = [entry for entry in requested if listed_image(str(entry["image"])) not in images]
    return ContainerPlan(
        containers=tuple(
            _container(
                entry, existing.get(str(entry["name"])), tokens.get(str(entry["name"])), host, str(facts.get("mode"))
            )
            for entry in requested
        ),
        tokens=tuple(tokens.values()),
        load=tuple(
            {"image": str(entry["image"]), "archive": str(entry["archive"])}
            for entry in missing
            if entry.get("archive")
        ),
        pull=tuple(dict.fromkeys(str(entry["image"]) for entry in missing if not entry.get("archive"))),
        obsolete=tuple(one.name for one in existing.values() if one.is_ours and one.name not in names),
        obsolete_tokens=tuple(
            path for one in existing.values() if one.is_ours and (path := one.labels.get(TOKEN)) and path not in kept
        ),
    )


def existing_containers(listed: Sequence[Mapping[str, Any]]) -> Iterator[Existing]:
    """The containers in Docker's list, whose names begin with a slash; further names are those of links to others."""
    for one in listed:
        name = next((name for name in one.get("Names") or () if name.count("/") == 1), "")
        if name:
            yield Existing(name.lstrip("/"), str(one.get("State") or ""), one.get("Labels") or {})


def container_failures(listed: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]) -> list[str]:
    """Why the containers of a plan are not what they are to be, by what Docker lists after the change."""
    found = {one.name: one for one in existing_containers(listed)}
    failures = []
    for container in plan["containers"]:
        name, one = container["name"], found.get(container["name"])
        if one is None or one.labels.get(DECLARATION) != container["labels"][DECLARATION]:
            failures.append(f"container {name} is not there as declared; run the role again")
        elif one.state != "running" and container["restart_policy"] in _RESTARTING:
            failures.append(f"container {name} is {one.state}, not running; see docker logs {name}")
    failures += [
        f"container {name} is no longer declared, and still there; remove it with docker rm --force {name}"
        for name in plan["obsolete"]
        if name in found
    ]
    return failures


# Refusals, before anything is changed


def _all_refusals(
    declared: Sequence[Mapping[str, Any]], existing: Mapping[str, Existing], host: HostFacts | None
) -> list[str]:
    refusals = list(_same(declared))
    for number, entry in enumerate(declared):
        place = f"gpu_containers_declared[{number}]"
        wrong = list(_refusals(place, entry))
        refusals += wrong or (list(_gpu_refusals(place, entry["gpus"], host)) if host else [])
        one = existing.get(str(entry.get("name")))
        if one and not one.is_ours:
            refusals.append(
                f"{place}: a container {one.name} exists that this role has not made; use another name, or remove it "
                f"with docker rm {one.name}"
            )
    return refusals


def _same(declared: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = [str(entry.get("name")) for entry in declared]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield f"gpu_containers_declared has {name} {names.count(name)} times; give each container a name of its own"


def _refusals(place: str, entry: Mapping[str, Any]) -> Iterator[str]:
    name, user, environment = str(entry.get("name") or ""), str(entry.get("user") or ""), entry.get("env") or {}
    if not _NAME.fullmatch(name):
        yield (
            f"{place}: name is {name!r}; Docker takes at least two letters, digits, dots, hyphens and underscores, the "
            "first of them a letter or digit"
        )
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


def _devices(gpus: Sequence[Gpu]) -> list[str]:
    """What a container can use: GPUs by UUID, of those in MIG mode the MIG devices."""
    return [uuid for gpu in gpus for uuid in ([uuid for _index, uuid in gpu.mig_devices] if gpu.is_mig else [gpu.uuid])]


# Containers


def _container(
    entry: Mapping[str, Any], existing: Existing | None, token: Token | None, host: HostFacts | None, mode: str
) -> Container:
    user = str(entry.get("user") or "")
    requests = _device_requests(entry["gpus"], host, mode)
    environment = {key: _text(value) for key, value in (entry.get("env") or {}).items()}
    # An image can request all GPUs by this variable, in addition to what is requested here. The hook sets it itself.
    if entry["gpus"] == "none" or mode == "cdi":
        environment["NVIDIA_VISIBLE_DEVICES"] = "void"
    volumes = [str(volume) for volume in entry.get("volumes") or ()]
    command, labels = _words(entry.get("command")), {LABEL: ROLE}
    if token:
        labels[TOKEN] = token.path
        environment["JUPYTER_TOKEN_FILE"] = _TOKEN_IN_CONTAINER
        volumes.append(f"{token.path}:{_TOKEN_IN_CONTAINER}:ro")
        command = command or (*_JUPYTER, *(() if user else ("--allow-root",)))
    limits = {**_ULIMITS, **(entry.get("ulimits") or {})}
    restart_policy = str(entry.get("restart_policy") or "unless-stopped")
    unlabelled = Container(
        name=str(entry["name"]),
        image=str(entry["image"]),
        state="started",
        device_requests=requests,
        env=environment,
        labels=labels,
        volumes=tuple(volumes),
        ports=tuple(str(port) for port in entry.get("ports") or ()),
        command=command,
        entrypoint=_words(entry.get("entrypoint")),
        user=user or None,
        working_dir=entry.get("working_dir") or None,
        ipc=entry.get("ipc") or None,
        shm_size=str(entry.get("shm_size") or _SHM_SIZE),
        ulimits=tuple(_limit(limit, value) for limit, value in limits.items()),
        restart_policy=restart_policy,
    )
    plain = _plain(unlabelled)
    declaration = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    has_ended = (
        existing is not None
        and restart_policy not in _RESTARTING
        and existing.labels.get(DECLARATION) == declaration
        and existing.state == "exited"
    )
    return Container(
        **{
            **vars(unlabelled),
            "state": "present" if has_ended else "started",
            "labels": {**unlabelled.labels, DECLARATION: declaration},
        }
    )


def _device_requests(gpus: Any, host: HostFacts | None, mode: str) -> tuple[Mapping[str, Any], ...]:
    """What `docker run` sends for --device nvidia.com/gpu=NAME, or for --gpus in legacy mode."""
    if gpus == "none" or host is None:
        return ()
    known = device_uuids(host.gpus)
    uuids = None if gpus == "all" else list(dict.fromkeys(known[str(name)] for name in gpus))
    if mode == "cdi":
        specified = [
            device for one in host.specifications if one.kind == KIND for device in one.devices if device != "all"
        ]
        names = cdi_names(known, specified)
        chosen = ["all"] if uuids is None else [names[uuid] for uuid in uuids]
        return ({"driver": "cdi", "count": 0, "device_ids": [f"{KIND}={name}" for name in chosen]},)
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


def _limit(name: str, value: object) -> str:
    numbers = str(value)
    return f"{name}:{numbers}" if ":" in numbers else f"{name}:{numbers}:{numbers}"


def _images(listed: Sequence[Mapping[str, Any]]) -> set[str]:
    """The names in Docker's list of images."""
    return {str(name) for image in listed for key in ("RepoTags", "RepoDigests") for name in image.get(key) or ()}


def _plain(container: Container) -> dict[str, Any]:
    """A container as data; tuples are no lists for templates."""
    return {
        key: list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
        for key, value in vars(container).items()
    }

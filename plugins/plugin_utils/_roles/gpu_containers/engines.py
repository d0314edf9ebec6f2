# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between the engines of declared containers: names, options, lists. Private to this collection."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....module_utils._common.json_text import parse_json
from ..docker.images import listed_image

DEVICE_REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "cdi": {"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"]},
    "legacy": {"count": -1, "capabilities": [["gpu"]]},
}
"""How docker_container requests all GPUs, by mode."""
TOOLKIT_MODE = "nvidia_container_toolkit_mode"
"""The variable that decides the mode where the role's own is `auto`."""
LABEL = "gpu-fleet.managed-by"
ROLE = "gpu_containers"
"""Label and value on the containers that the role has made. A claim, and no proof: an image can have them, and so can
whatever a user starts."""
RESTARTING = ("always", "unless-stopped")
"""Restart policies with which a container is to run at any time; others may have ended."""
RESTART_UNIT = "podman-restart.service"
"""Starts podman's containers at boot, since podman has no daemon that does: in podman 4.3 and 5.4 those with the
policy `always` alone. https://docs.podman.io/en/v4.4/markdown/options/restart.html"""


@dataclass(frozen=True)
class Engine:
    """An engine, by the value of `gpu_containers_engine`, which is its program as well.

    `image_name` gives the name by which it lists and runs an image. `limit` is how it takes a limit, `policies` what it
    is given for a restart policy, `token_options` are for the mount of a token. `gpu_security` are options for a
    container with GPUs. `compares`: whether its module of Ansible finds out by itself which containers differ. `mode`
    is the only way to request GPUs, where there is one. `own_shared_memory` are IPC namespaces with which it refuses a
    size of the shared memory.
    """

    name: str
    image_name: Callable[[str], str]
    limit: str
    token_options: str
    compares: bool
    mode: str = ""
    policies: Mapping[str, str] = field(default_factory=dict)
    gpu_security: tuple[str, ...] = ()
    own_shared_memory: tuple[str, ...] = ()


@dataclass(frozen=True)
class Existing:
    """A container that an engine lists. `state` is the engine's word, such as running or exited.

    `identifier` is the ID that the engine has given it, which neither an image nor a user can choose; `image` is one.
    """

    name: str
    state: str
    labels: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    identifier: str = ""

    @property
    def is_labelled(self) -> bool:
        """Whether it claims to be the role's."""
        return self.labels.get(LABEL) == ROLE


def qualified_image(name: str) -> str:
    """The whole name of an image, as podman lists it: Docker's default registry and namespace, and the default tag.

    podman by itself would look for a short name in the registries of its configuration, of which Debian's has none.
    """
    path, at, digest = name.partition("@")
    first, slash, rest = path.partition("/")
    if not (slash and (re.search("[.:]", first) or first == "localhost")):
        first, rest = "docker.io", path
    if first == "docker.io" and "/" not in rest:
        rest = f"library/{rest}"
    base, colon, _tag = rest.rpartition(":")
    if at:
        return f"{first}/{base if colon else rest}@{digest}"
    return f"{first}/{rest}" if colon else f"{first}/{rest}:latest"


DOCKER = Engine("docker", listed_image, "{name}:{limits}", "ro", compares=True)
PODMAN = Engine(
    "podman",
    qualified_image,
    "{name}={limits}",
    # With SELinux a container cannot read the file without a label of its own; elsewhere it has no effect.
    "ro,Z",
    compares=False,
    mode="cdi",
    policies={"unless-stopped": "always"},
    # CDI leaves the labels of device files as they are, and SELinux denies them to containers.
    gpu_security=("label=disable",),
    own_shared_memory=("host", "none"),
)
ENGINES: Mapping[str, Engine] = {engine.name: engine for engine in (DOCKER, PODMAN)}


def gpu_mode(modes: Iterable[str], engine: Mapping[str, Any]) -> str:
    """The first mode that is not auto; else by what Docker reads, whose docker_host_info has `engine` returned."""
    by_engine = "cdi" if (engine.get("host_info") or {}).get("CDISpecDirs") else "legacy"
    return next((mode for mode in modes if mode != "auto"), by_engine)


def lists_of_docker(result: Mapping[str, Any]) -> dict[str, Any]:
    """What docker_host_info has: the lists, and whether Docker reads CDI specifications. Empty where it failed."""
    if "containers" not in result:
        return {}
    reads_cdi = bool((result.get("host_info") or {}).get("CDISpecDirs"))
    return {"containers": result["containers"], "images": result.get("images") or (), "reads_cdi": reads_cdi}


def lists_of_podman(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What podman's commands have printed, in their order: its lists, its version, and the state of its unit.

    Empty where one of the lists could not be read.
    """
    if [one.get("rc") for one in results[:2]] != [0, 0]:
        return {}
    containers, images, version, unit = (str(one.get("stdout") or "") for one in results)
    return {
        "containers": parse_json(containers),
        "images": parse_json(images),
        "version": version.split()[-1] if version.split() else "",
        "restart_unit": unit,
    }


def unreadable(docker: Mapping[str, Any], podman: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Why an engine cannot be used, by its name, from the results of which its lists are read."""
    failed = next((one for one in podman[:2] if one.get("rc") != 0), {})
    reason = str(failed.get("stderr") or failed.get("msg") or "no reason given").strip()
    return {
        DOCKER.name: (
            f"Docker cannot be reached: {docker.get('msg') or 'no reason given'}; run the role gpu.fleet.docker first"
        ),
        PODMAN.name: (
            f"podman cannot be run: {reason}; install the package podman, or set gpu_containers_engine to docker"
        ),
    }


def existing_containers(listed: Sequence[Mapping[str, Any]]) -> Iterator[Existing]:
    """The containers in an engine's list. Docker's names begin with a slash; further names come from links."""
    for one in listed:
        name = next((name for name in one.get("Names") or () if name.count("/") < 2), "")
        if name:
            yield Existing(
                name.lstrip("/"),
                str(one.get("State") or ""),
                one.get("Labels") or {},
                *(str(one.get(key) or "") for key in ("ImageID", "Id")),
            )


def image_ids(listed: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The images in an engine's list: the ID by each name. podman has the tags in `Names`, Docker in `RepoTags`."""
    keys = ("Names", "RepoTags", "RepoDigests")
    return {str(name): str(image.get("Id") or "") for image in listed for key in keys for name in image.get(key) or ()}

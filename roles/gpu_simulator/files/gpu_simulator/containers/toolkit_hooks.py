# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hooks of CDI documents: which ones a version of the toolkit writes, and what they do in a container.

An engine starts them in the container's mounts before it changes the root directory, with the container's state on
stdin. Up to 1.15 they are commands of ``nvidia-ctk hook``, then of ``nvidia-cdi-hook``.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
"""Directory of the driver's libraries in a container. The libraries themselves are not simulated."""

_LINKS, _CACHE, _COMPAT = "create-symlinks", "update-ldcache", "enable-cuda-compat"
_NODES_STAY, _PROFILE = "disable-device-node-modification", "update-application-profile"
# The simulated nvidia-smi loads no library, and its devices are not in /proc/driver/nvidia/params.
_WITHOUT_EFFECT = (_CACHE, _COMPAT, _NODES_STAY, _PROFILE)


class ContainerError(Exception):
    """A container's request cannot be fulfilled; the message is for the user."""


def of_all(is_before: Callable[[str], bool], driver_version: str, is_management: bool) -> list[dict[str, Any]]:
    """Return the hooks of each container, whichever device it requests, in the order of the real documents."""
    cache = [_CACHE, "--folder", LIBRARIES]
    compat = [_COMPAT, f"--host-driver-version={driver_version}"]
    if is_before("1.16"):
        commands = [cache]
    else:
        graphics = [_LINKS, "--link", f"../libnvidia-allocator.so.1::{LIBRARIES}/gbm/nvidia-drm_gbm.so"]
        links = [_LINKS, "--link", f"libcuda.so.1::{LIBRARIES}/libcuda.so"]
        if is_management:
            commands = [links, *([] if is_before("1.20") else [compat]), cache]
        else:
            commands = [graphics, links, compat, cache]
            commands += [] if is_before("1.18") else [[_NODES_STAY]]
            commands += [] if is_before("1.20") else [[_PROFILE]]
    return [_hook(is_before, command) for command in commands]


def of_device(is_before: Callable[[str], bool], nodes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the hooks of a device with these nodes: up to 1.17 one that opens the directory of capabilities."""
    has_capabilities = any(node.startswith("/dev/nvidia-caps/") for node in nodes)
    command = ["chmod", "--mode", "755", "--path", "/dev/nvidia-caps"]
    return [_hook(is_before, command)] if has_capabilities and is_before("1.18") else []


def _hook(is_before: Callable[[str], bool], command: list[str]) -> dict[str, Any]:
    program, more = ("nvidia-ctk", ["hook"]) if is_before("1.16") else ("nvidia-cdi-hook", [])
    environment = {} if is_before("1.16") else {"env": ["NVIDIA_CTK_DEBUG=false"]}
    path = f"/usr/bin/{program}"
    return {"hookName": "createContainer", "path": path, "args": [program, *more, *command], **environment}


def run(command: list[str], state: str) -> None:
    """Run a hook in the container whose OCI state is ``state``; raises ContainerError."""
    name = command[0] if command else ""
    if name == _LINKS:
        root = _root(state)
        for option, link in zip(command[1::2], command[2::2]):
            target, separator, path = link.partition("::")
            if option != "--link" or not separator:
                raise ContainerError(f"invalid link specification: {link}")
            _create_link(root, target, path)
    elif name == "chmod" and command[1:4:2] == ["--mode", "--path"] and len(command) == 5:
        place = inside(_root(state), command[4])
        if os.path.exists(place):
            os.chmod(place, int(command[2], 8))
    elif name not in _WITHOUT_EFFECT:
        raise ContainerError("the simulated nvidia-cdi-hook does not know {}".format(" ".join(command)))


def _root(state: str) -> str:
    """Return the root directory of the container whose OCI state is ``state``, as a path on the host."""
    return root_directory(*bundle_of(json.loads(state)))


def bundle_of(container: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the bundle's directory of a container, and its configuration."""
    bundle = container.get("bundle") or container["bundlePath"]
    with open(os.path.join(bundle, "config.json"), encoding="utf-8") as file:
        return bundle, json.load(file)


def root_directory(bundle: str, config: dict[str, Any]) -> str:
    """Return the root directory of a bundle's container, as a path on the host."""
    return os.path.normpath(os.path.join(bundle, config["root"]["path"]))


def _create_link(root: str, target: str, path: str) -> None:
    directory = inside(root, os.path.dirname(path))
    os.makedirs(directory, exist_ok=True)
    link = os.path.join(directory, os.path.basename(path))
    if not os.path.lexists(link):
        os.symlink(target, link)


def inside(root: str, path: str) -> str:
    """Return a container path as a path on the host; an image's symbolic links must not lead out of the container."""
    place = os.path.realpath(root + path)
    if not place.startswith(os.path.realpath(root) + "/"):
        raise ContainerError(f"{path} of the image leads out of the container")
    return place

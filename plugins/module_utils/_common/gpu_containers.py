# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running containers that a reload of systemd can take the GPUs from. Private to this collection.

systemd sets the device rules of its scopes again when it is reloaded. It knows the devices that the engine has passed
to it, as with CDI, and not those that a hook has added later. Containers whose cgroups the engine manages itself, and
containers of users without privileges, are not concerned.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from typing import Callable, Mapping, Sequence

from .host_files import HostFiles
from .json_text import parse_json
from .runner import CommandResult, find_executable, run_all

Run = Callable[[Sequence[Sequence[str]], float], Sequence[CommandResult]]

# The unit of a container, as the engines name it by the way that they use systemd.
_SCOPE = re.compile(r"/(docker|libpod|nerdctl|cri-containerd|crio)-([0-9a-f]{12,})\.scope")
_OF_A_USER = re.compile(r"(?m):/user\.slice/")
_GPU = re.compile(r"nvidia\d+")
_ROWS = ("ps", "--no-trunc", "--format", "{{.ID}}\t{{.Names}}")
_PROGRAMS = {"docker": "docker", "libpod": "podman", "nerdctl": "nerdctl"}
_CRI = {
    "cri-containerd": ("containerd", ("/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock")),
    "crio": ("CRI-O", ("/run/crio/crio.sock", "/var/run/crio/crio.sock")),
}
_SECONDS = 10.0


@dataclass(frozen=True)
class GpuContainer:
    """A container by its name, or the beginning of its ID where the engine does not report one."""

    engine: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} ({self.engine})"


def running_gpu_containers(files: HostFiles, run: Run = run_all) -> tuple[GpuContainer, ...]:
    """The running containers with GPUs whose device rules systemd sets, sorted; engines are asked only for names."""
    found = sorted(_scopes_with_gpus(files))
    names: dict[str, Mapping[str, str]] = {}
    containers = []
    for prefix, identifier in found:
        if prefix not in names:
            names[prefix] = _names(prefix, files, run)
        engine = _PROGRAMS.get(prefix) or _CRI[prefix][0]
        containers.append(GpuContainer(engine, names[prefix].get(identifier, identifier[:12])))
    return tuple(sorted(containers, key=str))


def reload_warning(containers: Sequence[GpuContainer]) -> str:
    """What a reload of systemd means for these containers, empty without any. Ansible's warnings lack the host."""
    if not containers:
        return ""
    return (
        f"{platform.node()}: systemd is reloaded, after which a running container that did not get its GPUs through "
        "CDI can "
        'fail with "Failed to initialize NVML: Unknown Error"; start it again then. With GPUs run: '
        + ", ".join(map(str, containers))
    )


def _scopes_with_gpus(files: HostFiles) -> set[tuple[str, str]]:
    """Engine and ID of each container in which a process sees a device file of a GPU."""
    found: set[tuple[str, str]] = set()
    for process in filter(str.isdecimal, files.names("/proc")):
        cgroup = files.read(f"/proc/{process}/cgroup") or ""
        scope = _SCOPE.search(cgroup)
        if scope is None or _OF_A_USER.search(cgroup) or scope.groups() in found:
            continue
        if any(_GPU.fullmatch(name) for name in files.names(f"/proc/{process}/root/dev")):
            found.add((scope[1], scope[2]))
    return found


def _names(prefix: str, files: HostFiles, run: Run) -> Mapping[str, str]:
    """Names by ID, as the engine reports them; none where it cannot be asked."""
    if prefix in _PROGRAMS:
        (result,) = run([(find_executable(_PROGRAMS[prefix]), *_ROWS)], _SECONDS)
        rows = (line.partition("\t") for line in result.text.splitlines())
        return {identifier: name.strip() for identifier, _tab, name in rows if name.strip()}
    socket = next((path for path in _CRI[prefix][1] if files.exists(path)), None)
    if socket is None:
        return {}
    crictl = find_executable("crictl")
    (result,) = run([(crictl, "--runtime-endpoint", f"unix://{socket}", "ps", "--output", "json")], _SECONDS)
    return _names_of_pods(result.text)


def _names_of_pods(text: str) -> Mapping[str, str]:
    """NAMESPACE/POD/CONTAINER by ID in the output of crictl."""
    names = {}
    try:
        for container in parse_json(text)["containers"]:
            labels = container["labels"]
            pod = f"{labels['io.kubernetes.pod.namespace']}/{labels['io.kubernetes.pod.name']}"
            names[str(container["id"])] = f"{pod}/{container['metadata']['name']}"
    except (ValueError, KeyError, TypeError):
        return {}
    return names

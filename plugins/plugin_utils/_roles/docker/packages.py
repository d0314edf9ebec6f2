# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the engine comes from, and its packages. Private to this collection. Pure: no Ansible.

Facts of packages and engines are from the control files of docker-ce-packaging and containerd-packaging, and from the
indexes of Debian and Ubuntu.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .host import Host
from .request import AUTO, DISTRIBUTION, REPOSITORY, Request

MOBY = "moby-engine"
"""What images of Azure have from packages.microsoft.com: no source to choose, but an engine that stays."""
# The packages that docker_version applies to: the others of Docker's repository have versions of their own.
_REPOSITORY_ENGINE = ("docker-ce", "docker-ce-cli")
_MOBY_ENGINE = (MOBY, "moby-cli")
_REPOSITORY_PACKAGES = ("containerd.io", "docker-buildx-plugin", "docker-compose-plugin")
# The modules of community.docker need it on the host.
_HELPERS = ("python3-requests",)
# Installed along with an engine, which only recommends them: without the parser of apparmor no container starts on a
# kernel that has it enabled.
_RECOMMENDED: dict[str, tuple[str, ...]] = {"apt": ("apparmor", "ca-certificates")}
# Compose 2 and buildx of the distribution, the first that it has. docker-compose before 2 is another program.
_PLUGINS = (("docker-buildx",), ("docker-compose-v2", "docker-compose"))
# Packages that conflict with packages of a source or are replaced by them, with all containers that run by them.
_OTHER_ENGINES = (*_MOBY_ENGINE, "moby-containerd", "moby-runc", "docker-engine", "podman-docker")
_REPLACED_BY: dict[tuple[str, str], tuple[str, ...]] = {
    (DISTRIBUTION, "apt"): (
        *_OTHER_ENGINES,
        "docker-ce",
        "docker-ce-cli",
        "docker-ce-rootless-extras",
        "containerd.io",
    ),
    (REPOSITORY, "apt"): (*_OTHER_ENGINES, "docker.io", "docker-cli", "containerd", "runc"),
    (REPOSITORY, "dnf"): (*_OTHER_ENGINES, "docker", "docker-io", "docker-ee", "docker-ee-cli", "containerd", "runc"),
}
_KUBERNETES = ("kubelet", "kubeadm", "k3s", "rke2-server", "rke2-agent")
# What the role may have installed, except what other software may use; docker_purge removes their settings in any case.
PURGED: tuple[str, ...] = (
    *("docker-ce", "docker-ce-cli", "docker-ce-rootless-extras", "docker-buildx-plugin", "docker-compose-plugin"),
    *("docker.io", "docker-cli"),
)
_REMOVABLE = (*PURGED, "docker-buildx", "docker-compose-v2", "docker-compose")
ENGINES = ("docker-ce", "docker.io", "docker", MOBY)
_RELEASE_DOTS = 2


@dataclass(frozen=True)
class Choice:
    """Where the engine comes from. `packages` are all that have to be installed, `missing` the ones that are not.

    `engine` are those that `docker_version` applies to, `others` the installed ones of other versions. `optional` are
    compose and buildx of the distribution. `install` is as package_transaction takes it, `replaced` what that removes.
    """

    source: str
    engine: tuple[str, ...]
    optional: tuple[str, ...]
    packages: tuple[str, ...]
    missing: tuple[str, ...]
    others: tuple[str, ...]
    install: tuple[str, ...]
    replaced: tuple[str, ...]

    @classmethod
    def of(cls, request: Request, host: Host) -> Choice:
        """The choice for a request on a host."""
        source = source_of(request, host)
        engine = _engine(source, host)
        optional = _optional(source, host)
        packages = (*engine, *(_REPOSITORY_PACKAGES if source == REPOSITORY else optional), *_HELPERS)
        missing = tuple(name for name in packages if name not in host.installed)
        others = tuple(_other_versions(request.version, engine, host))
        is_new = any(name in (*engine, "containerd.io") for name in missing)
        along = _RECOMMENDED.get(host.manager, ()) if is_new else ()
        chosen = cls(source, engine, optional, packages, missing, others, (), ())
        install = (
            *_specifications(request.version, chosen, host.manager),
            *(name for name in along if name not in host.installed),
        )
        return replace(chosen, install=install, replaced=_REPLACED_BY.get((source, host.manager), ()) if is_new else ())

    def replaces(self, request: Request, host: Host) -> list[str]:
        """The installed packages to remove before the installation."""
        return [name for name in request.replace if self.install and name in host.installed]


def source_of(request: Request, host: Host) -> str:
    own = host.platform["docker_packages"]
    if request.source != AUTO:
        return request.source
    if MOBY in host.installed:
        return MOBY
    if not own or "docker-ce" in host.installed:
        return REPOSITORY
    # docker.io needs the distribution's containerd, which conflicts with containerd.io.
    return REPOSITORY if "containerd.io" in host.installed and own[0] not in host.installed else DISTRIBUTION


def _engine(source: str, host: Host) -> tuple[str, ...]:
    """The packages of the engine itself."""
    own = tuple(host.platform["docker_packages"])
    return {REPOSITORY: _REPOSITORY_ENGINE, MOBY: _MOBY_ENGINE}.get(source, own)


def _optional(source: str, host: Host) -> tuple[str, ...]:
    """Compose and buildx of the distribution, by its package lists; as in the last run before the lists are read."""
    if source != DISTRIBUTION:
        return ()
    if host.offered is None:
        return tuple(map(str, host.was("optional")))
    offered = host.offered
    chosen = (next((name for name in names if _is_plugin(name, offered)), "") for names in _PLUGINS)
    return tuple(filter(None, chosen))


def _is_plugin(name: str, offered: Mapping[str, str]) -> bool:
    return name in offered and not (name == "docker-compose" and offered[name].startswith("1."))


def _other_versions(version: str, engine: Iterable[str], host: Host) -> Iterator[str]:
    """Installed versions other than the requested one: 28.5.1 is neither 28.5.10 nor 28.5.2."""
    for name in engine:
        found = host.version(name)
        if version and found and not re.match(rf"(?:[0-9]+:)?{re.escape(version)}(?![0-9])", found):
            yield f"{name} {found}"


def _specifications(version: str, chosen: Choice, manager: str) -> Iterator[str]:
    """What to install: only what is missing or has another version, as apt would upgrade the rest along with it."""
    others = [other.partition(" ")[0] for other in chosen.others]
    for name in chosen.packages:
        if name in chosen.missing or name in others:
            is_versioned = version and name in chosen.engine
            yield f"{name}={_version_pattern(version, chosen.source, manager)}" if is_versioned else name


def _version_pattern(version: str, source: str, manager: str) -> str:
    """The versions of a branch, or of one release in all its builds, as apt or dnf matches them."""
    if manager == "dnf":
        return f"{version}-*" if version.count(".") == _RELEASE_DOTS else f"{version}.*"
    epoch = "5:" if source == REPOSITORY else ""
    # With a last * apt compares what is before it as it is; elsewhere wildcards count.
    return f"{epoch}{version}[-+~]*[0-9a-z]" if version.count(".") == _RELEASE_DOTS else f"{epoch}{version}.*"


def removable_packages(request: Request, host: Host) -> tuple[str, ...]:
    """The installed packages that the role has installed; with docker_purge all of Docker."""
    removable = (*_REMOVABLE, *(name for name in host.platform["docker_packages"] if name not in _REMOVABLE))
    own = removable if request.purge else host.was("installed")
    names = [name for name in removable if name in own]
    if request.purge and not _runs_kubernetes(host):
        names.append("containerd.io")
    return tuple(name for name in names if name in host.installed)


def _runs_kubernetes(host: Host) -> bool:
    return any(name in host.installed for name in _KUBERNETES)


def directories(host: Host) -> tuple[str, ...]:
    """The directories that docker_purge removes. Kubernetes may use the data of containerd."""
    is_shared = "containerd" in host.installed or _runs_kubernetes(host)
    return ("/etc/docker", "/var/lib/docker", "/root/.docker", *(() if is_shared else ("/var/lib/containerd",)))


def removal_refusal(removed: Sequence[str], request: Request, host: Host) -> str:
    source = source_of(request, host)
    engine = _engine(source, host)[0]
    others = (DISTRIBUTION, REPOSITORY) if host.platform["docker_packages"] else (REPOSITORY,)
    fitting = [
        other
        for other in others
        if other != source and not set(_REPLACED_BY.get((other, host.manager), ())) & set(host.installed)
    ]
    kubernetes = ", with the containers of Kubernetes on this node" if _runs_kubernetes(host) else ""
    fitting += [f"{AUTO}, which keeps {MOBY}"] if MOBY in host.installed else []
    instead = f"set docker_source to {' or '.join(fitting)}, " if fitting else ""
    return (
        f"{engine} would remove {', '.join(removed)}{kubernetes}; nothing was changed; {instead}"
        "remove what you do not need yourself, or name in docker_replace what Docker may replace"
    )

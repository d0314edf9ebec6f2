# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide packages, repository, logins, removals and restarts of a host's Docker. Private to this collection.

Pure: the variables of the role docker and what is known about the host in, the plan out. Where a request cannot be met,
the plan's refusals are the reasons, in the words of the variables. Facts of packages, engines and repositories are from
the control files of docker-ce-packaging and containerd-packaging, and from the indexes of Debian and Ubuntu.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...module_utils._common.masking import masked
from ...module_utils._files.daemon_json import path_objection
from .._planning.contract import RUN_ONLY, Needs, Outlook, Plan, RequestError, RolePlanner, in_order, inputs_of, is_true
from .._planning.platforms import platform_of
from .._planning.variable_forms import shown

DOCKER = "docker"
AUTO, DISTRIBUTION, REPOSITORY = "auto", "distribution", "docker_repository"
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
_PURGED: tuple[str, ...] = (
    *("docker-ce", "docker-ce-cli", "docker-ce-rootless-extras", "docker-buildx-plugin", "docker-compose-plugin"),
    *("docker.io", "docker-cli"),
)
_REMOVABLE = (*_PURGED, "docker-buildx", "docker-compose-v2", "docker-compose")
_ENGINES = ("docker-ce", "docker.io", "docker", MOBY)

# https://docs.docker.com/engine/install/debian/ and https://docs.docker.com/engine/install/rhel/
_FINGERPRINTS = {
    "apt": "9DC858229FC7DD38854AE2D88D81803C0EBFCD88",
    "dnf": "060A61C51B558A7F742B77AAC52FEB6B621E9F35",
}
# Files that may have entries for the same repository.
_ENTRY_FILES: dict[str, tuple[str, ...]] = {
    "apt": ("/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources"),
    "dnf": ("/etc/yum.repos.d/*.repo",),
}
_SOURCE_FILES: dict[str, tuple[str, str]] = {
    "apt": ("/etc/apt/sources.list.d/docker.sources", "/etc/apt/keyrings/docker.asc"),
    "dnf": ("/etc/yum.repos.d/docker-ce.repo", "/etc/pki/rpm-gpg/RPM-GPG-KEY-docker-ce"),
}
"""The repository's entry and its key."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# An expression for entries of Docker's own repository.
_VENDOR = r"download\.docker\.com/linux/"

# The client looks logins of Docker Hub up by this key, whatever name was given.
_HUB_KEY = "https://index.docker.io/v1/"
_HUB_NAMES = ("docker.io", "index.docker.io", "registry-1.docker.io", "hub.docker.com", "")
_VERSION = re.compile(r"([0-9]+([.][0-9]+){0,2})?")
_PROXY_VARIABLES = {"http": "HTTP_PROXY", "https": "HTTPS_PROXY", "no_proxy": "NO_PROXY"}
_PREFERENCES = "/etc/apt/preferences.d/gpu-fleet-docker"
_DAEMON_FILE = "/etc/docker/daemon.json"
_OFFERS = ("apt-cache", "madison", "docker-buildx", "docker-compose-v2", "docker-compose")
_SNAPS = ("/snap/docker/current", "/var/lib/snapd/snap/docker/current")
_DROP_IN = "/etc/systemd/system/docker.service.d/gpu-fleet-proxy.conf"
_LOGINS = "/root/.docker/config.json"
_RELEASE_DOTS = 2
_URL = re.compile(r"(https?|file)://.+")
_FINGERPRINT = re.compile(r"[0-9A-F]{40}")
INSTALL, IMAGES, REMOVE = "install", "images", "remove"
"""Steps: install and configure; install images and compare passwords, of which only the host knows; remove."""


@dataclass(frozen=True)
class Registry:
    """A registry, and the key that the client looks its login up by."""

    name: str
    key: str
    username: str = ""
    has_password: bool = False
    has_authority: bool = False

    @property
    def certificate(self) -> str:
        """Where the engine looks for the registry's certificate authority."""
        return f"/etc/docker/certs.d/{self.name}/ca.crt"


@dataclass(frozen=True)
class Request:
    """What the variables of the role request.

    Only `url`, `key_url`, `secrets`, all that has a password as text, and `drop_in`, the text of a unit's drop-in, may
    have passwords.
    """

    state: str
    purge: bool = field(metadata=RUN_ONLY)
    source: str
    version: str
    url: str
    key_url: str
    fingerprint: str
    add_repository: bool
    channel: str
    replace: tuple[str, ...]
    users: tuple[str, ...]
    registries: tuple[Registry, ...]
    images: tuple[Mapping[str, Any], ...] = field(metadata=RUN_ONLY)
    exports: tuple[Mapping[str, Any], ...]
    daemon_options: Mapping[str, Any]
    proxy: Mapping[str, str]
    authorities: str = ""
    secrets: str = field(default="", metadata=RUN_ONLY)
    drop_in: str = field(default="", metadata=RUN_ONLY)

    @classmethod
    def read(cls, variables: Mapping[str, Any]) -> Request:
        """The request in the variables of the role; raises RequestError."""
        registries = tuple(map(_read_registry, variables["docker_registries"]))
        options, proxy = variables["docker_daemon_options"], variables["docker_proxy"]
        wrong = sorted(set(proxy) - set(_PROXY_VARIABLES))
        if any("\n" in str(value) for value in proxy.values()):
            raise RequestError("docker_proxy has a value of several lines; each is one URL, or a list with commas")
        if wrong:
            raise RequestError(f"docker_proxy has {', '.join(wrong)}; it takes http, https and no_proxy")
        secret = {
            "passwords": {
                given["registry"]: given["password"] for given in variables["docker_registries"] if "password" in given
            },
            "daemon_options": options if masked(options) != options else {},
            "proxy": proxy if masked(proxy) != proxy else {},
        }
        return cls(
            state=str(variables["docker_state"]),
            purge=is_true(variables["docker_purge"]),
            source=str(variables["docker_source"]),
            version=str(variables["docker_version"]),
            url=str(variables["docker_repository_url"]).rstrip("/"),
            key_url=str(variables["docker_repository_key_url"]),
            fingerprint=re.sub(r"\s", "", str(variables["docker_repository_key_fingerprint"])).upper(),
            add_repository=is_true(variables["docker_add_repo"]),
            channel=str(variables["docker_channel"]),
            replace=tuple(map(str, variables["docker_replace"])),
            users=tuple(map(str, variables["docker_users"])),
            registries=registries,
            images=tuple(masked(variables["docker_images"])),
            exports=tuple(masked(variables["docker_image_exports"])),
            daemon_options=masked(options),
            proxy=masked(proxy),
            authorities=_digest([given.get("ca") for given in variables["docker_registries"]]),
            secrets=json.dumps(secret, sort_keys=True, default=str) if any(secret.values()) else "",
            drop_in=_drop_in(proxy),
        )


@dataclass(frozen=True)
class Host:
    """What is known about the host. `packages` are as in ansible_facts, None where they cannot be read.

    `record` is the last run's. `offered` has the versions of optional packages in the package lists, None before
    they are read. `accounts` has whether a requested user exists, for those that were looked up. `brought` are packages
    that this run has installed; with `is_new` the engine is among them.
    """

    platform: Mapping[str, Any]
    architecture: str = ""
    packages: Mapping[str, Any] | None = None
    record: Mapping[str, Any] = field(default_factory=dict)
    offered: Mapping[str, str] | None = None
    snap: bool = False
    has_drop_in: bool = False
    accounts: Mapping[str, bool] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    brought: tuple[str, ...] = ()
    is_new: bool = False

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Host:
        """The host before its users and package lists are read."""
        record = facts["gpu_fleet_managed"].get(DOCKER) or {}
        return cls(platform_of(facts), str(facts.get("architecture") or ""), facts.get("packages"), record)

    def observed(self, facts: Mapping[str, Any], found: Mapping[str, Any]) -> Host:
        """The host with the results of tasks: `files`, `accounts` and `offers`; `brought` and `is_new`."""
        offered = str(found["offers"].get("stdout") or "")
        files, accounts = (found.get(name, {}).get("results", ()) for name in ("files", "accounts"))
        there = {result["item"] for result in files if result["stat"]["exists"]}
        entries = [result.get("ansible_facts", {}).get("getent_passwd", {}) for result in accounts]
        return replace(
            self,
            # Without package lists nothing is known of what they have.
            offered=parse_offered(offered) if offered else None,
            snap=bool(there - {_DROP_IN}),
            has_drop_in=_DROP_IN in there,
            accounts={str(name): bool(entry) for one in entries for name, entry in one.items()},
            members=_members(facts.get("getent_group", {}).get("docker")),
            brought=tuple(map(str, found.get("brought", ()))),
            is_new=bool(found.get("is_new")),
        )

    @property
    def manager(self) -> str:
        """The package manager."""
        return str(self.platform["manager"])

    @property
    def installed(self) -> Mapping[str, Any]:
        """The installed packages, none where they cannot be read."""
        return self.packages or {}

    @property
    def recorded(self) -> Mapping[str, Any] | None:
        """The data of the last record, None without one."""
        data: Mapping[str, Any] | None = self.record.get("data")
        return data

    @property
    def drift(self) -> tuple[str, ...]:
        """What has changed since the last run."""
        return tuple(str(found["message"]) for found in self.record.get("drift") or ())

    def version(self, name: str) -> str:
        """The installed version of a package, empty where it is not installed."""
        return str(self.installed[name][0]["version"]) if name in self.installed else ""

    def was(self, name: str) -> tuple[Any, ...]:
        """A list of the last record, empty where it has none."""
        return tuple((self.recorded or {}).get(name) or ())


def _members(entry: Sequence[str] | None) -> tuple[str, ...]:
    """The members of a group by what getent has of it: password, number, members."""
    return tuple(filter(None, str(entry[-1]).split(","))) if entry else ()


def parse_offered(text: str) -> dict[str, str]:
    """The newest versions by name in the output of `apt-cache madison`, which has the newest of a package first."""
    rows = ([cell.strip() for cell in line.split("|")] for line in text.splitlines())
    return {row[0]: row[1] for row in reversed(list(rows)) if len(row) == 3}


@dataclass(frozen=True)
class _Choice:
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
    def of(cls, request: Request, host: Host) -> _Choice:
        """The choice for a request on a host."""
        source = _source(request, host)
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


# The variables


def _read_registry(given: Mapping[str, Any]) -> Registry:
    name = str(given["registry"])
    # On nvcr.io every API key has the same user name.
    username = str(given.get("username") or ("$oauthtoken" if name == "nvcr.io" else ""))
    has_password, has_authority = bool(given.get("password")), bool(given.get("ca"))
    return Registry(name, _HUB_KEY if name in _HUB_NAMES else name, username, has_password, has_authority)


def _drop_in(proxy: Mapping[str, Any]) -> str:
    """The drop-in of Docker's unit with the proxy, empty without one. A unit file has % and backslashes doubled."""
    escaped = {name: re.sub(r'([\\"])', r"\\\1", str(value)).replace("%", "%%") for name, value in proxy.items()}
    lines = [f'Environment="{_PROXY_VARIABLES[name]}={value}"' for name, value in escaped.items() if value]
    return (
        "\n".join(["# Written by the role gpu.fleet.docker: docker_proxy.", "[Service]", *lines, ""]) if lines else ""
    )


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


# The plan


def plan(request: Request, host: Host, check_mode: bool = False) -> Plan:
    """Plan Docker on this host."""
    chosen = _Choice.of(request, host)
    inputs = inputs_of(request, platform=host.platform["name"], source=chosen.source)
    is_as_recorded = host.record.get("inputs") == inputs
    removable = _removable(request, host)
    kept = [name for name in _ENGINES if name in host.installed and name not in removable]
    if request.state == "absent":
        is_there = host.recorded is not None or request.purge or removable or kept
        steps = (REMOVE,) if is_there else ()
    else:
        is_converged = is_as_recorded and not (host.drift or chosen.missing)
        # Only the engine knows whether images are there, and only the host whether a password has changed.
        has_more = request.images or request.secrets
        steps = (*(() if is_converged else (INSTALL,)), *((IMAGES,) if has_more else ()))
    reasons = host.drift or ("its variables or its packages differ from the last run, or it is the first",)
    packages = f"Would install {', '.join(chosen.missing)}, write {_DAEMON_FILE} and start Docker"
    refusals = (
        *_against_values(request),
        *_against_platform(request, host),
        *_against_host(request, host, chosen.replaced),
    )
    tasks = {
        **_packages(request, host, chosen),
        **_settings(request, host, chosen),
        **_task_files(request, host, chosen, steps, check_mode),
        "report": "; ".join((*reasons, *([packages] if check_mode and chosen.missing else []))),
        **_removals(request, host, removable, kept),
        "needs_secrets": request.state == "present" and (INSTALL in steps or bool(request.secrets)),
        "compares_secrets": request.state == "present" and bool(request.secrets) and host.recorded is not None,
    }
    return Plan(refusals, steps, reasons if steps else (), inputs, tasks=tasks)


def _packages(request: Request, host: Host, chosen: _Choice) -> dict[str, Any]:
    """What the tasks read about packages and their versions."""
    held = [name for name in chosen.engine if name in host.installed]
    replaced = chosen.replaces(request, host)
    return {
        "manager": host.manager,
        "source": chosen.source,
        "engine": chosen.engine,
        "optional": chosen.optional,
        "packages": chosen.packages,
        "missing": chosen.missing,
        "install": chosen.install,
        "replace": replaced,
        "installed": _installed(host, chosen),
        "has_engine": bool(held),
        "changes_packages": bool(chosen.others or replaced),
        "offers_command": list(_OFFERS) if chosen.source == DISTRIBUTION and host.manager == "apt" else [],
        "held": held,
        "was_pinned": bool(_recorded_version(host)),
    }


def _recorded_version(host: Host) -> str:
    return str((host.recorded or {}).get("version") or "")


def _task_files(
    request: Request, host: Host, chosen: _Choice, steps: Sequence[str], check_mode: bool
) -> dict[str, Any]:
    """The files of tasks that there is work for, of main.yml and of install.yml, and what check mode predicts.

    In check mode on a host without Docker there is nothing to configure, and no engine to ask for images: packages are
    predicted. Not every repair by several tasks can be predicted by them.
    """
    is_predicted = check_mode and bool(chosen.missing)
    main = {
        "remove": REMOVE in steps,
        "install": INSTALL in steps,
        "images": request.state == "present" and request.images and not is_predicted,
    }
    pin = {"name": "pin", "pin": "present"}
    changes = (
        ({"name": "repository"}, _adds_repository(request, chosen) and not check_mode),
        ({**pin, "pin": "absent"}, _recorded_version(host) not in ("", request.version) and not check_mode),
        ({"name": "packages"}, chosen.install and not check_mode),
        (pin, request.version and not is_predicted),
        ({"name": "configure"}, not is_predicted),
    )
    return {
        "task_files": in_order(name for name, is_due in main.items() if is_due),
        "changes": in_order(change for change, is_due in changes if is_due),
        "is_predicted": is_predicted or (check_mode and bool(host.drift)),
    }


def _installed(host: Host, chosen: _Choice) -> list[str]:
    """The packages that are the role's after this run; those that were there before are not."""
    new = chosen.missing if host.packages is not None else ()
    return list(dict.fromkeys((*host.was("installed"), *host.brought, *new)))


def _adds_repository(request: Request, chosen: _Choice) -> bool:
    return chosen.source == REPOSITORY and request.add_repository


def _settings(request: Request, host: Host, chosen: _Choice) -> dict[str, Any]:
    """What the tasks read about the configuration, registries, users and images."""
    logins = _logins(request)
    keys = [one["key"] for one in logins] if request.state == "present" else []
    users = request.users if request.state == "present" else ()
    authorities = _authorities(request) if request.state == "present" else []
    logouts = [key for key in host.was("registries") if key not in keys]
    old_users = [name for name in host.was("users") if name not in users]
    changes_proxy = bool(request.drop_in) or host.has_drop_in
    earlier = (host.recorded or {}).get("daemon_options") or {}
    has_engine = any(name in host.installed for name in chosen.engine)
    configuration = {
        "proxy": changes_proxy,
        # An engine that was installed just now without options runs with what it has read.
        "daemon_options": changes_proxy or request.daemon_options or earlier or (has_engine and not host.is_new),
        "start": True,
        "group": request.users or old_users,
        "registries": request.registries or logouts,
        "exports": request.exports,
    }
    return {
        "is_recorded": host.recorded is not None,
        "has_proxy": bool(request.drop_in),
        "earlier_options": earlier,
        "configuration": in_order(name for name, is_due in configuration.items() if is_due),
        "logins": logins,
        "logouts": logouts,
        "authorities": authorities,
        "old_authorities": [path for path in host.was("certificates") if path not in authorities],
        "has_users": bool(request.users or old_users),
        "new_users": [name for name in request.users if name not in host.members],
        "old_users": old_users,
        "exported": [str(export["image"]) for export in request.exports],
    }


def _logins(request: Request) -> list[dict[str, str]]:
    return [
        {"registry": one.name, "key": one.key, "username": one.username}
        for one in request.registries
        if one.has_password
    ]


def _authorities(request: Request) -> list[str]:
    """The files of the registries' certificate authorities."""
    return [one.certificate for one in request.registries if one.has_authority]


def _removals(request: Request, host: Host, removable: Sequence[str], kept: Sequence[str]) -> dict[str, Any]:
    """What the tasks read when Docker is removed."""
    return {
        "removable": removable,
        "kept": kept,
        "directories": _directories(host),
        "purged": _PURGED,
        "old_files": [*host.was("repository"), *host.was("certificates")],
        "has_removal": bool(removable) or host.recorded is not None,
        "would_remove": ", ".join(removable) or "what the role has configured",
    }


def record(request: Request, host: Host, restart_is_due: bool) -> dict[str, Any]:
    """What the role records. With a restart that is left to the user nothing is converged: the next run reports it."""
    chosen, found = _Choice.of(request, host), plan(request, host)
    adds, logins, authorities = _adds_repository(request, chosen), _logins(request), _authorities(request)
    repository = _repository(request, host)
    files = [*_repository_files(host)] if adds else []
    files += authorities
    files += [_PREFERENCES] if request.version and host.manager == "apt" else []
    files += [_LOGINS] if logins else []
    files += [_DROP_IN] if request.drop_in else []
    files += [str(export["path"]) for export in request.exports]
    # rpm stores trusted keys as packages.
    keys = [f"gpg-pubkey-{repository['fingerprints'][0][-8:].lower()}"] if adds and host.manager == "dnf" else []
    return {
        "inputs": "" if restart_is_due else found.inputs,
        "files": files,
        "json_values": {_DAEMON_FILE: request.daemon_options} if request.daemon_options else {},
        "packages": [*chosen.packages, *keys],
        "held_packages": list(chosen.engine) if request.version else [],
        "absent_lines": {path: [repository["old_line"]] for path in repository["entry_files"] if adds},
        "started_after": [] if restart_is_due else [_DAEMON_FILE, _DROP_IN],
        "group_members": {"docker": list(request.users)} if request.users else {},
        "data": {
            "installed": found.tasks["installed"],
            "optional": list(chosen.optional),
            "repository": _repository_files(host) if adds else [],
            "daemon_options": request.daemon_options,
            "users": list(request.users),
            "registries": [one["key"] for one in logins],
            "certificates": authorities,
            "version": request.version,
        },
    }


def begun(request: Request, host: Host, with_packages: bool) -> dict[str, Any]:
    """The data to record before a change: the state before it and after it, as a kill may leave either.

    Everything recorded here was not there before, so that the next run, or a removal, treats it as the role's own.
    """
    earlier, data = host.recorded or {}, record(request, host, restart_is_due=True)["data"]
    lists = ("repository", "users", "registries", "certificates")
    installed = data["installed"] if with_packages else list(dict.fromkeys((*host.was("installed"), *host.brought)))
    return {
        **data,
        **{name: list(dict.fromkeys((*host.was(name), *data[name]))) for name in lists},
        "installed": installed,
        "daemon_options": {**(earlier.get("daemon_options") or {}), **request.daemon_options},
        # The pin of another version has to go first.
        "version": _recorded_version(host) or request.version,
    }


def _source(request: Request, host: Host) -> str:
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


def _specifications(version: str, chosen: _Choice, manager: str) -> Iterator[str]:
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


def _repository_files(host: Host) -> list[str]:
    return list(_SOURCE_FILES.get(host.manager, ()))


def _repository(request: Request, host: Host) -> Mapping[str, Any]:
    """Docker's repository, in the form that signed_repository takes; its URLs may have a password."""
    uses_apt, directory = host.manager == "apt", host.platform["docker_repository"]
    # $releasever may be a minor release, or the release of a rebuild: Docker has major ones only.
    major = str(host.platform["name"]).rpartition(" ")[2]
    place = re.sub(r"^[^/]*@", "", request.url.partition("://")[2])
    entries = "|".join(dict.fromkeys((_VENDOR, f"{re.escape(place)}/")))
    source_file, key_file = _SOURCE_FILES[host.manager]
    return {
        "role": "docker",
        "name": "docker",
        "id": "docker-ce-stable" if request.channel == "stable" else f"docker-ce-{request.channel}",
        "title": f"Docker CE {request.channel.capitalize()}",
        "url": f"{request.url}/{directory}" + ("" if uses_apt else f"/{major}/$basearch/{request.channel}"),
        "suite": host.platform["docker_suite"],
        "component": request.channel,
        "architectures": _ARCHITECTURES.get(host.architecture, ""),
        "key_url": request.key_url or f"{request.url}/{directory}/gpg",
        "fingerprints": [request.fingerprint or _FINGERPRINTS.get(host.manager, "")],
        # Docker does not sign the metadata of its rpm repositories.
        "repo_gpgcheck": False,
        "source_file": source_file,
        "key_file": key_file,
        # Of whatever user: the expression is recorded.
        "old_line": rf"^[^#\n]*//([^/@\s]*@)?({entries})",
        "entry_files": list(_ENTRY_FILES.get(host.manager, ())),
        "attempts": 4,
        "url_option": "docker_repository_url",
        "key_url_option": "docker_repository_key_url",
        "fingerprints_option": "docker_repository_key_fingerprint",
    }


def _removable(request: Request, host: Host) -> tuple[str, ...]:
    """The installed packages that the role has installed; with docker_purge all of Docker."""
    removable = (*_REMOVABLE, *(name for name in host.platform["docker_packages"] if name not in _REMOVABLE))
    own = removable if request.purge else host.was("installed")
    names = [name for name in removable if name in own]
    if request.purge and not _runs_kubernetes(host):
        names.append("containerd.io")
    return tuple(name for name in names if name in host.installed)


def _runs_kubernetes(host: Host) -> bool:
    return any(name in host.installed for name in _KUBERNETES)


def _directories(host: Host) -> tuple[str, ...]:
    """The directories that docker_purge removes. Kubernetes may use the data of containerd."""
    is_shared = "containerd" in host.installed or _runs_kubernetes(host)
    return ("/etc/docker", "/var/lib/docker", "/root/.docker", *(() if is_shared else ("/var/lib/containerd",)))


def missing_images(request: Request, there: Sequence[str]) -> dict[str, Any]:
    """The requested images that are not `there`: those to load, and the names of those to pull."""
    missing = [image for image in request.images if listed_image(str(image["name"])) not in there]
    return {
        "load": [image for image in missing if image.get("archive")],
        "pull": [str(image["name"]) for image in missing if not image.get("archive")],
    }


def listed_image(name: str) -> str:
    """The name by which Docker lists an image: without its default registry and namespace, with the default tag."""
    short = re.sub(r"^docker[.]io/(library/)?", "", name)
    return short if "@" in short or ":" in short.rpartition("/")[2] else f"{short}:latest"


# Refusals


def _against_values(request: Request) -> Iterator[str]:
    if not _VERSION.fullmatch(request.version):
        yield (
            f"docker_version is {request.version[:60]}; it has to be a version such as 28.5.1, a branch such as 28.5, "
            "or empty"
        )
    incomplete = [
        one.name
        for one in request.registries
        if not (one.has_password or one.has_authority) or (one.has_password and not one.username)
    ]
    if incomplete:
        yield (
            f"docker_registries has neither username and password nor ca for {', '.join(incomplete)[:100]}; on nvcr.io "
            "the password, the API key, is enough"
        )
    for name, url in (("docker_repository_url", request.url), ("docker_repository_key_url", request.key_url)):
        if url and not _URL.fullmatch(url):
            yield f"{name} is {shown(masked(url))}; it has to be a URL (https, http or file)"
    if request.fingerprint and not _FINGERPRINT.fullmatch(request.fingerprint):
        yield f"docker_repository_key_fingerprint is {shown(request.fingerprint)}; it has to be 40 hexadecimal digits"
    objection = path_objection(request.daemon_options)
    if objection:
        yield f"docker_daemon_options: {objection}"


def _against_platform(request: Request, host: Host) -> Iterator[str]:
    platform = host.platform
    if not platform["supported"]:
        yield (
            f"{platform['name']} is not supported by the role gpu.fleet.docker; take the host out of the play or use "
            f"one of: {', '.join(platform['known'])}"
        )
    elif request.source == DISTRIBUTION and not platform["docker_packages"]:
        yield f"{platform['name']} has no Docker of its own; set docker_source to docker_repository or auto"
    elif _source(request, host) == REPOSITORY and request.add_repository and not platform["docker_repository"]:
        yield (
            f"Docker has no repository for {platform['name']}; set docker_source to distribution, or, where a "
            "repository of yours has docker-ce, docker_add_repo to false"
        )


def _against_host(request: Request, host: Host, replaced: Sequence[str]) -> Iterator[str]:
    if request.state != "present":
        return
    if host.snap:
        yield (
            "Docker is a snap here, which does not read /etc/docker/daemon.json and sees few paths of the host; move "
            "what its containers need, run `snap remove docker`, then run again"
        )
    unknown = [name for name in request.users if host.accounts.get(name) is False]
    if unknown:
        yield f"docker_users has {', '.join(unknown)[:100]}, who do not exist on the host; create them first"
    removed = [name for name in replaced if name in host.installed and name not in request.replace]
    if removed:
        yield _removal_refusal(removed, request, host)


def _removal_refusal(removed: Sequence[str], request: Request, host: Host) -> str:
    source = _source(request, host)
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


# The restart


_TIMED_OUT = 124
"""Exit status of timeout."""
_NONE_FOUND = 1
"""Exit status of pgrep."""
_REASONS = (
    re.compile("failed to start daemon|unable to configure|level=fatal", re.IGNORECASE),
    re.compile("error|invalid", re.IGNORECASE),
)


def restart_reasons(drop_in: str | None, found: Mapping[str, Any]) -> dict[str, Any]:
    """Why Docker has to be restarted, and whether systemd is reloaded before.

    `found` has whether daemon.json `differs`, the `reason` of unit_restart, whether packages are about to change, and
    the `files` of Docker, with the state of the drop-in; `drop_in` is what that is to be, None where it is not about
    to change.
    """
    expected = hashlib.sha256(drop_in.encode()).hexdigest() if drop_in else ""
    proxy = drop_in is not None and _checksum(found["files"]) != expected
    reasons = {
        "daemon.json changes": found["differs"],
        "its proxy changes": proxy,
        str(found["reason"]): found["reason"],
        "its packages change": found["changes_packages"],
    }
    because = [reason for reason, counts in reasons.items() if counts]
    return {"because": because, "has_reasons": bool(because), "reloads": proxy or bool(found["changes_packages"])}


def _checksum(files: Mapping[str, Any]) -> str:
    """The checksum of the drop-in with the proxy, empty where there is none."""
    return str(next((one["stat"].get("checksum") or "" for one in files["results"] if one["item"] == _DROP_IN), ""))


def plan_restart(
    policy: str, reasons: Sequence[str], containers: Sequence[str], live_restore: bool, unread: str = ""
) -> Plan:
    """Plan the restart that these reasons ask for, while these containers run; `now` is whether it is in this run.

    With live-restore containers outlive the daemon, so that a restart stops none. `unread` is why it is not known which
    containers run. Warnings and refusals name the containers that it would stop.
    """
    tasks = {"now": False, "is_due": policy == "never" and bool(reasons)}
    if not reasons:
        return Plan(tasks=tasks)
    why = "; ".join(reasons)
    stopped = () if live_restore else tuple(containers)
    running = ", ".join(stopped)
    if policy == "never":
        note = f"Docker has to be restarted ({why}), and docker_restart is never: restart it yourself"
        return Plan(warnings=(note,), tasks=tasks)
    if unread and policy == "when_idle":
        refusal = (
            f"Docker has to be restarted ({why}), and the running containers that this would stop are not known: "
            f"{unread}; nothing was changed; see journalctl -u docker, or set docker_restart to always, which stops "
            "them, or to never, which leaves the restart to you"
        )
        return Plan((refusal,), tasks=tasks)
    if stopped and policy == "when_idle":
        refusal = (
            f"Docker has to be restarted ({why}), which would stop the running containers {running}; nothing was "
            "changed; run again when they have ended, or set docker_restart to always, which stops them, or to never, "
            "which leaves the restart to you; containers outlive restarts where the daemon runs with live-restore"
        )
        return Plan((refusal,), tasks=tasks)
    if unread:
        stopped, running = ("unknown",), f"that there are: {unread}"
    warnings = (f"the restart of Docker ({why}) stops the running containers {running}",) if stopped else ()
    return Plan(warnings=warnings, tasks={**tasks, "now": True})


def _unread(listing: Mapping[str, Any], shims: Mapping[str, Any]) -> str:
    """Why it is not known which containers run, empty where it is: from the results of `docker ps` and `pgrep`.

    Each running container has a process of containerd, a shim, also while the daemon hangs, or is stopped with
    live-restore. Where there is none, no container runs.
    """
    if not listing.get("rc") or shims.get("rc") == _NONE_FOUND:
        return ""
    error = str(listing.get("stderr") or listing.get("msg") or "no reason given").strip()
    why = "no response in time" if listing["rc"] == _TIMED_OUT else error.splitlines()[-1][:200]
    number = len(shims.get("stdout_lines") or ())
    return f"docker ps does not list them ({why}){f', and {number} run' if number else ''}"


def containers_to_remove(listing: Mapping[str, Any], shims: Mapping[str, Any]) -> Plan:
    """All containers, by the results of `docker ps` and `pgrep`; refused where the engine has some and lists none."""
    if not listing["rc"] or shims.get("rc") == _NONE_FOUND:
        return Plan(tasks={"containers": listing.get("stdout_lines") or []})
    error = "no response within 60 s" if listing["rc"] == _TIMED_OUT else str(listing.get("stderr") or "").strip()
    refusal = (
        "Docker does not list its containers, and docker_purge would remove the files of running ones: "
        f"{error or 'no reason given'}; see journalctl -u docker, start it, then run again"
    )
    return Plan((refusal,))


# Messages of the engine


def start_error(journal: Sequence[str], restored: Mapping[str, Any] | None) -> str:
    """Why Docker does not start; `restored` is the result of its start with the previous daemon.json, None without one.

    The last line of the journal with a reason counts: preferably the one that the daemon exited with, not earlier
    errors or later ones about containers that it left.
    """
    lines = [line for pattern in _REASONS for line in [line for line in journal if pattern.search(line)][-1:]]
    message = lines[0] if lines else "no reason given"
    if restored is None:
        return f"Docker does not start: {message}; see `journalctl -u docker` on the host"
    runs = "runs with it" if "status" in restored else "does not start with that one either"
    return (
        f"Docker does not start with the new {_DAEMON_FILE}: {message}; the previous file was restored, and Docker "
        f"{runs}; correct docker_daemon_options"
    )


def pull_error(result: Mapping[str, Any]) -> str:
    """Why images could not be pulled, from the result of a task with a loop, and what helps where that is known."""
    items = [item for item in result.get("results") or [result] if item.get("failed")]
    messages = [" ".join(str(item.get("msg", "no reason given")).split()) for item in items]
    text = "; ".join(dict.fromkeys(messages))
    # docker-ce 29.5.0 with nvcr.io.
    if "incorrect repository format" in text.lower():
        text += (
            "; Docker 29 stores images in containerd, and some releases (29.5.0) "
            "cannot pull from nvcr.io that way: set "
            "docker_daemon_options to {features: {containerd-snapshotter: false}}, which hides images pulled before, "
            "or docker_version to another one"
        )
    return text


# For the tasks


def _plan(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan:
    return plan(Request.read(variables), Host.of(facts), bool(found.get("check_mode")))


def _host(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan:
    return plan(Request.read(variables), Host.of(facts).observed(facts, found), bool(found.get("check_mode")))


def _needs(_variables: Mapping[str, Any]) -> Needs:
    return Needs(_SNAPS)


def _refusals(variables: Mapping[str, Any], facts: Mapping[str, Any], outlook: Outlook) -> Sequence[str]:
    """Refusals before the package lists are read."""
    snap, accounts = any(map(outlook.readings.exists, _SNAPS)), dict.fromkeys(outlook.missing_users, False)
    return plan(Request.read(variables), replace(Host.of(facts), snap=snap, accounts=accounts)).refusals


def _after_installation(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan:
    request, host = Request.read(variables), Host.of(facts).observed(facts, found)
    others = ", ".join(_Choice.of(request, host).others)
    refusal = (
        f"docker_version is {request.version}, but {others} was installed; see `apt-cache policy` or `dnf "
        "--showduplicates list` for the versions in the repository"
    )
    planned = plan(request, host)
    return replace(planned, refusals=(*planned.refusals, *([refusal] if others else ())))


def _secrets(variables: Mapping[str, Any], facts: Mapping[str, Any], _found: Mapping[str, Any]) -> dict[str, Any]:
    request, given = Request.read(variables), variables["docker_registries"]
    authorities = {_read_registry(one).certificate: f"{one['ca'].strip()}\n" for one in given if one.get("ca")}
    return {
        "secrets": request.secrets,
        "daemon_options": variables["docker_daemon_options"],
        "drop_in": request.drop_in,
        "repository": _repository(request, Host.of(facts)),
        "passwords": {str(one["registry"]): one["password"] for one in given if one.get("password")},
        "authorities": authorities,
    }


def _record(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    return record(Request.read(variables), Host.of(facts).observed(facts, found), found["restart_is_due"])


def _begun(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    return {"data": begun(Request.read(variables), Host.of(facts).observed(facts, found), bool(found["packages"]))}


def _reasons(variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    return restart_reasons(Request.read(variables).drop_in if found["changes_proxy"] else None, found)


def _restart(variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan:
    listing, live = found["listing"], str(found["live_restore"].get("stdout") or "").strip() == "true"
    containers = [str(name) for name in listing.get("stdout_lines") or ()]
    return plan_restart(
        variables["docker_restart"], found["because"], containers, live, _unread(listing, found["shims"])
    )


def _start(_variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan:
    return Plan((start_error(found["journal"], found.get("restored")),))


def _containers(_variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan:
    return containers_to_remove(found["listing"], found["shims"])


def _images(variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    tags = [str(tag) for image in found["images"] for tag in image.get("RepoTags") or ()]
    return missing_images(Request.read(variables), tags)


def _pull(_variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan:
    return Plan((pull_error(found["result"]),))


PLANNER = RolePlanner(
    "docker",
    {
        "plan": _plan,
        "host": _host,
        "installed": _after_installation,
        "secrets": _secrets,
        "begin": _begun,
        "record": _record,
        "reasons": _reasons,
        "restart": _restart,
        "start": _start,
        "containers": _containers,
        "images": _images,
        "pull": _pull,
    },
    secret=("secrets",),
    reads=("docker_daemon_conflict", "docker_image_exports", "docker_purge", "docker_users"),
    needs=_needs,
    refuses=_refusals,
    runs_by_default=True,
    needs_gpu=False,
    has_plan=True,
    is_disruptive=True,
    collections=("community.docker",),
)

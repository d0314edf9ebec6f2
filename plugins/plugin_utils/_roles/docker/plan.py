# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role docker has to do on a host, and what it records. Private to this collection. Pure: no Ansible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..._planning.contract import Plan, in_order, inputs_of
from .host import DAEMON_FILE, DROP_IN, Host
from .packages import ENGINES, PURGED, Choice, directories, removable_packages, removal_refusal, source_of
from .repository import repository_files, repository_of
from .request import DISTRIBUTION, REPOSITORY, Request, against_values

_PREFERENCES = "/etc/apt/preferences.d/gpu-fleet-docker"
_OFFERS = ("apt-cache", "madison", "docker-buildx", "docker-compose-v2", "docker-compose")
_LOGINS = "/root/.docker/config.json"
INSTALL, IMAGES, REMOVE = "install", "images", "remove"
"""Steps: install and configure; install images and compare passwords, of which only the host knows; remove."""


def plan(request: Request, host: Host, check_mode: bool = False) -> Plan:
    """Plan Docker on this host."""
    chosen = Choice.of(request, host)
    inputs = inputs_of(request, platform=host.platform["name"], source=chosen.source)
    is_as_recorded = host.record.get("inputs") == inputs
    removable = removable_packages(request, host)
    kept = [name for name in ENGINES if name in host.installed and name not in removable]
    if request.state == "absent":
        is_there = host.recorded is not None or request.purge or removable or kept
        steps = (REMOVE,) if is_there else ()
    else:
        is_converged = is_as_recorded and not (host.drift or chosen.missing)
        # Only the engine knows whether images are there, and only the host whether a password has changed.
        has_more = request.images or request.secrets
        steps = (*(() if is_converged else (INSTALL,)), *((IMAGES,) if has_more else ()))
    reasons = host.drift or ("its variables or its packages differ from the last run, or it is the first",)
    packages = f"Would install {', '.join(chosen.missing)}, write {DAEMON_FILE} and start Docker"
    refusals = (
        *against_values(request),
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
        **_recorded(request, host, chosen, inputs, bool(refusals) or INSTALL not in steps),
        "compares_secrets": request.state == "present" and bool(request.secrets) and host.recorded is not None,
    }
    return Plan(refusals, steps, reasons if steps else (), inputs, tasks=tasks)


def _recorded(
    request: Request, host: Host, chosen: Choice, inputs: str, is_done: bool
) -> Mapping[str, Mapping[str, Any]]:
    """What is recorded: when the configuration has begun, when packages are installed, and in the end."""
    if is_done:
        return {}
    final = record(request, host, chosen, inputs)
    begun = _begun(request, host, final["data"])
    brought = list(dict.fromkeys((*host.was("installed"), *host.brought)))
    return {"begun": {**begun, "installed": brought}, "begun_packages": begun, "record": final}


def _packages(request: Request, host: Host, chosen: Choice) -> dict[str, Any]:
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


def _task_files(request: Request, host: Host, chosen: Choice, steps: Sequence[str], check_mode: bool) -> dict[str, Any]:
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


def _installed(host: Host, chosen: Choice) -> list[str]:
    """The packages that are the role's after this run; those that were there before are not."""
    new = chosen.missing if host.packages is not None else ()
    return list(dict.fromkeys((*host.was("installed"), *host.brought, *new)))


def _adds_repository(request: Request, chosen: Choice) -> bool:
    return chosen.source == REPOSITORY and request.add_repository


def _settings(request: Request, host: Host, chosen: Choice) -> dict[str, Any]:
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
        "removes_proxy": host.has_drop_in and not request.drop_in,
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
        "directories": directories(host),
        "purged": PURGED,
        "old_files": [*host.was("repository"), *host.was("certificates")],
        "has_removal": bool(removable) or host.recorded is not None,
        "would_remove": ", ".join(removable) or "what the role has configured",
    }


def record(request: Request, host: Host, chosen: Choice, inputs: str) -> dict[str, Any]:
    """What the role records."""
    adds, logins, authorities = _adds_repository(request, chosen), _logins(request), _authorities(request)
    repository = repository_of(request, host)
    files = [*repository_files(host)] if adds else []
    files += authorities
    files += [_PREFERENCES] if request.version and host.manager == "apt" else []
    files += [_LOGINS] if logins else []
    files += [DROP_IN] if request.drop_in else []
    files += [str(export["path"]) for export in request.exports]
    # rpm stores trusted keys as packages.
    keys = [f"gpg-pubkey-{repository['fingerprints'][0][-8:].lower()}"] if adds and host.manager == "dnf" else []
    return {
        "inputs": inputs,
        "files": files,
        "json_values": {DAEMON_FILE: request.daemon_options} if request.daemon_options else {},
        "packages": [*chosen.packages, *keys],
        "held_packages": list(chosen.engine) if request.version else [],
        "absent_lines": {path: [repository["old_line"]] for path in repository["entry_files"] if adds},
        "started_after": [DAEMON_FILE, DROP_IN],
        "group_members": {"docker": list(request.users)} if request.users else {},
        "data": {
            "installed": _installed(host, chosen),
            "optional": list(chosen.optional),
            "repository": repository_files(host) if adds else [],
            "daemon_options": request.daemon_options,
            "users": list(request.users),
            "registries": [one["key"] for one in logins],
            "certificates": authorities,
            "version": request.version,
        },
    }


def _begun(request: Request, host: Host, data: Mapping[str, Any]) -> dict[str, Any]:
    """The data to record before a change: the state before it and after it, as a kill may leave either.

    Everything recorded here was not there before, so that the next run, or a removal, treats it as the role's own.
    """
    earlier = host.recorded or {}
    lists = ("repository", "users", "registries", "certificates")
    return {
        **data,
        **{name: list(dict.fromkeys((*host.was(name), *data[name]))) for name in lists},
        "daemon_options": {**(earlier.get("daemon_options") or {}), **request.daemon_options},
        # The pin of another version has to go first.
        "version": _recorded_version(host) or request.version,
    }


def _against_platform(request: Request, host: Host) -> Iterator[str]:
    platform = host.platform
    if not platform["supported"]:
        yield (
            f"{platform['name']} is not supported by the role gpu.fleet.docker; take the host out of the play or use "
            f"one of: {', '.join(platform['known'])}"
        )
    elif request.source == DISTRIBUTION and not platform["docker_packages"]:
        yield f"{platform['name']} has no Docker of its own; set docker_source to docker_repository or auto"
    elif source_of(request, host) == REPOSITORY and request.add_repository and not platform["docker_repository"]:
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
        yield removal_refusal(removed, request, host)

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tasks of the role docker ask for. Private to this collection. Pure: no Ansible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os.path import basename, dirname
from typing import Any

from ....module_utils._common.masking import masked
from ..._planning.contract import Ask, Needs, Outlook, Plan, Reading, RolePlanner, command, search, unread
from .host import DOCKER, DROP_IN, Host, observation
from .images import missing_images, pull_error, run_errors
from .packages import Choice
from .plan import INSTALL, plan
from .repository import repository_of
from .request import Request, read_registry
from .restart import (
    containers_to_remove,
    existing,
    plan_restart,
    previews,
    restart_reasons,
    running,
    start_error,
    why_unread,
)

_SNAPS = ("/snap/docker/current", "/var/lib/snapd/snap/docker/current")


def _plan(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan | Ask:
    """The plan; where the task `asks` by what the host has, which later calls get as `observed`.

    `is_refreshed`: its package lists, which are read again. With `is_installed` another version is refused.
    """
    request, check_mode = Request.read(variables), bool(found.get("check_mode"))
    first, is_first = plan(request, Host.of(facts), check_mode), not found.get("observed")
    if not found.get("asks") or (is_first and (first.refusals or INSTALL not in first.steps)):
        return replace(first, tasks={**first.tasks, "observed": {}})
    if is_first or found.get("is_refreshed"):
        asked = unread(found, _readings(request, first, is_first), first)
        if asked:
            return asked
        found = {**found, "observed": observation(found)}
    host = Host.of(facts).observed(found)
    planned = plan(request, host, check_mode)
    others = ", ".join(Choice.of(request, host).others) if found.get("is_installed") else ""
    refusal = (
        f"docker_version is {request.version}, but {others} was installed; see `apt-cache policy` or `dnf "
        "--showduplicates list` for the versions in the repository"
    )
    return replace(
        planned,
        refusals=(*planned.refusals, *([refusal] if others else ())),
        tasks={**planned.tasks, "observed": found["observed"]},
    )


def _readings(request: Request, planned: Plan, is_first: bool) -> dict[str, Reading | list[Reading]]:
    """Whether Docker is a snap, or has a proxy; users, who is in the group docker, and what package lists have.

    A directory service need not list its users, but finds each by name. Without any package list nothing is offered.
    """
    offers = planned.tasks["offers_command"]
    found: dict[str, Reading | list[Reading]] = {}
    if is_first:
        found["files"] = search([*map(dirname, (*_SNAPS, DROP_IN))], [*{*map(basename, (*_SNAPS, DROP_IN))}])
    if is_first and planned.tasks["has_users"]:
        found["accounts"] = [_entry("passwd", name) for name in request.users]
        found["group"] = _entry("group", DOCKER)
    return {**found, **({"offers": command(*offers)} if offers else {})}


def _entry(database: str, key: str) -> Reading:
    return "getent", {"database": database, "key": key, "fail_key": False}


def _needs(_variables: Mapping[str, Any]) -> Needs:
    return Needs(_SNAPS)


def _refusals(variables: Mapping[str, Any], facts: Mapping[str, Any], outlook: Outlook) -> Sequence[str]:
    """Refusals before the package lists are read."""
    snap, accounts = any(map(outlook.readings.exists, _SNAPS)), dict.fromkeys(outlook.missing_users, False)
    return plan(Request.read(variables), replace(Host.of(facts), snap=snap, accounts=accounts)).refusals


def _secrets(variables: Mapping[str, Any], facts: Mapping[str, Any], _found: Mapping[str, Any]) -> dict[str, Any]:
    request, given = Request.read(variables), variables["docker_registries"]
    authorities = {read_registry(one).certificate: f"{one['ca'].strip()}\n" for one in given if one.get("ca")}
    return {
        "secrets": request.secrets,
        "daemon_options": variables["docker_daemon_options"],
        "drop_in": request.drop_in,
        "repository": repository_of(request, Host.of(facts)),
        "passwords": {str(one["registry"]): one["password"] for one in given if one.get("password")},
        "authorities": authorities,
    }


def _restart(variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan | Ask:
    """Refuses a restart that would stop containers, and warns of those that it stops."""
    asked = unread(found, previews(found["options"], bool(found["changes_proxy"])))
    if asked:
        return asked
    wrong = _failures(found, "preview", "state")
    if wrong:
        return Plan(wrong)
    because, reloads = restart_reasons(Request.read(variables).drop_in, found)
    # It warns of containers that may lose their GPUs: the drop-in needs a reload, and the packages make one.
    asked = unread(found, {"reload": ("gpu.fleet.systemd_reload", {})} if reloads else {})
    asked = asked or (running(found) if because else None)
    wrong = _failures(found, "reload")
    if asked or wrong:
        return asked or Plan(wrong)
    listing, shims, info = (found.get(name, {}) for name in ("listing", "shims", "live_restore"))
    is_live = str(info.get("stdout") or "").strip() == "true"
    containers = [str(name) for name in listing.get("stdout_lines") or ()]
    return plan_restart(variables["docker_restart"], because, containers, is_live, why_unread(listing, shims))


def _failures(found: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    """The messages of readings that have failed. Options with a password may be in them."""
    failed = (found[name] for name in names if found.get(name, {}).get("failed"))
    return tuple(str(masked(one.get("msg") or "no reason given")) for one in failed)


def _failed(_variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan:
    """Why images were not `pulled`, containers did not run, by `results` of loops, or Docker does not start.

    `restored` is skipped where there was no other daemon.json to start it with.
    """
    if "results" in found:
        return Plan(tuple(run_errors(found["results"])))
    if "pulled" in found:
        return Plan((pull_error(found["pulled"]),))
    restored = None if found["restored"].get("skipped") else found["restored"]
    return Plan((start_error(found["journal"], restored),))


def _containers(_variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan | Ask:
    return existing(found) or containers_to_remove(found["listing"], found.get("shims", {}))


def _images(variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    tags = [str(tag) for image in found["images"] for tag in image.get("RepoTags") or ()]
    return missing_images(Request.read(variables), tags)


PLANNER = RolePlanner(
    "docker",
    {
        "plan": _plan,
        "secrets": _secrets,
        "restart": _restart,
        "failed": _failed,
        "containers": _containers,
        "images": _images,
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

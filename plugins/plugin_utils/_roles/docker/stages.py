# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tasks of the role docker ask for. Private to this collection. Pure: no Ansible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..._planning.contract import Ask, Needs, Outlook, Plan, RolePlanner
from .host import Host
from .images import missing_images, pull_error
from .packages import Choice
from .plan import begun, plan, record
from .repository import repository_of
from .request import Request, read_registry
from .restart import containers_to_remove, existing, plan_restart, restart_reasons, running, start_error, why_unread

_SNAPS = ("/snap/docker/current", "/var/lib/snapd/snap/docker/current")


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
    others = ", ".join(Choice.of(request, host).others)
    refusal = (
        f"docker_version is {request.version}, but {others} was installed; see `apt-cache policy` or `dnf "
        "--showduplicates list` for the versions in the repository"
    )
    planned = plan(request, host)
    return replace(planned, refusals=(*planned.refusals, *([refusal] if others else ())))


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


def _record(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    return record(Request.read(variables), Host.of(facts).observed(facts, found), found["restart_is_due"])


def _begun(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    return {"data": begun(Request.read(variables), Host.of(facts).observed(facts, found), bool(found["packages"]))}


def _reasons(variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    return restart_reasons(Request.read(variables).drop_in if found["changes_proxy"] else None, found)


def _restart(variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan | Ask:
    asked = running(found) if found["because"] else None
    if asked:
        return asked
    listing, shims, info = (found.get(name, {}) for name in ("listing", "shims", "live_restore"))
    is_live = str(info.get("stdout") or "").strip() == "true"
    containers = [str(name) for name in listing.get("stdout_lines") or ()]
    return plan_restart(variables["docker_restart"], found["because"], containers, is_live, why_unread(listing, shims))


def _start(_variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan:
    return Plan((start_error(found["journal"], found.get("restored")),))


def _containers(_variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan | Ask:
    return existing(found) or containers_to_remove(found["listing"], found.get("shims", {}))


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

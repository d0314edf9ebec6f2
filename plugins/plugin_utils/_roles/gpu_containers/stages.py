# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tasks of gpu_containers get of its plan, by stages. Private to this collection. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any

from ..._planning.contract import Ask, Outlook, Plan, Reading, RolePlanner, command, unread
from .engines import DOCKER, PODMAN, RESTART_UNIT, TOOLKIT_MODE, unreadable
from .plan import (
    Container,
    Host,
    Request,
    container_plan,
    engines_to_ask,
    failures,
    plan,
    request_refusals,
)

_LACKS = "it is not installed"
# `systemctl show` would print what systemd has loaded, which is older than a unit that was enabled without a reload.
_PODMAN = (
    ("podman", "ps", "--all", "--format=json"),
    ("podman", "images", "--format=json"),
    ("podman", "--version"),
    ("systemctl", "is-enabled", RESTART_UNIT),
)
"""What it lists, its version, and whether the unit is enabled that starts its containers at boot."""


def _plan(variables: Mapping[str, Any], facts: Mapping[str, Any], _found: Mapping[str, Any]) -> Plan:
    """Refuses what is wrong whatever the host has, and names the engines to ask."""
    request = Request.read(variables)
    return Plan(request_refusals(request), tasks={"engines": engines_to_ask(request, Host.of(facts))})


def _refusals(variables: Mapping[str, Any], facts: Mapping[str, Any], outlook: Outlook) -> tuple[str, ...]:
    """Refusals by the GPUs and the engines, as far as no role before changes them."""
    request, runtimes = Request.read(variables), facts["cuda"]["container_toolkit"].get("runtimes") or {}
    lacking = [name for name in request.used if (runtimes.get(name) or {}).get("installed") is False]
    without = unreadable({"msg": _LACKS}, [{"msg": _LACKS}])
    # In check mode CDI specifications are to come as well.
    is_coming = "nvidia_container_toolkit" in outlook.coming
    known = {**facts, "nvidia_smi": outlook.gpus(facts)}
    return (
        *request_refusals(request, Host.of(known, {"check_mode": is_coming})),
        *(without[name] for name in lacking if name not in outlook.coming),
    )


def _host(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan | Ask:
    """The plan; where `before` has the one of before the change, what is recorded, and what is not as declared.

    `docker` is the result of docker_host_info. What podman has is asked for, and later stages get it.
    """
    request = Request.read(variables)
    podman: list[Reading] = [command(*argv) for argv in _PODMAN]
    asked = unread(found, {"podman": podman} if PODMAN.name in engines_to_ask(request, Host.of(facts)) else {})
    if asked:
        return asked
    before = found.get("before")
    planned = _record(request, facts, found) if before else plan(request, Host.of(facts, found))
    return replace(planned, tasks={**planned.tasks, "podman": found.get("podman", {})})


def _containers(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The options of each container, and the names of Docker's, and of podman's to create and to start.

    A container that runs has a mount of the token that it was started with. `new_tokens` is the result of making those
    that are missing, by an earlier use of the role where now there is none to make.
    """
    host = Host.of(facts, found)
    decided = container_plan(Request.read(variables), host)
    made = {one["item"]["container"] for one in found["new_tokens"].get("results") or () if one.get("changed")}
    new = made & {token.container for token in decided.tokens}
    # In check mode an engine may be still to be installed.
    of_docker, of_podman = (
        [one for one in decided.containers if one.engine == name and name in host.listed]
        for name in (DOCKER.name, PODMAN.name)
    )
    return {
        "docker": [one.name for one in of_docker],
        "create": [one.name for one in of_podman if one.step == "create"],
        "start": [
            *(one.name for one in of_podman if one.step == "start"),
            *(one.name for one in of_podman if not one.step and one.state == "started" and one.name in new),
        ],
        "options": {one.name: _options(one, new) for one in decided.containers},
    }


def _options(container: Container, new_tokens: Collection[str]) -> dict[str, Any]:
    """Without what is left to the image or to the engine."""
    options = {name: value for name, value in asdict(container).items() if value is not None}
    if container.engine == PODMAN.name and container.entrypoint:
        options["entrypoint"] = json.dumps(container.entrypoint)
    return {**options, "restart": container.name in new_tokens}


def _record(request: Request, facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan:
    """What the role records, and what is not as declared.

    Where an engine no longer lists its containers, what is recorded of them stays.

    `removed` is the result of removing tokens, by an earlier use of the role where this one did not get there.
    """
    before = found["before"]
    removed = [one["item"] for one in found["removed"] if not one.get("failed")]
    known = {**found, "removed_tokens": [path for path in removed if path in before["obsolete_tokens"]]}
    host = Host.of(facts, known)
    decided, wrong = container_plan(request, host), failures(request, host, before["obsolete"])
    state = "present" if decided.record else "absent"
    recorded = {"is_known": not decided.refusals, "state": state, "data": decided.record, "wrong": wrong}
    return Plan(steps=tuple(before["steps"]), tasks={"token_directory": before["token_directory"], **recorded})


PLANNER = RolePlanner(
    "gpu_containers",
    {
        "plan": _plan,
        "host": _host,
        "containers": _containers,
    },
    secret=("containers",),
    others=(TOOLKIT_MODE,),
    refuses=_refusals,
    collections=("community.docker", "containers.podman"),
)

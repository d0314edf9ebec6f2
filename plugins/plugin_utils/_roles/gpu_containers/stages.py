# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tasks of gpu_containers get of its plan, by stages. Private to this collection. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from ..._planning.contract import Outlook, Plan, RolePlanner
from ..docker.images import pull_error
from .engines import DOCKER, PODMAN, TOOLKIT_MODE, run_errors, unreadable
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


def _host(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan:
    return plan(Request.read(variables), Host.of(facts, found))


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


def _failed(_variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan:
    """Why an image was not `pulled`, by the result of the task, or containers did not run, by the results of loops."""
    return Plan((pull_error(found["pulled"]),) if "pulled" in found else tuple(run_errors(found["results"])))


def _record(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """What the role records, and what is not as declared.

    Where an engine no longer lists its containers, what is recorded of them stays.

    `removed` is the result of removing tokens, by an earlier use of the role where this one did not get there.
    """
    removed = [one["item"] for one in found["removed"] if not one.get("failed")]
    known = {**found, "removed_tokens": [path for path in removed if path in found["obsolete_tokens"]]}
    request, host = Request.read(variables), Host.of(facts, known)
    decided, wrong = container_plan(request, host), failures(request, host, found["obsolete"])
    state = "present" if decided.record else "absent"
    return {"is_known": not decided.refusals, "state": state, "data": decided.record, "wrong": wrong}


PLANNER = RolePlanner(
    "gpu_containers",
    {
        "plan": _plan,
        "host": _host,
        "containers": _containers,
        "failed": _failed,
        "record": _record,
    },
    secret=("containers",),
    others=(TOOLKIT_MODE,),
    refuses=_refusals,
    collections=("community.docker", "containers.podman"),
)

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of the scenario, and how the result of a run is judged; nothing here runs a program."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Expectation = Literal["a run", "changes", "no changes", "a refusal"]

_CHECK = ("--check",)
_SETTINGS = {"gpu_fleet_roles": ["gpu_state"], "gpu_state_persistence_mode": True, "gpu_state_power_limit": "90%"}


@dataclass(frozen=True)
class Step:
    """A run of ansible-playbook, its playbook below the checkout, and what is expected of every host."""

    title: str
    playbook: str
    expected: Expectation = "a run"
    arguments: tuple[str, ...] = ()
    words: str = ""
    """For a refusal: words of its message."""


def _ours(name: str) -> str:
    return f"testbed/real_gpu/playbooks/{name}.yml"


def _site(title: str, expected: Expectation, *arguments: str, words: str = "") -> Step:
    return Step(f"site.yml {title}", "playbooks/site.yml", expected, arguments, words)


READ = Step("Read the GPUs", _ours("read_gpus"))
READ_AGAIN = Step("Read the GPUs again", _ours("read_gpus"))


def steps(engines: Sequence[str], *, computes: bool, change_gpus: bool) -> tuple[Step, ...]:
    """The steps between the two readings of the GPUs; a framework computes where one is given."""
    options = json.dumps({"docker_daemon_options": {"log-driver": "local"}, "docker_restart": "when_idle"})
    workload = (Step("A framework computes", _ours("workload")),) if computes else ()
    containers = tuple(
        Step(
            f"A container for each GPU, {engine}",
            _ours("containers"),
            "changes",
            ("--extra-vars", f"gpu_containers_engine={engine}"),
        )
        for engine in engines
    )
    settings = (
        (
            _site("with other settings of the GPUs", "changes", "--extra-vars", json.dumps(_SETTINGS)),
            _site("with them again", "no changes", "--extra-vars", json.dumps(_SETTINGS)),
        )
        if change_gpus
        else (
            _site(
                "with other settings of the GPUs, in check mode",
                "a run",
                *_CHECK,
                "--extra-vars",
                json.dumps(_SETTINGS),
            ),
        )
    )
    return (
        _site("in check mode", "changes", *_CHECK),
        _site("", "changes"),
        _site("again", "no changes"),
        _site("in check mode again", "no changes", *_CHECK),
        Step("A file is lost, another one changed", _ours("drift"), "changes"),
        _site("finds it in check mode", "changes", *_CHECK),
        _site("repairs it", "changes"),
        _site("after the repair", "no changes"),
        *containers,
        Step("Containers that run", _ours("running"), "changes"),
        _site("does not stop them", "a refusal", "--extra-vars", options, words="would stop the running containers"),
        Step("Containers after systemctl daemon-reload", _ours("daemon_reload")),
        Step("Containers removed", _ours("running"), "changes", ("--extra-vars", "gpu_containers_state=absent")),
        Step("Metrics of the exporter", _ours("metrics"), "changes"),
        *workload,
        *settings,
        Step("health.yml", "playbooks/health.yml"),
        Step("upgrade.yml in check mode", "playbooks/upgrade.yml", "a run", _CHECK),
        Step("upgrade.yml", "playbooks/upgrade.yml"),
        Step("remediate.yml in check mode", "playbooks/remediate.yml", "a run", _CHECK),
        Step("report.yml", "playbooks/report.yml"),
        Step("decommission.yml in check mode", "playbooks/decommission.yml", "changes", _CHECK),
        Step(
            "decommission.yml",
            "playbooks/decommission.yml",
            "changes",
            ("--extra-vars", json.dumps({"gpu_fleet_decommission_confirm": True})),
        ),
        Step("Nothing is left", _ours("left")),
    )


def judge(step: Step, status: int, document: Mapping[str, Any] | None) -> list[str]:
    """Why a run is not as expected: a line for each reason, none where it is.

    `document` is what the callback run_result wrote, None where it wrote nothing.
    """
    if document is None or not document["hosts"]:
        return [f"ansible-playbook ended with status {status} and touched no host"]
    hosts: Mapping[str, Any] = document["hosts"]
    if step.expected == "a refusal":
        return [
            f"{name}: expected a refusal with the words {step.words!r}, got {one['message'] or 'none'}"
            for name, one in hosts.items()
            if step.words not in (one["message"] or "") or one["changed"]
        ]
    reasons = [
        f"{name}: {one['status']}: {one['message'] or 'no message'}"
        for name, one in hosts.items()
        if one["status"] != "ok"
    ]
    if status and not reasons:
        reasons = [f"ansible-playbook ended with status {status}"]
    for name, one in hosts.items():
        tasks = [f"{change['role'] or 'play'}: {change['task']}" for change in one["changes"]]
        if step.expected == "no changes" and one["changed"]:
            reasons.append(f"{name}: changed, expected no change: {'; '.join(tasks)}")
        if step.expected == "changes" and not one["changed"] and one["status"] == "ok":
            reasons.append(f"{name}: nothing changed")
    return reasons


SETTINGS = (
    *("mig_mode_current", "mig_mode_pending", "mig_devices", "ecc_mode_current", "ecc_mode_pending"),
    *("persistence_mode", "compute_mode", "power_limit_w", "accounting_mode"),
    *("clock_applications_graphics_mhz", "clock_applications_memory_mhz"),
)
"""Keys of a GPU in the facts of nvidia_smi_facts that the scenario leaves as they are."""


def settings_of(facts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of each GPU by UUID, of the facts of one host; settings that it does not have are left out."""
    return {gpu["uuid"]: {key: gpu[key] for key in SETTINGS if key in gpu} for gpu in facts["gpus"]}


def changed_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between two readings of a host, a line for each setting."""
    first, second = settings_of(before), settings_of(after)
    lines = [f"{uuid} is missing" for uuid in first.keys() - second.keys()]
    for uuid in sorted(first.keys() & second.keys()):
        lines += [
            f"{uuid}: {key} was {first[uuid].get(key)}, is {second[uuid].get(key)}"
            for key in SETTINGS
            if first[uuid].get(key) != second[uuid].get(key)
        ]
    return lines


def refusals(hosts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Why the scenario must not begin, by the facts of nvidia_smi_facts of each host."""
    if not hosts:
        return ["no host responded; check the inventory and --limit"]
    reasons = []
    for name, facts in hosts.items():
        if not facts["available"]:
            reasons.append(f"{name}: no GPU responds: {facts['message']}; the scenario needs a working driver")
            continue
        busy = [process for gpu in facts["gpus"] for process in gpu.get("processes") or []]
        if busy:
            pids = ", ".join(str(process.get("pid")) for process in busy)
            reasons.append(f"{name}: processes use GPUs (PIDs {pids}); end them, or name a host that is free")
    return reasons

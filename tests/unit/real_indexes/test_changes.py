# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role decides before it changes a driver, by its own tasks and apt on Ubuntu's real index.

GPUs in use, the rollback, the removals that check mode names, and a run that was interrupted before its record.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._packages import apt
from ansible_collections.gpu.fleet.plugins.module_utils._packages.plan import PackageRequest

from tests.unit.plays import run_play
from tests.unit.real_indexes.apt_root import AptRoot
from tests.unit.real_indexes.test_hosts import KERNEL, facts, known_facts

pytestmark = pytest.mark.plays

Roots = Callable[[str], AptRoot]
OLD = {"580.178.04": "580.159.04"}
DESKTOP = ("nvidia-driver-580-server-open",)
COMPUTE = ("nvidia-utils-580-server", "nvidia-dkms-580-server-open")
JOB = {"name": "python3", "pid": 4711, "device": "/dev/nvidia0", "stop": None}
RECORD: dict[str, Any] = {"version": "580.178.04", "source": "distribution", "kind": "open", "unmanaged": []}
BEGUN = {**RECORD, "begun": True, "version": ""}


@dataclass(frozen=True)
class Host:
    """A host: its packages, older ones where `old` has versions, the role's record, what uses the GPUs, the request."""

    packages: tuple[str, ...]
    old: dict[str, str] = field(default_factory=dict)
    record: dict[str, Any] | None = None
    users: tuple[dict[str, Any], ...] = ()
    variables: dict[str, Any] = field(default_factory=dict)
    half_installed: str = ""


UPGRADE: dict[str, Any] = {"packages": COMPUTE, "old": OLD, "record": RECORD, "users": (JOB,)}
WITHOUT_ROLLBACK = {"nvidia_driver_rollback": "if_possible", "nvidia_driver_upgrade": True}
HOSTS = {
    "busy": Host(**UPGRADE, variables=WITHOUT_ROLLBACK),
    "busy, deferred": Host(**UPGRADE, variables={**WITHOUT_ROLLBACK, "nvidia_driver_when_busy": "defer"}),
    "busy, all the same": Host(**UPGRADE, variables={**WITHOUT_ROLLBACK, "nvidia_driver_when_busy": "proceed"}),
    "idle": Host(**{**UPGRADE, "users": ()}, variables=WITHOUT_ROLLBACK),
    "busy, and a package is added": Host(COMPUTE, record=RECORD, users=(JOB,)),
    "busy, and nothing is known of the repository": Host(
        COMPUTE,
        record={**RECORD, "source": "distribution"},
        users=(JOB,),
        variables={"nvidia_driver_source": "cuda_repository", "nvidia_driver_version": "595"},
    ),
    "without a rollback": Host(**{**UPGRADE, "users": ()}, variables={"nvidia_driver_upgrade": True}),
    "without X": Host(DESKTOP, record=RECORD),
    "interrupted": Host(COMPUTE, record=BEGUN),
    "interrupted while it was installed": Host(COMPUTE, record=BEGUN, half_installed="nvidia-dkms-580-server-open"),
    "interrupted in addition to packages of an admin": Host(DESKTOP, record={**BEGUN, "unmanaged": ["nvidia-prime"]}),
    "half installed by an admin": Host(COMPUTE, record=RECORD, half_installed="nvidia-dkms-580-server-open"),
}
RESULTS = {
    "deferred": "__nvidia_driver_selection.deferral != ''",
    "unmanaged": "__nvidia_driver_selection.existing != 'none'",
    "kept": "__nvidia_driver_selection.unmanaged",
    "removal": "__nvidia_driver_selection.removal",
    "named": "__nvidia_driver_selection.removals",
    "install": "__nvidia_driver_selection.install",
}
# Runs modules, but for the one that reads who uses the driver.
_PYTHON = """\
#!/bin/sh
module=${{1:-{directory}/module.$$}}
[ "$1" ] || cat >"$module"
if grep -q "driver_reload" "$module"; then
    echo '{result}'
    exit
fi
exec {python} "$module"
"""


@pytest.fixture(scope="module")
def outcomes(roots: Roots, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[AptRoot, dict[str, Any]]]:
    """The decisions of each host, or the message of the refusal, from one run of Ansible."""
    directory = tmp_path_factory.mktemp("changes")
    made: dict[str, AptRoot] = {}
    inventory: dict[str, dict[str, Any]] = {}
    for number, (name, host) in enumerate(HOSTS.items()):
        (directory / f"dpkg{number}").mkdir()
        root = made[name] = roots("noble").host(directory / f"dpkg{number}")
        root.install_older(host.packages, host.old)
        found = facts(root.installed)
        # What uses the driver is given, and it counts as loaded only where something does.
        found["cuda"]["driver"]["loaded"] = bool(host.users)
        python = directory / f"python{number}"
        python.write_text(
            _PYTHON.format(directory=directory, python=sys.executable, result=json.dumps({"users": host.users}))
        )
        python.chmod(0o755)
        if host.record is not None:
            found["gpu_fleet_managed"] = {"nvidia_driver": {"inputs": "", "drift": [], "data": host.record}}
        if host.half_installed:
            _interrupt(root.dpkg / "status", host.half_installed)
        inventory[f"host{number}"] = {
            "found": found,
            "tools": root.environment,
            "nvidia_driver_version": "580",
            "nvidia_driver_source": "distribution",
            "nvidia_driver_boot_kernel": KERNEL,
            "nvidia_driver_preflight": False,
            **host.variables,
            "ansible_connection": "local",
            "ansible_python_interpreter": str(python),
        }
    _run(directory, inventory)
    outputs = (json.loads((directory / f"host{number}.json").read_text()) for number in range(len(HOSTS)))
    return {name: (made[name], output) for name, output in zip(HOSTS, outputs, strict=True)}


def _interrupt(status: Path, name: str) -> None:
    """Leave a package unpacked and not configured, as when its module was being built."""
    before = f"Package: {name}\nStatus: install ok installed"
    text = status.read_text()
    assert before in text
    status.write_text(text.replace(before, before.replace("ok installed", "ok half-configured")))


def _run(directory: Path, inventory: dict[str, dict[str, Any]]) -> None:
    parts = ["plan", "select/main", "select/change"]
    decided = "{{ {" + ", ".join(f"'{name}': {value}" for name, value in RESULTS.items()) + "} | to_json }}"
    failed = "{{ {'message': ansible_failed_result.msg} | to_json }}"
    output = {"dest": str(directory / "{{ inventory_hostname }}.json"), "mode": "0644"}
    include = {"name": "gpu.fleet.nvidia_driver", "public": True}
    tasks = [{"ansible.builtin.include_role": {**include, "tasks_from": f"{part}.yml"}} for part in parts]
    play = {
        "hosts": "all",
        "gather_facts": False,
        "environment": "{{ tools }}",
        "vars": {"__common_facts_are_read": True},
        "tasks": [
            known_facts(),
            {
                "block": [*tasks, {"ansible.builtin.copy": {"content": decided, **output}, "check_mode": False}],
                "rescue": [{"ansible.builtin.copy": {"content": failed, **output}, "check_mode": False}],
            },
        ],
    }
    (directory / "hosts.json").write_text(json.dumps({"all": {"hosts": inventory}}))
    run_play(directory, play, "--check", inventory=directory / "hosts.json")


Outcomes = dict[str, tuple[AptRoot, dict[str, Any]]]
PROCESS = "python3 (PID 4711) holds /dev/nvidia0"


def test_a_driver_in_use_is_not_replaced(outcomes: Outcomes) -> None:
    message = outcomes["busy"][1]["message"]
    assert f"GPUs are in use, and the driver was not changed: {PROCESS}; would be replaced or removed: " in message
    assert "nvidia-utils-580-server" in message
    assert "set nvidia_driver_when_busy to defer" in message


def test_what_replaces_the_driver_is_known_before_its_repository_is_there(outcomes: Outcomes) -> None:
    message = outcomes["busy, and nothing is known of the repository"][1]["message"]
    assert PROCESS in message
    assert "driver 580.178.04" in message


@pytest.mark.parametrize(
    ("host", "deferred"),
    [
        ("busy, deferred", True),
        ("busy, all the same", False),
        ("idle", False),
        ("busy, and a package is added", False),
    ],
)
def test_a_change_is_made_or_deferred(host: str, deferred: bool, outcomes: Outcomes) -> None:
    assert "message" not in outcomes[host][1], outcomes[host][1]
    assert outcomes[host][1]["deferred"] is deferred


def test_a_change_without_a_rollback_is_refused(outcomes: Outcomes) -> None:
    message = outcomes["without a rollback"][1]["message"]
    assert "the driver was not changed: the installed version of " in message
    assert "nvidia-utils-580-server" in message
    assert "is in no repository any more, and dpkg-repack, which could save it, is not available" in message
    assert message.endswith("set nvidia_driver_rollback to if_possible")


def test_check_mode_names_what_apt_removes_and_no_more(outcomes: Outcomes) -> None:
    root, found = outcomes["without X"]
    plan = apt.plan(PackageRequest(install=tuple(found["install"]), remove=tuple(found["named"])), root.run)
    assert found["removal"] == f"would remove {', '.join(sorted(plan.remove))}"
    assert "xserver-xorg-video-nvidia-580-server" in found["removal"]
    kept = set(found["named"]) - set(plan.remove)
    assert "nvidia-kernel-common-580-server" in kept, "a dependency of what stays"


@pytest.mark.parametrize("host", ["interrupted", "interrupted while it was installed"])
def test_an_interrupted_run_goes_on(host: str, outcomes: Outcomes) -> None:
    found = outcomes[host][1]
    assert "message" not in found, found
    assert (found["unmanaged"], found["kept"], found["removal"]) == (False, [], "")


def test_an_interrupted_run_keeps_what_was_there_before_it(outcomes: Outcomes) -> None:
    found = outcomes["interrupted in addition to packages of an admin"][1]
    assert found["kept"] == ["nvidia-prime"]
    assert "nvidia-prime" not in found["removal"]
    assert "xserver-xorg-video-nvidia-580-server" in found["removal"]


def test_what_an_admin_left_half_installed_is_named(outcomes: Outcomes) -> None:
    message = outcomes["half installed by an admin"][1]["message"]
    assert "nvidia-dkms-580-server-open is only half installed" in message
    assert "nvidia_driver_rollback" not in message

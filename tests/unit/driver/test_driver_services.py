# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's own tasks start services, with mocks of systemctl and nvidia-smi that record what is asked of them."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver import installation
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.host import Host as DriverHost
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.request import Request

from tests.unit.driver.plans import DEBIAN, stage, with_defaults
from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

SYSTEMCTL = """\
#!/bin/sh
cd {directory}
case "$*" in
    *NeedDaemonReload*) printf 'Id=%s\nLoadState=loaded\nNeedDaemonReload=%s\n' "${{4:-}}" "$(cat stale)"; exit ;;
    show*) echo LoadState=loaded; echo ActiveState=$(cat active 2>/dev/null || echo inactive); exit ;;
    is-enabled*) echo enabled; exit ;;
esac
echo "$*" >>calls
case $1 in start | restart) echo active >active ;; esac
"""
NVIDIA_SMI = """\
#!/bin/sh
cat {directory}/persistence
"""
SYSTEM = {**DEBIAN, "packages": {}}
DCGM = {"installed": True, "unit": "nvidia-dcgm.service", "state": "active"}
DRIVER = {"loaded": True, "loaded_version": "580.95.05", "library_version": "580.95.05", "module_version": "580.95.05"}
PERSISTENCED = "nvidia-persistenced.service"


@dataclass(frozen=True)
class Host:
    """A host, the part of the role that runs there, and what is expected: calls that change, a part of the output."""

    part: str = "activate/start.yml"
    stale: str = "no"
    persistence: str = "0, Enabled\n1, Enabled\n"
    active: bool = False
    variables: dict[str, Any] = field(default_factory=dict)
    dcgm: dict[str, Any] = field(default_factory=lambda: {"unit": None, "state": None})
    calls: tuple[str, ...] = ()
    message: str = ""


CHANGED = {"changed": True}
NEEDS = {"is_made": False}
"""Of a change that is deferred: services are not started."""
HOSTS = {
    "the daemon is started": Host(calls=(f"start {PERSISTENCED}",)),
    "units have changed": Host(stale="yes", calls=("--no-pager daemon-reload", f"start {PERSISTENCED}")),
    "it runs already, and the mode was turned off by gpu_settings": Host(active=True, persistence="0, Disabled\n"),
    "its drop-in has changed": Host(
        active=True, variables={"__nvidia_driver_daemon_files": CHANGED}, calls=(f"restart {PERSISTENCED}",)
    ),
    "started with --no-persistence-mode": Host(
        persistence="0, Enabled\n1, Disabled\n",
        calls=(f"start {PERSISTENCED}",),
        message="nvidia-persistenced.service is started, but persistence mode is off on GPU 1; see",
    ),
    "a virtual machine without such a mode": Host(persistence="0, [N/A]\n", calls=(f"start {PERSISTENCED}",)),
    "no daemon": Host(persistence="0, Disabled\n", variables={"nvidia_driver_persistence_daemon": False}),
    "other nodes of IMEX": Host(
        active=True,
        variables={
            "nvidia_driver_persistence_daemon": False,
            "nvidia_driver_imex": "present",
            "nvidia_driver_imex_nodes": ["10.0.0.1"],
            "__nvidia_driver_imex_nodes_written": CHANGED,
        },
        calls=("restart nvidia-imex.service",),
    ),
    "other settings of IMEX": Host(
        active=True,
        variables={
            "nvidia_driver_persistence_daemon": False,
            "nvidia_driver_imex": "present",
            "nvidia_driver_imex_nodes": ["10.0.0.1"],
            "__nvidia_driver_imex_configured": CHANGED,
        },
        calls=("restart nvidia-imex.service",),
    ),
    "DCGM after another driver": Host(
        part="activate/main.yml",
        active=True,
        variables={"__nvidia_driver_selection": {**NEEDS, "loaded_before": "570.86.15"}},
        dcgm=DCGM,
        calls=("restart nvidia-dcgm.service",),
    ),
    "DCGM and the same driver": Host(
        part="activate/main.yml",
        variables={"__nvidia_driver_selection": {**NEEDS, "loaded_before": "580.95.05"}},
        dcgm=DCGM,
    ),
    "DCGM that does not run": Host(
        part="activate/main.yml",
        variables={"__nvidia_driver_selection": {**NEEDS, "loaded_before": "570.86.15"}},
        dcgm={**DCGM, "state": "inactive"},
    ),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[tuple[str, ...], str]]:
    """The calls of systemctl that change something, and the message, on each host, from one run of Ansible."""
    directory = tmp_path_factory.mktemp("services")
    inventory = {name.replace(" ", "_"): _host(directory / str(number), name) for number, name in enumerate(HOSTS)}
    (directory / "hosts.json").write_text(json.dumps({"all": {"hosts": inventory}}))
    tasks = [
        {
            "ansible.builtin.include_role": {"name": "gpu.fleet.nvidia_driver", "tasks_from": part},
            "when": f"part == '{part}'",
        }
        for part in sorted({host.part for host in HOSTS.values()})
    ]
    failure = {
        "ansible.builtin.copy": {"content": "{{ ansible_failed_result.msg }}", "dest": "{{ directory }}/message"}
    }
    names = (*SYSTEM, "nvidia_smi", "cuda")
    found_facts = {**{name: f"{{{{ found.{name} }}}}" for name in names}, "cacheable": True}
    play: dict[str, Any] = {
        "hosts": "all",
        "gather_facts": False,
        "environment": {"PATH": "{{ directory }}:" + os.environ["PATH"]},
        "tasks": [{"ansible.builtin.set_fact": found_facts}, {"block": tasks, "rescue": [failure]}],
    }
    output = " ".join(run_play(directory, play, inventory=directory / "hosts.json").split())
    found = {}
    for number, (name, host) in enumerate(HOSTS.items()):
        files = {path.name: path.read_text() for path in (directory / str(number)).iterdir()}
        shown = f"{name.replace(' ', '_')}: {host.message}" in output.replace("\\", "")
        found[name] = (
            tuple(files.get("calls", "").splitlines()),
            files.get("message") or (host.message if shown else ""),
        )
    return found


def _host(directory: Path, name: str) -> dict[str, Any]:
    host = HOSTS[name]
    directory.mkdir()
    for program, text in (("systemctl", SYSTEMCTL), ("nvidia-smi", NVIDIA_SMI)):
        (directory / program).write_text(text.format(directory=directory))
        (directory / program).chmod(0o755)
    driver = {"driver": {**DRIVER, "reboot_required": False}, "services": {"dcgm": host.dcgm}}
    known = {**SYSTEM, "nvidia_smi": {"pci_gpus": []}, "cuda": driver}
    given = {name: value for name, value in host.variables.items() if not name.startswith("__")}
    needs = installation.companions(Request.read(with_defaults(**given)), DriverHost.of(known))
    changes = {
        "imex_changed": {"__nvidia_driver_imex_nodes_written", "__nvidia_driver_imex_configured"} & {*host.variables},
        "daemon_changed": "__nvidia_driver_daemon_files" in host.variables,
    }
    contents = {"stale": host.stale, "persistence": host.persistence}
    for file, text in {**contents, **({"active": "active"} if host.active else {})}.items():
        (directory / file).write_text(text)
    return {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "directory": str(directory),
        "part": host.part,
        "found": known,
        "__nvidia_driver_plan": {"steps": ["install", "activate"]},
        "__nvidia_driver_selection": {"needs": needs},
        "__nvidia_driver_activation": stage("activation", known, changes, **given),
        **host.variables,
    }


@pytest.mark.parametrize("name", HOSTS)
def test_services(name: str, outcomes: dict[str, tuple[tuple[str, ...], str]]) -> None:
    calls, message = outcomes[name]
    assert calls == HOSTS[name].calls
    assert HOSTS[name].message in message
    assert bool(message) is bool(HOSTS[name].message)

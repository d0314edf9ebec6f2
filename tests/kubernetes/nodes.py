# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests of playbooks/upgrade.yml on a control plane share: mock hosts that are nodes, and what they leave."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ROOT
from tests.kubernetes.control_plane import ControlPlane
from tests.unit.site.mock_host import MockHost, SiteRun, run_site
from tests.unit.upgrade.test_upgrade_fleet import KILL
from tests.unit.upgrade.test_upgrade_playbook import LOST, host

KEY = "gpu.fleet/upgrade"
BLOCKS = re.findall(
    r"^```yaml\n(.*?)^```$",
    (ROOT / "docs" / "upgrade-fleet.md").read_text().partition("### Kubernetes\n")[2],
    re.MULTILINE | re.DOTALL,
)
"""The examples of the guide: variables, the rights of the account, a hook."""
RULES: list[dict[str, Any]] = yaml.safe_load(BLOCKS[1])["rules"]


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Do something in a thread; what it raises fails the test."""
    raised: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    yield
    thread.join(10)
    assert not thread.is_alive(), "the run has ended without what was waited for"
    if raised:
        raise raised[0]


def upgrade_nodes(
    directory: Path,
    cluster: ControlPlane,
    token: str,
    nodes: Mapping[str, Mapping[str, Any]],
    *arguments: str,
    env: Mapping[str, str] | None = None,
    changed: Collection[str] = (),
    others: Mapping[str, tuple[MockHost, Mapping[str, Any]]] | None = None,
) -> SiteRun:
    """Run the playbook on hosts that are nodes, each with its variables less their prefix; those of roles have it.

    changed: the hosts whose GPU state is as desired by now. others: further hosts of the inventory.
    """
    common = {
        "scheduler": "kubernetes",
        "kubernetes_kubeconfig": str(cluster.kubeconfig(directory / "kubeconfig", token=token)),
        "directory": str(directory / "states"),
        **{"canaries": 0, "batch": 40, "max_failures": 40, "idle_interval_s": 1, "idle_timeout_s": 3},
    }
    hosts: dict[str, tuple[MockHost, Mapping[str, Any]]] = {}
    for name, given in nodes.items():
        settings = {
            option if option.startswith("gpu_state_") else f"gpu_fleet_upgrade_{option}": value
            for option, value in {**common, **given}.items()
        }
        roles = {"gpu_fleet_roles": ["gpu_state"], "gpu_state_persistence_mode": True}
        hosts[name] = (host(name not in changed, LOST if name == "sick" else None), {**roles, **settings})
    run = directory / f"run{len(list(directory.glob('run*')))}"
    run.mkdir()
    hosts |= others or {}
    return run_site(run, hosts, *arguments, playbook=ROOT / "playbooks" / "upgrade.yml", env=env)


def kill_at(directory: Path, host: str) -> tuple[str, Path]:
    """A task file that kills the controller once, at the host of an expression; the file that is there then."""
    flag = directory / "killed"
    (directory / "kill.py").write_text(KILL)
    program = [sys.executable, str(directory / "kill.py"), str(flag)]
    task = {"name": "Kill", "ansible.builtin.command": {"argv": program}, "delegate_to": "localhost"}
    path = directory / "kill.yml"
    path.write_text(json.dumps([{**task, "when": f"inventory_hostname == {host}"}]))
    return str(path), flag


def hold(directory: Path) -> tuple[str, Path, Path]:
    """A task file that waits; the file that is there then, and the one that it waits for."""
    held, free = directory / "held", directory / "free"
    script = f"touch {held}; while ! test -e {free}; do sleep 0.2; done"
    task = {"name": "Wait", "ansible.builtin.command": {"argv": ["sh", "-c", script]}, "delegate_to": "localhost"}
    path = directory / "hold.yml"
    path.write_text(json.dumps([task]))
    return str(path), held, free


def state_of(directory: Path, name: str) -> dict[str, Any]:
    """What a run has recorded of a host."""
    found: dict[str, Any] = json.loads((directory / "states" / "hosts" / f"{name}.json").read_text())
    return found


def note(cluster: ControlPlane, name: str) -> str:
    """The annotation of a node, empty where it has none."""
    return str((cluster.node(name)["metadata"].get("annotations") or {}).get(KEY, ""))


def taints(cluster: ControlPlane, name: str) -> list[dict[str, str]]:
    """The taints of a node but for those of Kubernetes."""
    found = cluster.node(name)["spec"].get("taints", ())
    return [one for one in found if not one["key"].startswith("node.kubernetes.io/")]

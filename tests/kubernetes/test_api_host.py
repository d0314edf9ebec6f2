# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_fleet_upgrade_kubernetes_host: another host of the inventory calls the API server, with a file of its own."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.nodes import note, state_of, upgrade_nodes
from tests.unit.site.mock_host import NO_GPU, MockHost
from tests.unit.upgrade.test_upgrade_playbook import steps


def of_ssh(directory: Path, name: str) -> dict[str, Any]:
    """The variables of a host that is reached by ssh, in place of which the command is run with another home."""
    home = directory / name
    home.mkdir()
    program = directory / f"ssh-{name}"
    quoted = shlex.quote(str(home))
    program.write_text(
        f'#!/bin/sh\necho call >> {quoted}/calls\nfor last; do :; done\nHOME={quoted} exec /bin/sh -c "$last"\n'
    )
    program.chmod(0o755)
    return {
        "ansible_connection": "ssh",
        "ansible_ssh_executable": str(program),
        "ansible_pipelining": True,
        "ansible_python_interpreter": sys.executable,
        "ansible_remote_tmp": str(home / "tmp"),
    }


def test_another_host_calls_the_api_server(tmp_path: Path, cluster: ControlPlane, token: str) -> None:
    for name in ("gpu1", "busy"):
        cluster.add_node(name)
        cluster.add_pod(name, f"train-{name}")
    cluster.add_budget("train-busy")
    variables = of_ssh(tmp_path, "bastion")
    # Neither the controller nor the nodes have it.
    cluster.kubeconfig(tmp_path / "bastion" / "config-of-upgrades", token=token)
    given = {"kubernetes_host": "bastion", "kubernetes_kubeconfig": "~/config-of-upgrades"}
    others = {"bastion": (MockHost(nvidia_smi=NO_GPU), variables)}
    nodes: dict[str, dict[str, Any]] = {"gpu1": {**given, "idle_timeout_s": 600}, "busy": given}
    targets = ("-e", "gpu_fleet_targets=gpu1:busy", "-e", "ansible_ssh_common_args=")
    done = upgrade_nodes(tmp_path, cluster, token, nodes, *targets, others=others)
    assert steps(tmp_path) == {"gpu1": "in_service", "busy": "failed"}, done.output
    assert cluster.cordoned("gpu1", "busy") == {"busy"} and note(cluster, "gpu1") == ""
    assert "default/train-busy was not evicted: 429" in note(cluster, "busy")
    # Checked, cordoned, evicted, confirmed, returned: each by that host.
    assert len((tmp_path / "bastion" / "calls").read_text().split()) > 10

    # Its file is missing: refused with the variable, before anything is changed.
    (tmp_path / "bastion" / "config-of-upgrades").unlink()
    before = cluster.node("gpu1")["metadata"]["resourceVersion"]
    states = {"directory": str(tmp_path / "other-states")}
    done = upgrade_nodes(tmp_path, cluster, token, {"gpu1": {**given, **states}}, *targets, others=others)
    assert "set gpu_fleet_upgrade_kubernetes_kubeconfig to a file on the host that reads it" in done.failure("gpu1")
    assert cluster.node("gpu1")["metadata"]["resourceVersion"] == before
    assert state_of(tmp_path, "gpu1")["step"] == "in_service"

    # It cannot be reached itself.
    Path(variables["ansible_ssh_executable"]).write_text("#!/bin/sh\necho 'No route to host' >&2\nexit 255\n")
    done = upgrade_nodes(tmp_path, cluster, token, {"gpu1": {**given, **states}}, *targets, others=others)
    assert done.rc != 0 and "No route to host" in done.output
    assert cluster.node("gpu1")["metadata"]["resourceVersion"] == before

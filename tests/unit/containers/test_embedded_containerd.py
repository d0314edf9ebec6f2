# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tasks of nvidia_container_toolkit for K3s and RKE2, on directories with their files and a mock of systemctl."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_container_toolkit.stages import TASKS

from tests.conftest import ROOT
from tests.unit.containers.test_toolkit_plan import facts, stage
from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

ROLE = ROOT / "roles" / "nvidia_container_toolkit"
UNITS = {"k3s": "k3s-agent.service", "rke2": "rke2-server.service"}


def _host(path: Path, distribution: str, finds_runtime: bool = True) -> Path:
    """A host whose service writes containerd's configuration at its restart, as K3s and RKE2 do."""
    config = path / "lib" / distribution / "agent" / "etc" / "containerd" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("version = 3\n")
    program = path / "bin" / "systemctl"
    program.parent.mkdir()
    line = "/usr/bin/nvidia-container-runtime" if finds_runtime else "/usr/bin/crun"
    program.write_text(f"""#!/bin/sh
for unit; do :; done
[ "$unit" = {UNITS[distribution]} ] || {{ printf 'LoadState=not-found\\nActiveState=inactive\\n'; exit; }}
if [ "$1" = restart ]; then echo "BinaryName = '{line}'" >>{config}; touch {path}/restarted; exit; fi
if [ -e {path}/restarted ]; then started=9000000000000000; else started=1; fi
printf 'LoadState=loaded\\nActiveState=active\\nUnitFileState=enabled\\nExecMainStartTimestampMonotonic=%s\\n' $started
""")
    program.chmod(0o755)
    (path / "nvidia-container-runtime").write_text("")
    return path


def _run(host: Path, distribution: str, is_recorded: bool = False, **variables: Any) -> str:
    """Run the tasks, or those that undo what a run has recorded; the paths of the plan are below a directory."""
    record = {"data": {"runtimes": [distribution]}} if is_recorded else {}
    given = {"runtimes": [distribution], "state": "absent" if is_recorded else "present", **variables}
    there = [path for path in (host / "lib").rglob("*") if path.name in ("config.toml", "manifests")]
    written = {"files": [{"path": f"/var/lib/rancher/{path.relative_to(host / 'lib')}"} for path in there]}
    planned = stage("plan", given, facts(record=record), step="first", units={}, old={}, written=written)
    assert planned["refusals"] == [], planned["refusals"]
    plan = json.dumps(planned["unconfigure" if is_recorded else "configure"])
    paths = {"/var/lib/rancher": "lib", "/etc/rancher": "etc", "/usr/bin/nvidia-c": "nvidia-c"}
    for path, below in paths.items():
        plan = plan.replace(path, f"{host}/{below}")
    engine = json.loads(plan)[0]
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "environment": {"PATH": f"{host}/bin:{os.environ['PATH']}"},
        "vars": {"ansible_python_interpreter": sys.executable, "ansible_facts": {}},
        "tasks": [
            {
                "ansible.builtin.include_tasks": str(ROLE / "tasks" / f"{engine['tasks']}.yml"),
                "vars": {"__nvidia_container_toolkit_engine": engine},
            }
        ],
    }
    return run_play(host, play)


@pytest.mark.parametrize("distribution", UNITS)
def test_it_is_restarted_once_and_has_the_runtime(distribution: str, tmp_path: Path) -> None:
    host = _host(tmp_path, distribution)
    (host / "lib" / distribution / "server" / "manifests").mkdir(parents=True)
    options = {"default_runtime": True, "runtime_class": True}
    _run(host, distribution, **options)
    assert (host / "restarted").exists()
    default = host / "etc" / distribution / "config.yaml.d" / "99-gpu-fleet-nvidia.yaml"
    assert yaml.safe_load(default.read_text()) == {"default-runtime": "nvidia"}
    manifest = host / "lib" / distribution / "server" / "manifests" / "gpu-fleet-nvidia.yaml"
    assert yaml.safe_load(manifest.read_text()) == {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia"},
        "handler": "nvidia",
    }
    assert "changed=0" in _run(host, distribution, **options)
    _run(host, distribution, is_recorded=True)
    assert not default.exists() and not manifest.exists()


def test_the_record_has_what_they_must_have_read() -> None:
    """A run that was interrupted before the restart leaves drift behind, as with the other engines."""
    given = {"runtimes": ["docker", "k3s", "rke2", "crio"]}
    recorded = stage("record", given, facts(""), cuda={}, crio={})["units"]
    embedded = ["k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"]
    assert list(recorded) == ["crio.service", *embedded]
    for name in embedded:
        assert recorded[name] == {
            "started_after": [
                "/usr/bin/nvidia-container-runtime",
                "/etc/rancher/*/config.yaml.d/99-gpu-fleet-nvidia.yaml",
                "/var/lib/rancher/*/agent/etc/containerd/config*.toml.tmpl",
                "/var/lib/rancher/*/agent/etc/containerd/config*.toml.d/*.toml",
            ]
        }


def test_an_agent_gets_no_manifest(tmp_path: Path) -> None:
    host = _host(tmp_path, "k3s")
    _run(host, "k3s", runtime_class=True)
    assert not (host / "lib" / "k3s" / "server").exists()
    assert not (host / "etc").exists()


@pytest.mark.parametrize(
    ("is_there", "message"), [(True, "it has to include the base template"), (False, "install and start k3s first")]
)
def test_a_host_without_the_runtime_is_reported(is_there: bool, message: str, tmp_path: Path) -> None:
    host = _host(tmp_path, "k3s", finds_runtime=False)
    if not is_there:
        (host / "lib" / "k3s" / "agent" / "etc" / "containerd" / "config.toml").unlink()
    with pytest.raises(AssertionError) as raised:
        _run(host, "k3s")
    assert message in " ".join(str(raised.value).split())


def test_each_runtime_has_its_tasks() -> None:
    specification = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]
    choices = specification["options"]["nvidia_container_toolkit_runtimes"]["choices"]
    assert sorted(TASKS) == sorted(choices)
    assert [name for name in TASKS.values() if not (ROLE / "tasks" / f"{name}.yml").is_file()] == []
    recorded = facts(record={"data": {"runtimes": choices}})
    undone = [one["tasks"] for one in stage("plan", {"state": "absent"}, recorded)["unconfigure"]]
    assert len(undone) == len(choices) - 1  # podman has nothing to undo
    assert [name for name in undone if not (ROLE / "tasks" / f"{name}.yml").is_file()] == []

# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role gpu_containers with a mock of Docker's modules, and of those that keep its record."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_containers.engines import LABEL, ROLE
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_containers.plan import TOKEN, TOKEN_DIRECTORY

from tests.conftest import ROOT
from tests.unit.containers.test_container_plan import GPU, SMI, listed, ours, record, toolkit, variables
from tests.unit.mock_modules import calls, mock_modules
from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

DOCKER = {
    "community.docker.docker_image_load": "",
    "community.docker.docker_host_info": """
state = json.loads((directory / "docker.json").read_text())
result.update(can_talk_to_docker=True, host_info={"CDISpecDirs": ["/etc/cdi"]}, **state)
""",
    "community.docker.docker_image_pull": """
state = json.loads((directory / "docker.json").read_text())
state["images"].append({"RepoTags": [arguments["name"]]})
result["changed"] = True
if not check_mode:
    (directory / "docker.json").write_text(json.dumps(state))
""",
    "community.docker.docker_container": """
state = json.loads((directory / "docker.json").read_text())
others = [one for one in state["containers"] if one["Names"] != ["/" + arguments["name"]]]
made = {"Names": ["/" + arguments["name"]], "Labels": arguments.get("labels"), "State": "running"}
made["Id"] = "made " + json.dumps(made)
after = others if arguments["state"] == "absent" else [*others, made]
key = lambda one: one["Names"]
result["changed"] = sorted(after, key=key) != sorted(state["containers"], key=key)
result["actions"] = []
result["container"] = {"Config": {"Env": [f"{name}={value}" for name, value in (arguments.get("env") or {}).items()]}}
if not check_mode:
    (directory / "docker.json").write_text(json.dumps({**state, "containers": after}))
""",
}


RECORD = {
    "gpu.fleet.managed_facts": """
path = directory / "record.json"
managed = json.loads(path.read_text()) if path.exists() else {}
facts = json.loads((directory / "facts.json").read_text())
result["ansible_facts"] = {**facts, "gpu_fleet_managed": managed}
""",
    "gpu.fleet.managed_record": """
content = {} if arguments.get("state") == "absent" else {arguments["role"]: arguments}
(directory / "record.json").write_text(json.dumps(content))
""",
}


# What the role gathers first.
FACTS = {
    "gpu.fleet.cuda_facts": 'result["ansible_facts"] = json.loads((directory / "facts.json").read_text())\n',
}
GATHER: dict[str, Any] = {"gpu.fleet.cuda_facts": {}}


def tokens_below(directory: Path, collections: str) -> Path:
    """Where the mocked collection has its tokens: the planner's directory is the host's."""
    utils = Path(collections.partition(":")[0]) / "ansible_collections" / "gpu" / "fleet" / "plugins" / "plugin_utils"
    utils.unlink()
    shutil.copytree(ROOT / "plugins" / "plugin_utils", utils, ignore=shutil.ignore_patterns("__pycache__"))
    planner = utils / "_roles" / "gpu_containers" / "plan.py"
    planner.write_text(planner.read_text().replace(TOKEN_DIRECTORY, f"{directory}/jupyter"))
    return directory / "jupyter"


def include(**variables: Any) -> dict[str, Any]:
    """The role with variables."""
    return {"ansible.builtin.include_role": {"name": "gpu.fleet.gpu_containers"}, "vars": variables}


def test_the_role_converges_and_leaves_other_containers(tmp_path: Path) -> None:
    state = tmp_path / "docker.json"
    # An image with the role's labels, of which another user has started a container.
    hostile = listed("hostile", **{LABEL: ROLE, TOKEN: str(tmp_path / "home")})
    (tmp_path / "home").mkdir()
    state.write_text(json.dumps({"containers": [listed("database"), hostile, ours("old")], "images": []}))
    known = {"data": record(("docker", "old", ours("old")["Id"]))}
    (tmp_path / "record.json").write_text(json.dumps({"gpu_containers": known}))
    facts = {"nvidia_smi": SMI, "cuda": {"container_toolkit": toolkit()}}
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    env = mock_modules(tmp_path, {**DOCKER, **RECORD, **FACTS})
    (tmp_path / "etc").mkdir()
    tokens = tokens_below(tmp_path / "etc", env["ANSIBLE_COLLECTIONS_PATH"])
    declared = [
        {"name": "training", "image": "torch:1", "gpus": [0], "shm_size": "8g", "env": {"PASSWORD": "hunter2"}},
        {"name": "notebook", "image": "torch:1", "gpus": "none", "jupyter": True, "user": os.getuid()},
    ]

    def kept(number: int) -> dict[str, Any]:
        return {"ansible.builtin.copy": {"src": str(state), "dest": f"{tmp_path}/docker{number}", "remote_src": True}}

    inspected = {
        "ansible.builtin.command": {"cmd": f"cp -a {tokens}/notebook {tmp_path}/token"},
        "changed_when": False,
    }
    output = run_play(
        tmp_path,
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars": {"__common_facts_are_read": True, "gpu_containers_declared": declared},
            "tasks": [
                GATHER,
                *(include(), kept(1), inspected, include(), kept(2)),
                *(include(gpu_containers_state="absent"), kept(3)),
            ],
        },
        "-v",
        env=env,
    )
    made = [arguments for name, arguments in calls(tmp_path) if name == "docker_container"]
    assert [(call["name"], call["state"]) for call in made] == [
        ("old", "absent"),
        *(("training", "started"), ("notebook", "started")) * 2,
        *(("training", "absent"), ("notebook", "absent")),
    ]
    assert made[1]["device_requests"] == [{"driver": "cdi", "count": 0, "device_ids": [f"nvidia.com/gpu={GPU}"]}]
    assert made[1]["shm_size"] == "8g"
    assert [call.get("restart") for call in made[1:5]] == [False, True, False, False], "a new token is read at a start"
    assert not {"command", "entrypoint", "user", "ipc_mode"} & made[1].keys()
    assert [arguments["name"] for name, arguments in calls(tmp_path) if name == "docker_image_pull"] == ["torch:1"]
    names = [
        sorted(one["Names"][0] for one in json.loads((tmp_path / f"docker{number}").read_text())["containers"])
        for number in (1, 2, 3)
    ]
    assert names == [["/database", "/hostile", "/notebook", "/training"]] * 2 + [["/database", "/hostile"]]
    assert (tmp_path / "home").is_dir()
    note = "localhost: the container hostile of docker has the label of this role, but is not in the role's record"
    assert note in " ".join(output.split())
    assert (tmp_path / "record.json").read_text() == "{}"
    token = tmp_path / "token"
    assert re.fullmatch("[a-zA-Z0-9]{48}", token.read_text())
    assert token.stat().st_mode & 0o777 == 0o600
    assert not tokens.exists()
    first, second, last = output.split("TASK [ansible.builtin.copy]")[:3]
    # The removal of old, the image, the directory and the token, two containers.
    assert first.count("changed: [") == 6
    assert second.count("changed: [") == 1, "our copy before it"
    # Two containers, a token, and its directory.
    assert last.count("changed: [") == 1 + 4
    for secret in ("hunter2", token.read_text()):
        assert secret not in output


def training(directory: Path, modules: dict[str, str]) -> str:
    """The output of a play that declares one container, with these modules in place of those of a sound host."""
    task = {
        "block": [include(gpu_containers_declared=[{"name": "training", "image": "torch:1", "gpus": "none"}])],
        "rescue": [{"ansible.builtin.debug": {"var": "ansible_failed_result.msg"}}],
    }
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"__common_facts_are_read": True},
        "tasks": [GATHER, task],
    }
    return run_play(directory, play, env=mock_modules(directory, {**DOCKER, **RECORD, **FACTS, **modules}))


def test_an_engine_that_fails_during_the_change_does_not_lose_the_record(tmp_path: Path) -> None:
    fails = """
if (directory / "read").exists():
    print(json.dumps({"failed": True, "msg": "the engine hangs"}))
    sys.exit()
(directory / "read").touch()
"""
    info = "community.docker.docker_host_info"
    (tmp_path / "docker.json").write_text(json.dumps({"containers": [ours("old")], "images": []}))
    known = {"gpu_containers": {"data": record(("docker", "old", ours("old")["Id"]))}}
    (tmp_path / "record.json").write_text(json.dumps(known))
    there = {**toolkit(), "runtimes": {"docker": {"installed": True}}}
    (tmp_path / "facts.json").write_text(json.dumps({"nvidia_smi": SMI, "cuda": {"container_toolkit": there}}))
    output = training(tmp_path, {info: fails + DOCKER[info]})
    assert "docker does not list its containers after the change; run the role again" in output
    assert json.loads((tmp_path / "record.json").read_text()) == known


def test_an_image_that_cannot_be_pulled_is_explained_and_nothing_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "docker.json").write_text(json.dumps({"containers": [ours("old")], "images": []}))
    known = {"gpu_containers": {"data": record(("docker", "old", ours("old")["Id"]))}}
    (tmp_path / "record.json").write_text(json.dumps(known))
    (tmp_path / "facts.json").write_text(json.dumps({"nvidia_smi": SMI, "cuda": {"container_toolkit": toolkit()}}))
    failed = {"failed": True, "msg": "Error pulling torch - 400 Client Error (incorrect repository format)"}
    pull = {"community.docker.docker_image_pull": f"result.update({failed!r})"}
    output = training(tmp_path, pull)
    assert "localhost: Error pulling torch - 400 Client Error" in output, output
    assert "containerd-snapshotter: false" in output
    assert "docker_container" not in {name for name, _arguments in calls(tmp_path)}
    assert (
        json.loads((tmp_path / "record.json").read_text())["gpu_containers"]["data"] == known["gpu_containers"]["data"]
    )


def test_a_container_that_docker_does_not_start_has_the_reason(tmp_path: Path) -> None:
    (tmp_path / "docker.json").write_text(json.dumps({"containers": [], "images": [{"RepoTags": ["torch:1"]}]}))
    (tmp_path / "facts.json").write_text(json.dumps({"nvidia_smi": SMI, "cuda": {"container_toolkit": toolkit()}}))
    # Of Docker 26.1.5 on a host that may not raise the limit.
    failed = {
        "failed": True,
        "msg": "Error starting container 75e4: 500 Server Error for "
        "http+docker://localhost/v1.45/containers/75e4/start: "
        'Internal Server Error ("failed to create task for container: failed to create shim task: OCI runtime create '
        "failed: runc create failed: unable to start container process: error during container init: error setting "
        'rlimits for ready process: error setting rlimit type 8: operation not permitted: unknown")',
    }
    output = training(tmp_path, {"community.docker.docker_container": f"result.update({failed!r})"})
    assert "container training: Error starting container 75e4: 500 Server Error" in output, output
    assert "error setting rlimit type 8: operation not permitted" in output


def test_podman_is_read_where_its_unit_is_disabled(tmp_path: Path) -> None:
    """`systemctl is-enabled` fails then, and Ansible's own error of a command can be in no variable."""
    programs = {
        "podman": 'test "$1" = --version && echo podman version 5.4.2 || echo "[]"',
        "systemctl": "echo disabled; exit 1",
    }
    (tmp_path / "bin").mkdir()
    for name, script in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    there = {**toolkit(), "runtimes": {"podman": {"installed": True}}}
    (tmp_path / "facts.json").write_text(json.dumps({"nvidia_smi": SMI, "cuda": {"container_toolkit": there}}))
    task = {
        "gpu.fleet.role_plan": {"role": "gpu_containers", "stage": "host"},
        "register": "planned",
        "vars": variables({}, gpu_containers_engine="podman"),
    }
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"__common_facts_are_read": True},
        "tasks": [GATHER, task, {"ansible.builtin.debug": {"msg": "{{ planned.podman }}"}}],
    }
    env = {**mock_modules(tmp_path, {**RECORD, **FACTS}), "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    output = run_play(tmp_path, play, env=env)
    assert '"stdout": "disabled"' in output
    assert "Callback dispatch" not in output

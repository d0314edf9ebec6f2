# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of declared containers of podman, from what podman of three ages has printed.

fixtures/podman/VERSION.json is of a host of tests/system/test_engines.py on which the role has run the containers of
declared_vars.yml: what the commands of its stage `host` print there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.docker.images import run_errors
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_containers.engines import qualified_image
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_containers.plan import DECLARATION

from tests.unit.containers.test_container_plan import (
    BY_INDEX,
    BY_UUID,
    GPU,
    MIG,
    failures,
    ours,
    plan,
    record,
    toolkit,
)

_RECORDED = Path(__file__).parent / "fixtures" / "podman"
VERSIONS = [path.stem for path in sorted(_RECORDED.glob("*.json"))]
IMAGE = "localhost/gpu-fleet/demo:latest"
# As in declared_vars.yml. No GPU is part of its declaration, so it is the same on each host.
_WAIT = (
    "import os, signal; signal.signal(15, lambda *_: exit()); open(os.environ['JUPYTER_TOKEN_FILE']); signal.pause()"
)
NOTEBOOK = {
    "name": "notebook",
    "image": IMAGE,
    "gpus": "none",
    "jupyter": True,
    "ipc": "host",
    "entrypoint": ["python3"],
    "command": ["-c", _WAIT],
    "env": {"PASSWORD": "hunter2"},
    "ulimits": {"memlock": 65536, "nofile": 4096, "nproc": 4096},
}


def recorded(version: str) -> dict[str, Any]:
    """What a podman has printed, as the role passes it on."""
    found: dict[str, Any] = json.loads((_RECORDED / f"{version}.json").read_text(encoding="utf-8"))
    return found


def made(host: Mapping[str, Any]) -> dict[str, Any]:
    """The record of the containers that the role has made on such a host."""
    return record(
        *(("podman", *one["Names"], one["Id"]) for one in host["containers"] if one["Names"] != ["unmanaged"])
    )


def of_podman(*declared: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    """The plan for containers of podman."""
    return plan(*({"engine": "podman", **entry} for entry in declared), **facts)


def one(**declared: Any) -> dict[str, Any]:
    """The only container of a plan."""
    found = of_podman(declared)
    assert found["refusals"] == []
    container: dict[str, Any] = found["containers"][0]
    return container


def test_podman_of_three_ages_was_recorded() -> None:
    assert [version.partition(".")[0] for version in VERSIONS] == ["4", "5", "5"]
    assert [recorded(version)["version"] for version in VERSIONS] == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_as_declared_is_kept_and_what_is_not_declared_is_removed(version: str) -> None:
    found = of_podman(NOTEBOOK, podman=recorded(version), recorded=made(recorded(version)))
    assert found["refusals"] == []
    assert found["record"]["containers"]["podman"].keys() == {"job", "mig", "notebook"}
    (container,) = found["containers"]
    assert container["step"] == ""
    assert sorted(one["name"] for one in found["obsolete"]) == ["job", "mig"], "not the one of another"
    assert (found["pull"], found["load"], found["obsolete_tokens"]) == ([], [], [])
    assert not found["enable_restart_unit"]
    obsolete = {"podman": [one["name"] for one in found["obsolete"]]}
    lines = failures({"engine": "podman", **NOTEBOOK}, podman=recorded(version), obsolete=obsolete)
    assert [line.split(" is ")[0] for line in lines] == [f"container {name}" for name in obsolete["podman"]]


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_record_the_declared_container_is_recognized(version: str) -> None:
    found = of_podman(NOTEBOOK, podman=recorded(version), recorded={})
    assert (found["refusals"], found["obsolete"], found["containers"][0]["step"]) == ([], [], "")
    assert found["record"]["containers"]["podman"].keys() == {"notebook"}
    assert sorted(note.split()[2] for note in found["notes"]) == ["job", "mig"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_name_of_another_container_is_refused(version: str) -> None:
    (message,) = of_podman({"name": "unmanaged"}, podman=recorded(version))["refusals"]
    assert message.startswith("gpu_containers_declared[0]: a container unmanaged exists that this role did not create")
    assert message.endswith("remove it with podman rm unmanaged")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("change", "step"), [({}, ""), ({"env": {"PASSWORD": "other"}}, "create"), ({"gpus": "all"}, "create")]
)
def test_a_container_that_is_declared_differently_is_made_again(version: str, change: Any, step: str) -> None:
    (container,) = of_podman({**NOTEBOOK, **change}, podman=recorded(version), recorded=made(recorded(version)))[
        "containers"
    ]
    assert container["step"] == step


@pytest.mark.parametrize("version", VERSIONS)
def test_an_image_that_was_pulled_again_makes_a_container_a_new_one(version: str) -> None:
    host = recorded(version)
    newer = [{**image, "Id": "0" * 64} for image in host["images"]]
    (container,) = of_podman(NOTEBOOK, podman={**host, "images": newer}, recorded=made(host))["containers"]
    assert container["step"] == "create"


@pytest.mark.parametrize(
    ("policy", "state", "step", "module_state"),
    [
        ("always", "running", "", "started"),
        ("always", "paused", "", "started"),
        ("always", "exited", "start", "started"),
        ("unless-stopped", "created", "start", "started"),
        ("on-failure", "exited", "", "present"),
        ("no", "stopped", "", "present"),
        ("no", "created", "start", "started"),
    ],
)
def test_a_job_that_has_ended_is_kept_and_others_are_started(
    policy: str, state: str, step: str, module_state: str
) -> None:
    declared = {"restart_policy": policy}
    existing = ours("training", state, one(**declared)["labels"][DECLARATION])
    host = {
        "containers": [{**existing, "Names": ["training"], "ImageID": "1"}],
        "images": [{"Names": ["docker.io/library/torch:1"], "Id": "1"}],
    }
    (container,) = of_podman(declared, podman=host)["containers"]
    assert (container["step"], container["state"]) == (step, module_state)


# Options


@pytest.mark.parametrize(
    ("gpus", "devices", "expected"),
    [
        ("all", BY_UUID, ["all"]),
        ([0, "1:0"], BY_UUID, [GPU, MIG]),
        ([GPU, MIG], BY_INDEX, ["0", "1:0"]),
    ],
)
def test_gpus_are_requested_by_cdi_whatever_docker_does(gpus: Any, devices: Any, expected: list[str]) -> None:
    (container,) = of_podman({"gpus": gpus}, container_toolkit=toolkit(devices), mode="legacy")["containers"]
    assert container["device_requests"] == [f"nvidia.com/gpu={name}" for name in expected]
    assert container["security"] == ["label=disable"]
    assert container["env"] == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_a_container_without_gpus_keeps_the_labels_of_selinux() -> None:
    container = one(jupyter=True)
    assert (container["device_requests"], container["security"]) == ([], [])
    assert container["volumes"] == ["/etc/gpu-fleet-jupyter/training:/run/gpu-fleet-jupyter-token:ro,Z"]


def test_options_are_written_as_podman_takes_them() -> None:
    container = one(ulimits={"stack": "1024:2048"})
    assert container["ulimits"] == ["memlock=-1:-1", "stack=1024:2048"]
    assert container["shm_size"] == "1g"
    assert container["restart_policy"] == "always", "podman-restart.service of podman 4 starts no others"
    assert one(restart_policy="on-failure")["restart_policy"] == "on-failure"


@pytest.mark.parametrize("ipc", ["host", "none"])
def test_podman_refuses_a_size_of_what_is_not_its_own(ipc: str) -> None:
    assert one(ipc=ipc, shm_size="16g")["shm_size"] is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("alpine", "docker.io/library/alpine:latest"),
        ("alpine:3", "docker.io/library/alpine:3"),
        ("docker.io/alpine:3", "docker.io/library/alpine:3"),
        ("tensorflow/tensorflow:2.19.0", "docker.io/tensorflow/tensorflow:2.19.0"),
        ("nvcr.io/nvidia/pytorch:25.04-py3", "nvcr.io/nvidia/pytorch:25.04-py3"),
        ("localhost/trainer", "localhost/trainer:latest"),
        ("registry:5000/trainer", "registry:5000/trainer:latest"),
        ("registry:5000/trainer:1@sha256:12", "registry:5000/trainer@sha256:12"),
        ("alpine@sha256:12", "docker.io/library/alpine@sha256:12"),
    ],
)
def test_names_of_images_are_completed_as_docker_does(name: str, expected: str) -> None:
    assert qualified_image(name) == expected
    assert one(image=name)["image"] == expected
    key = "RepoDigests" if "@" in expected else "Names"
    assert of_podman({"image": name}, podman={"images": [{key: [expected], "Id": "1"}]})["pull"] == []
    assert of_podman({"image": name})["pull"] == [{"engine": "podman", "image": expected}]


def test_an_image_is_loaded_from_an_archive() -> None:
    found = of_podman({"image": "trainer:1", "archive": "/srv/trainer.tar"})
    image = {"engine": "podman", "image": "docker.io/library/trainer:1", "archive": "/srv/trainer.tar"}
    assert (found["load"], found["pull"]) == ([image], [])


# Both engines


def test_a_container_moves_to_the_other_engine_with_its_token() -> None:
    existing = ours("training")
    token = "/etc/gpu-fleet-jupyter/training"
    existing["Labels"]["gpu-fleet.jupyter-token"] = token
    found = of_podman({"jupyter": True}, {"name": "web", "engine": "docker"}, containers=[existing, ours("web")])
    assert found["obsolete"] == [{"engine": "docker", "name": "training"}]
    assert found["obsolete_tokens"] == []
    assert [(one["engine"], one["step"]) for one in found["containers"]] == [
        ("podman", "create"),
        ("docker", "compare"),
    ]
    (message,) = of_podman({}, {"engine": "docker"})["refusals"]
    assert message == "gpu_containers_declared has training 2 times; give each container its own name"


def test_a_name_is_taken_only_with_its_own_engine() -> None:
    taken = {"Names": ["/training"], "State": "running", "Labels": {}, "Id": "1"}
    assert of_podman({}, containers=[taken])["refusals"] == []


# Refusals


@pytest.mark.parametrize(
    ("declared", "facts", "refusal"),
    [
        (
            {"gpus": "all"},
            {"podman": {"version": "3.4.4"}},
            "podman 3.4.4 cannot give GPUs to containers through CDI, 4.1 and newer does",
        ),
        (
            {"gpus": "all"},
            {"container_toolkit": {**toolkit(), "cdi_specifications": []}},
            "podman finds GPUs through a CDI specification, and the host has none; run the role",
        ),
        (
            {},
            {"podman": {"restart_unit": "masked"}},
            "podman's containers start at boot, is masked; unmask it, or set restart_policy to on-failure",
        ),
        ({"restart_policy": "always"}, {"podman": {"restart_unit": ""}}, "is not there; install a package"),
        (
            {"restart_policy": "always"},
            {"podman": {"restart_unit": "not-found"}},
            "is not there; install a package of podman that has it, or set",
        ),
    ],
)
def test_what_podman_cannot_do_is_refused(declared: Any, facts: Any, refusal: str) -> None:
    (message,) = of_podman(declared, **facts)["refusals"]
    assert message.startswith("gpu_containers_declared[0]: ")
    assert refusal in message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("declared", "facts"),
    [
        ({"gpus": "none"}, {"podman": {"version": "3.4.4"}}),
        ({"gpus": "all"}, {"podman": {"version": "4.1.0"}}),
        ({"gpus": "all"}, {"podman": {"version": "10.0.0"}}),
        # In check mode the role before may be still to write it.
        ({"gpus": "all"}, {"container_toolkit": {**toolkit(), "cdi_specifications": []}, "check_mode": True}),
        ({"restart_policy": "on-failure"}, {"podman": {"restart_unit": "masked"}}),
        # podman is still to be installed.
        ({}, {"podman": {}}),
    ],
)
def test_what_podman_can_do_is_not_refused(declared: Any, facts: Any) -> None:
    assert of_podman(declared, **facts)["refusals"] == []


@pytest.mark.parametrize(
    ("policy", "unit", "is_enabled"),
    [
        ("always", "disabled", True),
        ("unless-stopped", "disabled", True),
        ("always", "enabled", False),
        ("no", "disabled", False),
    ],
)
def test_the_unit_is_enabled_for_containers_that_start_at_boot(policy: str, unit: str, is_enabled: bool) -> None:
    found = of_podman({"restart_policy": policy}, podman={"restart_unit": unit})
    assert found["enable_restart_unit"] is is_enabled


# After the change


def test_what_does_not_run_is_named_with_podmans_command() -> None:
    after = {**ours("training", "exited", one()["labels"][DECLARATION]), "Names": ["training"]}
    assert failures({"engine": "podman"}, podman={"containers": [after]}) == [
        "container training is exited, not running; see podman logs training"
    ]


def test_an_error_is_the_last_line_that_podman_prints() -> None:
    # Of podman 5.8.6 on a host without nftables.
    warning = 'time="2026-11-23T05:49:28Z" level=warning msg="Using cgroups-v1 which is deprecated"\n'
    error = 'Error: netavark: nftables error: unable to execute "nft": No such file or directory (os error 2)'
    results: list[dict[str, Any]] = [
        {"item": "aa", "msg": "Container aa exited with code 126 when runed", "stderr": f"{warning}{error}\n"},
        {"item": "bb", "container": {"Id": "1"}, "stderr": warning},
        {"item": "cc", "msg": "Failed to find required executable"},
        {"item": "dd", "skipped": True},
        # Of Docker, in check mode.
        {"item": "ee", "actions": [{"created": "Created container"}]},
    ]
    assert run_errors(results) == [f"container aa: {error}", "container cc: Failed to find required executable"]

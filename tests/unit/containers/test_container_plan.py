# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of declared containers: GPUs, options, what is ours, refusals, and what is verified."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Plan, as_lists
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_containers import plan as gpu_containers
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_containers.engines import ENGINES, LABEL, ROLE
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_containers.plan import (
    DECLARATION,
    TOKEN,
    Host,
    Request,
    container_plan,
    request_refusals,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_containers.stages import PLANNER

GPU, SECOND, MIG = (f"{kind}-c17fb1f{number}-eab0-50ac-8ca7-5a0f88ae4bfd" for kind, number in
                    (("GPU", 0), ("GPU", 1), ("MIG", 2)))  # fmt: skip
SMI = {
    "available": True,
    "driver_version": "580.159.04",
    "gpus": [
        {"index": 0, "uuid": GPU, "mig_mode_current": "disabled", "mig_devices": []},
        {"index": 1, "uuid": SECOND, "mig_mode_current": "enabled", "mig_devices": [{"index": 0, "uuid": MIG}]},
    ],
}
BY_UUID = ("0", GPU, "1:0", MIG, "all")
BY_INDEX = ("0", "1:0", "all")


def toolkit(devices: Sequence[str] = BY_UUID) -> dict[str, Any]:
    """The facts about the toolkit, with a CDI specification of these devices."""
    specification = {"path": "/etc/cdi/nvidia.yaml", "kind": "nvidia.com/gpu", "devices": [*devices]}
    return {"installed": True, "version": "1.18.2", "cdi_specifications": [specification]}


def variables(*declared: Mapping[str, Any], **given: Any) -> dict[str, Any]:
    """The role's, of containers with a name, an image and no GPUs, unless they are given."""
    return {
        "gpu_containers_state": "present",
        "gpu_containers_declared": [
            {"name": "training", "image": "torch:1", "gpus": "none", **one} for one in declared
        ],
        "gpu_containers_adopt": [],
        "gpu_containers_engine": "docker",
        "gpu_containers_mode": "cdi",
        **given,
    }


def known(
    nvidia_smi: Any = None, container_toolkit: Any = None, recorded: Any = None, docker: Any = None, podman: Any = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The facts of a host, and what tasks have read; of podman the lists, its version and the state of its unit.

    The record has the containers that `ours` has made, unless another one is given.
    """
    docker, podman = {} if docker is None else docker, podman or {}
    made = [
        (engine, one)
        for engine in ("docker", "podman")
        for one in (docker, podman)[engine == "podman"].get("containers", ())
    ]
    by_name = [
        (engine, one["Names"][-1].lstrip("/"), one["Id"]) for engine, one in made if one["Id"].startswith("made")
    ]
    data = record(*by_name) if recorded is None else recorded
    printed = [json.dumps(podman.get(name, [])) for name in ("containers", "images")]
    printed += [
        f"podman version {podman['version']}" if "version" in podman else "",
        podman.get("restart_unit", "enabled"),
    ]
    facts = {
        "nvidia_smi": SMI if nvidia_smi is None else nvidia_smi,
        "cuda": {"container_toolkit": toolkit() if container_toolkit is None else container_toolkit},
        "gpu_fleet_managed": {"gpu_containers": {"data": data}},
    }
    results = [{"rc": 0, "stdout": text} for text in printed] if podman else []
    return facts, {"docker": docker, "podman": {"results": results}}


def asked(
    *declared: Mapping[str, Any],
    state: str = "present",
    containers: Any = (),
    images: Any = (),
    adopt: Any = (),
    mode: str = "cdi",
    check_mode: bool = False,
    removed_tokens: Any = (),
    **host: Any,
) -> tuple[Request, Host]:
    """A request and a host, by what Docker lists."""
    given = variables(*declared, gpu_containers_state=state, gpu_containers_adopt=adopt, gpu_containers_mode=mode)
    facts, found = known(**{"docker": {"containers": containers, "images": images}, **host})
    found |= {"check_mode": check_mode, "removed_tokens": removed_tokens}
    return Request.read(given), Host.of(facts, found)


def plan(*declared: Mapping[str, Any], **host: Any) -> dict[str, Any]:
    """What is decided."""
    decided: dict[str, Any] = as_lists(asdict(container_plan(*asked(*declared, **host))))
    return decided


def failures(*declared: Mapping[str, Any], obsolete: Any = None, **host: Any) -> list[str]:
    """What is not as declared, by what the engines list then."""
    return gpu_containers.failures(*asked(*declared, **host), obsolete or {})


def record(*made: tuple[str, str, str], tokens: Sequence[str] = ()) -> dict[str, Any]:
    """A record of the role, of containers by engine, name and ID."""
    by_engine = {of: {name: identifier for engine, name, identifier in made if engine == of} for of in ENGINES}
    return {"containers": by_engine, "tokens": [*tokens]}


def one(**declared: Any) -> dict[str, Any]:
    """The only container of a plan."""
    found = plan(declared)
    assert found["refusals"] == []
    container: dict[str, Any] = found["containers"][0]
    return container


def listed(name: str, state: str = "running", **labels: str) -> dict[str, Any]:
    """A container as Docker lists it."""
    return {"Names": [f"/{name}"], "State": state, "Labels": labels, "Id": f"other {name}"}


def ours(name: str, state: str = "running", declaration: str = "") -> dict[str, Any]:
    """A container that the role has made."""
    return {**listed(name, state, **{LABEL: ROLE, DECLARATION: declaration}), "Id": f"made {name}"}


# GPUs


@pytest.mark.parametrize(
    ("gpus", "devices", "expected"),
    [
        ("all", BY_UUID, ["all"]),
        ([0], BY_UUID, [GPU]),
        (["0", GPU], BY_UUID, [GPU]),
        (["1:0"], BY_UUID, [MIG]),
        ([0, MIG], BY_UUID, [GPU, MIG]),
        ([GPU, MIG], BY_INDEX, ["0", "1:0"]),
    ],
)
def test_gpus_by_cdi(gpus: Any, devices: Sequence[str], expected: list[str]) -> None:
    (container,) = plan({"gpus": gpus}, container_toolkit=toolkit(devices))["containers"]
    (request,) = container["device_requests"]
    assert request["driver"] == "cdi"
    assert request["device_ids"] == [f"nvidia.com/gpu={name}" for name in expected]
    assert container["env"] == {"NVIDIA_VISIBLE_DEVICES": "void"}, "an image's variable requests nothing more"


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [("all", {"count": -1}), ([0], {"count": 0, "device_ids": [GPU]}), (["1:0"], {"count": 0, "device_ids": [MIG]})],
)
def test_gpus_by_the_hook(gpus: Any, expected: Mapping[str, Any]) -> None:
    (container,) = plan({"gpus": gpus}, mode="legacy")["containers"]
    assert container["device_requests"] == [{"driver": "", **expected, "capabilities": [["gpu"]]}]
    assert container["env"] == {}, "the hook sets the variable"


@pytest.mark.parametrize("mode", ["cdi", "legacy"])
def test_no_gpu(mode: str) -> None:
    (container,) = plan({}, mode=mode)["containers"]
    assert container["device_requests"] == []
    assert container["env"] == {"NVIDIA_VISIBLE_DEVICES": "void"}


# Options


def test_defaults_are_those_that_frameworks_need() -> None:
    container = one()
    assert container["shm_size"] == "1g"
    assert container["ulimits"] == ["memlock:-1:-1", "stack:67108864:67108864"]
    assert container["restart_policy"] == "unless-stopped"
    assert [container[name] for name in ("command", "entrypoint", "user", "ipc", "working_dir")] == [None] * 5


def test_options_of_the_user() -> None:
    container = one(
        ulimits={"stack": "1024:2048", "nofile": 65536},
        ipc="host",
        shm_size="16g",
        env={"DEBUG": True, "WORKERS": 4},
        volumes=["/data:/data:ro"],
        ports=["127.0.0.1:8080:80"],
        command=["python", "train.py"],
        user=1000,
    )
    assert container["ulimits"] == ["memlock:-1:-1", "stack:1024:2048", "nofile:65536:65536"]
    assert (container["ipc"], container["shm_size"], container["user"]) == ("host", "16g", "1000")
    assert container["env"] == {"DEBUG": "true", "WORKERS": "4", "NVIDIA_VISIBLE_DEVICES": "void"}
    assert container["volumes"] == ["/data:/data:ro"]
    assert container["ports"] == ["127.0.0.1:8080:80"]
    assert container["command"] == ["python", "train.py"]


def test_whatever_is_declared_differently_changes_the_declaration() -> None:
    same = one(gpus=[0])["labels"]
    assert one(gpus=["0"])["labels"] == same, "the same GPU"
    for change in ({"gpus": "all"}, {"gpus": [0], "command": ["a"]}, {"gpus": [0], "ulimits": {"stack": -1}}):
        assert one(**change)["labels"][LABEL] == same[LABEL]
        assert one(**change)["labels"][DECLARATION] != same[DECLARATION]


def test_the_hash_of_a_declaration_stays() -> None:
    # Another value makes every container of the role again when the collection is upgraded.
    container = one(gpus=[0], jupyter=True, user="1000", env={"A": True}, ports=["80:80"], ipc="host", entrypoint=["a"])
    assert container["labels"][DECLARATION] == "999d898030f7a12375de19a4e3d0bc4e7aee9a33d236c89abd8a82f6f31c8121"


# Jupyter


@pytest.mark.parametrize(
    ("user", "owner", "ends"), [(None, 0, "--allow-root"), ("1000:100", 1000, "--no-browser"), (0, 0, "--allow-root")]
)
def test_jupyter_reads_its_token_from_a_file(user: Any, owner: int, ends: str) -> None:
    found = plan({"jupyter": True, "user": user})
    assert found["tokens"] == [{"container": "training", "path": "/etc/gpu-fleet-jupyter/training", "owner": owner}]
    (container,) = found["containers"]
    assert container["env"]["JUPYTER_TOKEN_FILE"] == "/run/gpu-fleet-jupyter-token"
    assert container["volumes"] == ["/etc/gpu-fleet-jupyter/training:/run/gpu-fleet-jupyter-token:ro"]
    assert container["command"][:2] == ["jupyter", "lab"]
    assert container["command"][-1] == ends


def test_a_command_of_the_user_starts_jupyter_as_well() -> None:
    assert one(jupyter=True, command=["start-notebook.py"])["command"] == ["start-notebook.py"]


# What is on the host


def names(found: Mapping[str, Any]) -> list[str]:
    """The containers that a plan removes."""
    return [one["name"] for one in found["obsolete"]]


def test_only_our_containers_that_are_no_longer_declared_are_removed() -> None:
    existing = [ours("training"), ours("old"), listed("database"), listed("web", **{LABEL: "another-role"})]
    for container in existing:
        container["Labels"][TOKEN] = f"/etc/gpu-fleet-jupyter{container['Names'][0]}"
    old, training = ("/etc/gpu-fleet-jupyter/old", "/etc/gpu-fleet-jupyter/training")
    found = plan({"jupyter": True}, containers=existing)
    assert (names(found), found["obsolete_tokens"]) == (["old"], [old])
    assert found["containers"][0]["labels"][TOKEN] == training
    assert plan({}, containers=existing)["obsolete_tokens"] == [old, training]
    found = plan({}, state="absent", containers=existing)
    assert (names(found), found["obsolete_tokens"]) == (["training", "old"], [old, training])
    assert found["containers"] == []


def test_a_container_has_its_own_name_after_that_of_a_link() -> None:
    existing = [{**ours("database"), "Names": ["/web/database", "/database"]}]
    assert plan({}, containers=existing)["obsolete"] == [{"engine": "docker", "name": "database"}]


# Labels are no proof: an image has what its maker has given it, and a container what its user has

UNRECORDED = "the container training of docker has the label of this role, but is not in the role's record on the host"
IMAGE = {"Id": "image", "RepoTags": ["torch:1"], "Labels": None}


def labelled(name: str = "training", declaration: str = "", **more: Any) -> dict[str, Any]:
    """A container with all labels of the role, which the record does not have; its token is at a path of the host."""
    labels = {LABEL: ROLE, DECLARATION: declaration, TOKEN: "/home"}
    return {**listed(name, **labels), "ImageID": "image", **more}


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize("missing", ["", DECLARATION, TOKEN])
def test_labels_of_an_image_have_nothing_removed(state: str, missing: str) -> None:
    existing = labelled()
    existing["Labels"].pop(missing, None)
    found = plan({"name": "another"}, state=state, containers=[existing], images=[IMAGE])
    assert (found["obsolete"], found["obsolete_tokens"], found["refusals"]) == ([], [], [])
    assert found["record"] == {}
    (note,) = found["notes"]
    assert note == (
        f"{UNRECORDED}, and stays; remove it with docker rm --force training, or, if gpu.fleet created it, "
        "name it in gpu_containers_adopt"
    )


def test_no_label_has_a_path_removed() -> None:
    # Also of a container that is the role's, made from an image with such a label.
    existing = ours("training")
    existing["Labels"][TOKEN] = "/home"
    for state in ("present", "absent"):
        assert plan({}, state=state, containers=[existing])["obsolete_tokens"] == ["/etc/gpu-fleet-jupyter/training"]


@pytest.mark.parametrize("name", ["..", ".", "", "../shadow", "a/b", "/etc/passwd"])
def test_a_token_to_remove_is_in_the_directory_itself(name: str) -> None:
    found = plan(state="absent", recorded=record(tokens=["notebook", name]))
    assert found["obsolete_tokens"] == ["/etc/gpu-fleet-jupyter/notebook"]


def test_a_container_that_another_user_has_put_in_place_of_ours_is_theirs() -> None:
    record_of_ours = record(("docker", "training", "made training"))
    for state, images in (("present", [IMAGE]), ("absent", [])):
        found = plan({"name": "other"}, state=state, containers=[labelled()], images=images, recorded=record_of_ours)
        assert found["obsolete"] == []
    (message,) = plan({}, containers=[labelled()], recorded=record_of_ours)["refusals"]
    assert message.endswith(
        f"{UNRECORDED}; use another name, or remove it with docker rm --force training, or, if gpu.fleet created "
        "it, name it in gpu_containers_adopt"
    )


# A lost record, and runs that ended before theirs


def test_what_is_declared_as_it_was_made_is_recognized_and_recorded() -> None:
    declaration = one(jupyter=True)["labels"][DECLARATION]
    found = plan({"jupyter": True}, containers=[labelled("training", declaration)], images=[IMAGE])
    assert (found["refusals"], found["obsolete"], found["obsolete_tokens"], found["notes"]) == ([], [], [], [])
    made = record(("docker", "training", "other training"), tokens=["training"])
    assert found["record"] == made
    # Once recorded it may be changed and removed.
    existing = labelled("training", declaration)
    assert plan({"command": ["a"]}, containers=[existing], recorded=made)["refusals"] == []
    found = plan(state="absent", containers=[existing], recorded=made)
    assert (names(found), found["obsolete_tokens"]) == (["training"], ["/etc/gpu-fleet-jupyter/training"])


@pytest.mark.parametrize(
    "images", [[], [{**IMAGE, "Id": "another"}], [{**IMAGE, "Labels": {DECLARATION: "DECLARATION"}}]]
)
def test_what_an_image_may_have_stated_is_not_recognized(images: Any) -> None:
    declaration = one()["labels"][DECLARATION]
    for image in images:
        image["Labels"] = image["Labels"] and {DECLARATION: declaration}
    (message,) = plan({}, containers=[labelled("training", declaration)], images=images)["refusals"]
    assert UNRECORDED in message


def test_what_is_declared_differently_is_adopted_by_name_only() -> None:
    existing = [labelled("training", "of another declaration"), labelled("old"), listed("database")]
    assert len(plan({}, containers=existing, images=[IMAGE])["refusals"]) == 1
    found = plan({}, containers=existing, images=[IMAGE], adopt=["training", "old", "database"])
    assert (found["refusals"], names(found), found["notes"]) == ([], ["old"], [])
    assert found["obsolete_tokens"] == ["/etc/gpu-fleet-jupyter/old", "/etc/gpu-fleet-jupyter/training"]
    assert found["record"]["containers"]["docker"] == {"old": "other old", "training": "other training"}


def test_a_container_without_a_record_is_not_run_by_two_engines() -> None:
    moved = {"engine": "podman"}
    (message,) = plan(moved, containers=[labelled()], images=[IMAGE])["refusals"]
    assert "remove it with docker rm --force training, or, if gpu.fleet created it" in message
    assert names(plan(moved, containers=[labelled()], images=[IMAGE], adopt=["training"])) == ["training"]


# The record


def test_a_token_stays_recorded_until_its_file_is_removed() -> None:
    known = record(tokens=["old"])
    found = plan({"jupyter": True}, recorded=known)
    assert (found["obsolete_tokens"], found["record"]["tokens"]) == (
        ["/etc/gpu-fleet-jupyter/old"],
        ["old", "training"],
    )
    found = plan({"jupyter": True}, recorded=known, removed_tokens=found["obsolete_tokens"])
    assert (found["obsolete_tokens"], found["record"]["tokens"]) == ([], ["training"])


def test_an_engine_that_does_not_respond_has_not_lost_its_containers() -> None:
    known = record(("docker", "training", "made training"))
    there = {**toolkit(), "runtimes": {"docker": {"installed": True}}}
    for state in ("present", "absent"):
        (message,) = plan(state=state, docker={}, container_toolkit=there, recorded=known)["refusals"]
        assert message.startswith("docker does not list its containers, and this role has created training with it")
        found = plan(state=state, docker={}, container_toolkit=there, recorded=known, check_mode=True)
        assert found["refusals"] == []
    # An engine that was removed has its containers again when it is installed again, until the role is removed.
    assert plan(docker={}, recorded=known)["record"] == known
    assert plan(state="absent", docker={}, recorded=known)["record"] == {}


def test_a_change_that_cannot_be_read_back_has_failed() -> None:
    obsolete = {"docker": ["old"], "podman": []}
    assert failures(docker={}, obsolete=obsolete) == [
        "docker does not list its containers after the change; run the role again"
    ]
    assert failures(obsolete=obsolete) == []
    assert failures({"engine": "podman"}) == [
        "podman does not list its containers after the change; run the role again"
    ]


@pytest.mark.parametrize(
    ("policy", "state", "is_as_declared", "expected"),
    [
        ("no", "exited", True, "present"),
        ("on-failure", "exited", True, "present"),
        ("no", "exited", False, "started"),
        ("no", "created", True, "started"),
        ("unless-stopped", "exited", True, "started"),
    ],
)
def test_a_job_that_has_ended_is_started_again_only_when_it_changes(
    policy: str, state: str, is_as_declared: bool, expected: str
) -> None:
    declaration = one(restart_policy=policy)["labels"][DECLARATION] if is_as_declared else "another"
    found = plan({"restart_policy": policy}, containers=[ours("training", state, declaration)])
    assert found["containers"][0]["state"] == expected


@pytest.mark.parametrize(
    ("images", "pull"),
    [
        ([], ["docker.io/library/torch:1", "torch@sha256:1", "torch"]),
        ([{"RepoTags": ["torch:1"], "RepoDigests": None}], ["torch@sha256:1", "torch"]),
        ([{"RepoTags": ["torch:latest"], "RepoDigests": ["torch@sha256:1"]}], ["docker.io/library/torch:1"]),
    ],
)
def test_images_that_are_missing(images: Any, pull: list[str]) -> None:
    names = ("docker.io/library/torch:1", "torch@sha256:1", "torch")
    declared = [{"name": f"c{number}", "image": name} for number, name in enumerate(names)]
    archive = {"name": "c3", "image": "local:1", "archive": "/srv/local.tar"}
    found = plan(*declared, archive, images=images)
    assert [one["image"] for one in found["pull"]] == pull
    assert found["load"] == [{"engine": "docker", "image": "local:1", "archive": "/srv/local.tar"}]
    assert plan(archive, images=[{"RepoTags": ["local:1"]}])["load"] == []


# Refusals


@pytest.mark.parametrize(
    ("entry", "refusal"),
    [
        ({"name": "-a"}, "name is '-a'; it takes at least two letters"),
        ({"engine": "lxc"}, "engine is 'lxc'; it takes docker or podman"),
        ({"gpus": []}, "gpus is []; it takes all, none, or a list"),
        ({"gpus": 0}, "gpus is 0; it takes all, none, or a list"),
        ({"gpus": [7]}, f"there is no GPU or MIG device 7; the host has {GPU}, {MIG}"),
        ({"gpus": [1]}, f"GPU 1 is in MIG mode; request MIG devices instead; the host has {GPU}, {MIG}"),
        ({"ulimits": {"stack": "big"}}, "the limit stack in ulimits is 'big'; it takes a number"),
        (
            {"env": {"NVIDIA_VISIBLE_DEVICES": "all"}},
            "env has NVIDIA_VISIBLE_DEVICES; take it out, since gpus requests",
        ),
        ({"jupyter": True, "env": {"JUPYTER_TOKEN": "a"}}, "env has JUPYTER_TOKEN; take it out, since jupyter makes"),
        ({"jupyter": True, "user": "jovyan"}, "user is 'jovyan', and jupyter is set; give the number of the user"),
        ({"name": "database"}, "a container database exists that this role did not create"),
    ],
)
def test_a_request_that_cannot_be_met(entry: Mapping[str, Any], refusal: str) -> None:
    found = plan({"name": "first"}, entry, containers=[listed("database")])
    (message,) = found["refusals"]
    assert message.startswith("gpu_containers_declared[1]: ")
    assert refusal in message
    assert found["containers"] == []


def test_a_token_of_the_users_own_is_no_business_of_the_role() -> None:
    assert plan({"env": {"JUPYTER_TOKEN": "a"}})["refusals"] == []


def test_all_of_no_gpu_is_refused_and_a_name_is_used_once() -> None:
    (message,) = plan({"gpus": "all"}, nvidia_smi={**SMI, "gpus": []})["refusals"]
    assert "gpus is all, and the host has no GPU or MIG device" in message
    assert plan({}, {})["refusals"] == [
        "gpu_containers_declared has training 2 times; give each container its own name"
    ]


def test_before_a_run_gpus_are_not_looked_for() -> None:
    assert request_refusals(Request.read(variables({"gpus": [9]}))) == ()


# After the change


def test_what_is_not_as_planned() -> None:
    declared = ({"name": "aa"}, {"name": "bb"}, {"name": "cc"}, {"name": "dd", "restart_policy": "no"})
    hashes = [container["labels"][DECLARATION] for container in plan(*declared)["containers"]]
    after = [
        ours("aa", "running", hashes[0]),
        ours("bb", "restarting", hashes[1]),
        ours("cc", "running", "another"),
        ours("dd", "exited", hashes[3]),
        ours("old"),
    ]
    assert failures(*declared, containers=after, obsolete={"docker": ["old"]}) == [
        "container bb is restarting, not running; see docker logs bb",
        "container cc is not there as declared; run the role again",
        "container old is no longer declared, but still exists; remove it with docker rm --force old",
    ]


# For the tasks


def stage(name: str, given: Mapping[str, Any], host: tuple[dict[str, Any], dict[str, Any]], **found: Any) -> Any:
    """What tasks get of a stage."""
    facts, read = host
    result = PLANNER.stages[name](given, facts, {**read, "check_mode": False, **found})
    return as_lists(result.as_dict() if isinstance(result, Plan) else result)


DOCKER: Mapping[str, Any] = {"containers": [], "images": []}
PODMAN: Mapping[str, Any] = {"version": "5.4.2"}


@pytest.mark.parametrize(
    ("declared", "engine", "runtimes", "expected"),
    [
        ([], "docker", {}, ["docker"]),
        ([{"engine": "podman"}], "docker", {}, ["docker", "podman"]),
        ([{"engine": "docker"}], "podman", {}, ["docker", "podman"]),
        ([], "docker", {"podman": {"installed": True}, "containerd": {"installed": True}}, ["docker", "podman"]),
        ([], "docker", {"podman": {"installed": False}}, ["docker"]),
    ],
)
def test_an_engine_that_may_have_containers_of_the_role_is_asked(
    declared: Any, engine: str, runtimes: Any, expected: list[str]
) -> None:
    host = known(container_toolkit={**toolkit(), "runtimes": runtimes})
    assert stage("plan", variables(*declared, gpu_containers_engine=engine), host)["engines"] == expected


@pytest.mark.parametrize(
    ("declared", "found", "check_mode", "steps"),
    [
        ({}, {"docker": DOCKER}, False, ["images", "run", "record"]),
        ({"jupyter": True}, {"docker": DOCKER}, False, ["images", "tokens", "run", "record"]),
        ({"engine": "podman"}, {"podman": PODMAN}, False, ["images", "run", "podman", "record"]),
        # An engine that is still to be installed.
        ({"jupyter": True}, {}, True, []),
        ({"engine": "podman"}, {"docker": DOCKER}, True, ["record"]),
    ],
)
def test_what_has_no_work_is_left_out(declared: Any, found: Any, check_mode: bool, steps: list[str]) -> None:
    given, host = variables(declared), known(recorded={}, **found)
    assert stage("host", given, host, check_mode=check_mode)["steps"] == steps
    removed = stage("host", {**given, "gpu_containers_state": "absent"}, host, check_mode=check_mode)
    assert removed["steps"] == [*(["record"] if found else []), "directory"]
    if check_mode:
        planned = stage("host", given, host, check_mode=True)["images"]
        assert planned == {name: {"load": [], "pull": []} for name in ENGINES}


def test_a_record_alone_is_work() -> None:
    host = known(recorded=record(("docker", "old", "1")))
    assert stage("host", variables(gpu_containers_state="absent"), host)["steps"] == ["record", "directory"]


@pytest.mark.parametrize(
    ("mode", "of_toolkit", "host_info", "driver"),
    [
        ("auto", "auto", {"CDISpecDirs": ["/etc/cdi"]}, "cdi"),
        ("auto", "auto", {"CDISpecDirs": []}, ""),
        ("auto", "auto", None, ""),
        ("auto", "legacy", {"CDISpecDirs": ["/etc/cdi"]}, ""),
        ("cdi", "legacy", None, "cdi"),
        ("legacy", "cdi", {"CDISpecDirs": ["/etc/cdi"]}, ""),
    ],
)
def test_docker_is_asked_for_gpus_in_the_mode_that_is_set_first(
    mode: str, of_toolkit: str, host_info: Any, driver: str
) -> None:
    given = variables({"gpus": [0]}, gpu_containers_mode=mode, nvidia_container_toolkit_mode=of_toolkit)
    planned = stage("containers", given, known(docker={**DOCKER, "host_info": host_info}), new_tokens={})
    assert [one["driver"] for one in planned["options"]["training"]["device_requests"]] == [driver]


def test_an_engine_that_cannot_be_used_is_the_only_refusal() -> None:
    failed = [{"rc": 2, "msg": "no such file", "stderr": " no podman\n"}, {"rc": 2, "msg": "no such file"}]
    given = variables({"gpus": [7]}, {"name": "second", "engine": "podman"})
    facts, _found = known()
    found = {"docker": {"msg": "no socket"}, "podman": {"results": failed}}
    assert stage("host", given, (facts, found))["refusals"] == [
        "Docker cannot be reached: no socket; run the role gpu.fleet.docker first",
        "podman cannot be run: no podman; install the package podman, or set gpu_containers_engine to docker",
    ]
    assert "there is no GPU or MIG device 7" in stage("host", given, (facts, found), check_mode=True)["refusals"][0]
    assert stage("host", variables(gpu_containers_engine="podman"), (facts, found))["refusals"] == []


def test_a_registered_plan_has_no_environment() -> None:
    given = variables({"env": {"PASSWORD": "hunter2"}, "command": ["hunter2"]})
    host = known(docker=DOCKER)
    assert "hunter2" not in json.dumps(stage("host", given, host))
    options = stage("containers", given, host, new_tokens={})["options"]["training"]
    assert options["env"]["PASSWORD"] == "hunter2"
    assert not {"entrypoint", "user", "ipc", "working_dir"} & options.keys(), "left to the image"


def made(*names: str) -> dict[str, Any]:
    """The result of making tokens; that of `kept` was there."""
    return {"results": [{"item": {"container": name}, "changed": name != "kept"} for name in names]}


def test_a_container_with_a_new_token_is_started_again() -> None:
    job = {"jupyter": True, "engine": "podman", "entrypoint": ["sh", "-c"]}
    declared = [{**job, "name": name} for name in ("new", "kept", "stopped", "differs")]
    declared.append({"name": "former", "engine": "podman"})
    hashes = {one["name"]: one["labels"][DECLARATION] for one in plan(*declared, podman=PODMAN)["containers"]}
    states = {"new": "running", "kept": "running", "stopped": "exited", "former": "running"}
    there = [
        {**ours(name, states.get(name, "running"), hashes[name] if name in states else ""), "ImageID": "1"}
        for name in hashes
    ]
    images = [{"Names": ["docker.io/library/torch:1"], "Id": "1"}]
    host = known(podman={**PODMAN, "containers": there, "images": images})
    # A token of `former` was made by an earlier use of the role, when it had one.
    planned = stage("containers", variables(*declared), host, new_tokens=made("new", "kept", "stopped", "former"))
    assert (planned["create"], planned["start"]) == (["differs"], ["stopped", "new"])
    assert {name: one["restart"] for name, one in planned["options"].items()} == {
        "new": True,
        "kept": False,
        "stopped": True,
        "differs": False,
        "former": False,
    }
    assert planned["options"]["new"]["entrypoint"] == '["sh", "-c"]'


BEFORE: Mapping[str, Any] = {"steps": ["record"], "obsolete": {}, "obsolete_tokens": [], "token_directory": "/x"}


def test_the_record_follows_what_was_removed() -> None:
    path = "/etc/gpu-fleet-jupyter/old"
    host = known(docker=DOCKER, recorded=record(tokens=["old"]))
    for removed, obsolete, tokens in (
        ([{"item": path}], [path], []),
        ([{"item": path, "failed": True}], [path], ["old"]),
        # By an earlier use of the role in the same play, after which it was made again.
        ([{"item": path}], [], ["old"]),
        ([], [path], ["old"]),
    ):
        found = stage("host", variables(), host, removed=removed, before={**BEFORE, "obsolete_tokens": obsolete})
        assert found["is_known"]
        assert (found["state"], found["data"].get("tokens", [])) == ("present" if tokens else "absent", tokens)
    there = {**toolkit(), "runtimes": {"docker": {"installed": True}}}
    host = known(container_toolkit=there, recorded=record(("docker", "training", "1")))
    assert not stage("host", variables(), host, removed=[], before=BEFORE)["is_known"]

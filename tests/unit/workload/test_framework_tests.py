# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of framework tests, and the verdict about what they printed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_workload import (
    PLANNER,
    Host,
    Request,
    framework_verdict,
    pip_configurations,
    runs,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_workload import plan as planned_for

# Of PyTorch 1.13.1 of Debian 12 and of tensorflow-cpu 2.17.1, on a host without a GPU.
REAL = (Path(__file__).parent / "cpu_output.jsonl").read_text(encoding="utf-8").splitlines()
# Of PyTorch 2.11.0 built for CUDA 13.0, on a real 2 x H200 host with driver 580.159.04; the UUIDs are replaced.
REAL_GPUS = (Path(__file__).parent / "h200x2_output.json").read_text(encoding="utf-8")
FIRST, SECOND = (f"{number}fbc55a8-0000-1111-2222-333344445555" for number in "12")
SLICE = "9fbc55a8-0000-1111-2222-333344445555"
GPUS: list[dict[str, Any]] = [
    {"index": 0, "uuid": f"GPU-{FIRST}", "name": "NVIDIA H200", "mig_mode_current": "disabled", "mig_devices": []},
    {"index": 1, "uuid": f"GPU-{SECOND}", "name": "NVIDIA H200", "mig_mode_current": "disabled", "mig_devices": []},
]
SLICED: list[dict[str, Any]] = [
    {**GPUS[0], "mig_mode_current": "enabled", "mig_devices": [{"uuid": f"MIG-{SLICE}", "profile": "1g.18gb"}]},
    {**GPUS[1], "mig_mode_current": "enabled"},
]


def variables(*tests: Mapping[str, Any], **given: str) -> dict[str, Any]:
    """The variables of the role, with PyTorch where a test names no framework."""
    return {
        "gpu_workload_state": "present",
        "gpu_workload_tests": [{"framework": "pytorch", **test} for test in tests],
        "gpu_workload_container_mode": "auto",
        "gpu_workload_timeout": 300,
        **given,
    }


def asked(
    *tests: Mapping[str, Any], gpus: Any = None, state: str = "present", venvs: Any = (), **modes: str
) -> tuple[Request, Host]:
    """A request and a host."""
    record = {"data": {"virtualenvs": venvs}}
    request = Request.read(variables(*tests, gpu_workload_state=state, **modes))
    return request, Host({"manager": "apt"}, record, {"gpus": GPUS if gpus is None else gpus})


def plan(*tests: Mapping[str, Any], **given: Any) -> dict[str, Any]:
    """The plan as the tasks read it, with how the tests are run."""
    request, host = asked(*tests, **given)
    return {**planned_for(request, host).as_dict(), "tests": runs(request, host)}


def planned_by_role(*tests: Mapping[str, Any], check_mode: bool = False, **found: Any) -> Any:
    """What the role's first stage makes of these tests, and of what it has asked for."""
    facts = {"gpu_fleet_managed": {}, "os_family": "Debian", "distribution": "Debian", "distribution_version": "13"}
    facts |= {"distribution_major_version": "13"}
    given = {"check_mode": check_mode, **found}
    return PLANNER.stages["plan"](variables(*tests), facts, given)


def later(stage: str, **found: Any) -> Any:
    """What a later stage makes of what tasks have found."""
    return PLANNER.stages[stage]({}, {}, found)


def uuids(test: Mapping[str, Any]) -> list[str]:
    """The devices of a test."""
    return [device["uuid"] for device in test["devices"]]


@pytest.mark.parametrize(
    ("test", "gpus", "expected"),
    [
        ({}, GPUS, [f"GPU-{FIRST}", f"GPU-{SECOND}"]),
        ({"gpus": [1]}, GPUS, [f"GPU-{SECOND}"]),
        ({"gpus": ["1", f"GPU-{SECOND}"]}, GPUS, [f"GPU-{SECOND}"]),
        ({}, SLICED, [f"MIG-{SLICE}"]),
        ({"gpus": [0]}, SLICED, [f"MIG-{SLICE}"]),
        ({"gpus": [f"MIG-{SLICE}"]}, SLICED, [f"MIG-{SLICE}"]),
        ({}, [], []),
        ({}, [{"index": 0, "uuid": None}], []),
    ],
)
def test_devices_that_cuda_can_use(test: Mapping[str, Any], gpus: Any, expected: list[str]) -> None:
    (planned,) = plan(test, gpus=gpus)["tests"]
    assert uuids(planned) == expected
    assert planned["command"] == ["/framework_test.py", *planned["argv"][2:]]
    assert planned["argv"][4:] == ([f"--devices={','.join(expected)}"] if expected else [])


@pytest.mark.parametrize(
    ("test", "name", "interpreter"),
    [
        ({"image": "nvcr.io/nvidia/pytorch:25.04-py3"}, "PyTorch of image nvcr.io/nvidia/pytorch:25.04-py3", "python3"),
        ({"virtualenv": "/opt/torch", "requirements": ["torch"]}, "PyTorch of /opt/torch", "/opt/torch/bin/python"),
        ({"python": "/opt/conda/bin/python"}, "PyTorch of /opt/conda/bin/python", "/opt/conda/bin/python"),
        ({"framework": "tensorflow"}, "TensorFlow of python3", "python3"),
    ],
)
def test_environments(test: Mapping[str, Any], name: str, interpreter: str) -> None:
    (planned,) = plan(test)["tests"]
    assert (planned["name"], planned["argv"][0]) == (name, interpreter)
    assert bool(planned["image"]) is ("image" in test)


@pytest.mark.parametrize(
    ("image", "present", "loads"),
    [
        ("torch", ["torch:latest"], False),
        ("docker.io/library/torch:2", ["torch:2"], False),
        ("docker.io/site/torch", ["site/torch:latest"], False),
        ("localhost:5000/torch", ["localhost:5000/torch:latest"], False),
        ("localhost:5000/torch", ["localhost:5000/torch:1"], True),
        ("torch:2", None, True),
    ],
)
def test_an_archive_is_loaded_where_the_image_is_missing(image: str, present: Any, loads: bool) -> None:
    engine = {"images": [{"RepoTags": present}, {}]}
    (archived,) = runs(*asked({"image": image, "archive": "/srv/torch.tar"}), engine)
    (pulled,) = runs(*asked({"image": image}), engine)
    assert (archived["loads_image"], pulled["loads_image"]) == (loads, False)


@pytest.mark.parametrize(
    ("of_role", "of_toolkit", "engine", "driver"),
    [
        ("auto", "auto", {"host_info": {"CDISpecDirs": ["/etc/cdi"]}}, "cdi"),
        ("auto", "auto", {"host_info": {"CDISpecDirs": []}}, None),
        ("auto", "auto", {"msg": "no engine"}, None),
        ("auto", "legacy", {"host_info": {"CDISpecDirs": ["/etc/cdi"]}}, None),
        ("auto", "cdi", None, "cdi"),
        ("cdi", "legacy", None, "cdi"),
    ],
)
def test_how_a_container_requests_gpus(of_role: str, of_toolkit: str, engine: Any, driver: str | None) -> None:
    modes = {"gpu_workload_container_mode": of_role, "nvidia_container_toolkit_mode": of_toolkit}
    (found,) = runs(*asked({"image": "torch"}, **modes), engine)
    assert [one.get("driver") for one in found["device_requests"]] == [driver]
    (without,) = runs(*asked({"image": "torch"}, gpus=[], **modes), engine)
    assert without["device_requests"] == []


@pytest.mark.parametrize(
    ("index", "gpu", "refusal"),
    [
        ("https://download.pytorch.org/whl/cu130", "Tesla V100-SXM2-16GB", "CUDA 13.0 has no support for Tesla V100"),
        ("https://download.pytorch.org/whl/cu130/", "Tesla V100-SXM2-16GB", "index_url has packages for CUDA 13.0"),
        ("https://download.pytorch.org/whl/cu126", "Tesla V100-SXM2-16GB", ""),
        ("https://download.pytorch.org/whl/cu130", "NVIDIA H200", ""),
        ("https://download.pytorch.org/whl/cpu", "Tesla V100-SXM2-16GB", ""),
        ("https://pip.example.com/simple", "Tesla V100-SXM2-16GB", ""),
    ],
)
def test_an_index_for_a_cuda_that_the_gpus_do_not_have_is_refused(index: str, gpu: str, refusal: str) -> None:
    test = {"virtualenv": "/opt/torch", "requirements": ["torch"], "index_url": index}
    found = plan(test, gpus=[{**GPUS[0], "name": gpu}])["refusals"]
    assert [refusal in one for one in found] == ([True] if refusal else [])


def test_package_indexes() -> None:
    indexes = {"index_url": "https://one.example/simple", "extra_index_urls": ["https://two.example/simple"]}
    test = {"virtualenv": "/opt/torch", "requirements": ["torch"], **indexes}
    planned = plan(test)
    (configuration,) = pip_configurations(*asked(test))
    assert configuration["virtualenv"] == "/opt/torch"
    assert configuration["text"].endswith(
        "[install]\nindex-url = https://one.example/simple\nextra-index-url = https://two.example/simple\n"
    )
    assert planned["without_index"] == []
    assert "example" not in json.dumps(planned), "only what is written under no_log has the addresses"


@pytest.mark.parametrize(
    ("test", "refusal"),
    [
        ({"framework": "jax"}, "framework is 'jax'; it has to be pytorch or tensorflow"),
        ({"images": "a"}, "has images; it can have framework, image"),
        ({"image": "a", "virtualenv": "/opt/a", "requirements": ["torch"]}, "has image and virtualenv"),
        ({"virtualenv": "opt/a", "requirements": ["torch"]}, "virtualenv is 'opt/a'; it has to be an absolute path"),
        ({"virtualenv": "/opt", "requirements": ["torch"]}, "virtualenv is '/opt'; it has to be an absolute path"),
        ({"virtualenv": "/opt/a"}, "virtualenv and requirements belong together"),
        ({"requirements": ["torch"]}, "virtualenv and requirements belong together"),
        ({"archive": "/tmp/a.tar"}, "has archive, which is a file that the image is loaded from, and no image"),
        (
            {"gpus": [7]},
            f"no usable GPU or MIG device 7; the host has GPU-{FIRST} (GPU 0), GPU-{SECOND} (GPU 1)",
        ),
    ],
)
def test_a_request_that_cannot_be_met(test: Mapping[str, Any], refusal: str) -> None:
    found = plan({}, test)
    [text] = found["refusals"]
    assert text.startswith("gpu_workload_tests[1]")
    assert refusal in text
    assert len(found["tests"]) == 1


def test_one_virtual_environment_has_the_same_requirements_for_all() -> None:
    same = {"virtualenv": "/opt/a", "requirements": ["torch"]}
    assert plan(same, same)["refusals"] == []
    (refusal,) = plan(same, {**same, "requirements": ["tensorflow"]})["refusals"]
    assert "different requirements for /opt/a" in refusal


def test_virtual_environments_that_are_no_longer_declared_are_removed() -> None:
    test = {"virtualenv": "/opt/a", "requirements": ["torch"]}
    assert plan(test, venvs=["/opt/a", "/opt/b"])["obsolete"] == ["/opt/b"]
    assert plan(test, venvs=["/opt/a", "/opt/b"], state="absent")["obsolete"] == ["/opt/a", "/opt/b"]


# The verdict


def gpu(uuid: str | None, index: int = 0, **changed: Any) -> dict[str, Any]:
    """A GPU that computes right."""
    right = {"kind": "gpu", "index": index, "uuid": uuid, "name": "NVIDIA H200", "rows": 512, "rows_wrong": 0}
    return {**right, "error": None, **changed}


CPU = {**gpu(None), "kind": "cpu", "index": None, "name": "x86_64"}
BOTH = [gpu(FIRST), gpu(SECOND, 1)]
REDUCED = {"backend": "nccl", "ranks": 2, "correct": True, "seconds": 1.0, "errors": []}


def printed(**changed: Any) -> str:
    """What the script prints on a host with two GPUs."""
    document = {
        "framework": "pytorch",
        "unavailable": None,
        "devices": BOTH,
        "all_reduce": REDUCED,
        "errors": [],
        "version": "2.5.1",
        "cuda": "12.4",
        "cudnn": "9.1.0",
    }
    return json.dumps({**document, **changed})


def judged(output: str, gpus: Any = None, driver: str | None = "580.159.04") -> dict[str, Any]:
    """The verdict about an output."""
    (test,) = plan({}, gpus=gpus)["tests"]
    smi = {"gpus": GPUS if gpus is None else gpus, "driver_version": driver}
    return framework_verdict(output, test, smi).as_dict()


def test_what_is_right() -> None:
    verdict = judged(f"=============\n== PyTorch ==\n{printed()}\r\n")
    assert (verdict["ok"], verdict["reasons"], verdict["notes"]) == (True, [], [])
    assert (verdict["version"], verdict["cuda"], verdict["cudnn"]) == ("2.5.1", "12.4", "9.1.0")
    assert len(verdict["devices"]) == 2


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"devices": BOTH[:1]}, f"it does not see GPU-{SECOND} (GPU 1); see CUDA_VISIBLE_DEVICES"),
        ({"devices": [gpu(None)]}, f"it does not see GPU-{SECOND} (GPU 1)"),
        ({"devices": [CPU], "cuda": None}, "it is built without CUDA, so it sees no GPU; install a build with CUDA"),
        (
            {"devices": [], "unavailable": "RuntimeError: The NVIDIA driver is too old"},
            "it cannot use CUDA: RuntimeError: The NVIDIA driver is too old",
        ),
        ({"devices": [*BOTH, gpu(SLICE, 2)]}, f"it sees {SLICE}, which it was not given"),
        (
            {"devices": [BOTH[0], gpu(SECOND, 1, rows_wrong=3)]},
            "GPU 1 computes wrong numbers: 3 of 512 rows of a matrix product; take it out of use",
        ),
        (
            {"devices": [BOTH[0], gpu(SECOND, 1, rows_wrong=None, error="RuntimeError: no kernel image")]},
            "GPU 1 cannot compute a matrix product: RuntimeError: no kernel image",
        ),
        ({"all_reduce": {**REDUCED, "correct": False}}, "an all-reduce over 2 GPUs computes a wrong sum; check NVLink"),
        (
            {"all_reduce": {**REDUCED, "correct": False, "errors": ["NCCL error"]}},
            "an all-reduce over 2 GPUs failed: NCCL error; run it again with NCCL_DEBUG=INFO",
        ),
    ],
)
def test_what_is_wrong_is_named_with_what_to_do(changed: Mapping[str, Any], reason: str) -> None:
    verdict = judged(printed(**changed))
    assert not verdict["ok"]
    (found,) = verdict["reasons"]
    assert found.startswith(f"PyTorch of python3, 2.5.1: {reason}")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "PyTorch of python3: the test printed no result: no output"),
        ("/bin/sh: python3: not found\n", "the test printed no result: /bin/sh: python3: not found"),
        ('{"framework": "cut off', 'the test printed no result: {"framework": "cut off'),
        ('{"framework": 1}', "the test printed no result"),
        (
            '{"framework": "pytorch", "devices": [], "all_reduce": null, "errors": ["ModuleNotFoundError: No module"]}',
            "PyTorch of python3: it cannot be imported (ModuleNotFoundError: No module); install it there",
        ),
        (
            '{"framework": "pytorch", "devices": [], "errors": ["the process was ended by signal 6"]}',
            "PyTorch of python3: the process was ended by signal 6",
        ),
    ],
)
def test_a_test_without_a_result(output: str, reason: str) -> None:
    (found,) = judged(output)["reasons"]
    assert reason in found


def test_the_tables_explain_a_failure_and_are_a_note_where_all_is_right() -> None:
    verdict = judged(printed(), driver="470.57.02")
    assert verdict["ok"]
    assert len(verdict["notes"]) == len({*verdict["notes"]}) > 0
    assert all("470.57.02" in note for note in verdict["notes"])
    failed = judged(printed(devices=[], unavailable="RuntimeError: too old"), driver="470.57.02")
    assert failed["reasons"][1:] == verdict["notes"]
    assert failed["notes"] == []


@pytest.mark.parametrize("changed", [{"cuda": "nightly"}, {"cuda": "12", "cudnn": "9"}, {"cudnn": "cuDNN 9.1"}])
def test_builds_of_unusual_versions_are_no_reason(changed: Mapping[str, Any]) -> None:
    assert judged(printed(**changed))["ok"]


@pytest.mark.parametrize(
    ("gpus", "note"),
    [([], "the host has no GPU, so it computed on the CPU only"), (SLICED[1:], "no GPU of the host has a MIG device")],
)
def test_a_host_without_a_device_reports_that(gpus: Any, note: str) -> None:
    reduced = {**REDUCED, "backend": "gloo"}
    output = printed(devices=[CPU], all_reduce=reduced, unavailable="RuntimeError: Found no NVIDIA driver")
    verdict = judged(output, gpus, driver=None)
    assert verdict["ok"]
    assert note in verdict["notes"][0]


def test_mig_devices_are_expected_by_their_uuid() -> None:
    assert judged(printed(devices=[gpu(SLICE)], all_reduce=None), SLICED)["ok"]
    (reason,) = judged(printed(devices=[gpu(FIRST)], all_reduce=None), SLICED)["reasons"][:1]
    assert f"it does not see MIG-{SLICE} (MIG device 1g.18gb of GPU 0)" in reason


@pytest.mark.parametrize("line", REAL, ids=lambda line: json.loads(line)["framework"])
def test_what_real_builds_for_the_cpu_printed(line: str) -> None:
    assert judged(line, [], None)["ok"]
    (reason,) = judged(line)["reasons"]
    assert reason.endswith("it is built without CUDA, so it sees no GPU; install a build with CUDA")


def test_what_pytorch_printed_on_two_real_gpus() -> None:
    verdict = judged(REAL_GPUS)
    assert verdict["ok"]
    assert [device["name"] for device in json.loads(REAL_GPUS)["devices"]] == [gpu["name"] for gpu in GPUS]
    # Where one GPU more was given to the test.
    third = {**GPUS[0], "index": 2, "uuid": f"GPU-{SLICE}"}
    assert f"it does not see GPU-{SLICE}" in "".join(judged(REAL_GPUS, [*GPUS, third])["reasons"])


@pytest.mark.parametrize(
    "changed",
    [
        {"devices": [{}]},
        {"devices": [None]},
        {"devices": [{**BOTH[0], "uuid": 7}]},
        {"errors": 5},
        {"errors": [None]},
        {"all_reduce": "done"},
        {"all_reduce": {"correct": False}},
    ],
)
def test_a_document_that_another_program_of_the_image_prints_is_a_reason(changed: Mapping[str, Any]) -> None:
    verdict = judged(printed(**changed))
    (reason,) = verdict["reasons"]
    assert reason.startswith("PyTorch of python3: its result is not from this version")
    assert not verdict["ok"] and verdict["devices"] is None


def test_a_reason_is_one_line_whatever_the_image_prints() -> None:
    verdict = judged(printed(version="2\n\x1b[31mok", devices=[], errors=["a\r\nb" * 9_999]))
    assert not verdict["ok"]
    for reason in verdict["reasons"]:
        assert reason.isprintable() and len(reason) <= 2_000


def test_what_the_tasks_refuse_later() -> None:
    made = [{"virtualenv": path, "requirements": ["torch"]} for path in ("/opt/a", "/opt/b")]
    asked_for = planned_by_role(*made)
    assert asked_for.readings["existing"][1] == ("stat", {"path": "/opt/b", "get_checksum": False})
    found = {"results": [{"stat": {"exists": True}}, {"stat": {"exists": False}}]}
    [existing] = planned_by_role(*made, existing=found).refusals
    assert existing.startswith("/opt/a exists and was not created by this role; use another virtualenv")
    results = [
        {"item": {"name": "PyTorch of /opt/a"}, "msg": "ERROR: No matching distribution found for no-such"},
        {"item": {"name": "PyTorch of /opt/b"}, "changed": True},
        {"item": {"name": "PyTorch of /opt/c"}, "msg": "Killed"},
    ]
    assert later("installed", results=results).refusals == (
        "pip cannot install the requirements of PyTorch of /opt/a: No matching distribution found for no-such",
        "pip cannot install the requirements of PyTorch of /opt/c: it printed no error; run it on the host",
    )


@pytest.mark.parametrize(
    ("manager", "packages", "missing", "would"),
    [
        ("apt", (), ["python3-packaging", "python3-venv"], "install python3-packaging, python3-venv and make /opt/a"),
        ("dnf", (), ["python3-packaging"], "install python3-packaging and make /opt/a"),
        ("apt", ("python3-venv", "python3-packaging"), [], "make /opt/a"),
    ],
)
def test_packages_that_are_missing(manager: str, packages: Any, missing: list[str], would: str) -> None:
    test = {"virtualenv": "/opt/a", "requirements": ["torch"]}
    request, _host = asked(test)
    found = planned_for(request, Host({"manager": manager}, packages=packages)).as_dict()
    assert (found["packages"], found["would"]) == (missing, would)
    assert found["refreshes_index"] == (manager == "apt" and missing != [])
    made = planned_for(request, Host({"manager": manager}, {"data": {"virtualenvs": ["/opt/a"]}}, packages=packages))
    assert made.as_dict()["would"] == would.replace("make /opt/a", "").replace(" and ", "")
    assert planned_for(asked({})[0], Host({"manager": manager})).as_dict()["would"] == ""


def test_how_tests_are_run_is_known_before_the_first_change() -> None:
    tests = [{}, {"image": "torch", "archive": "/srv/torch.tar"}, {"image": "torch:2", "archive": "/srv/torch.tar"}]
    asked_for = planned_by_role(*tests)
    assert asked_for.readings["engine"] == ("community.docker.docker_host_info", {"images": True})
    found = planned_by_role(*tests, existing={"results": []}, engine={"msg": "no engine"}).tasks
    assert [one["number"] for one in found["in_containers"]] == [1, 2] and found["archives"] == ["/srv/torch.tar"]
    assert [one["number"] for one in found["on_host"]] == [0]
    assert {one["pull"] for one in found["in_containers"]} == {"never"}
    assert "engine" not in planned_by_role(*tests, check_mode=True).readings
    # A container whose image was not loaded prints nothing, and results are in the order of the variable.
    runs_of = [{"item": one, "msg": "No such image"} for one in found["in_containers"]]
    runs_of += [{"item": one, "rc": 1} for one in found["on_host"]]
    judged_by_role = later("results", runs=runs_of, loaded=[{"item": "/srv/torch.tar", "msg": "no space left"}])
    assert [line.rpartition(": ")[2] for line in judged_by_role["reasons"]] == ["no output", *["no space left"] * 2]


@pytest.mark.parametrize(
    ("run", "output"),
    [
        ({"container": {"Output": "of the container"}, "msg": "other", "status": 1}, "of the container"),
        ({"stdout": "", "stderr": "no such file", "rc": 2}, "no such file"),
        ({"container": None, "msg": "the engine does not respond"}, "the engine does not respond"),
        ({"rc": 1}, "no output"),
    ],
)
def test_what_a_run_printed(run: Mapping[str, Any], output: str) -> None:
    (test,) = plan({})["tests"]
    if "container" in run:
        test = {**test, "image": "torch"}
    found = later("results", runs=[{**run, "item": test}], loaded=[])
    assert (
        found["reasons"]
        == found["results"][0]["reasons"]
        == [f"PyTorch of python3: the test printed no result: {output}"]
    )
